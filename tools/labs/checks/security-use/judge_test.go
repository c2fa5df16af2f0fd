// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package securityuse

import (
	"slices"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// made is a history in which all went well, but for the change.
func made(change judgetest.Change) *history.History {
	var all []any
	for _, n := range []string{stock, ours} {
		f := files{n, map[string]bool{}}
		for _, r := range repositories {
			for file, there := range gitFiles {
				f.There[r+"-"+file] = there
			}
		}
		all = append(all, f)
	}
	second := slices.Repeat([]time.Duration{time.Second}, fewest)
	for _, w := range whats() {
		all = append(all, timed{w, slices.Clone(second), slices.Clone(second)})
	}
	for _, p := range parts {
		all = append(all, worked{p})
	}
	for _, m := range refusals {
		all = append(all, counted{m, 0})
	}
	return history.Make(history.Begin{Lab: "security-use", Variant: string(labkit.Ours), Profile: string(labkit.Short)}, change.Of(all)...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "security-use")
	judgetest.Cut(t, l, made(nil))
	slow := func(n int, d time.Duration) judgetest.Change {
		return judgetest.Where(func(o timed) bool { return o.What == execOf }, func(o *timed) {
			o.Stock, o.Ours = slices.Repeat([]time.Duration{d}, n), slices.Repeat([]time.Duration{3 * d}, n)
		})
	}
	judgetest.Judged(t, l, labkit.Failed, made, map[string]judgetest.Change{
		"Holdfast takes too long": slow(fewest, time.Second),
		"it works on stock but":   func(o any) any { return instead(o, worked{partProbes}, broken{partProbes, "not ready"}) },
		"_refused_total is 1":     func(o any) any { return instead(o, counted{refusals[0], 0}, counted{refusals[0], 1}) },
		"gitRepo: on ours: ssh":   fileOn(ours),
	})
	judgetest.Judged(t, l, labkit.Passed, made, map[string]judgetest.Change{
		"exec of 32 MiB 0.33": slow(fewest-1, time.Second),
		"port-forward":        slow(fewest, shortest/2),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"0 measurements":    slow(0, time.Second),
		"parts that work":   func(o any) any { return instead(o, worked{partProbes}, nil) },
		"gitRepo: on stock": fileOn(stock),
	})
}

// instead is with if o is of, which must be comparable.
func instead[T comparable](o any, of T, with any) any {
	if x, ok := o.(T); ok && x == of {
		return with
	}
	return o
}

// fileOn takes away a file of a volume of that node.
func fileOn(node string) judgetest.Change {
	return judgetest.Where(func(f files) bool { return f.Node == node }, func(f *files) { f.There["ssh-dot/two"] = false })
}
