// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlab

import (
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

func TestLost(t *testing.T) {
	good := Contents{Image: "a", Files: map[string]string{DataFile: DataOf("a"), "x": "1"}}
	if lost := good.Lost(map[string]string{"x": "1"}); lost != "" {
		t.Error(lost)
	}
	for what, c := range map[string]Contents{
		"not clean":    {Image: "a", Fsck: "exit status 4", Files: good.Files},
		"another file": {Image: "a", Files: map[string]string{DataFile: DataOf("b"), "x": "1"}},
		"no file":      {Image: "a", Files: map[string]string{DataFile: DataOf("a")}},
		"old text":     {Image: "a", Files: map[string]string{DataFile: DataOf("a"), "x": "0"}},
	} {
		if c.Lost(map[string]string{"x": "1"}) == "" {
			t.Errorf("%s: nothing is lost", what)
		}
	}
}

func TestState(t *testing.T) {
	s := State{Mapped: []string{"n1"}, Locks: []Lock{{ID: LegacyLock("n10")}},
		Mounts: []Mount{{Node: "n1", Path: "/a"}, {Node: "n1", Path: "/b"}, {Node: "n2", ReadOnly: true}, {Node: "n3"}}}
	if got := s.WritersOn(); !slices.Equal(got, []string{"n1", "n3"}) {
		t.Error(got)
	}
	if !s.Held() || s.Locked(LegacyLock("n1")) || !s.Locked(LegacyLock("n10")) || Free(s) || FreeUnlocked(State{Locks: s.Locks}) {
		t.Errorf("%+v", s)
	}
	for in, foreign := range map[string]bool{"kubernetes.io/rbd/[]:": true, "kubernetes.io/rbd/[10.90.0.1:6789]:": true, "kubernetes.io/rbd/[]:a": true,
		"kubernetes.io/rbd/[10.90.0.1:6789]:a": false} {
		if got := (State{InUse: map[string][]string{"n1": {in}}}).Foreign(); (got != "") != foreign {
			t.Errorf("%s: %q", in, got)
		}
	}
}

func TestEnding(t *testing.T) {
	lost, both := Ending{Lost: []string{"a"}}, Ending{Lost: []string{"a"}, Fine: []string{"b"}}
	wrong, each := Ending{Lost: []string{"a"}, Wrong: []string{"c"}}, both
	each.EachLosesAll = true
	for _, c := range []struct {
		e                    Ending
		stock, gateOff, ours labkit.Verdict
	}{
		{Ending{Fine: []string{"b"}}, labkit.Absent, labkit.Absent, labkit.Absent},
		{lost, labkit.Reproduced, labkit.Reproduced, labkit.Reproduced},
		{both, labkit.Inconclusive, labkit.Reproduced, labkit.Reproduced},
		{each, labkit.Inconclusive, labkit.Inconclusive, labkit.Reproduced},
		{wrong, labkit.Inconclusive, labkit.Inconclusive, labkit.Reproduced},
		{Ending{Wrong: []string{"c"}}, labkit.Inconclusive, labkit.Inconclusive, labkit.Reproduced},
		{Ending{Fine: []string{"b"}, Missing: []string{"m"}}, labkit.Inconclusive, labkit.Inconclusive, labkit.Inconclusive},
		{Ending{Lost: []string{"a"}, Missing: []string{"m"}}, labkit.Inconclusive, labkit.Inconclusive, labkit.Reproduced},
		{Ending{Wrong: []string{"c"}, Missing: []string{"m"}}, labkit.Inconclusive, labkit.Inconclusive, labkit.Reproduced},
	} {
		for v, want := range map[labkit.Variant]labkit.Verdict{labkit.Stock: c.stock, labkit.GateOff: c.gateOff, labkit.Ours: c.ours} {
			h := history.Make(history.Begin{Lab: "a", Variant: string(v), Profile: "long"})
			if got := c.e.Answer(h, labkit.Outcome{}); got.Verdict != want {
				t.Errorf("%+v, %s: %s (%s), want %s", c.e, v, got.Verdict, got.Why, want)
			}
		}
	}
}

func TestUnderTest(t *testing.T) {
	b, err := labkit.NewBinaries(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := labkit.Lab{}.With([]string{"RBDLegacyLock"}, nil)
	for v, want := range map[labkit.Variant]string{
		labkit.Stock:                         "",
		labkit.Ours:                          "RBDDetachLeftovers=true,RBDLegacyLock=true",
		labkit.GateOff:                       "RBDDetachLeftovers=true,RBDLegacyLock=false",
		base.Ours.Without("rbd-legacy-lock"): "RBDDetachLeftovers=true",
		base.Ours.Without("rbd-output"):      "",
	} {
		p := UnderTest(&labkit.Env{Lab: l, Variant: v, Bins: b}, "RBDLegacyLock", "RBDDetachLeftovers")
		if got := strings.TrimPrefix(strings.Join(p.GateArgs(), " "), "--feature-gates="); got != want {
			t.Errorf("%s: %q, want %q", v, got, want)
		}
	}
}

func TestYAML(t *testing.T) {
	for want, p := range map[string]Pod{
		"user: admin, fsType: ext4, readOnly: false, secretRef: {name: ceph}":     {Name: "a", Node: "n", Image: "i"},
		"user: u, fsType: xfs, readOnly: true, keyring: /etc/ceph/other/keyring}": {Name: "a", Node: "n", Image: "i", User: "u", FSType: "xfs", ReadOnly: true, Keyring: "/etc/ceph/other/keyring"},
	} {
		if got := p.yaml(); !strings.Contains(got, want) {
			t.Errorf("%s\ndoes not contain %s", got, want)
		}
	}
}
