// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cniafterupgrade

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "cni-after-upgrade")
	made := func(c judgetest.Change) *history.History {
		all := []any{named{Gone: true}, named{Running: true, Gone: true, There: true}}
		for _, p := range phases {
			s := seen{Phase: p, Pods: 6, Sandboxes: 6, Links: 6, Adds: map[string]int{}, Dels: map[string]int{}, Failed: map[string]int{}}
			for _, k := range kinds[p] {
				s.Adds[k] = each
			}
			if p == adds {
				s.Failed[addFails] = each
			}
			if p == ended {
				s.Pods, s.Sandboxes, s.Links = 0, 0, 0
			}
			all = append(all, s)
		}
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours)}, c.Of(all)...)
	}
	at := func(phase string, f func(*seen)) judgetest.Change {
		return judgetest.Where(func(s seen) bool { return s.Phase == phase }, f)
	}
	pod := func(running bool, f func(*named)) judgetest.Change {
		return judgetest.Where(func(o named) bool { return o.Running == running }, f)
	}
	judgetest.Cut(t, l, made(nil))
	judgetest.Judge(t, l, made(nil), labkit.Absent)
	judgetest.Judged(t, l, labkit.Reproduced, made, map[string]judgetest.Change{
		"swap: 2 leases stay: a, a":                      at(swap, func(s *seen) { s.Stray = []string{"a", "a"} }),
		"reboot: 1 leases stay: b":                       at(reboot, func(s *seen) { s.Stray = []string{"b"} }),
		"end: 1 ADDs without a DEL: c":                   at(ended, func(s *seen) { s.Owed = []string{"c"} }),
		"adds: 1 links too many":                         at(adds, func(s *seen) { s.Links++ }),
		"reboot: 1 sandboxes without a lease":            at(reboot, func(s *seen) { s.Without = 1 }),
		"(running: false) has its sandbox's name":        pod(false, func(o *named) { o.Gone = false }),
		"(running: true) has its sandbox's name":         pod(true, func(o *named) { o.Gone = false }),
		"running container was removed because of its n": pod(true, func(o *named) { o.There = false }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"no observation was recorded after adds": judgetest.Without(func(s seen) bool { return s.Phase == adds }),
		"swap: 1 ADDs of pods of kind lost": at(swap, func(s *seen) {
			s.Adds = map[string]int{stays: 2, deleted: 2, killed: 2, sandboxKilled: 2, lost: 1, lostDeleted: 2}
		}),
		"adds: 1 ADDs failed":                              at(adds, func(s *seen) { s.Failed = map[string]int{addFails: 1} }),
		"reboot: 5 sandboxes run for 6 pods":               at(reboot, func(s *seen) { s.Sandboxes, s.Links = 5, 5 }),
		"reboot: 0 sandboxes run for 0 pods":               at(reboot, func(s *seen) { s.Pods, s.Sandboxes, s.Links = 0, 0, 0 }),
		"end: 1 sandboxes run for 0 pods":                  at(ended, func(s *seen) { s.Sandboxes = 1 }),
		"while a running container had its sandbox's name": judgetest.Without(func(o named) bool { return o.Running }),
	})
	// A lease that stays is counted in the phase that left it.
	stays := func(o any) any {
		if s, ok := o.(seen); ok {
			s.Stray = []string{"a"}
			return s
		}
		return o
	}
	if res := judgetest.Judge(t, l, made(stays), labkit.Reproduced); res.Why != "swap: 1 leases stay: a" {
		t.Error(res.Why)
	}
}

func TestLeases(t *testing.T) {
	l := &lab{dir: t.TempDir()}
	if got, err := l.leases(); err != nil || got != nil {
		t.Errorf("without a folder: %q, %v", got, err)
	}
	for name, text := range map[string]string{"10.91.1.2": "sb1\r\neth0", "10.91.1.3": "sb2\neth0", "last_reserved_ip.0": "10.91.1.3", "lock": ""} {
		if err := os.MkdirAll(filepath.Join(l.dir, "lab"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(l.dir, "lab", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := l.leases(); err != nil || !slices.Equal(got, []string{"sb1", "sb2"}) {
		t.Errorf("%q, %v", got, err)
	}
}
