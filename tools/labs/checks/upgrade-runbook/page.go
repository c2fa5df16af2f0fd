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

// names are those that the setup block sets.
func names(setup block) []string {
	var out []string
	for _, m := range export.FindAllStringSubmatch(setup.script, -1) {
		out = append(out, m[1])
	}
	return out
}

var export = regexp.MustCompile(`(?m)^export ([A-Z_]+)=`)

// needs are the names of the setup that a block, or a script that it starts, uses.
func (b block) needs(setup []string) []string {
	return slices.DeleteFunc(slices.Clone(setup), func(name string) bool {
		return !regexp.MustCompile(`\$\{?` + name + `\b`).MatchString(b.script)
	})
}

// goesBack says whether the block starts the old kubelet again.
func (b block) goesBack() bool {
	return b.where == "node" && strings.Contains(b.script, `"$KUBELET.swap" "$KUBELET.before-holdfast"`)
}

// order is what the lab runs of the page: all blocks but the setup, the swap and
// what comes before it a second time, as an operator does who is not sure, and
// the check of the way back first as if ours had not stayed up.
func order(bs []block) ([]block, error) {
	bs = slices.DeleteFunc(slices.Clone(bs), func(b block) bool { return b.where == "setup" })
	find := func(part string) int {
		return slices.IndexFunc(bs, func(b block) bool { return b.where == "node" && strings.Contains(b.script, part) })
	}
	ask, swap, back := find(`"$KUBELET.flags-ok" "$NEW"`), find(`"$KUBELET.swap" "$NEW"`), find(`"$KUBELET.flags-ok" "$KUBELET.before-holdfast"`)
	if ask < 0 || swap < ask || back < swap {
		return nil, fmt.Errorf("%s: no blocks that ask for the swap (%d), swap (%d) and ask for the way back (%d), in this order", runbookPage, ask, swap, back)
	}
	down := bs[back]
	down.down = true
	return slices.Concat(bs[:back], bs[ask:swap+1], []block{down}, bs[back:]), nil
}
