// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"maps"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/kubeletlab"
)

var (
	ranAll = kubeletlab.Snapshot{newContainer: {ID: "x"}, "default/web-0/web": {ID: "a"}, "default/web-0/POD": {ID: "b", Sandbox: true}}
	asTold = kubeletlab.Snapshot{newContainer: {ID: "y"}, "default/web-0/web": {ID: "a"}, "default/web-0/POD": {ID: "b", Sandbox: true}}
	six    = kubeletlab.Snapshot{"default/web-0/web": {ID: "a"}, "default/web-0/POD": {ID: "b", Sandbox: true}}
	others = kubeletlab.Snapshot{"default/web-0/web": {ID: "c"}, "default/web-0/POD": {ID: "b", Sandbox: true}}
)

// made is a history of a check, with the i-th observation another one.
func made(l *labkit.Lab, all []any, i int, o any) *history.History {
	all = append([]any{}, all...)
	if o != nil {
		all[i] = o
	}
	return history.Make(history.Begin{Lab: l.Name, Variant: "ours", Profile: string(labkit.Long)}, all...)
}

func TestJudgeRunbook(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "upgrade-runbook")
	good := []any{readPage{2}, ran{Line: 3, Where: "node"}, ran{Line: 9, Where: "admin"}, returned{old, ranAll, asTold}, fileLeft{Text: precious}}
	judgetest.Cut(t, l, made(l, good, 0, nil))
	for i, bad := range map[int]any{1: ran{Line: 3, Output: "STOP HF601"}, 2: ran{Line: 9, Error: "exit status 1"}, 3: returned{base, ranAll, asTold}, 4: fileLeft{Error: "no such file"}} {
		judgetest.Judge(t, l, made(l, good, i, bad), labkit.Failed)
	}
	another := maps.Clone(asTold)
	another["default/web-0/web"] = kubeletlab.Container{ID: "c"}
	for _, after := range []kubeletlab.Snapshot{ranAll, another, nil} { // the one told is kept, another is recreated, all are gone
		judgetest.Judge(t, l, made(l, good, 3, returned{old, ranAll, after}), labkit.Failed)
	}
	judgetest.Judge(t, l, made(l, []any{readPage{2}, ran{Line: 3, Error: "exit status 1"}}, 0, nil), labkit.Failed) // nothing comes after it
	judgetest.Judge(t, l, made(l, good, 0, readPage{3}), labkit.Inconclusive)
	judgetest.Judge(t, l, made(l, good, 3, returned{old, six, six}), labkit.Inconclusive)
}

func TestJudgeUnits(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "kubelet-units")
	good := []any{checked{underTest, unitAPIServers, false, refusesServers}}
	kept := &kubeletlab.Swapped{Command: "node swap", Kept: len(kubeletlab.Compare(six, six, func(_ string, c kubeletlab.Container) bool { return !c.Sandbox }).Kept)}
	for i, k := range unitSwaps {
		by := kept
		if i == 0 {
			by = nil
		}
		good = append(good, swappedUnit{k, by, six, six}, checked{old, unitRecommended, true, ""}, checked{underTest, unitRecommended, true, ""})
	}
	good = append(good, checked{underTest, unitGate, true, ""}, checked{old, unitGate, false, refusesGate},
		reported{middle, middle, ""}, reported{base, base, ""})
	judgetest.Cut(t, l, made(l, good, 0, nil))
	n := len(good)
	for i, bad := range map[int]any{0: checked{underTest, unitAPIServers, true, ""}, 1: swappedUnit{old, nil, six, others},
		4: swappedUnit{underTest, &kubeletlab.Swapped{Command: "node swap"}, six, six}, 2: checked{old, unitRecommended, false, "no"},
		n - 4: checked{underTest, unitGate, false, "no"}, n - 3: checked{old, unitGate, false, "for another reason"},
		n - 2: reported{middle, old, "not within 30s"}, n - 1: reported{base, base, "pods ready: not within 2m"}} {
		judgetest.Judge(t, l, made(l, good, i, bad), labkit.Failed)
	}
	judgetest.Judge(t, l, made(l, good, 1, swappedUnit{old, nil, nil, nil}), labkit.Inconclusive)
	judgetest.Judge(t, l, made(l, good, 4, swappedUnit{underTest, nil, six, six}), labkit.Inconclusive)
	short := func(all ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: "ours", Profile: string(labkit.Short)}, all...)
	}
	judgetest.Cut(t, l, short(append(append([]any{}, good[:n-2]...), good[n-1])...))
	judgetest.Judge(t, l, short(good...), labkit.Inconclusive) // nobody asked for v1.8.15
}

func TestJudgeStandalone(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "kubelet-units-standalone")
	var good []any
	for _, r := range unitRows {
		o := rowSeen{Kubelet: r.kubelet, Unit: r.unit, Before: six}
		if o.Ends = r.ends != ""; o.Ends {
			o.After = six
		} else {
			o.Started, o.Standalone = true, true
		}
		good = append(good, checked{r.kubelet, r.unit, false, "no"}, o)
	}
	judgetest.Cut(t, l, made(l, good, 0, nil))
	for i, change := range map[int]func(*rowSeen){
		1: func(o *rowSeen) { o.Standalone = false },
		3: func(o *rowSeen) { o.Started = true },
		5: func(o *rowSeen) { o.After = others },
		7: func(o *rowSeen) { o.After = six },
	} {
		o := good[i].(rowSeen)
		change(&o)
		judgetest.Judge(t, l, made(l, good, i, o), labkit.Failed)
	}
	judgetest.Judge(t, l, made(l, good, 2, checked{unitRows[1].kubelet, unitRows[1].unit, true, ""}), labkit.Failed)
}
