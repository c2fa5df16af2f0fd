// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/judgetest"
)

func TestTutorialBlocks(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", tutorialPage))
	if err != nil {
		t.Fatal(err)
	}
	bs, err := blocks(string(page))
	if err != nil {
		t.Fatal(err)
	}
	var where, watches []string
	for _, b := range bs {
		where = append(where, b.where)
		if strings.Contains(b.shown, "ENDPOINTS") {
			watches = append(watches, b.shown)
		}
	}
	if got := strings.Join(where, " "); got != "admin node admin admin node node admin node admin" {
		t.Errorf("the blocks are %s", got)
	}
	if len(watches) != 2 || !bare(watches[0]) || bare(watches[1]) {
		t.Errorf("the page shows of the Service's addresses %q", watches)
	}
}

func TestShows(t *testing.T) {
	const out = "NAME      ENDPOINTS      AGE\nweb       10.91.1.2:80   1m\n"
	for line, want := range map[string]bool{"NAME ENDPOINTS AGE": true, "web …:80 …": true, "\n": true, "web <none>": false, "AGE …:80": false, "web …:8080": false} {
		if got := shows(out, line); got != want {
			t.Errorf("%q: %t", line, got)
		}
	}
}

func TestJudgeTutorial(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "tutorial")
	const kept, gone = "ENDPOINTS\nweb 10.91.1.2:80 9s\n", "ENDPOINTS\nweb 3s\nweb 10.91.1.2:80 9s\n"
	watch := func(line int, output, shown string) typed {
		return typed{ran{Line: line, Where: "admin", Output: output}, shown}
	}
	first, second := watch(3, gone, "web …\nweb …:80 …\n"), watch(9, kept, "web …:80 …\n")
	good := []any{readPage{2}, first, second}
	judgetest.Cut(t, l, made(l, good, 0, nil))
	for _, bad := range []typed{watch(9, gone, "web …:80 …\n"), watch(9, kept, "web …:90 …\n"), {ran: ran{Line: 9, Error: "exit status 1"}}} {
		judgetest.Judge(t, l, made(l, good, 2, bad), labkit.Failed)
	}
	judgetest.Judge(t, l, made(l, good, 1, watch(3, kept, "web …\n")), labkit.Failed)
	judgetest.Judge(t, l, made(l, good, 0, readPage{3}), labkit.Inconclusive)
	judgetest.Judge(t, l, made(l, good, 2, typed{ran: ran{Line: 9, Error: "exit status 3", Output: "STOP HF511"}}), labkit.Inconclusive)
	judgetest.Judge(t, l, made(l, []any{readPage{2}, second, second}, 0, nil), labkit.Inconclusive)
}
