// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/container/hashcompat"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
)

// goldenReleases are the columns of the golden data that this release knows.
var goldenReleases = map[string]hashcompat.Generation{
	"1.6.1": hashcompat.Gen16, "1.7.0": hashcompat.Gen17, "1.8.0": hashcompat.Gen18, "1.8.15": hashcompat.Gen18,
	"1.9.0": hashcompat.Gen19, "1.9.11": hashcompat.Gen19,
}

const (
	// goldenKept is the least number of their hashes that TestGoldenAPI keeps.
	goldenKept = 1150
	// of110 is what is recorded on a node that came from 1.10: this release knows no
	// other hash.
	of110 = hashcompat.Native
)

// annotationsOf are those of a new container.
func annotationsOf(c *v1.Container) map[string]string {
	return newContainerAnnotations(c, &v1.Pod{}, 0)
}

// TestForwardTo110: what a 1.10 kubelet keeps of what was recorded here, by the
// hashes that 1.10.0 itself computed. On a node that came from stock 1.9, or from
// nothing, it is what 1.10.0 keeps of stock 1.9.11's.
func TestForwardTo110(t *testing.T) {
	f, err := os.Open("../container/hashcompat/testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, stock := 0, 0
	kept := map[string]int{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var row struct {
			Spec    v1.Container
			Hash    map[string][]uint64
			Unknown []string
		}
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		if unknown := strings.Join(row.Unknown, " "); strings.Contains(unknown, "1.9.11") || strings.Contains(unknown, "1.10.0") {
			continue // another container, for the two that are compared
		}
		rows++
		next := row.Hash["1.10.0"][0]
		if row.Hash["1.9.11"][0] == next {
			stock++
		}
		for _, before := range []string{"v1.7.0", "v1.8.15", "v1.9.11", "none"} {
			predecessor.Default = predecessor.NewKnown(before)
			if containerHashToRecord(&row.Spec, kubecontainer.HashContainer(&row.Spec)) == next {
				kept[before]++
			}
		}
	}
	predecessor.Default = predecessor.New()
	t.Logf("1.10.0 keeps of %d containers: %d of stock 1.9.11's, of ours by predecessor %v", rows, stock, kept)
	if stock == 0 || kept["none"] != stock || kept["v1.9.11"] != stock {
		t.Errorf("of %d containers 1.10.0 keeps %d of stock 1.9.11's, of ours %v", rows, stock, kept)
	}
}
