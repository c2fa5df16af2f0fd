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

// block is a fenced block of the page, marked with the machine on which it is run: admin or node.
type block struct {
	where, script string
	line          int
	shown         string // in the plain fenced blocks between this one and the next
}

var fence = regexp.MustCompile("^```bash ?([a-z]*)$")

// blocks reads the fenced bash blocks of a page. One without a mark, or without
// an end, is an error.
func blocks(text string) ([]block, error) {
	var out []block
	var in *block
	shown := false
	for i, line := range strings.Split(text, "\n") {
		switch m := fence.FindStringSubmatch(line); {
		case shown && line == "```":
			shown = false
		case shown:
			if len(out) > 0 {
				out[len(out)-1].shown += line + "\n"
			}
		case in == nil && m == nil && strings.HasPrefix(line, "```"):
			shown = true
		case in == nil && m != nil:
			if m[1] != "admin" && m[1] != "node" {
				return nil, fmt.Errorf("line %d: mark the block admin or node, not %q", i+1, m[1])
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

// The commands that swap.
const (
	swapCommand = "kubectl-holdfast node swap "
	backCommand = "kubectl-holdfast node back"
)

// does says whether the block has a command.
func (b block) does(command string) bool {
	return b.where == "node" && strings.Contains(b.script, command)
}

// order is what the lab runs of the page: all blocks, the one that swaps a second time as well, as an
// operator does who is not sure.
func order(bs []block) ([]block, error) {
	swap := slices.IndexFunc(bs, func(b block) bool { return b.does(swapCommand) })
	back := slices.IndexFunc(bs, func(b block) bool { return b.does(backCommand) })
	if swap < 0 || back < swap {
		return nil, fmt.Errorf("%s: no block that swaps (%d) and then one that goes back (%d)", runbookPage, swap, back)
	}
	return slices.Insert(slices.Clone(bs), swap, bs[swap]), nil
}
