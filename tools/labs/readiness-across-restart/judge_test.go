// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package readinessacrossrestart

import (
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labs/internal/kubeletlab"
)

// made is a history in which all went well, with the i-th observation another one.
func made(v labkit.Variant, p labkit.Profile, at int, o any) *history.History {
	var all []any
	for i := range restarts(v, p) + 1 {
		all = append(all, restarted{Round: i, What: "restart", Kept: probed, MustKeep: probed, Seen: kubeletlab.Published{Lowest: probed}})
	}
	all = append(all, requests{load.Report{OK: 9}, load.Report{OK: 1, Failed: 1}}, everReady{Events: 1})
	if v == labkit.Ours {
		all = append(all, fast{Starts: 3, NotReadyAfter: 8 * time.Second})
		if p == labkit.Long {
			all = append(all, wentAway{awayFor, 22})
		}
	}
	if o != nil {
		if at < 0 {
			at += len(all)
		}
		all[at] = o
	}
	return history.Make(history.Begin{Lab: "readiness-across-restart", Variant: string(v), Profile: string(p)}, all...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "readiness-across-restart")
	for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
		judgetest.Cut(t, l, made(labkit.Ours, p, 0, nil))
	}
	round := func(kept float64, p kubeletlab.Published) restarted {
		return restarted{Round: 1, What: "restart", Kept: kept, MustKeep: probed, Seen: p}
	}
	for _, v := range []labkit.Variant{labkit.Stock, labkit.Ours} {
		judgetest.Judge(t, l, made(v, labkit.Short, 1, round(probed, kubeletlab.Published{NotReady: map[string]int{"web-01": 1}})), labkit.Reproduced)
		judgetest.Judge(t, l, made(v, labkit.Short, 1, round(probed, kubeletlab.Published{Removed: 1})), labkit.Reproduced)
		judgetest.Judge(t, l, made(v, labkit.Short, restarts(v, labkit.Short)+1, requests{load.Report{OK: 9, Failed: 1}, load.Report{Failed: 1}}), labkit.Reproduced)
		judgetest.Judge(t, l, made(v, labkit.Short, restarts(v, labkit.Short)+2, everReady{Events: 2, At: []string{"10:00:00.000"}}), labkit.Reproduced)
		judgetest.Judge(t, l, made(v, labkit.Short, restarts(v, labkit.Short)+2, everReady{}), labkit.Inconclusive)
		judgetest.Judge(t, l, made(v, labkit.Short, restarts(v, labkit.Short)+1, requests{load.Report{}, load.Report{Failed: 1}}), labkit.Inconclusive)
		judgetest.Judge(t, l, made(v, labkit.Short, restarts(v, labkit.Short)+1, requests{load.Report{OK: 9, Failed: 1, TimedOut: 1}, load.Report{Failed: 1}}), labkit.Inconclusive)
		judgetest.Judge(t, l, made(v, labkit.Short, restarts(v, labkit.Short)+1, requests{load.Report{OK: 9, Failed: 2, TimedOut: 1}, load.Report{Failed: 1}}), labkit.Reproduced)
		judgetest.Judge(t, l, made(v, labkit.Short, restarts(v, labkit.Short)+1, requests{load.Report{OK: 9}, load.Report{Failed: 2, NoTarget: 2}}), labkit.Inconclusive)
	}
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Short, 1, round(probed-1, kubeletlab.Published{})), labkit.Inconclusive)
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Short, 1, round(probed-1, kubeletlab.Published{Removed: 1})), labkit.Reproduced)
	judgetest.Judge(t, l, made(labkit.Stock, labkit.Short, 1, round(0, kubeletlab.Published{})), labkit.Absent)
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Short, -1, fast{Starts: 9, For: time.Minute}), labkit.Reproduced)
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Long, -1, wentAway{For: awayFor}), labkit.Reproduced)
}
