// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbdkill is the check rbd-kill: pods with an RBD image come and go while the kubelet
// and its rbd are killed at random moments. See tools/labs/checks/rbd-kill/README.md.
package rbdkill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labs/internal/rbdlab"
)

const (
	rounds = 6
	// longest is the latest moment of a kill after the pod is created or deleted: an attach
	// takes 2 s, a detach 1 s on an idle machine.
	longest = 5 * time.Second
	// bound is how long a pod may take to run, and its image to be free, after a kill.
	bound = 3 * time.Minute
	img   = "kill"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "rbd-kill",
		Folder:  "checks/rbd-kill",
		Summary: "kill -9 of the kubelet and of its rbd at random moments of attach and detach",
		Steps:   steps,
		Oracle: labkit.Oracle{Text: []string{
			fmt.Sprintf("after each kill the pod runs, or its image is free and unmapped, within %v", bound),
			"at the end the filesystem is clean for e2fsck -fn and has what was written in each round",
		}, Judge: judge},
		Needs:    rbdlab.Needs(),
		Packages: rbdlab.Packages,
		Variants: []labkit.Variant{labkit.Ours},
		Timeout:  func(labkit.Profile) time.Duration { return 40 * time.Minute },
	}}
}

type lab struct {
	e *labkit.Env
	r *rbdlab.Rig
	n *rbdlab.Node
}

// blow is one kill: what is killed, and when.
type blow struct {
	Round  int
	Detach bool
	// RBD: a command of rbd is killed, if one that only asks runs, and the kubelet is not.
	RBD   bool
	After time.Duration
}

func (b blow) when() string {
	if b.Detach {
		return fmt.Sprintf("round %d, detach", b.Round)
	}
	return fmt.Sprintf("round %d, attach", b.Round)
}

func (b blow) String() string {
	what := "the kubelet"
	if b.RBD {
		what = "a question of rbd's"
	}
	return fmt.Sprintf("%s: kill %s after %v", b.when(), what, b.After)
}

// blows are the kills of a run, by its seed.
func blows(e *labkit.Env) []blow {
	var all []blow
	for round := 1; round <= rounds; round++ {
		for _, detach := range []bool{false, true} {
			all = append(all, blow{Round: round, Detach: detach, RBD: e.Rand.IntN(4) == 0, After: time.Duration(e.Rand.Int64N(int64(longest))).Round(time.Millisecond)})
		}
	}
	return all
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	s := []labkit.Step{{Text: "start Ceph, etcd, apiserver and controller manager v1.9.11, and a node with the kubelet under test and RBDDetachLeftovers", Do: l.start}}
	for _, b := range blows(e) {
		s = append(s, labkit.Step{Text: b.String(), Do: func(ctx context.Context) error { return l.strike(ctx, b) }})
	}
	return append(s,
		labkit.Step{Text: "read the contents of the image", Do: l.look},
		labkit.AllRun(func(ctx context.Context) error { return l.r.Alive(ctx) }))
}

func (l *lab) kubelet() kube.Program { return rbdlab.UnderTest(l.e, "RBDDetachLeftovers") }

func (l *lab) start(ctx context.Context) (err error) {
	if l.r, err = rbdlab.Start(ctx, l.e, rbdlab.Config{Nodes: []rbdlab.NodeConfig{{Name: "node1", Kubelet: l.kubelet()}}}); err != nil {
		return err
	}
	l.n = l.r.Node("node1")
	return l.r.Image(ctx, img)
}

// struck says what a kill hit.
type struck struct {
	Round  int
	Detach bool
	Hit    string
}

func (l *lab) strike(ctx context.Context, b blow) error {
	pod := fmt.Sprintf("round-%d", b.Round)
	if b.Detach {
		if err := l.r.Client.Delete(ctx, kube.Pods, rbdlab.NS, pod); err != nil {
			return err
		}
	} else if err := l.r.Create(ctx, rbdlab.Pod{Name: pod, Node: "node1", Image: img}); err != nil {
		return err
	}
	hit, err := l.hit(ctx, b)
	if err != nil {
		return err
	}
	l.e.Record(struck{b.Round, b.Detach, hit})
	wanted := func(s rbdlab.State) bool { return s.Runs(pod) }
	if b.Detach {
		wanted = func(s rbdlab.State) bool {
			_, there := s.Pods[pod]
			return !there && rbdlab.Free(s) && len(s.InUse["node1"]) == 0
		}
	}
	s, err := l.r.Until(ctx, img, b.when(), bound, wanted)
	if err != nil {
		return err
	}
	if !wanted(s) {
		return labkit.Enough // the rounds after it would start from what it left
	}
	if b.Detach {
		return nil
	}
	return l.n.Write(ctx, img, pod, "written")
}

