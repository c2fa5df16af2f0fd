// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudgeRanking(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "etc-hosts-ranking")
	of := func(o ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: "ours", Profile: "long"}, o...)
	}
	first, end := evictedFirst{"writer", true}, inTheEnd{OtherRuns: true, PressureGone: true, Removed: 1}
	judgetest.Cut(t, l, of(first, end))
	judgetest.Judge(t, l, of(evictedFirst{"other", true}, inTheEnd{OtherEvicted: true, HostsMiB: 130}), labkit.Reproduced)
	judgetest.Judge(t, l, of(first, inTheEnd{OtherEvicted: true, HostsMiB: 130}), labkit.Reproduced)
	for name, o := range map[string]inTheEnd{
		"pressure stays":     {OtherRuns: true, Removed: 1},
		"other does not run": {PressureGone: true, Removed: 1},
		"file stays":         {OtherRuns: true, PressureGone: true, HostsMiB: 130, Removed: 1},
		"not counted":        {OtherRuns: true, PressureGone: true},
	} {
		if res := l.Judge(of(first, o)); res.Verdict != labkit.Inconclusive {
			t.Errorf("%s: %s because %s", name, res.Verdict, res.Why)
		}
	}
}
