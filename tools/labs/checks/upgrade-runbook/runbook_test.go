// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRunbookBlocks(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", runbookPage))
	if err != nil {
		t.Fatal(err)
	}
	bs, err := blocks(string(page))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, b := range bs {
		lines += strings.Count(b.script, "\n")
	}
	if lines > 15 {
		t.Errorf("the page has %d lines of commands", lines)
	}
	all, err := order(bs)
	if err != nil || len(all) != len(bs)+1 {
		t.Fatalf("%d blocks are run of %d, %v", len(all), len(bs), err)
	}
	swaps := 0
	for _, b := range all {
		if b.does(swapCommand) {
			swaps++
		}
	}
	if swaps != 2 {
		t.Errorf("%d swaps", swaps)
	}
	if _, err := order(bs[:2]); err == nil {
		t.Error("a page without a way back: no error")
	}
	for _, bad := range []string{"```bash\nx\n```\n", "```bash node\nx\n"} {
		if _, err := blocks(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
