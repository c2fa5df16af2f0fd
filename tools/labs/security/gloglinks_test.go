// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudgeLogLinks(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "glog-no-follow")
	of := func(o ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: "ours", Profile: "short"}, o...)
	}
	good := followed{Log: "x", Planted: true, Own: true, Untouched: true, Counted: 1}
	judgetest.Cut(t, l, of(good))
	for _, tc := range []struct {
		o    followed
		want labkit.Verdict
	}{
		{followed{Planted: true, InVictim: true}, labkit.Reproduced},
		{followed{Planted: true, InVictim: true, Own: true, Counted: 1}, labkit.Reproduced},
		{followed{InVictim: true}, labkit.Inconclusive},
		{followed{Own: true, Untouched: true, Counted: 1}, labkit.Inconclusive},
		{followed{Planted: true, Own: true, Counted: 1}, labkit.Inconclusive},
		{followed{Planted: true, Untouched: true, Counted: 1}, labkit.Inconclusive},
		{followed{Planted: true, Own: true, Untouched: true}, labkit.Inconclusive},
	} {
		judgetest.Judge(t, l, of(tc.o), tc.want)
	}
	judgetest.Judge(t, l, of(good, good), labkit.Inconclusive)
}
