// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"holdfast/cmd/internal/kubeapi"
)

// The answers follow from hashes that the releases' own code computed: a stock kubelet keeps what
// has its own hash; Holdfast also what has the hash of 1.6 to 1.8, if that knew all fields.
func TestGolden(t *testing.T) {
	f, err := os.Open("../../../pkg/kubelet/container/hashcompat/testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	j, err := newJudge()
	if err != nil {
		t.Fatal(err)
	}
	names := map[int]string{6: "1.6.1", 7: "1.7.0", 8: "1.8.15", 9: "1.9.11"}
	answers := map[string]int{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var row struct {
			ID      string
			Spec    map[string]any
			Hash    map[string][]json.Number
			Unknown []string
		}
		if err := kubeapi.Decode(s.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		hash := func(m int) uint32 { // after a protobuf round trip
			n, err := row.Hash[names[m]][1].Int64()
			if err != nil {
				t.Fatal(err)
			}
			return uint32(n)
		}
		ignores := func(m int) bool {
			for _, u := range row.Unknown {
				if u == names[m] {
					return true
				}
			}
			return false
		}
		tried := j.try(row.Spec)
		for by := 6; by <= 9; by++ {
			recorded := hash(by)
			for to := 7; to <= 9; to++ {
				want := isNew
				if hash(to) == recorded {
					want = kept
				}
				got := tried.ask(target{version: version{minor: to}}, recorded, true)
				if got.is != want {
					t.Errorf("%s recorded by 1.%d, to 1.%d: %+v, want %s", row.ID, by, to, got, want)
				}
				answers[got.is]++
			}
			want := isNew
			if hash(9) == recorded {
				want = kept
			}
			for m := 6; m <= 8; m++ {
				// An empty list does not count as set (patches/container-hash-compat), in the data it does.
				if hash(m) == recorded && (!ignores(m) || row.ID == "dev-empty") {
					want = kept
				}
			}
			got := tried.ask(holdfast(), recorded, true)
			if got.is != want {
				t.Errorf("%s recorded by 1.%d, to Holdfast: %+v, want %s", row.ID, by, got, want)
			}
			if got.is == isNew && !strings.Contains(got.why, "does not support") {
				t.Errorf("%s recorded by 1.%d: %s", row.ID, by, got.why)
			}
			answers["holdfast "+got.is]++
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if answers[kept] < 100 || answers[isNew] < 100 || answers["holdfast kept"] < 100 || answers["holdfast new"] < 10 {
		t.Errorf("%v: the data say little", answers)
	}
	t.Logf("%v", answers)
}
