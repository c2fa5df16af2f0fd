// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// runbookPage is the page whose command blocks are run.
const runbookPage = "docs/user/upgrade-1.7-to-1.9.md"

// block is a fenced block of the page, marked as setup, admin or node.
type block struct {
	where, script string
	line          int
	down          bool // run while the kubelet is down
}

var fence = regexp.MustCompile("^```bash ?([a-z]*)$")

// blocks reads the fenced bash blocks of a page. One without a mark, or without
// an end, is an error.
func blocks(text string) ([]block, error) {
	var out []block
	var in *block
	for i, line := range strings.Split(text, "\n") {
		switch m := fence.FindStringSubmatch(line); {
		case in == nil && m != nil:
			if m[1] != "setup" && m[1] != "admin" && m[1] != "node" {
				return nil, fmt.Errorf("line %d: mark the block setup, admin or node, not %q", i+1, m[1])
			}
			in = &block{where: m[1], line: i + 1}
		case in != nil && line == "```":
			out, in = append(out, *in), nil
		case in != nil:
			in.script += line + "\n"
		}
	}
	if in != nil {
		return nil, fmt.Errorf("line %d: the block has no end", in.line)
	}
	return out, nil
}

// order is what the lab runs of the page: all blocks but the setup, the swap and
// what comes before it a second time, as an operator does who is not sure, and
// the check of the way back first as if ours had not stayed up.
func order(bs []block) ([]block, error) {
	bs = slices.DeleteFunc(slices.Clone(bs), func(b block) bool { return b.where == "setup" })
	find := func(part string) int {
		return slices.IndexFunc(bs, func(b block) bool { return b.where == "node" && strings.Contains(b.script, part) })
	}
	ask, swap, back := find(`"$KUBELET.flags-ok" "$NEW"`), find(`cp -p "$KUBELET"`), find(`"$KUBELET.flags-ok" "$KUBELET.before-holdfast"`)
	if ask < 0 || swap < ask || back < swap {
		return nil, fmt.Errorf("%s: no blocks that ask for the swap (%d), swap (%d) and ask for the way back (%d), in this order", runbookPage, ask, swap, back)
	}
	down := bs[back]
	down.down = true
	return slices.Concat(bs[:back], bs[ask:swap+1], []block{down}, bs[back:]), nil
}
