// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labs/internal/kubeletlab"
)

func TestKindsJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "node-upgrade-kinds")
	run := kubeletlab.Snapshot{"default/a/web": {ID: "1", Pod: "a"}, "default/a/POD": {ID: "2", Pod: "a", Sandbox: true}, "default/b/web": {ID: "3", Pod: "b"}}
	made := func(c judgetest.Change) *history.History {
		var all []any
		for _, to := range []string{underTest, old} {
			o := kindsSwapped{To: to, By: &kubeletlab.Swapped{Command: swapCommands[to], Kept: 2}, Pods: podsOfKinds(), Before: run, After: run, Requests: 100, Free: free, Zone: "b",
				Forecast: []kubeletlab.Told{{Pod: "default/a", Container: "web", ID: "1", Answer: "kept"}, {Pod: "default/b", Container: "web", ID: "3", Answer: "kept"}}}
			if to == old { // what 1.7.0 does is not judged
				o.PodSeconds, o.NodeSeconds, o.Removed, o.Failed, o.After = 9, 9, 9, 9, kubeletlab.Snapshot{"default/b/web": {ID: "4", Pod: "b"}}
				o.Forecast[0].Answer, o.Forecast[1].Answer = "new", "new" // a has failed, b runs anew
				o.By.Kept, o.By.Recreated, o.By.Gone = 0, 1, 1
			}
			all = append(all, o)
		}
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours)}, c.Of(all)...)
	}
	to := func(to string, f func(*kindsSwapped)) judgetest.Change {
		return judgetest.Where(func(o kindsSwapped) bool { return o.To == to }, f)
	}
	judgetest.Cut(t, l, made(nil))
	judgetest.Judge(t, l, made(nil), labkit.Absent)
	judgetest.Judged(t, l, labkit.Reproduced, made, map[string]judgetest.Change{
		"pods killed: 1": to(underTest, func(o *kindsSwapped) {
			o.After = kubeletlab.Snapshot{"default/a/web": {ID: "5", Pod: "a"}, "default/b/web": run["default/b/web"]}
		}),
		"the forecast for default/b/web was new, but it is kept":  to(underTest, func(o *kindsSwapped) { o.Forecast[1].Answer = "new" }),
		"the forecast for default/a/web was kept, but it is gone": to(old, func(o *kindsSwapped) { o.Forecast[0].Answer = "kept" }),
		"the forecast does not name default/b/web":                to(old, func(o *kindsSwapped) { o.Forecast = o.Forecast[:1] }),
		"told of 1 kept, 0 recreated and 0 gone":                  to(underTest, func(o *kindsSwapped) { o.By = &kubeletlab.Swapped{Command: "node swap", Kept: 1} }),
		"node back told of 0 kept":                                to(old, func(o *kindsSwapped) { o.By = &kubeletlab.Swapped{Command: "node back"} }),
		"pods not Ready: 2.5 s":                                   to(underTest, func(o *kindsSwapped) { o.PodSeconds = 2.5 }),
		"node not Ready: 10 s":                                    to(underTest, func(o *kindsSwapped) { o.NodeSeconds = 10 }),
		"addresses removed from Endpoints: 3":                     to(underTest, func(o *kindsSwapped) { o.Removed = 3 }),
		"requests failed: 5":                                      to(underTest, func(o *kindsSwapped) { o.Failed, o.NodeSeconds, o.Slow = 5, 10, true }),
		"requests failed: 4":                                      to(underTest, func(o *kindsSwapped) { o.Failed = 4 }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"no swap to the kubelet v1.7.0":        judgetest.Without(func(o kindsSwapped) bool { return o.To == old }),
		"node swap did not swap":               to(underTest, func(o *kindsSwapped) { o.By = nil }),
		"the load sent nothing":                to(underTest, func(o *kindsSwapped) { o.Requests = 0 }),
		"v1.7.0: no container ran":             to(old, func(o *kindsSwapped) { o.After = nil }),
		"did not answer for 10 s":              to(underTest, func(o *kindsSwapped) { o.NodeSeconds, o.Slow = 10, true }),
		"59 pods were ready":                   to(underTest, func(o *kindsSwapped) { o.Pods = 59 }),
		"12 % of the disk is free":             to(underTest, func(o *kindsSwapped) { o.Free = 0.12 }),
		"under test: the Node's label zone is": to(underTest, func(o *kindsSwapped) { o.Zone = "a" }),
	})
}

func TestNotReady(t *testing.T) {
	now := time.Now()
	at := func(seconds int, kind, ready string) kube.RecordedEvent {
		return kube.RecordedEvent{Time: now.Add(time.Duration(seconds) * time.Second), Type: kind, Object: &kube.Object{Object: map[string]any{
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready}}}}}}
	}
	for name, c := range map[string]struct {
		evs  []kube.RecordedEvent
		want float64
	}{
		"always ready":         {[]kube.RecordedEvent{at(-5, "LISTED", "True"), at(5, "MODIFIED", "True")}, 0},
		"away for a while":     {[]kube.RecordedEvent{at(-5, "LISTED", "True"), at(5, "MODIFIED", "False"), at(6, "MODIFIED", "Unknown"), at(8, "MODIFIED", "True")}, 3},
		"before it only":       {[]kube.RecordedEvent{at(-9, "LISTED", "False"), at(-5, "MODIFIED", "True")}, 0},
		"from before it on":    {[]kube.RecordedEvent{at(-9, "LISTED", "False"), at(2, "MODIFIED", "True")}, 2},
		"until the end":        {[]kube.RecordedEvent{at(-9, "LISTED", "True"), at(12, "MODIFIED", "False"), at(30, "MODIFIED", "True")}, 8},
		"deleted":              {[]kube.RecordedEvent{at(-9, "LISTED", "True"), at(15, "DELETED", "True")}, 5},
		"after the end, twice": {[]kube.RecordedEvent{at(-9, "LISTED", "True"), at(1, "MODIFIED", "False"), at(2, "MODIFIED", "True"), at(4, "MODIFIED", "False"), at(6, "MODIFIED", "True"), at(21, "MODIFIED", "False")}, 3},
	} {
		if got := notReady(c.evs, now, now.Add(20*time.Second)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
