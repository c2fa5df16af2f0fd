// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletcpu

import (
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, "kubelet-cpu")
	of := func(stock, ours time.Duration) *history.History {
		var all []any
		for _, who := range turns {
			all = append(all, turn{who, map[string]time.Duration{"stock": stock, "ours": ours}[who], time.Minute, 20})
		}
		return history.Make(history.Begin{Lab: l.Name, Variant: "ours"}, all...)
	}
	judgetest.Cut(t, l, of(time.Second, 1200*time.Millisecond))
	judgetest.Judge(t, l, of(time.Second, 1400*time.Millisecond), labkit.Failed)
	judgetest.Judge(t, l, of(0, time.Second), labkit.Inconclusive)
	judgetest.Judge(t, l, of(time.Second, 0), labkit.Inconclusive)
}
