// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbddetach has the labs of rbd-detach: whether an RBD image is let go of when its
// pod is gone. See tools/labs/rbd-detach/README.md.
package rbddetach

import (
	"context"
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labs/internal/rbdlab"
)

// bound is how long the image may be watched after it should be free. Ours needed 0.1 s to
// 5.9 s on a busy machine; stock never lets go.
const bound = 45 * time.Second

const (
	// old is a release whose kubelet leaves an image behind.
	old = "v1.7.0"
	// giveUp is how long it has to try again, which it does not.
	giveUp = 15 * time.Second
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:     "rbd-detach",
		Summary:  "an RBD image stays mapped when its pod is gone",
		Steps:    steps,
		Oracle:   oracle,
		Needs:    rbdlab.Needs(old),
		Packages: rbdlab.Packages,
		Timeout:  func(labkit.Profile) time.Duration { return 10 * time.Minute },
		Test:     []labkit.Variant{labkit.Stock, labkit.Ours},
	}}
}

type lab struct {
	e    *labkit.Env
	r    *rbdlab.Rig
	node *rbdlab.Node
}

// row is one way in which an image can stay.
type row struct {
	image, fstype, text string
	// late: the pod is created by the row.
	late bool
	// unlocked: the image had a lock, which has to go too.
	unlocked bool
	do       func(*lab, context.Context, row) error
}

var rows = []row{
	{"busy", "ext4", "a process holds the device open while the pod is deleted, until rbd unmap has failed", false, false, (*lab).busy},
	{"down", "ext4", "the pod is deleted while the kubelet is stopped", false, false, (*lab).down},
	{"badfs", "xfs", "the volume names xfs, the image has ext4; the pod is deleted", true, false, (*lab).badfs},
	{"leftover", "ext4", "kubelet 1.7.0 has failed to unmap the image once and does not try again; the kubelet is swapped", true, true, (*lab).leftover},
}

// rowsOf are the rows of a profile. Stock takes the whole bound for each.
func rowsOf(p labkit.Profile) []row {
	if p == labkit.Short {
		return rows[:1]
	}
	return rows
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	s := []labkit.Step{
		{Text: "start Ceph (one monitor, one OSD), etcd, apiserver and controller manager v1.9.11, and a node with the kubelet under test, whose rbd maps by rbd-fuse", Do: l.start},
		{Text: "make the images and run a pod with each", Do: l.pods},
	}
	for _, x := range rowsOf(e.Profile) {
		s = append(s, labkit.Step{Text: x.image + ": " + x.text, Do: func(ctx context.Context) error { return l.row(ctx, x) }})
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error { return l.r.Alive(ctx) }))
}

func (l *lab) start(ctx context.Context) (err error) {
	nodes := []rbdlab.NodeConfig{{Name: "node1", Kubelet: rbdlab.UnderTest(l.e)}}
	if l.e.Profile == labkit.Long {
		nodes = append(nodes, rbdlab.NodeConfig{Name: "old", Kubelet: l.e.Stock(old, "kubelet"), Columns: 1})
	}
	l.r, err = rbdlab.Start(ctx, l.e, rbdlab.Config{Nodes: nodes})
	if err == nil {
		l.node = l.r.Node("node1")
	}
	return err
}

