// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbdcontract is the check rbd-contract: the labs' imitation of the kernel's part of rbd
// answers as the kernel does. See tools/labs/checks/rbd-contract/README.md.
package rbdcontract

import (
	"context"
	"fmt"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/vmagent"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/rbdlab"
	"holdfast/tools/labs/internal/vm"
)

const (
	// address is the virtual machine's.
	address = "10.90.0.60"
	// deathBound is how long the watcher of a dead client may last; Ceph's own time is 30 s.
	deathBound = 90 * time.Second
	// lock is one of a kubelet up to 1.8, of a node that is not there.
	lock = "kubelet_lock_magic_gone"
)

// The two sides.
const (
	shim   = "shim"
	kernel = "kernel"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "rbd-contract",
		Folder:  "checks/rbd-contract",
		Summary: "rbd map and rbd unmap on the labs' nodes give the same answers as on a kernel with rbd",
		Steps:   steps,
		Oracle: labkit.Oracle{Text: []string{
			"each command ends with the same status and the same text on both sides, except for device numbers and log lines of rbd's libraries",
			fmt.Sprintf("the watcher of a dead client disappears within %v on both sides, and its lock stays", deathBound),
		}, Judge: judge},
		Needs:    rbdlab.Needs(),
		Packages: append(append([]string{}, rbdlab.Packages...), vm.Packages...),
		Kernel:   true,
		Variants: []labkit.Variant{labkit.Ours},
		Timeout:  func(labkit.Profile) time.Duration { return 30 * time.Minute },
	}}
}

type lab struct {
	e *labkit.Env
	r *rbdlab.Rig
	m *vm.Machine
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	s := []labkit.Step{
		{Text: "start Ceph, and a node whose rbd command is the imitation", Do: l.start},
		{Text: "boot a virtual machine whose kernel has rbd", Do: l.boot},
	}
	for _, c := range cases {
		s = append(s, labkit.Step{Text: c.What, Do: func(ctx context.Context) error { return l.compare(ctx, c) }})
	}
	return append(s, labkit.Step{Text: "cut the power of each while it has an image mapped, and wait until its watcher disappears", Do: l.death})
}

func (l *lab) start(ctx context.Context) (err error) {
	if l.r, err = rbdlab.Start(ctx, l.e, rbdlab.Config{Nodes: []rbdlab.NodeConfig{{Name: "node1"}}}); err != nil {
		return err
	}
	for _, side := range []string{shim, kernel} {
		for _, image := range []string{"img-" + side, "death-" + side} {
			if err := l.r.Image(ctx, image); err != nil {
				return err
			}
		}
		if _, err := l.r.Ceph.Run(ctx, "rbd", "create", "--size", "16", "--image-feature", "layering,exclusive-lock", "excl-"+side); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) boot(ctx context.Context) (err error) {
	l.m, err = vm.Start(ctx, l.e, vm.Config{Name: "vm", Address: address, Modules: []string{"rbd", "ext4"},
		Programs: []string{"rbd", "blockdev", "e2fsck", "dmesg", "head"}})
	return err
}

// run runs a script on a side. A is the options of rbd there, I the image, E one with the feature
// exclusive-lock; files of a side are below W.
func (l *lab) run(ctx context.Context, side, shell string) (vmagent.Answer, error) {
	w := "/run"
	if side == shim {
		w = l.e.Path("contract")
	}
	shell = fmt.Sprintf("W=%s I=img-%s E=excl-%s D=death-%s A='--pool rbd --id admin -m %s --key=%s'\nmkdir -p $W/m\n%s",
		w, side, side, side, rbdlab.Monitor, l.r.Ceph.Key, shell)
	if side == kernel {
		return l.m.Run(ctx, shell)
	}
	// The status is a part of the text: a command that fails is an answer.
	out, err := l.r.Node("node1").Output(ctx, "bash", "-c", "( "+shell+"\n) 2>&1; echo \"=$?\"")
	if err != nil {
		return vmagent.Answer{}, err
	}
	at := strings.LastIndex(out, "=")
	a := vmagent.Answer{Output: out[:max(at, 0)]}
	_, err = fmt.Sscanf(out[at+1:], "%d", &a.Code)
	return a, err
}

// bounded is run with a bound: rbd waits for ever where it waits in vain.
func (l *lab) bounded(ctx context.Context, side, shell string) (vmagent.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return l.run(ctx, side, shell)
}

// answer is what a side said in a case.
type answer struct {
	Side, What string
	Code       int
	Output     string
	// Watchers of the side's image afterwards.
	Watchers int
	Seconds  float64
}

func (l *lab) compare(ctx context.Context, c contractCase) error {
	for _, side := range []string{shim, kernel} {
		began := time.Now()
		a, err := l.bounded(ctx, side, c.Shell)
		if err != nil {
			return fmt.Errorf("%s: %w", side, err)
		}
		took := time.Since(began).Seconds()
		w, err := l.watchers(ctx, "img-"+side)
		if err != nil {
			return err
		}
		l.e.Record(answer{side, c.What, a.Code, strings.ReplaceAll(a.Output, l.r.Ceph.Key, "***"), w, took})
	}
	return nil
}

func (l *lab) watchers(ctx context.Context, image string) (int, error) {
	out, err := l.r.Ceph.Run(ctx, "rbd", "status", image)
	return strings.Count(out, "watcher="), err
}

// died is how a side's dead client went.
type died struct {
	Side string
	// Seconds until its watcher was gone, 0 if it was not.
	Seconds float64
	// Locked: its lock was there then.
	Locked bool
}

func (l *lab) death(ctx context.Context) error {
	for _, side := range []string{shim, kernel} {
		a, err := l.run(ctx, side, "rbd lock add $D "+lock+" $A && rbd map $D $A -o noudev")
		if err == nil && a.Code != 0 {
			err = fmt.Errorf("status %d: %s", a.Code, a.Output)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", side, err)
		}
		n, err := l.watchers(ctx, "death-"+side)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d watchers", n)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", side, err)
		}
	}
	began := time.Now()
	if err := l.m.Proc.Kill(); err != nil {
		return err
	}
	if err := l.r.Node("node1").PowerOff(ctx); err != nil {
		return err
	}
	left := map[string]bool{shim: true, kernel: true}
	for len(left) > 0 && time.Since(began) < deathBound {
		for side := range left {
			n, err := l.watchers(ctx, "death-"+side)
			if err != nil {
				return err
			}
			if n == 0 {
				delete(left, side)
				if err := l.gone(ctx, side, time.Since(began)); err != nil {
					return err
				}
			}
		}
		if err := wait.Pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	for side := range left {
		l.e.Record(died{Side: side})
	}
	return nil
}

func (l *lab) gone(ctx context.Context, side string, after time.Duration) error {
	out, err := l.r.Ceph.Run(ctx, "rbd", "lock", "list", "death-"+side)
	if err != nil {
		return err
	}
	l.e.Record(died{side, after.Seconds(), strings.Contains(out, lock)})
	return nil
}
