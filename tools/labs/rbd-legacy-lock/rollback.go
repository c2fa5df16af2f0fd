// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbdlegacylock has the labs of rbd-legacy-lock: older kubelets beside ours, and before
// and after it. See tools/labs/rbd-legacy-lock/README.md.
package rbdlegacylock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/rbdlab"
)

const (
	gate = "RBDLegacyLock"
	// freeBound is how long a detach may take, runBound until a pod runs, also when the
	// watcher of before a power cut has to go first, which takes Ceph 30 s.
	freeBound = 2 * time.Minute
	runBound  = 6 * time.Minute
	// mountedBound is until a restarted kubelet of 1.9 has reported a mount: its status of every
	// 10 s comes first, and a pause that doubles.
	mountedBound = 3 * time.Minute
	// statusBound is for a kubelet's first whole status, which comes after 10 to 20 s.
	statusBound = 90 * time.Second
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{mixedLab(), rollbackLab()}
}

func rollbackLab() labkit.Lab {
	return labkit.Lab{
		Name:     "rbd-legacy-lock-rollback",
		Folder:   "rbd-legacy-lock",
		Summary:  "Holdfast mounts an RBD image without a lock that older kubelets see; also: kubelets take over an image in both directions, with its data",
		Steps:    rollbackSteps,
		Oracle:   rollbackOracle,
		Needs:    rbdlab.Needs("v1.7.0", "v1.8.15", rbdlab.Base),
		Packages: rbdlab.Packages,
		Variants: []labkit.Variant{labkit.Ours, labkit.GateOff},
		Timeout:  func(labkit.Profile) time.Duration { return 40 * time.Minute },
	}
}

// cell is a node that goes from an old kubelet to the one under test and back.
type cell struct {
	// name is the node's and begins its images' and pods'.
	name string
	// base is the old kubelet's release; "": it is the one under test with the gate off.
	base string
	// gate: the kubelet under test has the gate on.
	gate bool
	// columns is the form of rbd lock list on the node. With two blanks kubelets up to 1.8
	// release none of their locks, nor does stock 1.9.11 one of the gate's: a known limit.
	columns int
}

func (c cell) String() string {
	if c.base == "" {
		return c.name + ": under test, gate off and on"
	}
	on := map[bool]string{true: "on", false: "off"}[c.gate]
	return fmt.Sprintf("%s: %s and under test, gate %s", c.name, c.base, on)
}

// cellsOf are the nodes of a variant and profile. Without the gate the first cell's image has
// no lock, which is enough to see.
func cellsOf(v labkit.Variant, p labkit.Profile) []cell {
	all := []cell{
		{"from19", rbdlab.Base, true, 1},
		{"from19off", rbdlab.Base, false, 0},
		{"from17", "v1.7.0", true, 1},
		{"from17off", "v1.7.0", false, 1},
		{"from18", "v1.8.15", true, 1},
		{"turned", "", true, 0},
	}
	switch {
	case v != labkit.Ours:
		return all[:1]
	case p == labkit.Short:
		return all[:2]
	}
	return all
}

type rollback struct {
	e *labkit.Env
	r *rbdlab.Rig
}

func rollbackSteps(e *labkit.Env) []labkit.Step {
	l := &rollback{e: e}
	var cells []string
	for _, c := range cellsOf(e.Variant, e.Profile) {
		cells = append(cells, c.String())
	}
	control := ""
	if e.Variant == labkit.Ours {
		cells = append(cells, controlNode+": stock v1.9.11 alone")
		control = ". Node " + controlNode + ": run pod x, restart the kubelet, delete x at once; run pod y, restart the kubelet, delete y when its mount is reported"
	}
	return []labkit.Step{
		{Text: "start Ceph, etcd, apiserver and controller manager v1.9.11, and nodes without kubelets: " + strings.Join(cells, "; "), Do: l.start},
		{Text: "on each node: the old kubelet runs pods a and b; swap to the kubelet under test; delete b; run c and d; swap back; delete a and c; " +
			"swap to the kubelet under test again; power cut, the kubelet under test starts; swap back; delete d; swap to the kubelet under test again; run e; power cut, the old kubelet starts; delete e. " +
			"Each pod has an image and writes to it. After a swap to stock 1.9.11 no pod is deleted before that kubelet has reported the mounts" + control, Do: l.live},
		labkit.AllRun(func(ctx context.Context) error { return l.r.Alive(ctx) }),
	}
}

