// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kcmswap

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func story(c judgetest.Change) *history.History {
	var all []any
	for i, shape := range shapes {
		at := float64(100 * (i + 1))
		look := func(stage, version string, at float64) {
			all = append(all, ran{shape.name, stage, version, at, made, []string{"a 1", "b 2"}})
		}
		look(started, "v1.9.11", at)
		for _, what := range []string{"check", "manifest"} {
			all = append(all, answered{shape.name, refused, what, 3, []string{"HF523"}, false})
		}
		look(refused, "v1.9.11", at)
		for _, stage := range []string{swapped, back} {
			for _, what := range []string{"check", "manifest", "wait"} {
				all = append(all, answered{shape.name, stage, what, 0, nil, what != "check"})
			}
			look(stage, map[string]string{swapped: "v1.9.11+holdfast.2", back: "v1.9.11"}[stage], at+float64(len(stage)))
		}
	}
	return history.Make(history.Begin{Lab: "kcm-swap", Variant: "ours", Profile: "short"}, c.Of(all)...)
}

func at(stage string, f func(*ran)) judgetest.Change {
	return judgetest.Where(func(o ran) bool { return o.Shape == "hyperkube" && o.Stage == stage }, f)
}

func said(stage, what string, f func(*answered)) judgetest.Change {
	return judgetest.Where(func(a answered) bool { return a.Stage == stage && a.What == what }, f)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "kcm-swap")
	judgetest.Cut(t, l, story(nil))
	for name, c := range map[string]judgetest.Change{
		"stock leads":       at(swapped, func(o *ran) { o.Version = "v1.9.11" }),
		"not back":          at(back, func(o *ran) { o.Version = "v1.9.11+holdfast.2" }),
		"makes nothing":     at(swapped, func(o *ran) { o.Made = 0 }),
		"makes too many":    at(back, func(o *ran) { o.Made++ }),
		"the old process":   at(back, func(o *ran) { o.Started = 200 + float64(len(swapped)) }),
		"restarted":         at(refused, func(o *ran) { o.Started++ }),
		"rolled":            at(swapped, func(o *ran) { o.Kept = []string{"a 1", "b 3"} }),
		"one more":          at(back, func(o *ran) { o.Kept = append(o.Kept, "c 3") }),
		"not refused":       said(refused, "manifest", func(a *answered) { a.Status = 0 }),
		"another reason":    said(refused, "check", func(a *answered) { a.Codes = []string{"HF521"} }),
		"written at a STOP": said(refused, "manifest", func(a *answered) { a.Changed = true }),
		"check writes":      said(swapped, "check", func(a *answered) { a.Changed = true }),
		"not written":       said(back, "manifest", func(a *answered) { a.Changed = false }),
		"a finding":         said(swapped, "check", func(a *answered) { a.Codes = []string{"HF525"} }),
		"nobody leads":      said(swapped, "wait", func(a *answered) { a.Status = 1 }),
	} {
		t.Run(name, func(t *testing.T) { judgetest.Judge(t, l, story(c), labkit.Failed) })
	}
	for name, c := range map[string]judgetest.Change{
		"no version":     at(swapped, func(o *ran) { o.Version = "" }),
		"no start":       at(started, func(o *ran) { o.Started = 0 }),
		"nothing kept":   at(started, func(o *ran) { o.Kept = nil }),
		"a stage less":   judgetest.Without(func(o ran) bool { return o.Stage == back }),
		"a command less": judgetest.Without(func(a answered) bool { return a.What == "wait" }),
	} {
		t.Run(name, func(t *testing.T) { judgetest.Judge(t, l, story(c), labkit.Inconclusive) })
	}
}
