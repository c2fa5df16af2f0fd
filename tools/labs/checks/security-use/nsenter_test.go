// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package securityuse

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudgeContainerized(t *testing.T) {
	l := judgetest.Lab(t, "security-use-nsenter")
	of := func(v labkit.Variant, o ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: "long"}, o...)
	}
	n := len(subPathMounts)
	good := boundSubPaths{Ready: true, Nsenter: n}
	judgetest.Cut(t, l, of(labkit.Ours, good, leftSubPaths{}))
	plain := boundSubPaths{Ready: true, Nsenter: n, Plain: n}
	judgetest.Judge(t, l, of(labkit.Stock, plain, leftSubPaths{}), labkit.Passed)
	for _, tc := range []struct {
		o    boundSubPaths
		left leftSubPaths
		want labkit.Verdict
	}{
		{boundSubPaths{Nsenter: n, Events: []string{"no"}}, leftSubPaths{}, labkit.Failed},
		{boundSubPaths{Ready: true, Nsenter: n - 1}, leftSubPaths{}, labkit.Inconclusive},
		{plain, leftSubPaths{}, labkit.Failed},
		{boundSubPaths{Ready: true, Nsenter: n, Exchanged: 1}, leftSubPaths{}, labkit.Failed},
		{good, leftSubPaths{[]string{"x"}}, labkit.Failed},
	} {
		judgetest.Judge(t, l, of(labkit.Ours, tc.o, tc.left), tc.want)
	}
}
