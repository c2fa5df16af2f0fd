// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package unreadybeforereplace

import (
	"slices"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labs/internal/webset"
)

var began = time.Unix(1000, 0).UTC()

func at(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }

// goodRound: every pod is not ready after 1 s, killed after 1.2 s and ready anew after 5 s.
func goodRound(drain string) round {
	r := round{Drain: drain, Began: began, Requests: load.Report{OK: 100, Failed: 3, NoTarget: 3}}
	var all []string
	for i := range pods {
		name := webset.Name(i)
		all = append(all, name)
		r.Pods = append(r.Pods, replaced{name, "old", at(1.2), []podEvent{{at(1), false, "old"}, {at(2), false, "new"}, {at(5), true, "new"}}})
	}
	r.Endpoints = []version{{at(1.1), nil}, {at(5.1), all}}
	return r
}

// badRound: the first n pods are killed 4 s before they are not ready.
func badRound(n, failed int) round {
	r := goodRound("")
	for i := range n {
		r.Pods[i].Killed = at(-3)
	}
	r.Requests.Failed += failed
	return r
}

// made is a history in which all went well, but for the change.
func made(p labkit.Profile, change judgetest.Change) *history.History {
	n := rounds(p)
	var all []any
	for range n {
		all = append(all, goodRound(""))
	}
	all = append(all, goodRound(drain))
	for _, name := range append(slices.Clone(duringCases), restarted, toStock) {
		for r := range n {
			if name == toStock && r > 0 {
				continue
			}
			for _, w := range cases[name] {
				all = append(all, stateSeen{name, r, w, true, w == anew || w == gone})
			}
			if slices.Contains(watchedCases, name) {
				all = append(all, watchedPod{name, r, "old", []podEvent{{at(-9), false, ""}, {at(-8), true, "old"}, {at(1), false, "old"}, {at(2), true, "new"}}})
			}
		}
	}
	all = append(all, alone{33 * time.Second, true, 1})
	if p == labkit.Long {
		for name, rounds := range followedCases {
			for r := range rounds {
				all = append(all, followed{name, r, "old", at(1.2), true, []podEvent{{at(1), false, "old"}, {at(2), false, "new"}, {at(5), true, "new"}}})
			}
		}
	}
	return history.Make(history.Begin{Lab: "unready-before-replace", Variant: string(labkit.Ours), Profile: string(p)}, change.Of(all)...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "unready-before-replace")
	judgetest.Cut(t, l, made(labkit.Short, nil))
	judgetest.Judge(t, l, made(labkit.Long, nil), labkit.Absent)
	short := func(c judgetest.Change) *history.History { return made(labkit.Short, c) }
	judgetest.Judged(t, l, labkit.Reproduced, short, map[string]judgetest.Change{
		"with drain-seconds: web-03 was":          inRound(drain, func(r *round) { r.Pods[3].Killed = at(-3) }),
		"with drain-seconds 5: 101":               inRound(drain, func(r *round) { r.Requests = load.Report{OK: 100, Failed: 1} }),
		"with drain-seconds 5: 0":                 inRound(drain, func(r *round) { r.Requests = load.Report{} }),
		"web-03 was not ready 4s":                 inRound("", func(r *round) { r.Pods[3].Killed = at(-3) }),
		"web-03 was never published as not ready": inRound("", func(r *round) { r.Pods[3].Events = r.Pods[3].Events[2:] }),
		"web-03 was ready again before its": inRound("", func(r *round) {
			r.Pods[3].Events = []podEvent{{at(1), false, "old"}, {at(2), true, "old"}, {at(3), true, "new"}}
		}),
		"web-00 left Endpoints 2 times": inRound("", func(r *round) {
			r.Endpoints = append(r.Endpoints, version{at(6), nil}, version{at(7), r.Endpoints[1].Ready})
		}),
		"web-00 left Endpoints 0 times":      inRound("", func(r *round) { r.Endpoints = r.Endpoints[1:] }),
		"not-live: no observation that":      inCase(notLive, unready, func(s *stateSeen) { s.In = false }),
		"put-back is ready again with":       inCase(putBack, again, func(s *stateSeen) { s.Killed = true }),
		"no-image still waits, but":          inCase(noImage, waits, func(s *stateSeen) { s.Killed = true }),
		"restarted is kept not ready by":     inCase(restarted, held, func(s *stateSeen) { s.Killed = true }),
		"to-stock: no observation that":      inCase(toStock, anew, func(s *stateSeen) { s.In = false }),
		"deleted: no observation that":       inCase(deleted, gone, func(s *stateSeen) { s.In = false }),
		"restarted was ready again":          inWatched(restarted, podEvent{at(1.5), true, "old"}),
		"was not killed without":             judgetest.As(alone{}),
		"it did not wait for the API server": judgetest.As(alone{9 * time.Second, true, 1}),
		"the static pod is not ready":        judgetest.As(alone{33 * time.Second, false, 1}),
		"the metric has no timeout":          judgetest.As(alone{33 * time.Second, true, 0}),
	})
	// What only the long profile has.
	long := func(c judgetest.Change) *history.History { return made(labkit.Long, c) }
	judgetest.Judged(t, l, labkit.Reproduced, long, map[string]judgetest.Change{
		"killed-after is not ready with a new": inFollowed(killedAfter, func(f *followed) { f.Replaced = false }),
		"way was never published as not ready": inFollowed(way, func(f *followed) { f.Events = f.Events[2:] }),
		"same-image was not ready 4s after":    inFollowed(sameImage, func(f *followed) { f.Killed = at(-3) }),
		"killed-in-end was ready again":        inFollowed(killedInEnd, func(f *followed) { f.Events = append(f.Events, podEvent{at(6), true, "old"}) }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, long, map[string]judgetest.Change{
		"case way: recorded 0 times, want 2": judgetest.Without(func(f followed) bool { return f.Case == way }),
		"killed-soon was not ready 500ms":    inFollowed(killedSoon, func(f *followed) { f.Killed = at(0.5) }),
		"same-image: docker's stream has":    inFollowed(sameImage, func(f *followed) { f.Killed = time.Time{} }),
	})
	// A round that cannot tell hides no other round's loss, and no case's.
	unseen := inRound("", func(r *round) { r.Pods = r.Pods[1:] })
	both := func(c judgetest.Change) judgetest.Change { return func(o any) any { return unseen(c(o)) } }
	judgetest.Judged(t, l, labkit.Reproduced, short, map[string]judgetest.Change{
		"19 of 20 pods were changed":   both(inRound(drain, func(r *round) { r.Pods[3].Killed = at(-3) })),
		"put-back is ready again with": both(inCase(putBack, again, func(s *stateSeen) { s.Killed = true })),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, short, map[string]judgetest.Change{
		"web-03 was not ready 500ms":         inRound("", func(r *round) { r.Pods[3].Killed = at(0.5) }), // or the watch was late
		"reported 1 pods as not re":          inRound(drain, func(r *round) { r.Pods[3].Killed = at(0.5) }),
		"with drain-seconds 5: 102 requests": inRound(drain, func(r *round) { r.Requests = load.Report{OK: 100, Failed: 2, TimedOut: 2} }),
		"old container of pod \"web-03\"":    inRound("", func(r *round) { r.Pods[3].Killed = time.Time{} }),
		"19 of 20 pods were changed":         inRound("", func(r *round) { r.Pods = r.Pods[1:] }),
	})
}

// TestJudgeStock: one bad round is enough, if it is bad for half of the pods and seen by clients.
func TestJudgeStock(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "unready-before-replace")
	of := func(v labkit.Variant, o ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: string(labkit.Short)}, o...)
	}
	judgetest.Judge(t, l, of(labkit.Stock, badRound(pods/2, 1)), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Stock, badRound(pods/2, 0)), labkit.Inconclusive)
	judgetest.Judge(t, l, of(labkit.Stock, badRound(pods/2-1, 1)), labkit.Inconclusive)
	judgetest.Judge(t, l, of(labkit.Stock, goodRound("")), labkit.Absent)
	judgetest.Judge(t, l, of(labkit.Stock), labkit.Inconclusive)
	judgetest.Judge(t, l, of(labkit.GateOff, badRound(1, 0)), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.GateOff, goodRound("")), labkit.Inconclusive)
}

func inRound(drain string, f func(*round)) judgetest.Change {
	return judgetest.Where(func(r round) bool { return r.Drain == drain }, f)
}

// inCase changes what was seen first of a case, and takes away what comes after it.
func inCase(name string, state podState, f func(*stateSeen)) judgetest.Change {
	wrong := false
	return func(o any) any {
		if s, ok := o.(stateSeen); ok && s.Case == name && s.State == state {
			wrong = true
			f(&s)
			return s
		}
		if wrong {
			return nil
		}
		return o
	}
}

// inWatched puts an event before the last.
func inWatched(name string, ev podEvent) judgetest.Change {
	return judgetest.Where(func(s watchedPod) bool { return s.Case == name }, func(s *watchedPod) { s.Events = slices.Insert(s.Events, len(s.Events)-1, ev) })
}

func inFollowed(name string, f func(*followed)) judgetest.Change {
	return judgetest.Where(func(o followed) bool { return o.Case == name }, f)
}