// hit kills, and starts the kubelet again.
func (l *lab) hit(ctx context.Context, b blow) (string, error) {
	end := time.Now().Add(b.After)
	for time.Now().Before(end) {
		if b.RBD {
			if words, err := l.killQuestion(); err != nil || words != "" {
				return words, err
			}
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	if b.RBD {
		return "nothing: no read-only rbd command ran", nil
	}
	if err := l.n.KillKubelet(); err != nil {
		return "", err
	}
	return "the kubelet", l.n.StartKubelet(ctx, l.kubelet())
}

// killQuestion kills a command of the node's rbd that only asks. rbd map and rbd unmap are
// left: what is left of them when they are killed is the imitation's, and not the kernel's.
func (l *lab) killQuestion() (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		words := strings.Split(string(b), "\x00")
		if err != nil || len(words) < 3 || filepath.Base(words[0]) != "rbd" || !strings.Contains(string(b), "--rados_osd_op_timeout=30") {
			continue // it is gone, or it is the oracle's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return "", err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return "", err
		}
		return "rbd " + words[1], nil
	}
	return "", nil
}

func (l *lab) look(ctx context.Context) error {
	var files []string
	for round := 1; round <= rounds; round++ {
		files = append(files, fmt.Sprintf("round-%d", round))
	}
	_, err := l.r.Contents(ctx, img, "at the end", files...)
	return err
}

func judge(h *history.History) labkit.Outcome {
	states, contents := rbdlab.States(h), rbdlab.ContentsOf(h)
	hits := history.Of[struck](h)
	res := labkit.Outcome{}
	slowest, killed := 0.0, 0
	for i, x := range hits {
		b := blow{Round: x.Round, Detach: x.Detach}
		s, ok := states[rbdlab.At{Image: img, When: b.when()}]
		pod := fmt.Sprintf("round-%d", x.Round)
		_, there := s.Pods[pod]
		switch {
		case !ok || i != 2*(x.Round-1)+map[bool]int{true: 1}[x.Detach]:
			return labkit.InconclusiveBecause("%s: no observation was recorded", b.when())
		case !x.Detach && !s.Runs(pod):
			return labkit.FailedBecause("%s, after %s was killed: the pod does not run after %.0f s", b.when(), x.Hit, s.Seconds)
		case x.Detach && (there || s.Held() || len(s.InUse["node1"]) > 0):
			return labkit.FailedBecause("%s, after %s was killed: after %.0f s watched by %v, mapped on %v, in use %v", b.when(), x.Hit, s.Seconds, s.Watchers, s.Mapped, s.InUse["node1"])
		}
		if !strings.HasPrefix(x.Hit, "nothing") {
			killed++
		}
		slowest = max(slowest, s.Seconds)
	}
	end, ok := contents[rbdlab.At{Image: img, When: "at the end"}]
	if len(hits) != 2*rounds || !ok || killed < rounds {
		return labkit.InconclusiveBecause("%d of %d kills were made, %d ended a process, and the image's contents were read: %t", len(hits), 2*rounds, killed, ok)
	}
	written := map[string]string{}
	for round := 1; round <= rounds; round++ {
		written[fmt.Sprintf("round-%d", round)] = "written"
	}
	if lost := end.Lost(written); lost != "" {
		return labkit.FailedBecause("%s", lost)
	}
	res.Verdict, res.Why = labkit.Passed, fmt.Sprintf("%d kills in %d rounds, recovery took at most %.1f s; the image is clean and has %d files", killed, rounds, slowest, rounds)
	res.Measure("until all was as wanted, at most", slowest, "s")
	res.Measure("kills", float64(killed), "")
	return res
}
