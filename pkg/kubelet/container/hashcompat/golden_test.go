// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"k8s.io/api/core/v1"
)

// goldenRow is one line of testdata/golden.jsonl.
type goldenRow struct {
	ID      string              `json:"id"`
	Spec    json.RawMessage     `json:"spec"`
	Hash    map[string][]uint64 `json:"hash"`
	Unknown []string            `json:"unknown"`
}

const (
	modeJSON = iota
	modeProto
)

func readGolden(t testing.TB) []goldenRow {
	data, err := os.ReadFile("testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var rows []goldenRow
	s := bufio.NewScanner(bytes.NewReader(data))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var row goldenRow
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if len(rows) != 103 {
		t.Fatalf("%d rows, want 103", len(rows))
	}
	return rows
}

func (r *goldenRow) decode(t testing.TB, mode int) *v1.Container {
	c := &v1.Container{}
	if err := json.Unmarshal(r.Spec, c); err != nil {
		t.Fatalf("%s: %v", r.ID, err)
	}
	if mode == modeProto {
		c = roundTrip(t, c)
	}
	return c
}

// roundTrip returns the container as a kubelet gets it from the API.
func roundTrip(t testing.TB, c *v1.Container) *v1.Container {
	data, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	out := &v1.Container{}
	if err := out.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *goldenRow) unknownTo(release string) bool {
	for _, u := range r.Unknown {
		if u == release {
			return true
		}
	}
	return false
}

// TestGolden compares every generation with what the releases computed.
func TestGolden(t *testing.T) {
	generationOf := map[string]Generation{
		"1.6.1": Gen16, "1.7.0": Gen17, "1.8.0": Gen18, "1.8.15": Gen18, "1.9.0": Gen19, "1.9.11": Gen19,
	}
	compared, withheld := 0, 0
	for _, row := range readGolden(t) {
		for mode := modeJSON; mode <= modeProto; mode++ {
			c := row.decode(t, mode)
			before := c.DeepCopy()
			for release, g := range generationOf {
				want := row.Hash[release][mode]
				got, ok := Hash(c, g)
				// Fields newer than 1.9 are lost in decoding here as in the
				// releases, so only those up to 1.9 make a hash unknown.
				if len(Unknown(c, g)) > 0 {
					if ok {
						t.Errorf("%s: %s: got a hash in spite of %v", row.ID, release, Unknown(c, g))
					}
					if !row.unknownTo(release) {
						t.Errorf("%s: %s knows the spec, but Unknown says %v", row.ID, release, Unknown(c, g))
					}
					// The shortened hash is what the release recorded.
					if e := Explain(c, want); len(e.Recorded) != 0 || !reflect.DeepEqual(e.Ignoring, Unknown(c, g)) {
						t.Errorf("%s: %s: Explain = %+v", row.ID, release, e)
					}
					if _, matches := Match(c, want); matches {
						t.Errorf("%s: %s: the shortened hash is accepted", row.ID, release)
					}
					withheld++
					continue
				}
				if !ok || got != want {
					t.Errorf("%s: %s mode %d: got %d (%v), want %d", row.ID, release, mode, got, ok, want)
				}
				compared++
				m, matches := Match(c, want)
				native, _ := Hash(c, Gen19)
				if g < Gen19 && want != native && (!matches || m < g) {
					t.Errorf("%s: %s: Match = %v, %v", row.ID, release, m, matches)
				}
			}
			if !reflect.DeepEqual(before, c) {
				t.Errorf("%s: the container was changed", row.ID)
			}
			if got, want := Oldest(c), oldestKnown(c); got != want {
				t.Errorf("%s: Oldest = %v, want %v", row.ID, got, want)
			}
		}
	}
	t.Logf("%d hashes compared, %d withheld because a field is unknown", compared, withheld)
	if compared != 1194 || withheld != 42 {
		t.Errorf("compared %d and withheld %d, want 1194 and 42", compared, withheld)
	}
}

func oldestKnown(c *v1.Container) Generation {
	for _, g := range []Generation{Gen17, Gen18} {
		if len(Unknown(c, g)) == 0 {
			return g
		}
	}
	return Gen19
}

// TestGoldenNewer states what the data says about kubelets newer than 1.9: up
// to 1.13 they record the 1.9 hash unless the container has a securityContext.
func TestGoldenNewer(t *testing.T) {
	for _, row := range readGolden(t) {
		c := row.decode(t, modeProto)
		native, _ := Hash(c, Gen19)
		for _, release := range []string{"1.10.0", "1.12.4", "1.13.0"} {
			if row.unknownTo("1.9.11") {
				continue
			}
			if same := row.Hash[release][modeProto] == native; same != (c.SecurityContext == nil) {
				t.Errorf("%s: %s: same hash %v, securityContext %v", row.ID, release, same, c.SecurityContext != nil)
			}
		}
	}
}

// TestReport holds the numbers of the incident report.
func TestReport(t *testing.T) {
	for _, row := range readGolden(t) {
		if row.ID != "article-node-exporter" {
			continue
		}
		h := All(row.decode(t, modeProto))
		for g, want := range map[Generation]uint64{Gen16: 1559107639, Gen17: 1559107639, Gen18: 77704989, Gen19: 1428860573} {
			if got, ok := h.Get(g); !ok || got != want {
				t.Errorf("%v: %d, %v, want %d", g, got, ok, want)
			}
		}
		if h.Records() != Gen17 {
			t.Errorf("records %v", h.Records())
		}
		return
	}
	t.Fatal("no article-node-exporter in the data")
}
