// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// pageBlocks are the blocks of the runbook's page.
func pageBlocks(t *testing.T) []block {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", runbookPage))
	if err != nil {
		t.Fatal(err)
	}
	bs, err := blocks(string(page))
	if err != nil {
		t.Fatal(err)
	}
	return bs
}

func TestRunbookBlocks(t *testing.T) {
	bs := pageBlocks(t)
	count := map[string]int{}
	for _, b := range bs {
		count[b.where]++
	}
	if want := map[string]int{"setup": 1, "admin": 4, "node": 5}; !reflect.DeepEqual(count, want) {
		t.Errorf("blocks %v, want %v", count, want)
	}
	if got := bs[slices.IndexFunc(bs, func(b block) bool { return b.where == "node" })]; !strings.Contains(got.script, checkBlock) {
		t.Errorf("the first node block is not the one that writes the check: %s", got.script)
	}
	all, err := order(bs)
	if err != nil || len(all) != len(bs)-1+3 {
		t.Errorf("%d blocks are run of %d, %v", len(all), len(bs), err)
	}
	for i, b := range all {
		if b.down && (all[i+1].script != b.script || all[i+1].down) {
			t.Errorf("the block of line %d is not run again with a kubelet", b.line)
		}
	}
	if _, err := order(bs[:6]); err == nil {
		t.Error("a page without a way back: no error")
	}
	for _, bad := range []string{"```bash\nx\n```\n", "```bash node\nx\n"} {
		if _, err := blocks(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
