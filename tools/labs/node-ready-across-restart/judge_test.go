// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodereadyacrossrestart

import (
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/kube"
)

const notReady = "False: container runtime is down"

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "node-ready-across-restart")
	made := func(c judgetest.Change) *history.History {
		var all []any
		for i := range starts {
			all = append(all, started{Start: i + 1, Statuses: []string{ready, ready}})
		}
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours)}, c.Of(append(all, without{Statuses: []string{notReady}, Back: ready}))...)
	}
	at := func(start int, statuses ...string) judgetest.Change {
		return judgetest.Where(func(o started) bool { return o.Start == start }, func(o *started) { o.Statuses = statuses })
	}
	judgetest.Cut(t, l, made(nil))
	judgetest.Judge(t, l, made(nil), labkit.Absent)
	judgetest.Judged(t, l, labkit.Reproduced, made, map[string]judgetest.Change{
		"1 of 10": at(1, notReady, ready),
		"start 7": at(7, ready, notReady),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"start 3: 1 statuses":   at(3, ready),
		`published ["True"`:     judgetest.As(without{Statuses: []string{ready, notReady}, Back: ready}),
		"published []":          judgetest.As(without{Back: ready}),
		`network state`:         judgetest.As(without{Statuses: []string{"False: network state unknown"}, Back: ready}),
		`"Unknown: container`:   judgetest.As(without{Statuses: []string{"Unknown: container runtime is down"}, Back: ready}),
		"when dockerd was back": judgetest.As(without{Statuses: []string{notReady}, Back: notReady}),
	})
}

func TestPublished(t *testing.T) {
	event := func(status, at string) kube.RecordedEvent {
		return kube.RecordedEvent{Object: &kube.Object{Object: map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": "DiskPressure", "status": "False", "lastHeartbeatTime": at + "0"},
			map[string]any{"type": "Ready", "status": status, "message": "so", "lastHeartbeatTime": at},
		}}}}}
	}
	evs := []kube.RecordedEvent{event("True", "1"), event("True", "2"), event("True", "2"), event("False", "2"), event("True", "4"), event("True", "4"), event("True", "6")}
	for seen, want := range map[int][]string{2: {"False: so", ready, ready}, 4: {ready, ready}, 5: {ready}, 7: nil} {
		if got := published(evs, seen); !slices.Equal(got, want) {
			t.Errorf("after %d: %q, want %q", seen, got, want)
		}
	}
}
