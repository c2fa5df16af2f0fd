// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlegacylock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labs/internal/rbdlab"
)

// pairs are a node with the kubelet under test, whose name is the image's, and who is to be
// refused: the 1.7.0 node, always node1. It takes node10's lock for its own.
var pairs = []struct {
	node string
	// limit: 1.7.0 mounts all the same, as the page says.
	limit bool
}{{"other", false}, {"node10", true}}

const (
	mixedOld     = "node1"
	mixedFirst   = "mounted by the kubelet under test"
	mixedBoth    = "1.7.0 tries to mount it"
	mixedHanded  = "the kubelet under test has released it, 1.7.0 still tries to mount it"
	mixedEnd     = "at the end"
	refusedBound = time.Minute
	// handedBound is for a kubelet of 1.7 that looks again after pauses of up to two minutes.
	handedBound = 6 * time.Minute
)

func mixedLab() labkit.Lab {
	return labkit.Lab{
		Name:    "rbd-legacy-lock-mixed",
		Folder:  "rbd-legacy-lock",
		Summary: "a 1.7 kubelet mounts for writing an image that a 1.9 kubelet has mounted for writing",
		Steps:   mixedSteps,
		Oracle: labkit.Oracle{Text: []string{
			fmt.Sprintf("image other: the pod on %s, with kubelet 1.7.0, does not run for %v, and one node has the image mounted", mixedOld, refusedBound),
			fmt.Sprintf("when the first pod is deleted, this pod runs within %v; at the end the image is clean for e2fsck -fn and has what both pods wrote", handedBound),
			"image node10: 1.7.0 on " + mixedOld + " mounts it, whoever has the lock: a known limit, which every variant must show",
		}, Judge: judgeMixed},
		Needs:    rbdlab.Needs("v1.7.0"),
		Packages: rbdlab.Packages,
		Timeout:  func(labkit.Profile) time.Duration { return 20 * time.Minute },
		Test:     []labkit.Variant{labkit.Ours},
	}
}

type mixed struct {
	e *labkit.Env
	r *rbdlab.Rig
}

func mixedSteps(e *labkit.Env) []labkit.Step {
	l := &mixed{e: e}
	all := []labkit.Step{{Text: "start Ceph, etcd, apiserver and controller manager v1.9.11, " + mixedOld + " with kubelet 1.7.0, other and node10 with the kubelet under test and " + gate +
		"; rbd lock list has one blank between its columns", Do: func(ctx context.Context) (err error) {
		nodes := []rbdlab.NodeConfig{{Name: mixedOld, Kubelet: e.Stock("v1.7.0", "kubelet"), Columns: 1}}
		for _, p := range pairs {
			nodes = append(nodes, rbdlab.NodeConfig{Name: p.node, Kubelet: rbdlab.UnderTest(e, gate), Columns: 1})
		}
		l.r, err = rbdlab.Start(ctx, e, rbdlab.Config{Nodes: nodes})
		return err
	}}}
	all = append(all, labkit.Step{Text: "other, node10: a pod on this node and one on " + mixedOld + " want the claim of one writer; the first one is deleted, then the other", Do: func(ctx context.Context) error {
		var g errgroup.Group
		for _, p := range pairs {
			g.Go(func() error {
				if err := l.pair(ctx, p.node, p.limit); err != nil {
					return fmt.Errorf("%s: %w", p.node, err)
				}
				return nil
			})
		}
		return g.Wait()
	}})
	return append(all, labkit.AllRun(func(ctx context.Context) error { return l.r.Alive(ctx) }))
}

func (l *mixed) pair(ctx context.Context, image string, limit bool) error {
	r, oldPod := l.r, image+"-old"
	if err := r.Image(ctx, image); err != nil {
		return err
	}
	if err := r.Claim(ctx, image, "admin", rbdlab.AdminSecret); err != nil {
		return err
	}
	if err := r.Create(ctx, rbdlab.Pod{Name: image, Node: image, Image: image, Claimed: true}); err != nil {
		return err
	}
	if _, err := r.Running(ctx, image, 3*time.Minute); err != nil {
		return err
	}
	if err := r.Node(image).Write(ctx, image, "first", "under test"); err != nil {
		return err
	}
	if _, err := r.See(ctx, image, mixedFirst); err != nil {
		return err
	}
	if err := r.Create(ctx, rbdlab.Pod{Name: oldPod, Node: mixedOld, Image: image, Claimed: true}); err != nil {
		return err
	}
	// 1.7.0 does not wait for the controller's attach: what it does it does at once.
	both, err := r.Until(ctx, image, mixedBoth, refusedBound, func(s rbdlab.State) bool { return s.Runs(oldPod) })
	if err != nil {
		return err
	}
	if err := r.Delete(ctx, image); err != nil {
		return err
	}
	if !both.Runs(oldPod) && !limit {
		s, err := r.Until(ctx, image, mixedHanded, handedBound, func(s rbdlab.State) bool { return s.Runs(oldPod) })
		if err != nil {
			return err
		}
		if s.Runs(oldPod) {
			if err := r.Node(mixedOld).Write(ctx, image, "second", "1.7.0"); err != nil {
				return err
			}
		}
	}
	if err := r.Client.Delete(ctx, kube.Pods, rbdlab.NS, oldPod); err != nil {
		return err
	}
	free := rbdlab.FreeUnlocked // the lock goes after the mapping
	if limit {
		free = rbdlab.Free // what becomes of a lock that two nodes took for theirs is not judged
	}
	if _, err := r.Until(ctx, image, mixedEnd, freeBound, free); err != nil {
		return err
	}
	_, err = r.Contents(ctx, image, mixedEnd, "first", "second")
	return err
}

