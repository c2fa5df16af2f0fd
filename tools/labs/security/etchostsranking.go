// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// The kubelet's directory is a file system of its own, so that what else the computer's
// disk is used for decides nothing. In MiB.
const (
	nodefsMiB = 192
	keepMiB   = 64  // --eviction-hard
	otherMiB  = 24  // of the pod that does nothing wrong, in an emptyDir
	writeMiB  = 130 // of the writer, in its /etc/hosts: less is left than must be
)

func etcHostsRankingLab(base string) labkit.Lab {
	return labkit.Lab{
		Name:    "etc-hosts-ranking",
		Folder:  "security",
		Summary: "a pod fills the node's disk through its /etc/hosts, and another pod is evicted",
		Needs:   labkit.KubeletNeeds(base),
		Steps: func(e *labkit.Env) []labkit.Step {
			r := &ranking{e: e, base: base}
			return []labkit.Step{
				{Text: fmt.Sprintf("start a cluster of stock %s with the kubelet under test, whose directory is a file system of %d MiB and which evicts pods when less than %d MiB are left", base, nodefsMiB, keepMiB), Do: r.start},
				{Text: fmt.Sprintf("create a pod that writes %d MiB into an emptyDir; wait until /stats/summary has them", otherMiB), Do: r.other},
				{Text: fmt.Sprintf("create a pod that writes %d MiB into its /etc/hosts; wait until a pod is evicted", writeMiB), Do: r.writer},
				{Text: "wait until the node's disk pressure is over, or the other pod is evicted too", Do: r.after},
				labkit.AllRun(func(ctx context.Context) error { return r.c.Alive(ctx) }),
			}
		},
		Oracle: labkit.Oracle{
			Text:  []string{"the pod with the emptyDir is evicted; absent: the writer is, its /etc/hosts is removed and counted, the disk pressure ends, and the other pod runs"},
			Judge: judgeRanking,
		},
	}
}

// ranking is a cluster whose node has little disk.
type ranking struct {
	e        *labkit.Env
	base     string
	c        *node.Cluster
	pressure bool // it was seen
}

// evictedFirst is the first pod that was evicted.
type evictedFirst struct {
	Pod      string
	Pressure bool // the node said DiskPressure
}

// inTheEnd is what was there when the pressure was over or the other pod was gone too.
type inTheEnd struct {
	OtherEvicted, OtherRuns bool
	PressureGone            bool
	HostsMiB                int64 // of the writer's file that are left
	Removed                 float64
}

func (r *ranking) start(ctx context.Context) error {
	dir := r.e.Path("node1", "kubelet")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("nodefs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", nodefsMiB)); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
	}
	r.e.OnStop("the node's disk", func(context.Context) error { return unix.Unmount(dir, unix.MNT_DETACH) })
	var err error
	r.c, err = r.e.StartStockCluster(ctx, r.base, node.Config{Name: "node1", Kubelet: r.e.UnderTest(r.base, "kubelet"), KubeletArgs: []string{
		fmt.Sprintf("--eviction-hard=nodefs.available<%dMi", keepMiB), "--eviction-pressure-transition-period=5s", "--volume-stats-agg-period=5s"}})
	return err
}

func (r *ranking) other(ctx context.Context) error {
	if err := r.c.Client.Make(ctx, ns, pod("other", func(c *corev1.Container) {
		c.Command = []string{"/labpod", "fill", "/data/file", fmt.Sprint(otherMiB * mib)}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})); err != nil {
		return err
	}
	l := &lab{e: r.e, c: r.c, node: r.c.Nodes[0]}
	return wait.Until(ctx, "/stats/summary has the emptyDir", 90*time.Second, func(ctx context.Context) (bool, error) {
		used, err := l.ephemeral(ctx)
		return used["other"] >= otherMiB*mib, err
	})
}

func (r *ranking) writer(ctx context.Context) error {
	if err := r.c.Client.Make(ctx, ns, pod("writer", func(c *corev1.Container) {
		c.Command = []string{"/labpod", "fill", "/etc/hosts", fmt.Sprint(writeMiB * mib)}
	})); err != nil {
		return err
	}
	var o evictedFirst
	if err := wait.Until(ctx, "a pod is evicted", 2*time.Minute, func(ctx context.Context) (bool, error) {
		if err := r.look(ctx); err != nil {
			return false, err
		}
		for _, name := range []string{"other", "writer"} {
			evicted, _, err := r.state(ctx, name)
			if err != nil || evicted {
				o.Pod = name
				return evicted, err
			}
		}
		return false, nil
	}); err != nil {
		return err
	}
	o.Pressure = r.pressure
	r.e.Record(o)
	return nil
}

// look notes whether the node is short of disk now.
func (r *ranking) look(ctx context.Context) error {
	n, err := r.c.Client.Get(ctx, kube.Nodes, "", "node1")
	if err == nil && kube.Condition(n, "DiskPressure") == "True" {
		r.pressure = true
	}
	return err
}

// state says whether a pod was evicted, and whether it runs.
func (r *ranking) state(ctx context.Context, name string) (evicted, runs bool, err error) {
	o, err := r.c.Client.Get(ctx, kube.Pods, ns, name)
	if err != nil {
		return false, false, err
	}
	return kube.String(o, "status", "reason") == "Evicted", kube.String(o, "status", "phase") == "Running", nil
}

func (r *ranking) after(ctx context.Context) error {
	var o inTheEnd
	if err := wait.Until(ctx, "the pressure is over, or the other pod is evicted", 2*time.Minute, func(ctx context.Context) (bool, error) {
		n, err := r.c.Client.Get(ctx, kube.Nodes, "", "node1")
		if err != nil {
			return false, err
		}
		r.pressure = r.pressure || kube.Condition(n, "DiskPressure") == "True"
		o.PressureGone = r.pressure && kube.Condition(n, "DiskPressure") == "False"
		o.OtherEvicted, o.OtherRuns, err = r.state(ctx, "other")
		return o.PressureGone || o.OtherEvicted, err
	}); err != nil {
		return err
	}
	w, err := r.c.Client.Get(ctx, kube.Pods, ns, "writer")
	if err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(r.c.Nodes[0].Dir, "kubelet", "pods", string(w.GetUID()), "etc-hosts"))
	switch {
	case err == nil:
		o.HostsMiB = info.Size() / mib
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if o.Removed, err = kubeletlab.Metric(ctx, r.c.Nodes[0], "holdfast_etc_hosts_eviction_removed_total"); err != nil {
		return err
	}
	r.e.Record(o)
	return nil
}

func judgeRanking(h *history.History) labkit.Outcome {
	first, end := history.One[evictedFirst](h), history.One[inTheEnd](h)
	switch {
	case first.Pod == "other" || end.OtherEvicted:
		return labkit.ReproducedBecause("a pod with %d MiB in an emptyDir was evicted (first: %s), while another pod had %d MiB in its /etc/hosts", otherMiB, first.Pod, writeMiB)
	case first.Pod != "writer":
		return labkit.InconclusiveBecause("%q was evicted first", first.Pod)
	case !end.PressureGone || !end.OtherRuns:
		return labkit.InconclusiveBecause("the writer was evicted, but the disk pressure is over: %t, and the other pod runs: %t", end.PressureGone, end.OtherRuns)
	case end.HostsMiB > 0 || end.Removed != 1:
		return labkit.InconclusiveBecause("the writer was evicted, but its /etc/hosts has %d MiB, and %v files were removed", end.HostsMiB, end.Removed)
	}
	return labkit.AbsentBecause("the writer was evicted and its /etc/hosts removed; the disk pressure is over and the other pod runs")
}
