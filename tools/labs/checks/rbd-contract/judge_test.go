// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdcontract

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// good is a run without a difference but those that there always are.
func good() []any {
	var all []any
	for i, c := range cases {
		all = append(all,
			answer{shim, c.What, i % 2, "rbd: /dev/rbd42114000 is img-shim\n", 1, 0.1},
			answer{kernel, c.What, i % 2, "did not load config file, using default settings.\n" +
				"2026-11-23T20:26:36.094+0000 7fb4a53c2380 -1 can't open ceph.conf\nrbd: /dev/rbd0 is img-kernel\n", 1, 1})
	}
	return append(all, died{kernel, 30, true}, died{shim, 29, true})
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rbd-contract")
	of := func(all []any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours), Profile: "long"}, all...)
	}
	judgetest.Cut(t, l, of(good()))
	judgetest.Judge(t, l, of(good()), labkit.Passed)
	deaths := 2 * len(cases)
	for what, c := range map[string]struct {
		at     int
		change func(any) any
		want   labkit.Verdict
	}{
		"another status":      {0, func(o any) any { a := o.(answer); a.Code = 16; return a }, labkit.Failed},
		"another text":        {1, func(o any) any { a := o.(answer); a.Output += "rbd: warning\n"; return a }, labkit.Failed},
		"another watcher":     {2, func(o any) any { a := o.(answer); a.Watchers = 0; return a }, labkit.Failed},
		"another image":       {0, func(o any) any { a := o.(answer); a.Output = "rbd: /dev/rbd0 is excl-shim\n"; return a }, labkit.Failed},
		"the watcher stays":   {deaths, func(o any) any { d := o.(died); d.Seconds = 0; return d }, labkit.Failed},
		"the lock goes":       {deaths + 1, func(o any) any { d := o.(died); d.Locked = false; return d }, labkit.Failed},
		"one side is missing": {1, func(any) any { return died{kernel, 30, true} }, labkit.Inconclusive},
	} {
		t.Log(what)
		all := good()
		all[c.at] = c.change(all[c.at])
		judgetest.Judge(t, l, of(all), c.want)
	}
	// What a case needs has failed on both sides alike.
	all := good()
	for i := range 2 {
		a := all[i].(answer)
		a.Code = 99
		all[i] = a
	}
	judgetest.Judge(t, l, of(all), labkit.Inconclusive)
}
