// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package packageupgrade

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/kubeletlab"
)

func snapshot(id string) kubeletlab.Snapshot {
	return kubeletlab.Snapshot{"default/web-0/main": {ID: id, StartedAt: id, Pod: "web-0"}, "default/web-0/POD": {ID: "s", StartedAt: "s", Pod: "web-0", Sandbox: true}}
}

func made(c judgetest.Change) *history.History {
	var all []any
	for _, s := range legs {
		if s.upstream {
			continue
		}
		o := observed{Leg: s.name, Down: 3, Active: "active", Kubelet: s.version, Before: snapshot("1"), After: snapshot("1"), Kept: s.kept, KeptAll: len(s.kept)}
		if s.version == holdfast {
			o.Kubelet = "v1.9.11+holdfast.3"
		}
		all = append(all, o)
	}
	return history.Make(history.Begin{Lab: "package-upgrade", Variant: "ours", Profile: "short"}, c.Of(all)...)
}

func at(name string, f func(*observed)) judgetest.Change {
	return judgetest.Where(func(o observed) bool { return o.Leg == name }, f)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "package-upgrade")
	judgetest.Cut(t, l, made(nil))
	const first, next, five, back = "1.7.0 to Holdfast", "to the next", "1.9.11 to Holdfast, one of five", "back to 1.9.11"
	judgetest.Judged(t, l, labkit.Failed, made, map[string]judgetest.Change{
		"it failed: dpkg":                       at(first, func(o *observed) { o.Failed = "dpkg" }),
		"the unit is inactive":                  at(next, func(o *observed) { o.Active = "inactive" }),
		"with kubelet v1.7.0":                   at(first, func(o *observed) { o.Kubelet = old }),
		"with kubelet v1.9.11+holdfast.3, want": at(back, func(o *observed) { o.Kubelet = "v1.9.11+holdfast.3" }),
		"was down for 10.1 s":                   at(next, func(o *observed) { o.Down = 10.1 }),
		"was down for -1.0 s":                   at(five, func(o *observed) { o.Down = -1 }),
		"1 containers were replaced":            at(five, func(o *observed) { o.After = snapshot("2") }),
		"2 containers were replaced":            at(back, func(o *observed) { o.After = kubeletlab.Snapshot{} }),
		"1 pods published as not ready":         at(first, func(o *observed) { o.Published.NotReady = map[string]int{"web-0": 1} }),
		"1 addresses removed":                   at(next, func(o *observed) { o.Published.Removed = 1 }),
		"files of the administrator":            at(first, func(o *observed) { o.Files = map[string]string{"/etc/default/kubelet": "changed"} }),
		"the kept kubelets are [v1.7.0], 1 in all, want [v1.7.0 v1.9.11]": at(five, func(o *observed) { o.Kept, o.KeptAll = []string{old}, 1 }),
		"the kept kubelets are [v1.7.0], 2 in all, want [v1.7.0]":         at(next, func(o *observed) { o.KeptAll = 2 }),
	})
	judgetest.Judge(t, l, made(at(five, func(o *observed) { o.Down, o.Published.Removed = 30, 4 })), labkit.Passed)
	judgetest.Judge(t, l, made(at(first, func(o *observed) { o.Before = nil })), labkit.Inconclusive)
	judgetest.Judge(t, l, made(judgetest.Without(func(o observed) bool { return o.Leg == next })), labkit.Inconclusive)
}
