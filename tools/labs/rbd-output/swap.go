// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdoutput

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labs/internal/rbdlab"
)

// oldNodes are the nodes whose kubelet is swapped, and its release before. A node's image and
// claim have its name.
var oldNodes = []struct{ name, base string }{{"from17", "v1.7.0"}, {"from18", "v1.8.15"}}

const (
	mountedByOld = "mounted by the old kubelet"
	swappedTo    = "the kubelet is swapped"
	podGone      = "its pod is gone"
	onNext       = "a pod starts on the next node"
	atEnd        = "at the end"
)

func swapLab() labkit.Lab {
	return labkit.Lab{
		Name:    "rbd-output-swap",
		Folder:  "rbd-output",
		Summary: "a volume that 1.7 or 1.8 mounted before the kubelet's swap is never detached, and its pod does not run on the next node",
		Steps:   swapSteps,
		Oracle: labkit.Oracle{Text: []string{
			fmt.Sprintf("within %v after the pod is deleted, the image has no watcher and no lock, and no node's volumesInUse has it", bound),
			fmt.Sprintf("the claim's next pod, on another node, runs within %v", bound),
			"at the end the image is clean for e2fsck -fn and has what was written",
		}, Judge: judgeSwap},
		Needs:    rbdlab.Needs("v1.7.0", "v1.8.15"),
		Packages: rbdlab.Packages,
		Variants: []labkit.Variant{labkit.Stock, labkit.Ours},
		Timeout:  func(labkit.Profile) time.Duration { return 20 * time.Minute },
	}
}

func swapSteps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: "start Ceph, etcd, apiserver and controller manager v1.9.11, from17 with kubelet 1.7.0, from18 with 1.8.15, next with the kubelet under test; rbd lock list has two blanks between its columns", Do: func(ctx context.Context) (err error) {
			nodes := []rbdlab.NodeConfig{{Name: "next", Kubelet: rbdlab.UnderTest(e)}}
			for _, n := range oldNodes {
				nodes = append(nodes, rbdlab.NodeConfig{Name: n.name, Kubelet: e.Stock(n.base, "kubelet")})
			}
			l.r, err = rbdlab.Start(ctx, e, rbdlab.Config{Nodes: nodes})
			return err
		}},
		{Text: "from17, from18: run a pod with a claim of one writer, swap the kubelet, delete the pod, run another one with the claim on next", Do: func(ctx context.Context) error {
			var g errgroup.Group
			for _, n := range oldNodes {
				g.Go(func() error {
					if err := l.swapped(ctx, n.name); err != nil {
						return fmt.Errorf("%s: %w", n.name, err)
					}
					return nil
				})
			}
			return g.Wait()
		}},
		labkit.AllRun(func(ctx context.Context) error { return l.r.Alive(ctx) }),
	}
}

func (l *lab) swapped(ctx context.Context, name string) error {
	n, next := l.r.Node(name), name+"-next"
	if err := l.r.Image(ctx, name); err != nil {
		return err
	}
	if err := l.r.Claim(ctx, name, "admin", rbdlab.AdminSecret); err != nil {
		return err
	}
	if err := l.r.Create(ctx, rbdlab.Pod{Name: name, Node: name, Image: name, Claimed: true}); err != nil {
		return err
	}
	if _, err := l.r.Running(ctx, name, 3*time.Minute); err != nil {
		return err
	}
	if err := n.Write(ctx, name, "old", "by the old kubelet"); err != nil {
		return err
	}
	if _, err := l.r.See(ctx, name, mountedByOld); err != nil {
		return err
	}
	before, err := l.r.MountedEvents(ctx)
	if err != nil {
		return err
	}
	if err := n.SwapKubelet(ctx, rbdlab.UnderTest(l.e)); err != nil {
		return err
	}
	if err := l.r.WaitNodeReady(ctx, name, 2*time.Minute); err != nil {
		return err
	}
	// Without it stock leaves the image for another reason than the lock.
	if err := l.r.Learn(ctx, before, name); err != nil {
		return err
	}
	if _, err := l.r.See(ctx, name, swappedTo); err != nil {
		return err
	}
	if err := l.r.Delete(ctx, name); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, name, podGone, bound, func(s rbdlab.State) bool { return rbdlab.FreeUnlocked(s) && len(s.InUseOn()) == 0 }); err != nil {
		return err
	}
	if err := l.r.Create(ctx, rbdlab.Pod{Name: next, Node: "next", Image: name, Claimed: true}); err != nil {
		return err
	}
	s, err := l.r.Until(ctx, name, onNext, bound, func(s rbdlab.State) bool { return s.Runs(next) })
	if err != nil {
		return err
	}
	if s.Runs(next) {
		if err := l.r.Node("next").Write(ctx, name, "next", "by the next node"); err != nil {
			return err
		}
		if err := l.r.Delete(ctx, next); err != nil {
			return err
		}
	} else if err := l.r.Client.DeleteNow(ctx, kube.Pods, rbdlab.NS, next); err != nil {
		return err
	}
	if _, err := l.r.Until(ctx, name, atEnd, bound, rbdlab.Free); err != nil {
		return err
	}
	_, err = l.r.Contents(ctx, name, atEnd, "old", "next")
	return err
}

