// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/webset"
)

func madeKubelets(v labkit.Variant, p labkit.Profile, c judgetest.Change) *history.History {
	var list []any
	for _, col := range columnsOf(v) {
		for n := range rounds(p) {
			list = append(list, change{goodRound(n, false).replacement, col, at(0.9)})
		}
	}
	return history.Make(history.Begin{Lab: "endpoints-rules-kubelets", Variant: string(v), Profile: string(p)}, c.Of(list)...)
}

func TestJudgeKubelets(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-rules-kubelets")
	for _, v := range []labkit.Variant{labkit.Stock, labkit.Ours} {
		for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
			judgetest.Cut(t, l, madeKubelets(v, p, nil))
		}
	}
	early := func(c *change) { c.Updates = []update{{at(1), []string{webset.Name(3)}}, {at(7), nil}} }
	in := func(v labkit.Variant) func(judgetest.Change) *history.History {
		return func(c judgetest.Change) *history.History { return madeKubelets(v, labkit.Short, c) }
	}
	col := func(name column, f func(*change)) judgetest.Change {
		return judgetest.Where(func(c change) bool { return c.Column == name }, f)
	}
	judgetest.Judged(t, l, labkit.Reproduced, in(labkit.Stock), map[string]judgetest.Change{
		"stock: the client enabled pods whose old container still ran: [web-03] (fixed windows), [web-03]": col(stockColumn, early),
	})
	judgetest.Judged(t, l, labkit.Reproduced, in(labkit.Ours), map[string]judgetest.Change{
		"kubelet: the client enabled":                     col(kubeletColumn, early),
		"webhook: the client enabled":                     col(webhookColumn, early),
		"kubelet and webhook: the client enabled":         col(bothColumn, early),
		"webhook: 5s after the last pod became ready, 19": col(webhookColumn, func(c *change) { c.Late, c.Addresses = 0, 19 }),
		"batching 5s: 10s after the last pod became":      col(batchingColumn, func(c *change) { c.Late, c.Addresses = 0, 19 }),
	})
	judgetest.Judged(t, l, labkit.Absent, in(labkit.Ours), map[string]judgetest.Change{
		"batching 5s 1 (fixed windows), 1 (trailing)": col(batchingColumn, early),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, in(labkit.Ours), map[string]judgetest.Change{
		"kubelet: docker reported the end of the old containers of 19 of 20": col(kubeletColumn, func(c *change) {
			c.Pods = append([]replaced{}, c.Pods...)
			c.Pods[2].Gone = 0
		}),
		"webhook: the images were changed within 3s": col(webhookColumn, func(c *change) { c.Patched = at(3) }),
		"webhook: the Endpoints never changed":       col(webhookColumn, func(c *change) { c.Updates = nil }),
		"batching 5s: 0 rounds, want 1":              judgetest.Without(func(c change) bool { return c.Column == batchingColumn }),
	})
}
