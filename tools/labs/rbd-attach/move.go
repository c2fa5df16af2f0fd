// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdattach

import (
	"context"
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labs/internal/rbdlab"
)

// The pod of an image moves from old-1 to old-2, both 1.7.0, and from there to next, with the
// kubelet under test. The images are named by the form of rbd lock list on the old nodes.
const (
	twoBlanks = "two-blanks"
	oneBlank  = "one-blank"

	onFirst  = "on the first 1.7 node"
	leftIt   = "its pod is gone from the first 1.7 node"
	onSecond = "a pod starts on the second 1.7 node"
	onNext   = "a pod starts on the node under test"

	// stuckBound is how long the second 1.7 node is given.
	stuckBound = 2 * time.Minute
)

func moveLab() labkit.Lab {
	return labkit.Lab{
		Name:    "rbd-attach-move",
		Folder:  "rbd-attach",
		Summary: "the lock that a 1.7 kubelet left at an orderly move stays on the image after a 1.9 node has mounted it",
		Steps:   moveSteps,
		Oracle: labkit.Oracle{Text: []string{
			fmt.Sprintf("1.7.0 to 1.7.0: with one blank between the columns of rbd lock list the pod runs, with two it does not within %v and the image has the first node's lock", stuckBound),
			fmt.Sprintf("then to the kubelet under test: the pod runs within %v, and the lock is gone", bound),
			"at the end no node has the image mapped; it is clean for e2fsck -fn and has what each node wrote",
		}, Judge: judgeMove},
		Needs:    rbdlab.Needs(old),
		Packages: rbdlab.Packages,
		Timeout:  func(labkit.Profile) time.Duration { return 20 * time.Minute },
	}
}

func moveSteps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	move := func(image string, columns int) labkit.Step {
		return labkit.Step{Text: image + ": a pod on old-1, then on old-2, then on next; each writes to the image", Do: func(ctx context.Context) error {
			if err := l.move(ctx, image, columns); err != nil {
				return fmt.Errorf("%s: %w", image, err)
			}
			return nil
		}}
	}
	return []labkit.Step{
		{Text: "start Ceph, etcd, apiserver and controller manager v1.9.11, old-1 and old-2 with kubelet 1.7.0, next with the kubelet under test", Do: func(ctx context.Context) (err error) {
			l.r, err = rbdlab.Start(ctx, e, rbdlab.Config{Nodes: []rbdlab.NodeConfig{
				{Name: "old-1", Kubelet: e.Stock(old, "kubelet"), Columns: 1},
				{Name: "old-2", Kubelet: e.Stock(old, "kubelet"), Columns: 1},
				{Name: "next", Kubelet: rbdlab.UnderTest(e)},
			}})
			return err
		}},
		move(oneBlank, 1),
		move(twoBlanks, 0),
		labkit.AllRun(func(ctx context.Context) error { return l.r.Alive(ctx) }),
	}
}

// move has the image's pod on one node after the other. What a node does not reach is seen,
// and is no error.
func (l *lab) move(ctx context.Context, image string, columns int) error {
	for _, n := range []string{"old-1", "old-2"} {
		if err := l.r.Node(n).SetColumns(ctx, columns); err != nil {
			return err
		}
	}
	if err := l.r.Image(ctx, image); err != nil {
		return err
	}
	for _, x := range []struct {
		node, when string
		bound      time.Duration
	}{{"old-1", onFirst, 2 * time.Minute}, {"old-2", onSecond, stuckBound}, {"next", onNext, bound}} {
		pod := image + "-" + x.node
		if err := l.r.Create(ctx, rbdlab.Pod{Name: pod, Node: x.node, Image: image}); err != nil {
			return err
		}
		s, err := l.r.Until(ctx, image, x.when, x.bound, func(s rbdlab.State) bool { return s.Runs(pod) })
		if err != nil {
			return err
		}
		if s.Runs(pod) {
			if err := l.r.Node(x.node).Write(ctx, image, x.node, "written there"); err != nil {
				return err
			}
			if err := l.r.Delete(ctx, pod); err != nil {
				return err
			}
		} else if err := l.r.Client.DeleteNow(ctx, kube.Pods, rbdlab.NS, pod); err != nil {
			return err
		}
		when := map[string]string{"old-1": leftIt, "next": atEnd}[x.node]
		if when == "" {
			when = "its pod is gone from the second 1.7 node"
		}
		free := rbdlab.Free
		if columns == 1 {
			free = rbdlab.FreeUnlocked // 1.7.0 unmaps first
		}
		if _, err := l.r.Until(ctx, image, when, bound, free); err != nil {
			return err
		}
	}
	_, err := l.r.Contents(ctx, image, atEnd, "old-1", "old-2", "next")
	return err
}