func (l *lab) pods(ctx context.Context) error {
	for _, x := range rowsOf(l.e.Profile) {
		if err := l.r.Image(ctx, x.image); err != nil {
			return err
		}
		if x.late {
			continue
		}
		if err := l.create(ctx, x); err != nil {
			return err
		}
		if _, err := l.r.Running(ctx, x.image, 2*time.Minute); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) create(ctx context.Context, x row) error {
	return l.r.Create(ctx, rbdlab.Pod{Name: x.image, Node: "node1", Image: x.image, FSType: x.fstype})
}

// row drives a row and records how its image was before and after.
func (l *lab) row(ctx context.Context, x row) error {
	if err := x.do(l, ctx, x); err != nil {
		return fmt.Errorf("%s: %w", x.image, err)
	}
	wanted := rbdlab.Free
	if x.unlocked {
		wanted = rbdlab.FreeUnlocked
	}
	s, err := l.r.Until(ctx, x.image, after, bound, wanted)
	if err != nil || s.Held() {
		return err
	}
	_, err = l.r.Contents(ctx, x.image, after)
	return err
}

// before sees an image that a pod has.
func (l *lab) before(ctx context.Context, x row) error {
	_, err := l.r.See(ctx, x.image, before)
	return err
}

func (l *lab) busy(ctx context.Context, x row) error {
	devices, err := l.node.Devices("busy")
	if err != nil || len(devices) != 1 {
		return fmt.Errorf("the image is mapped as %v (%v)", devices, err)
	}
	if err := l.before(ctx, x); err != nil {
		return err
	}
	l.e.Step("hold %s open and delete pod busy", devices[0])
	holder, err := l.node.Hold(ctx, devices[0])
	if err != nil {
		return err
	}
	if err := l.r.Client.DeleteNow(ctx, kube.Pods, rbdlab.NS, "busy"); err != nil {
		return err
	}
	if err := l.node.Called(ctx, "unmap "+devices[0], "16", 1, time.Minute); err != nil {
		return err
	}
	l.e.Record(triggered{Row: "busy", By: "rbd unmap has ended with 16"})
	l.e.Step("rbd unmap has failed: close %s", devices[0])
	return holder.Stop()
}

func (l *lab) down(ctx context.Context, x row) error {
	l.e.Step("stop the kubelet, delete pod down, start the kubelet")
	if err := l.node.StopKubelet(); err != nil {
		return err
	}
	if err := l.r.Client.DeleteNow(ctx, kube.Pods, rbdlab.NS, "down"); err != nil {
		return err
	}
	if err := l.before(ctx, x); err != nil {
		return err
	}
	l.e.Record(triggered{Row: "down", By: "the pod was deleted while no kubelet ran"})
	return l.node.StartKubelet(ctx, rbdlab.UnderTest(l.e))
}

func (l *lab) badfs(ctx context.Context, x row) error {
	l.e.Step("create pod badfs, delete it when its image has been mapped and not mounted")
	if err := l.create(ctx, x); err != nil {
		return err
	}
	if err := l.node.Called(ctx, "map badfs", "0", 1, time.Minute); err != nil {
		return err
	}
	if err := l.r.Event(ctx, "badfs", "MountVolume.MountDevice failed", time.Minute); err != nil {
		return err
	}
	l.e.Record(triggered{Row: "badfs", By: "the image was mapped, and the event of the failed mount exists"})
	return l.r.Client.DeleteNow(ctx, kube.Pods, rbdlab.NS, "badfs")
}

// leftover has a kubelet of 1.7 fail to unmap an image. It believes at its next try that all is
// done, as nothing is mounted.
func (l *lab) leftover(ctx context.Context, x row) error {
	if err := l.r.Create(ctx, rbdlab.Pod{Name: x.image, Node: "old", Image: x.image, FSType: x.fstype}); err != nil {
		return err
	}
	if _, err := l.r.Running(ctx, x.image, 2*time.Minute); err != nil {
		return err
	}
	n := l.r.Node("old")
	devices, err := n.Devices(x.image)
	if err != nil || len(devices) != 1 {
		return fmt.Errorf("the image is mapped as %v (%v)", devices, err)
	}
	holder, err := n.Hold(ctx, devices[0])
	if err != nil {
		return err
	}
	if err := l.r.Client.DeleteNow(ctx, kube.Pods, rbdlab.NS, x.image); err != nil {
		return err
	}
	if err := n.Called(ctx, "unmap "+devices[0], "16", 1, 2*time.Minute); err != nil {
		return err
	}
	if err := holder.Stop(); err != nil {
		return err
	}
	l.e.Step("rbd unmap of 1.7.0 has failed: give it %v to try again", giveUp)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(giveUp):
	}
	if err := l.before(ctx, x); err != nil {
		return err
	}
	l.e.Record(triggered{Row: x.image, By: "rbd unmap has ended with 16, and the image is still watched"})
	l.e.Step("start the kubelet under test with RBDDetachLeftovers in place of 1.7.0")
	return n.SwapKubelet(ctx, rbdlab.UnderTest(l.e, "RBDDetachLeftovers"))
}
