// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbddetach

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/rbdlab"
)

// watched is an image that the node has.
func watched(image, when string) rbdlab.State {
	return rbdlab.State{Image: image, When: when, Watchers: []string{"10.90.0.11:0/42"}, Mapped: []string{"node1"}}
}

// made is a history in which the rows of the profile end with ends, a row by its image.
func made(v labkit.Variant, p labkit.Profile, ends func(image string) []any) *history.History {
	var all []any
	for _, x := range rowsOf(p) {
		was := watched(x.image, before)
		if x.unlocked {
			was.Locks = []rbdlab.Lock{{ID: rbdlab.LegacyLock("old")}}
		}
		if !x.late || x.unlocked {
			all = append(all, was)
		}
		all = append(append(all, triggered{Row: x.image}), ends(x.image)...)
	}
	return history.Make(history.Begin{Lab: "rbd-detach", Variant: string(v), Profile: string(p)}, all...)
}

func freed(image string) []any {
	return []any{rbdlab.State{Image: image, When: after, Seconds: 1},
		rbdlab.Contents{Image: image, When: after, Files: map[string]string{rbdlab.DataFile: rbdlab.DataOf(image)}}}
}

func held(image string) []any { return []any{watched(image, after)} }

// but is freed, with ends for one row.
func but(row string, ends ...any) func(string) []any {
	return func(image string) []any {
		if image == row {
			return ends
		}
		return freed(image)
	}
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rbd-detach")
	for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
		judgetest.Cut(t, l, made(labkit.Ours, p, freed))
		judgetest.Cut(t, l, made(labkit.Stock, p, freed))
		judgetest.Judge(t, l, made(labkit.Stock, p, held), labkit.Reproduced)
		judgetest.Judge(t, l, made(labkit.GateOff, p, held), labkit.Reproduced)
	}
	down := rbdlab.State{Image: "down", When: after}
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Long, but("down", held("down")...)), labkit.Reproduced)
	judgetest.Judge(t, l, made(labkit.Stock, labkit.Long, but("down", held("down")...)), labkit.Inconclusive)
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Long, but("down", down)), labkit.Inconclusive) // not looked into
	only := watched("down", after)
	only.Watchers = nil // mapped, and not watched: a dead client
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Long, but("down", only)), labkit.Reproduced)
	for what, c := range map[string]rbdlab.Contents{
		"not clean": {Image: "down", When: after, Fsck: "exit status 4", Files: map[string]string{rbdlab.DataFile: rbdlab.DataOf("down")}},
		"no data":   {Image: "down", When: after, Files: map[string]string{}},
	} {
		t.Log(what)
		judgetest.Judge(t, l, made(labkit.Ours, labkit.Long, but("down", down, c)), labkit.Reproduced)
	}
	locked := freed("leftover")
	s := locked[0].(rbdlab.State)
	s.Locks = []rbdlab.Lock{{ID: rbdlab.LegacyLock("old")}}
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Long, but("leftover", s, locked[1])), labkit.Reproduced)
	// A row that does not end hides no other row's loss, with ours; stock has to lose both.
	half := func(image string) []any {
		switch image {
		case "down":
			return held(image)
		case "busy":
			return nil
		}
		return freed(image)
	}
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Long, half), labkit.Reproduced)
	judgetest.Judge(t, l, made(labkit.Stock, labkit.Long, half), labkit.Inconclusive)
	foreign := down
	foreign.InUse = map[string][]string{"node1": {"kubernetes.io/rbd/[]:"}}
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Long, but("down", foreign, freed("down")[1])), labkit.Reproduced)
}