func judgeMove(h *history.History) labkit.Outcome {
	states, contents := rbdlab.States(h), rbdlab.ContentsOf(h)
	lock := rbdlab.LegacyLock("old-1")
	res := labkit.Outcome{}
	var wrong, lost []string
	for _, image := range []string{oneBlank, twoBlanks} {
		at := func(when string) (rbdlab.State, bool) {
			s, ok := states[rbdlab.At{Image: image, When: when}]
			return s, ok
		}
		first, ok1 := at(onFirst)
		left, ok2 := at(leftIt)
		second, ok3 := at(onSecond)
		next, ok4 := at(onNext)
		end, ok5 := at(atEnd)
		is, ok6 := contents[rbdlab.At{Image: image, When: atEnd}]
		moved := second.Runs(image + "-old-2")
		switch {
		case !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6:
			return labkit.InconclusiveBecause("%s: not all observations were recorded", image)
		case !first.Locked(lock) || len(first.Watchers) != 1 || !first.Runs(image+"-old-1"):
			return labkit.InconclusiveBecause("%s: on old-1 the image had the watchers %v and the locks %v", image, first.Watchers, first.Locks)
		case left.Held():
			return labkit.InconclusiveBecause("%s: old-1 did not release the image: %v", image, left.Watchers)
		case image == oneBlank && (!moved || left.Locked(lock)):
			return labkit.InconclusiveBecause("%s: 1.7.0 to 1.7.0: running %t, locks %v", image, moved, left.Locks)
		case image == twoBlanks && (moved || !second.Locked(lock)):
			return labkit.InconclusiveBecause("%s: 1.7.0 to 1.7.0: running %t, locks %v", image, moved, second.Locks)
		}
		texts := map[string]string{"old-1": "written there"}
		if moved {
			texts["old-2"] = "written there"
		}
		switch {
		case !next.Runs(image + "-next"):
			wrong = append(wrong, image+": the pod does not run on next")
		default:
			texts["next"] = "written there"
		}
		if end.Held() {
			wrong = append(wrong, fmt.Sprintf("%s: still watched by %v at the end", image, end.Watchers))
		}
		if text := is.Lost(texts); text != "" {
			wrong = append(wrong, text)
		}
		if len(next.Locks) > 0 || len(end.Locks) > 0 {
			lost = append(lost, fmt.Sprintf("%s: on next the image has the locks %v, at the end %v", image, next.Locks, end.Locks))
		}
		res.Facts = append(res.Facts, fmt.Sprintf("%s: 1.7.0 to 1.7.0: running %t after %.1f s, locks %v; on the node under test running %t after %.1f s, locks %v",
			image, moved, second.Seconds, second.Locks, next.Runs(image+"-next"), next.Seconds, next.Locks))
		res.Measure(image+": Running on the node under test", next.Seconds, "s")
	}
	return rbdlab.Ending{Lost: lost, Wrong: wrong, Absent: "the pod runs on the node under test, and the lock that 1.7.0 left is gone"}.Answer(h, res)
}
