// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlegacylock

import (
	"context"
	"fmt"
	"time"

	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/rbdlab"
)

// controlNode never sees a kubelet of ours. A stock kubelet of 1.9 that starts with an RBD
// volume mounted takes it for one without monitors and image, until it has reported it in use
// and mounted it again, which changes nothing on the node. A pod that is deleted before that
// leaves its image mounted and mapped. So the trips wait for that mount, and this node shows
// that it is stock that has to be waited for.
const controlNode = "control"

// byHand is when the control's left image was unmapped by hand.
const byHand = "unmapped by hand"

// controlBound is how long x is looked at: a detach takes seconds.
const controlBound = time.Minute

// learned is how long after its start stock reported the mount of y.
type learned struct{ Seconds float64 }

func (l *rollback) control(ctx context.Context) error {
	n := l.r.Node(controlNode)
	for _, letter := range []string{"x", "y"} {
		image := controlNode + "-" + letter
		if err := l.r.Image(ctx, image); err != nil {
			return err
		}
		if err := l.r.Create(ctx, rbdlab.Pod{Name: image, Node: controlNode, Image: image}); err != nil {
			return err
		}
		if _, err := l.r.Running(ctx, image, 3*time.Minute); err != nil {
			return err
		}
		if err := n.Write(ctx, image, written(byOld), textOf(image, byOld)); err != nil {
			return err
		}
		mounted, err := l.r.MountedEvents(ctx)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := n.SwapKubelet(ctx, l.e.Stock(rbdlab.Base, "kubelet")); err != nil {
			return err
		}
		if err := kubeletlab.WaitCompared(ctx, n.Node, []string{rbdlab.NS + "/" + image}, 3*time.Minute); err != nil {
			return err
		}
		if letter == "y" {
			if err := l.r.MountedAgain(ctx, mounted, mountedBound, image); err != nil {
				return err
			}
			l.e.Record(learned{time.Since(start).Seconds()})
		}
		if _, err := l.r.See(ctx, image, backAgain); err != nil {
			return err
		}
		if err := l.r.Client.Delete(ctx, kube.Pods, rbdlab.NS, image); err != nil {
			return err
		}
		// x is looked at until the bound: it must not become free later.
		s, err := l.r.Until(ctx, image, deleted, controlBound, func(s rbdlab.State) bool { return letter == "y" && rbdlab.FreeUnlocked(s) })
		if err != nil {
			return err
		}
		if s.Held() {
			if err := l.byHand(ctx, n, image); err != nil {
				return err
			}
		}
		if _, err := l.r.Contents(ctx, image, deleted, written(byOld)); err != nil {
			return err
		}
	}
	return nil
}

// byHand does what docs/user/rbd.md says for an image that no pod has any more.
func (l *rollback) byHand(ctx context.Context, n *rbdlab.Node, image string) error {
	all, err := n.MountsOf(image)
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := n.Run(ctx, "umount", m.Path); err != nil {
			return err
		}
	}
	devices, err := n.Devices(image)
	if err != nil {
		return err
	}
	for _, d := range devices {
		if err := n.Run(ctx, "/usr/bin/rbd", "unmap", d); err != nil {
			return err
		}
	}
	_, err = l.r.See(ctx, image, byHand)
	return err
}

// judgeControl judges what stock alone does. An error is what it could not tell.
func judgeControl(h *history.History) (wrong []string, fact string, err error) {
	states, contents, wait := rbdlab.States(h), rbdlab.ContentsOf(h), history.One[learned](h)
	at := func(letter, when string) rbdlab.At { return rbdlab.At{Image: controlNode + "-" + letter, When: when} }
	for _, letter := range []string{"x", "y"} {
		c, ok := contents[at(letter, deleted)]
		was, had := states[at(letter, backAgain)]
		if !ok || !had || len(was.Mounts) == 0 {
			return nil, "", fmt.Errorf("control: no observation of image %s was recorded", letter)
		}
		if lost := c.Lost(map[string]string{written(byOld): textOf(c.Image, byOld)}); lost != "" {
			wrong = append(wrong, "control: "+lost)
		}
	}
	x, sawX := states[at("x", deleted)]
	y, sawY := states[at("y", deleted)]
	hand, sawHand := states[at("x", byHand)]
	switch {
	case wait.Seconds == 0:
		return nil, "", fmt.Errorf("control: the mount was not reported")
	case !sawX || !x.Held():
		return nil, "", fmt.Errorf("control: stock released an image whose pod was deleted right after the kubelet's start, so the waits on the other nodes were not needed")
	case !sawHand || hand.Held():
		return nil, "", fmt.Errorf("control: the image was not unmapped by hand: watchers %v, mapped on %v", hand.Watchers, hand.Mapped)
	case !sawY || y.Held():
		return nil, "", fmt.Errorf("control: stock did not release an image that it had reported as mounted: watchers %v, mapped on %v", y.Watchers, y.Mapped)
	}
	return wrong, fmt.Sprintf("%s, stock alone: x, deleted right after the kubelet's start, watched by %v after %.0f s, volumesInUse %v; y, deleted after its mount was reported %.1f s after the start, free after %.1f s",
		controlNode, x.Watchers, x.Seconds, x.InUse[controlNode], wait.Seconds, y.Seconds), nil
}
