// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseidentity

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// made is a history of a variant in which both lead in each way, or one does. change may
// change one way.
func made(v labkit.Variant, both bool, at int, change func(*together)) *history.History {
	var all []any
	for i, w := range successions {
		o := together{Way: w.name, First: true, Second: both, Created: replicas}
		if i == at && change != nil {
			change(&o)
		}
		all = append(all, o, followed{w.name, 15})
	}
	return history.Make(history.Begin{Lab: "lease-identity", Variant: string(v), Profile: string(labkit.Short)}, all...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "lease-identity")
	judgetest.Cut(t, l, made(labkit.Ours, false, 0, nil))
	judgetest.Judge(t, l, made(labkit.Ours, false, 0, nil), labkit.Absent)
	for _, v := range []labkit.Variant{labkit.Stock, labkit.GateOff} {
		judgetest.Judge(t, l, made(v, true, 0, nil), labkit.Reproduced)
	}
	for i := range successions {
		judgetest.Judge(t, l, made(labkit.Ours, false, i, func(o *together) { o.Second = true }), labkit.Reproduced)
		judgetest.Judge(t, l, made(labkit.Ours, false, i, func(o *together) { o.Created++ }), labkit.Reproduced)
		judgetest.Judge(t, l, made(labkit.Ours, false, i, func(o *together) { o.Created-- }), labkit.Inconclusive)
		judgetest.Judge(t, l, made(labkit.Ours, false, i, func(o *together) { o.First = false }), labkit.Inconclusive)
		judgetest.Judge(t, l, made(labkit.Stock, true, i, func(o *together) { o.Second = false }), labkit.Inconclusive)
	}
}