func judgeMixed(h *history.History) labkit.Outcome {
	states, contents := rbdlab.States(h), rbdlab.ContentsOf(h)
	res := labkit.Outcome{}
	var lost, missing []string
	doubled := false
	for _, p := range pairs {
		first, ok1 := states[rbdlab.At{Image: p.node, When: mixedFirst}]
		both, ok2 := states[rbdlab.At{Image: p.node, When: mixedBoth}]
		end, ok3 := states[rbdlab.At{Image: p.node, When: mixedEnd}]
		is, ok4 := contents[rbdlab.At{Image: p.node, When: mixedEnd}]
		switch {
		case !ok1 || !ok2 || !ok3 || !ok4:
			missing = append(missing, fmt.Sprintf("%s: not all observations were recorded", p.node))
			continue
		case !slices.Equal(first.WritersOn(), []string{p.node}) || len(first.Watchers) != 1:
			missing = append(missing, fmt.Sprintf("%s: at first the image was mounted for writing on %v and watched by %v", p.node, first.WritersOn(), first.Watchers))
			continue
		}
		writers := both.WritersOn()
		res.Facts = append(res.Facts, fmt.Sprintf("%s: locks %v; when 1.7.0 on %s tried to mount it: mounted for writing on %v, watchers %v", p.node, first.Locks, mixedOld, writers, both.Watchers))
		twice := len(writers) == 2 && len(both.Watchers) == 2
		if p.limit {
			if !twice {
				missing = append(missing, fmt.Sprintf("%s: the known limit did not occur: mounted for writing on %v", p.node, writers))
				continue
			}
			res.Facts = append(res.Facts, fmt.Sprintf("%s, after the known limit let two nodes write: e2fsck -fn: %q", p.node, is.Fsck))
			continue
		}
		doubled = twice
		handed, sawHanded := states[rbdlab.At{Image: p.node, When: mixedHanded}]
		switch {
		case twice:
			lost = append(lost, fmt.Sprintf("%s: two nodes have it mounted for writing: %v", p.node, writers))
			res.Facts = append(res.Facts, fmt.Sprintf("%s, after two writers: e2fsck -fn: %q", p.node, is.Fsck))
			continue
		case both.Runs(p.node+"-old") || len(writers) != 1 || !both.Runs(p.node):
			missing = append(missing, fmt.Sprintf("%s: mounted for writing on %v, pods %v", p.node, writers, both.Pods))
			continue
		case !sawHanded:
			missing = append(missing, fmt.Sprintf("%s: no observation was recorded when it was released", p.node))
			continue
		}
		if !first.Locked(rbdlab.LegacyLock(p.node)) {
			lost = append(lost, p.node+": it has no lock of its node")
		}
		texts := map[string]string{"first": "under test"}
		if handed.Runs(p.node + "-old") {
			texts["second"] = "1.7.0"
			res.Measure("1.7.0 runs after ours has let go", handed.Seconds, "s")
		} else {
			lost = append(lost, fmt.Sprintf("%s: 1.7.0 does not run %.0f s after the other pod was deleted: watchers %v, locks %v", p.node, handed.Seconds, handed.Watchers, handed.Locks))
		}
		if end.Held() || len(end.Locks) > 0 {
			lost = append(lost, fmt.Sprintf("%s: at the end watchers %v, locks %v", p.node, end.Watchers, end.Locks))
		}
		if text := is.Lost(texts); text != "" {
			lost = append(lost, text)
		}
	}
	end := rbdlab.Ending{Lost: lost, Missing: missing, EachLosesAll: true,
		Absent: "1.7.0 is refused as long as the other node has the image, and then takes it over with its data; node1 and node10 show the known limit"}
	if !doubled {
		end.Fine = []string{"1.7.0 did not mount what another node had mounted"}
	}
	return end.Answer(h, res)
}