func judgeSwap(h *history.History) labkit.Outcome {
	states, contents, learned := rbdlab.States(h), rbdlab.ContentsOf(h), rbdlab.LearnedOf(h)
	res := labkit.Outcome{}
	var lost, fine, wrong []string
	for _, n := range oldNodes {
		at := func(when string) (rbdlab.State, bool) {
			s, ok := states[rbdlab.At{Image: n.name, When: when}]
			return s, ok
		}
		old, ok1 := at(mountedByOld)
		swap, ok2 := at(swappedTo)
		gone, ok3 := at(podGone)
		next, ok4 := at(onNext)
		end, ok5 := at(atEnd)
		is, ok6 := contents[rbdlab.At{Image: n.name, When: atEnd}]
		reported, ok7 := learned[n.name]
		switch {
		case !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7:
			return labkit.InconclusiveBecause("%s: not all observations were recorded", n.name)
		case !old.Locked(rbdlab.LegacyLock(n.name)) || len(old.Watchers) != 1:
			return labkit.InconclusiveBecause("%s: under %s the image had the watchers %v and the locks %v", n.name, n.base, old.Watchers, old.Locks)
		case !slices.Equal(swap.WritersOn(), []string{n.name}) || !swap.Locked(rbdlab.LegacyLock(n.name)):
			return labkit.InconclusiveBecause("%s: after the swap the image was mounted on %v and had the locks %v", n.name, swap.WritersOn(), swap.Locks)
		case h.Variant == string(labkit.Stock) && (!reported || gone.Held()):
			return labkit.InconclusiveBecause("%s: stock has reported the mount again: %t, and the image is watched by %v and mapped on %v: the lock is not the reason",
				n.name, reported, gone.Watchers, gone.Mapped)
		}
		texts := map[string]string{"old": "by the old kubelet"}
		runs := next.Runs(n.name + "-next")
		if runs {
			texts["next"] = "by the next node"
		}
		res.Facts = append(res.Facts, fmt.Sprintf("%s: %.1f s after its pod was deleted watched by %v, locks %v, in use on %v; the next pod runs: %t, after %.1f s",
			n.name, gone.Seconds, gone.Watchers, gone.Locks, gone.InUseOn(), runs, next.Seconds))
		if text := is.Lost(texts); text != "" {
			wrong = append(wrong, text)
		}
		if end.Held() {
			wrong = append(wrong, fmt.Sprintf("%s: still watched by %v at the end", n.name, end.Watchers))
		}
		if gone.Held() || len(gone.Locks) > 0 || len(gone.InUseOn()) > 0 || !runs {
			lost = append(lost, fmt.Sprintf("%s: %.0f s after its pod was deleted locks %v, in use on %v; the next pod runs: %t", n.name, gone.Seconds, gone.Locks, gone.InUseOn(), runs))
			continue
		}
		fine = append(fine, n.name)
		res.Measure(n.name+": detached", gone.Seconds, "s")
		res.Measure(n.name+": Running on the next node", next.Seconds, "s")
	}
	return rbdlab.Ending{Lost: lost, Fine: fine, Wrong: wrong, Absent: strings.Join(fine, ", ") + ": detached, unlocked, and Running on the next node"}.Answer(h, res)
}
