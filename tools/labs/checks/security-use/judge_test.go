// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package securityuse

import (
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// made is a history in which all went well. change may replace an observation, and nil
// takes it away.
func made(change func(o any) any) *history.History {
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
	var changed []any
	for _, o := range all {
		if change != nil {
			o = change(o)
		}
		if o != nil {
			changed = append(changed, o)
		}
	}
	return history.Make(history.Begin{Lab: "security-use", Variant: string(labkit.Ours), Profile: string(labkit.Short)}, changed...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, "security-use")
	judgetest.Cut(t, l, made(nil))
	slow := func(n int, d time.Duration) func(any) any {
		return func(o any) any {
			if x, ok := o.(timed); ok && x.What == execOf {
				x.Stock, x.Ours = slices.Repeat([]time.Duration{d}, n), slices.Repeat([]time.Duration{3 * d}, n)
				return x
			}
			return o
		}
	}
	for why, c := range map[string]struct {
		change func(any) any
		want   labkit.Verdict
	}{
		"ours takes too long":   {slow(fewest, time.Second), labkit.Failed},
		"exec of 32 MiB 0.33":   {slow(fewest-1, time.Second), labkit.Passed},
		"port-forward":          {slow(fewest, shortest/2), labkit.Passed},
		"0 measurements":        {slow(0, time.Second), labkit.Inconclusive},
		"it works on stock and": {func(o any) any { return instead(o, worked{partProbes}, broken{partProbes, "not ready"}) }, labkit.Failed},
		"parts that work":       {func(o any) any { return instead(o, worked{partProbes}, nil) }, labkit.Inconclusive},
		"_refused_total is 1":   {func(o any) any { return instead(o, counted{refusals[0], 0}, counted{refusals[0], 1}) }, labkit.Failed},
		"gitRepo: on ours: ssh": {fileOn(ours), labkit.Failed},
		"gitRepo: on stock":     {fileOn(stock), labkit.Inconclusive},
	} {
		if res := judgetest.Judge(t, l, made(c.change), c.want); !strings.Contains(res.Why, why) {
			t.Errorf("%q, want %q", res.Why, why)
		}
	}
}

// instead is with if o is of, which must be comparable.
func instead[T comparable](o any, of T, with any) any {
	if x, ok := o.(T); ok && x == of {
		return with
	}
	return o
}

// fileOn takes away a file of a volume of that node.
func fileOn(node string) func(any) any {
	return func(o any) any {
		if f, ok := o.(files); ok && f.Node == node {
			f.There["ssh-dot/two"] = false
			return f
		}
		return o
	}
}
