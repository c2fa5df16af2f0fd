// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudgePluginPath(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "cni-plugin-name")
	of := func(o ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: "ours", Profile: "long"}, o...)
	}
	good := plugged{Ready: true, Named: true, Counted: 1}
	judgetest.Cut(t, l, of(good))
	for _, tc := range []struct {
		o    plugged
		want labkit.Verdict
	}{
		{plugged{Ran: true}, labkit.Reproduced},
		{plugged{Ran: true, Ready: true, Named: true, Counted: 1}, labkit.Reproduced},
		{plugged{Ready: true, Named: true}, labkit.Inconclusive},
		{plugged{Ready: true, Counted: 1}, labkit.Inconclusive},
		{plugged{Named: true, Counted: 1}, labkit.Inconclusive},
	} {
		judgetest.Judge(t, l, of(tc.o), tc.want)
	}
	judgetest.Judge(t, l, of(good, good), labkit.Inconclusive)
}
