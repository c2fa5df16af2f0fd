// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hostporthostip

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "hostport-host-ip")
	of := func(r reached, e ended) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours)}, r, e)
	}
	good := reached{Own: true, Rules: 2}
	judgetest.Cut(t, l, of(good, ended{}))
	judgetest.Judge(t, l, of(good, ended{}), labkit.Absent)
	judgetest.Judge(t, l, of(reached{Own: true, Other: true, Rules: 2}, ended{}), labkit.Reproduced)
	judgetest.Judge(t, l, of(good, ended{Rules: 1}), labkit.Reproduced)
	judgetest.Judge(t, l, of(reached{Rules: 2}, ended{}), labkit.Inconclusive)
	judgetest.Judge(t, l, of(reached{Own: true}, ended{}), labkit.Inconclusive)
}
