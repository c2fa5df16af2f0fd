// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionacrossrestart

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// made is a history of a variant: of ours in which all went well, of another in which each
// pod was lost. change may change one trial.
func made(v labkit.Variant, at int, change func(*tried)) *history.History {
	var all []any
	for i, name := range names {
		o := tried{Trial: name, Met: "met", Pods: map[string]string{"web-0": "", "web-1": "", "web-2": "", "back-off": ""}, Kept: 7, New: "Evicted: so"}
		if i == 0 {
			o.Fits, o.New = true, admitted
		}
		if v != labkit.Ours {
			for p := range o.Pods {
				o.Pods[p] = "Evicted: so"
			}
			o.Kept, o.New = 0, "Evicted: so"
		}
		if i == at && change != nil {
			change(&o)
		}
		all = append(all, o)
	}
	return history.Make(history.Begin{Lab: "admission-across-restart", Variant: string(v), Profile: string(labkit.Short)}, all...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "admission-across-restart")
	judgetest.Cut(t, l, made(labkit.Ours, 0, nil))
	judgetest.Judge(t, l, made(labkit.Ours, 0, nil), labkit.Absent)
	judgetest.Judge(t, l, made(labkit.Stock, 0, nil), labkit.Reproduced)
	judgetest.Judge(t, l, made(labkit.GateOff, 0, nil), labkit.Reproduced)
	whole := func(o *tried) {
		for p := range o.Pods {
			o.Pods[p] = ""
		}
		o.Kept = 7
	}
	lose := func(o *tried) { o.Pods["back-off"] = "does not run any more" }
	in := func(o *tried) { o.New = admitted }
	for i := range names {
		judgetest.Judge(t, l, made(labkit.Ours, i, lose), labkit.Reproduced)
		judgetest.Judge(t, l, made(labkit.Stock, i, whole), labkit.Inconclusive)
		judgetest.Judge(t, l, made(labkit.Ours, i, func(o *tried) { o.Met = "" }), labkit.Inconclusive)
		judgetest.Judge(t, l, made(labkit.Ours, i, func(o *tried) { o.Kept = 0 }), labkit.Inconclusive)
		judgetest.Judge(t, l, made(labkit.Ours, i, func(o *tried) { delete(o.Pods, "back-off") }), labkit.Inconclusive)
		if i > 0 {
			judgetest.Judge(t, l, made(labkit.Ours, i, in), labkit.Reproduced)
			judgetest.Judge(t, l, made(labkit.Stock, i, in), labkit.Inconclusive)
		}
	}
	judgetest.Judge(t, l, made(labkit.Ours, 0, func(o *tried) { o.New = "MatchNodeSelector: so" }), labkit.Reproduced)
}
