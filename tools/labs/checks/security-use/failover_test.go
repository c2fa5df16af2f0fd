// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package securityuse

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudgeFailover(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "security-use-failover")
	made := func(change func(i int, o *ledBy)) *history.History {
		var all []any
		for _, w := range successions {
			for i, second := range []bool{false, true} {
				o := ledBy{Way: w.name, Manager: w.first, Second: second, Policy: w.kept[i], Pod: true}
				if second {
					o.Manager = w.second
				}
				change(len(all), &o)
				all = append(all, o)
			}
			all = append(all, ended{w.name, 3})
		}
		return history.Make(history.Begin{Lab: l.Name, Variant: "ours", Profile: "long"}, all...)
	}
	judgetest.Cut(t, l, made(func(int, *ledBy) {}))
	for at := range 3 * len(successions) {
		if at%3 == 2 {
			continue
		}
		judgetest.Judge(t, l, made(func(i int, o *ledBy) { o.Policy = o.Policy != (i == at) }), labkit.Failed)
		judgetest.Judge(t, l, made(func(i int, o *ledBy) { o.Pod = i != at }), labkit.Failed)
		judgetest.Judge(t, l, made(func(i int, o *ledBy) { o.Second = o.Second != (i == at) }), labkit.Inconclusive)
	}
}
