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
	l := judgetest.Lab(t, Labs(), "security-use-nsenter")
	of := func(v labkit.Variant, o ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: "long"}, o...)
	}
	n := len(subPathMounts)
	good := boundSubPaths{Ready: true, Apart: true, Nsenter: n}
	judgetest.Cut(t, l, of(labkit.Ours, good, leftSubPaths{}))
	judgetest.Judge(t, l, of(labkit.Stock, good, leftSubPaths{}), labkit.Passed)
	for _, tc := range []struct {
		o    boundSubPaths
		left leftSubPaths
		want labkit.Verdict
	}{
		{boundSubPaths{Apart: true, Nsenter: n, Events: []string{"no"}}, leftSubPaths{}, labkit.Failed},
		{boundSubPaths{Ready: true, Nsenter: n}, leftSubPaths{}, labkit.Inconclusive},
		{boundSubPaths{Ready: true, Apart: true, Nsenter: n - 1}, leftSubPaths{}, labkit.Inconclusive},
		{boundSubPaths{Ready: true, Apart: true, Nsenter: n, Other: 1}, leftSubPaths{}, labkit.Failed},
		{good, leftSubPaths{[]string{"x"}}, labkit.Failed},
	} {
		judgetest.Judge(t, l, of(labkit.Ours, tc.o, tc.left), tc.want)
	}
}
