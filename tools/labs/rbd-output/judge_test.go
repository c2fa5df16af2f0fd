// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdoutput

import (
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/rbdlab"
)

func late(when, phase string, watchers ...string) rbdlab.State {
	return rbdlab.State{Image: "late", When: when, Watchers: watchers, Pods: map[string]rbdlab.PodState{"late": {Phase: phase}},
		InUse: map[string][]string{"node1": {"kubernetes.io/rbd/[10.90.0.1:6789]:late"}}}
}

// good are the observations of ours; the places by their position are named below.
func good() []any {
	all := []any{
		calls{RBD: []string{"status", "lock list", "map"}}, calls{ReadOnly: true, RBD: []string{"status", "lock list", "map", "status"}},
		image{provisioned, smaller, "64Mi", 1}, image{expanded, larger, "128Mi", 2}, failed{true}, image{When: removed},
		waitEvent{true}, late(waits, "Pending"), late(runs, "Running", "10.90.0.11:0/1"), rbdlab.State{Image: "late", When: removed},
		rbdlab.Contents{Image: "late", When: removed, Files: map[string]string{rbdlab.DataFile: rbdlab.DataOf("late")}},
	}
	for _, in := range []string{"node1-kubelet", "/api/v1/events", "/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims", "/api/v1/pods", "/api/v1/nodes"} {
		all = append(all, sighted{In: in})
	}
	return append(all, sighted{In: "kube-controller-manager", Creates: 2})
}

const atCalls, atExpanded, atRemoved, atWaits, atRuns, atGone, atContents = 0, 3, 5, 7, 8, 9, 10

func with(changes map[int]any) []any {
	all := good()
	for at, o := range changes {
		all[at] = o
	}
	return all
}

func made(v string, all []any) *history.History {
	return history.Make(history.Begin{Lab: "rbd-output", Variant: v, Profile: string(labkit.Long)}, all...)
}

// asStock is a history of stock.
func asStock() []any {
	all := with(map[int]any{atExpanded: image{expanded, smaller, "64Mi", 60}, atCalls: calls{RBD: []string{"status", "map"}}, atCalls + 1: calls{ReadOnly: true, RBD: []string{"status", "map"}}})
	all[len(all)-1] = sighted{In: "kube-controller-manager", Admin: 9, Bad: 2, Creates: 2}
	return all
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rbd-output")
	judgetest.Cut(t, l, made(string(labkit.Ours), good()))
	judgetest.Judge(t, l, made(string(labkit.Stock), asStock()), labkit.Reproduced)
	judgetest.Judge(t, l, made("ours -rbd-output", asStock()), labkit.Reproduced)
	expands := slices.Clone(asStock())
	expands[atExpanded] = image{expanded, larger, "128Mi", 2}
	judgetest.Judge(t, l, made(string(labkit.Stock), expands), labkit.Inconclusive)
	judgetest.Judge(t, l, made("ours -rbd-output", expands), labkit.Reproduced)
	many := asStock()
	many[atCalls] = calls{RBD: []string{"status", "status", "map"}}
	judgetest.Judge(t, l, made(string(labkit.Stock), many), labkit.Inconclusive)
	for name, c := range map[string]struct {
		at   int
		by   any
		want labkit.Verdict
	}{
		"does not expand":         {atExpanded, image{expanded, smaller, "64Mi", 60}, labkit.Reproduced},
		"the volume lags behind":  {atExpanded, image{expanded, larger, "64Mi", 60}, labkit.Reproduced},
		"not provisioned":         {atExpanded - 1, image{When: provisioned}, labkit.Inconclusive},
		"stays":                   {atRemoved, image{When: removed, MiB: larger, Capacity: "128Mi"}, labkit.Reproduced},
		"admin's key in an event": {len(good()) - 6, sighted{In: "/api/v1/events", Admin: 1}, labkit.Reproduced},
		"bad key in an event":     {len(good()) - 6, sighted{In: "/api/v1/events", Bad: 1}, labkit.Reproduced},
		"the log says too little": {len(good()) - 1, sighted{In: "kube-controller-manager"}, labkit.Inconclusive},
		"runs without an attach":  {atWaits, late(waits, "Running", "10.90.0.11:0/1"), labkit.Inconclusive},
		"nobody wants it":         {atWaits, rbdlab.State{Image: "late", When: waits}, labkit.Inconclusive},
		"never runs":              {atRuns, late(runs, "Pending"), labkit.Reproduced},
		"never detached":          {atGone, late(removed, "", "10.90.0.11:0/1"), labkit.Reproduced},
		"damaged":                 {atContents, rbdlab.Contents{Image: "late", When: removed, Fsck: "exit status 4"}, labkit.Reproduced},
		"too many commands":       {atCalls, calls{RBD: []string{"status", "lock list", "info", "lock list", "map"}}, labkit.Reproduced},
	} {
		t.Log(name)
		judgetest.Judge(t, l, made(string(labkit.Ours), with(map[int]any{c.at: c.by})), c.want)
	}
}