func (l *rollback) start(ctx context.Context) (err error) {
	var nodes []rbdlab.NodeConfig
	for _, c := range cellsOf(l.e.Variant, l.e.Profile) {
		nodes = append(nodes, rbdlab.NodeConfig{Name: c.name, Kubelet: c.old(l.e), Columns: c.columns})
	}
	if l.e.Variant == labkit.Ours {
		nodes = append(nodes, rbdlab.NodeConfig{Name: controlNode, Kubelet: l.e.Stock(rbdlab.Base, "kubelet")})
	}
	l.r, err = rbdlab.Start(ctx, l.e, rbdlab.Config{Nodes: nodes})
	return err
}

func (l *rollback) live(ctx context.Context) error {
	var g errgroup.Group
	if l.e.Variant == labkit.Ours {
		g.Go(func() error { return l.control(ctx) })
	}
	for _, c := range cellsOf(l.e.Variant, l.e.Profile) {
		g.Go(func() error {
			t := &trip{rollback: l, cell: c, node: l.r.Node(c.name)}
			if err := t.run(ctx); err != nil && !errors.Is(err, labkit.Enough) {
				return fmt.Errorf("%s: %w", c, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// trip is a node on its way.
type trip struct {
	*rollback
	cell cell
	node *rbdlab.Node
	pods []string // that run
}

func (t *trip) image(letter string) string { return t.cell.name + "-" + letter }

func (t *trip) underTest() kube.Program {
	if t.cell.gate {
		return rbdlab.UnderTest(t.e, gate)
	}
	return rbdlab.UnderTest(t.e)
}

func (c cell) old(e *labkit.Env) kube.Program {
	if c.base == "" {
		return rbdlab.UnderTest(e)
	}
	return e.Stock(c.base, "kubelet")
}

func (t *trip) run(ctx context.Context) error {
	for _, f := range []func(context.Context) error{
		t.create("a", byOld), t.create("b", byOld),
		t.swap(there), t.see("a", underTest), t.see("b", underTest),
		t.delete("b"),
		t.create("c", underTest), t.create("d", underTest), t.enough,
		t.swap(back), t.see("a", backAgain), t.see("c", backAgain),
		t.delete("a"), t.delete("c"),
		t.swap(thereAgain), t.see("d", thereAgain),
		t.reboot("d", true),
		t.swap(backAfterReboot), t.see("d", backAfterReboot),
		t.delete("d"),
		t.swap(thereForE), t.create("e", underTest),
		t.reboot("e", false),
		t.delete("e"),
	} {
		if err := f(ctx); err != nil {
			return err
		}
	}
	t.e.Record(arrived{t.cell.name})
	return nil
}

// enough ends the trip of a variant without the gate: what c and d look like is seen.
func (t *trip) enough(context.Context) error {
	if t.e.Variant == labkit.Ours {
		return nil
	}
	return labkit.Enough
}

func (t *trip) step(format string, a ...any) {
	t.e.Step("%s: %s", t.cell.name, fmt.Sprintf(format, a...))
}

// textOf is what a pod writes into its image.
func textOf(image, when string) string { return image + ", " + when }

// written is the file that is written when.
func written(when string) string { return strings.ReplaceAll(when, " ", "-") }

func (t *trip) create(letter, when string) func(context.Context) error {
	return func(ctx context.Context) error {
		image := t.image(letter)
		t.step("run %s", image)
		if err := t.r.Image(ctx, image); err != nil {
			return err
		}
		if err := t.r.Create(ctx, rbdlab.Pod{Name: image, Node: t.cell.name, Image: image}); err != nil {
			return err
		}
		if _, err := t.r.Running(ctx, image, 3*time.Minute); err != nil {
			return err
		}
		t.pods = append(t.pods, image)
		if err := t.node.Write(ctx, image, written(when), textOf(image, when)); err != nil {
			return err
		}
		_, err := t.r.See(ctx, image, when)
		return err
	}
}

func (t *trip) see(letter, when string) func(context.Context) error {
	return func(ctx context.Context) error {
		image := t.image(letter)
		if err := t.node.Write(ctx, image, written(when), textOf(image, when)); err != nil {
			t.e.Logf("%v", err) // the state tells it
		}
		if !t.cell.oursRuns(letter, when) {
			_, err := t.r.See(ctx, image, when)
			return err
		}
		// What a stock kubelet reported before stays until this one's first status.
		_, err := t.r.Until(ctx, image, when, statusBound, func(s rbdlab.State) bool { return foreignOn(s, t.cell.name) == "" })
		return err
	}
}

// delete deletes a pod and looks whether its image is let go of, and into it.
func (t *trip) delete(letter string) func(context.Context) error {
	return func(ctx context.Context) error {
		image := t.image(letter)
		t.step("delete %s", image)
		if err := t.r.Client.Delete(ctx, kube.Pods, rbdlab.NS, image); err != nil {
			return err
		}
		for i, p := range t.pods {
			if p == image {
				t.pods = append(t.pods[:i:i], t.pods[i+1:]...)
			}
		}
		s, err := t.r.Until(ctx, image, deleted, freeBound, rbdlab.FreeUnlocked)
		if err != nil || s.Held() {
			return err
		}
		_, err = t.r.Contents(ctx, image, deleted, files(letter)...)
		return err
	}
}

// files are those that were written into an image.
func files(letter string) []string {
	var all []string
	for _, when := range moments(letter) {
		all = append(all, written(when))
	}
	return all
}

// swap replaces the kubelet and records the containers of before and after.
func (t *trip) swap(what string) func(context.Context) error {
	return func(ctx context.Context) error {
		to := t.underTest()
		if isBack(what) {
			to = t.cell.old(t.e)
		}
		t.step("%s: %s", what, to.Base)
		before, err := kubeletlab.Take(ctx, t.node.Node)
		if err != nil {
			return err
		}
		mounted, err := t.r.MountedEvents(ctx)
		if err != nil {
			return err
		}
		if err := t.node.SwapKubelet(ctx, to); err != nil {
			return err
		}
		var pods []string
		for _, p := range t.pods {
			pods = append(pods, rbdlab.NS+"/"+p)
		}
		if err := kubeletlab.WaitCompared(ctx, t.node.Node, pods, 3*time.Minute); err != nil {
			return err
		}
		after, err := kubeletlab.WaitStable(ctx, t.node.Node, 4*time.Second, 3*time.Minute)
		if err != nil {
			return err
		}
		t.e.Record(swapped{Cell: t.cell.name, What: what, Before: before, After: after})
		if isBack(what) && t.cell.base == rbdlab.Base {
			// See the control: before that a stock 1.9 kubelet does not let go of the image.
			return t.r.MountedAgain(ctx, mounted, mountedBound, t.pods...)
		}
		return nil
	}
}

// reboot cuts the power; the kubelet under test, or the old one, starts. The pod must run
// again.
func (t *trip) reboot(letter string, test bool) func(context.Context) error {
	return func(ctx context.Context) error {
		image, when, to := t.image(letter), rebooted, t.cell.old(t.e)
		if test {
			to = t.underTest()
		}
		t.step("power cut; %s starts, and %s runs again", to.Base, image)
		before, err := t.r.See(ctx, image, beforePowerCut)
		if err != nil {
			return err
		}
		if err := t.node.Reboot(ctx, to); err != nil {
			return err
		}
		was := before.Pods[image]
		if err := wait.Until(ctx, image+" in another container", runBound, func(ctx context.Context) (bool, error) {
			s, err := t.r.Look(ctx, image, when)
			if err != nil {
				return false, err
			}
			now := s.Pods[image]
			return now.Container != was.Container && now.Container != "" && now.Phase == "Running" && now.Restarts > was.Restarts && len(s.Mounts) > 0, nil
		}); err != nil && ctx.Err() != nil {
			return err
		}
		return t.see(letter, when)(ctx)
	}
}
