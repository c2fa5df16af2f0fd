// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollision

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/kube"
)

// made is a history of the lab, with the i-th observation another one.
func made(l *labkit.Lab, all []any, i int, o any) *history.History {
	all = append([]any{}, all...)
	if o != nil {
		all[i] = o
	}
	return history.Make(history.Begin{Lab: l.Name, Variant: "ours", Profile: "short"}, all...)
}

func TestJudgeDaemonSet(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "hash-collision-daemonset-crash")
	of := func(o dsUpdated) *history.History { return made(l, []any{o}, 0, nil) }
	judgetest.Cut(t, l, of(dsUpdated{ManagerAlive: true, APIAlive: true, Revisions: 2, CollisionCount: 1}))
	judgetest.Judge(t, l, of(dsUpdated{APIAlive: true, Exit: "exit status 2", NilPointer: true}), labkit.Reproduced)
	for _, o := range []dsUpdated{
		{ManagerAlive: true, APIAlive: true, Revisions: 1, CollisionCount: 1},
		{ManagerAlive: true, APIAlive: true, Revisions: 2},
		{ManagerAlive: true, Revisions: 2, CollisionCount: 1},
		{APIAlive: true, Exit: "signal: killed"},
		{NilPointer: true},
	} {
		judgetest.Judge(t, l, of(o), labkit.Inconclusive)
	}
}

func TestJudgeOwner(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "hash-collision-replicaset-owner")
	good := []any{met{What: inTheWay[0].what, Own: "a", OtherGeneration: 1}, met{What: inTheWay[1].what, Own: "b", OtherGeneration: 1},
		met{What: inTheWay[2].what, Hold: true, OwnLater: "c", OtherGeneration: 2}, pairRolled{1}}
	judgetest.Cut(t, l, made(l, good, 0, nil))
	for i, bad := range map[int]met{
		0: {What: inTheWay[0].what, OtherGeneration: 1},
		1: {What: inTheWay[1].what, Own: "b", OtherGeneration: 1, OtherReplicas: 2},
		2: {What: inTheWay[2].what, Hold: true, Own: "c", OtherGeneration: 3},
	} {
		judgetest.Judge(t, l, made(l, good, i, bad), labkit.Reproduced)
	}
	judgetest.Judge(t, l, made(l, good, 3, pairRolled{0}), labkit.Inconclusive)
}

func TestJudgeConflicts(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "hash-collision-forced-conflicts")
	good := []any{touched{100, 1, 0}, foreignMet{Kind: "DaemonSet", Was: "7", Is: "7", Own: 1}, foreignMet{Kind: "StatefulSet", Was: "8", Is: "8", Own: 1}}
	judgetest.Cut(t, l, made(l, good, 0, nil))
	judgetest.Judge(t, l, made(l, good, 0, touched{100, 100, 100}), labkit.Reproduced)
	judgetest.Judge(t, l, made(l, good, 1, foreignMet{Kind: "DaemonSet", Was: "7", Is: "7"}), labkit.Reproduced)
	judgetest.Judge(t, l, made(l, good, 2, foreignMet{Kind: "StatefulSet", Was: "8", Is: "9", Own: 1}), labkit.Reproduced)
	judgetest.Judge(t, l, made(l, good, 0, touched{99, 1, 0}), labkit.Inconclusive)
	judgetest.Judge(t, l, made(l, good, 0, touched{100, 0, 0}), labkit.Inconclusive)
	judgetest.Judge(t, l, made(l, good, 1, foreignMet{Kind: "DaemonSet", Own: 1}), labkit.Inconclusive)
}

// A StatefulSet that got another template on the way has revisions of both.
func TestMostOfOne(t *testing.T) {
	var revs []kube.Object
	for _, image := range []string{"a", "b", "a", "c", "a"} {
		revs = append(revs, kube.Object{Object: map[string]any{"data": map[string]any{"image": image}}})
	}
	if n := mostOfOne(revs); n != 3 {
		t.Errorf("%d", n)
	}
	if n := mostOfOne(nil); n != 0 {
		t.Errorf("%d of nothing", n)
	}
}

func TestJudgeEqualLabel(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "hash-collision-equal-label")
	of := func(zero, one uint32, revisions int) recounted {
		return recounted{Name: "db", Zero: zero, One: one, Revisions: revisions, Was: "u", Is: "u"}
	}
	good := []any{of(1, 2, 1), of(3, 4, 1), of(1<<31, 1<<31+1, 1), of(1<<31+5, 1<<31+7, 1)}
	judgetest.Cut(t, l, made(l, good, 0, nil))
	judgetest.Judge(t, l, made(l, good, 3, of(1<<31+5, 1<<31+7, 2)), labkit.Reproduced)
	judgetest.Judge(t, l, made(l, good, 0, of(1, 2, 2)), labkit.Reproduced)
	judgetest.Judge(t, l, made(l, good, 0, of(1, 1<<31, 1)), labkit.Inconclusive)
	judgetest.Judge(t, l, made(l, good, 0, of(1, 2, 0)), labkit.Inconclusive)
}

func TestJudgeOrder(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "hash-collision-stable-order")
	of := func(o synced) *history.History { return made(l, []any{o}, 0, nil) }
	judgetest.Cut(t, l, of(synced{Syncs: enoughSyncs, Updates: []string{"a", "a"}}))
	judgetest.Judge(t, l, of(synced{Syncs: enoughSyncs, Updates: []string{"a", "b", "a"}}), labkit.Reproduced)
	judgetest.Judge(t, l, of(synced{Syncs: enoughSyncs, Updates: []string{"a"}, Made: 1}), labkit.Reproduced)
	judgetest.Judge(t, l, of(synced{Syncs: enoughSyncs}), labkit.Inconclusive)
	judgetest.Judge(t, l, of(synced{Syncs: enoughSyncs, Updates: []string{"a"}, Gaps: 1}), labkit.Inconclusive)
	judgetest.Judge(t, l, of(synced{Syncs: enoughSyncs - 1, Updates: []string{"a"}}), labkit.Inconclusive)
}
