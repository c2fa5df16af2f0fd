// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package subpathrollback

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func dealtOf(what string, is string, stays bool) dealtWith {
	return dealtWith{What: what, Pods: []podDir{{"a", stays, true}, {"b", false, false}}, Files: map[string]file{"same/a/file": {"a", "1", is}, "same/a/dir/b": {"a", "2", "2"}}}
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "subpath-rollback")
	of := func(v labkit.Variant, p labkit.Profile, o ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: string(p)}, o...)
	}
	forced, back := dealtOf(whatForced, "1", false), dealtOf(whatBack+old, "1", false)
	judgetest.Cut(t, l, of(labkit.Ours, labkit.Short, forced, back))
	judgetest.Cut(t, l, of(labkit.Ours, labkit.Long, forced, back, dealtOf(whatBack+"v1.8.15", "1", false), dealtOf(whatBack+base, "1", false)))
	judgetest.Judge(t, l, of(labkit.Ours, labkit.Long, forced, back), labkit.Inconclusive)
	for _, bad := range []dealtWith{dealtOf(whatBack+old, "3", false), dealtOf(whatBack+old, "", false), dealtOf(whatBack+old, "1", true)} {
		judgetest.Judge(t, l, of(labkit.Ours, labkit.Short, forced, bad), labkit.Reproduced)
		judgetest.Judge(t, l, of(labkit.Ours, labkit.Long, forced, bad), labkit.Reproduced) // not all was seen
		judgetest.Judge(t, l, of(labkit.Ours, labkit.Short, dealtWith{What: whatForced}, bad), labkit.Reproduced)
		// Stock has to lose files in both ways.
		judgetest.Judge(t, l, of(labkit.Stock, labkit.Short, forced, bad), labkit.Inconclusive)
		judgetest.Judge(t, l, of(labkit.Stock, labkit.Short, dealtOf(whatForced, "", false), bad), labkit.Reproduced)
	}
	none := dealtWith{What: whatBack + old, Pods: []podDir{{"a", false, true}}}
	judgetest.Judge(t, l, of(labkit.Ours, labkit.Short, forced, none), labkit.Inconclusive)
	judgetest.Judge(t, l, of(labkit.Ours, labkit.Short, forced, dealtWith{What: whatBack + old}), labkit.Inconclusive)
}
