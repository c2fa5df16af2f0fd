// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/webset"
)

// goodRound: all pods leave, and come when their new containers are there.
func goodRound(number int, killed bool) round {
	r := round{replacement{Round: number, Late: 300 * time.Millisecond, Addresses: pods}, killed}
	var all []string
	for i := range pods {
		all = append(all, webset.Name(i))
		r.Pods = append(r.Pods, replaced{webset.Name(i), at(5)})
	}
	r.Updates = []update{{at(1), nil}, {at(7), all}}
	return r
}

// made is a history in which all went well, but for the change.
func made(v labkit.Variant, p labkit.Profile, change judgetest.Change) *history.History {
	var all []any
	for n := range rounds(p) {
		all = append(all, goodRound(n, false))
		if v == labkit.Ours {
			all = append(all, settled{Round: n})
		}
	}
	if v == labkit.Ours {
		n := rounds(p)
		all = append(all, goodRound(n, true), settled{Round: n}, hung{at(12), at(2)})
	}
	return history.Make(history.Begin{Lab: "endpoints-rules", Variant: string(v), Profile: string(p)}, change.Of(all)...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-rules")
	for _, v := range []labkit.Variant{labkit.Stock, labkit.Ours} {
		for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
			judgetest.Cut(t, l, made(v, p, nil))
		}
	}
	// The pod is ready in the Endpoints until its old container is gone, and after.
	early := func(r *round) { r.Updates = []update{{at(1), []string{webset.Name(3)}}, {at(7), nil}} }
	in := func(v labkit.Variant) func(judgetest.Change) *history.History {
		return func(c judgetest.Change) *history.History { return made(v, labkit.Short, c) }
	}
	judgetest.Judged(t, l, labkit.Reproduced, in(labkit.Stock), map[string]judgetest.Change{
		"[web-03] (fixed windows), [web-03] (trailing)": inRound(false, early),
		"5s after the last pod became ready, 18 of 20":  inRound(false, func(r *round) { r.Late, r.Addresses = 0, 18 }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, in(labkit.Stock), map[string]judgetest.Change{
		"of 19 of 19 pods": inRound(false, func(r *round) { r.Pods = r.Pods[1:] }),
		"of 19 of 20 pods": inRound(false, func(r *round) { r.Pods[3].Gone = 0 }),
		"0 rounds, want 1": judgetest.Without(is(false)),
	})
	judgetest.Judged(t, l, labkit.Reproduced, in(labkit.Ours), map[string]judgetest.Change{
		"still ran: [web-03] (fixed":                   inRound(false, early),
		"5s after the last pod became ready, 19 of 20": inRound(true, func(r *round) { r.Late, r.Addresses = 0, 19 }),
		"3 addresses are misplaced":                    judgetest.As(settled{Misplaced: 3}),
		"does not report how many":                     judgetest.As(settled{Unread: "connection refused"}),
		"still in the configuration":                   judgetest.As(hung{}),
		"is not in the configuration":                  judgetest.As(hung{EmptyAfter: at(12)}),
	})
	judgetest.Judged(t, l, labkit.Absent, in(labkit.Ours), map[string]judgetest.Change{
		"old container was gone, in 2 updates": inRound(true, early),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, in(labkit.Ours), map[string]judgetest.Change{
		"the trigger is missing":       inRound(true, func(r *round) { r.Updates = nil }),
		"0 rounds with a kill, want 1": judgetest.Without(is(true)),
	})
	// A round that cannot tell hides nothing of another one.
	judgetest.Judged(t, l, labkit.Reproduced, in(labkit.Ours), map[string]judgetest.Change{
		"5s after the last pod became ready, 19 of 20": func(o any) any {
			o = inRound(false, func(r *round) { r.Updates = nil })(o)
			return inRound(true, func(r *round) { r.Late, r.Addresses = 0, 19 })(o)
		},
	})
	// One round that is broken is enough, of whatever is to come.
	bad := goodRound(0, false)
	early(&bad)
	for _, v := range []labkit.Variant{labkit.Stock, labkit.Ours} {
		res := judgetest.Judge(t, l, history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: string(labkit.Long)}, bad), labkit.Reproduced)
		if len(res.Numbers) != 4 || res.Numbers[1].Value != 1 {
			t.Errorf("%s: %+v", v, res.Numbers)
		}
	}
}

func is(killed bool) func(round) bool {
	return func(r round) bool { return r.Killed == killed }
}

func inRound(killed bool, f func(*round)) judgetest.Change { return judgetest.Where(is(killed), f) }
