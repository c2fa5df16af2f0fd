// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/labkit"
)

func TestRunbookBlocks(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", runbookPage))
	if err != nil {
		t.Fatal(err)
	}
	bs, err := blocks(string(page))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, b := range bs {
		count[b.where]++
	}
	if want := map[string]int{"setup": 1, "admin": 3, "node": 5}; !reflect.DeepEqual(count, want) {
		t.Errorf("blocks %v, want %v", count, want)
	}
	if got := bs[slices.IndexFunc(bs, func(b block) bool { return b.where == "node" })]; !strings.HasPrefix(got.script, checkBlock) {
		t.Errorf("the first node block is not the one that writes the check: %s", got.script)
	}
	for _, bad := range []string{"```bash\nx\n```\n", "```bash node\nx\n"} {
		if _, err := blocks(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestPlanIsSeeded(t *testing.T) {
	plan := func(seed uint64) []step { return makePlan(rand.New(rand.NewPCG(seed, 0)), labkit.Long) }
	if !reflect.DeepEqual(plan(7), plan(7)) {
		t.Error("two plans of one seed differ")
	}
	if reflect.DeepEqual(plan(7), plan(8)) {
		t.Error("plans of two seeds are the same")
	}
	p := plan(7)
	if n := kills(labkit.Long) + 2*len(nodeNames); len(p) != n {
		t.Errorf("%d steps, want %d", len(p), n)
	}
	for i, s := range p {
		if (i >= len(p)-len(nodeNames)) != (s.to == old) {
			t.Errorf("step %d: %v", i, s)
		}
	}
}
