// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package securityuse

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	const base, second = "v1.9.11", "v1.12.10"
	return []labkit.Lab{failoverLab(base), labkit.OnBase(failoverLab, second), nsenterLab(base), useLab(base), labkit.OnBase(useLab, second)}
}

func nsenterLab(base string) labkit.Lab {
	return labkit.Lab{
		Name:    "security-use-nsenter",
		Folder:  "checks/security-use",
		Summary: "subPaths of a kubelet with a mount namespace of its own, as in a container, that mounts through nsenter",
		Needs:   labkit.KubeletNeeds(base),
		Steps: func(e *labkit.Env) []labkit.Step {
			c := &containerized{e: e, base: base}
			return []labkit.Step{
				{Text: "start etcd, kube-apiserver and controller manager of stock " + base + ", and a node whose kubelet under test runs with --containerized in its own root and mount namespace, with the node's root at /rootfs", Do: c.start},
				{Text: "create a pod with five subPaths: a directory, a file, a read-only one, one behind a symlink inside the volume, and one in an emptyDir; wait until the pod is ready", Do: c.create},
				{Text: "delete the pod, and check that no mount of a subPath is left on the node", Do: c.remove},
				labkit.AllRun(func(ctx context.Context) error { return c.c.Alive(ctx) }),
			}
		},
		Oracle: labkit.Oracle{
			Text:  []string{"every container sees its file, each subPath was mounted through nsenter, no mounted file differs from the opened file, and no mount is left"},
			Judge: judgeContainerized,
		},
	}
}

// containerized is a cluster whose kubelet believes that it runs in a container.
type containerized struct {
	e      *labkit.Env
	base   string
	c      *node.Cluster
	binary string // the kubelet under test
}

// boundSubPaths is what there was when the pod was ready, or had not become so.
type boundSubPaths struct {
	Ready   bool
	Events  []string // if it is not ready
	Apart   bool     // the kubelet's mount namespace is not the node's
	Nsenter int      // bind mounts of subPaths that the kubelet's log shows through nsenter
	Other   float64  // subPaths for which another file is said to have been mounted
}

// leftSubPaths are the mounts of subPaths that the node has when the pod is gone.
type leftSubPaths struct{ Mounts []string }

// subPathMounts are the containers of the pod and their mounts.
var subPathMounts = map[string]corev1.VolumeMount{
	"dir":   {Name: "data", MountPath: "/m", SubPath: "dir"},
	"ro":    {Name: "data", MountPath: "/m", SubPath: "dir", ReadOnly: true},
	"file":  {Name: "data", MountPath: "/m/file", SubPath: "dir/file"},
	"link":  {Name: "data", MountPath: "/m/file", SubPath: "link/file"},
	"empty": {Name: "empty", MountPath: "/m", SubPath: "made/by/kubelet"},
}

// inContainer becomes the kubelet in a mount namespace and a root of its own: a folder into
// which the node's are bound. Mounts of the node reach it, its own do not reach the node.
// mount(8) and the others run in the node's namespace, where nsenter leads; a process stays
// there for that as long as the kubelet runs. 1.9 calls systemd-run for each of them; this
// node has no systemd, so what is in its place runs the command.
const inContainer = `#!/bin/bash
set -euo pipefail
root=%[1]s/root
if ! mountpoint -q "$root"; then
  mkdir -p "$root"
  mkdir -p /var/lib/kubelet
  mountpoint -q /var/lib/kubelet || mount --bind /var/lib/kubelet /var/lib/kubelet
  mount --make-rshared /var/lib/kubelet
  mount -t tmpfs container "$root"
  mount --make-private "$root"
  for d in /*; do
    if [ -L "$d" ]; then
      cp -P "$d" "$root$d"
    elif [ -d "$d" ]; then
      mkdir "$root$d"
      mount --rbind "$d" "$root$d"
    fi
  done
  mkdir -p "$root/rootfs/proc/1/ns" "$root/rootfs/bin"
  ln -s /proc/self "$root/rootfs/proc/self"
  ln -s /proc/cpuinfo "$root/rootfs/proc/cpuinfo" # for cadvisor, on a computer without cpufreq
  for program in mount findmnt umount stat touch mkdir ls sh chmod systemd-run; do
    test -x "/bin/$program"
    touch "$root/rootfs/bin/$program"
  done
  printf '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n' >"%[1]s/systemd-run"
  chmod 755 "%[1]s/systemd-run"
  mount --bind "%[1]s/systemd-run" /bin/systemd-run
fi
tail --pid=$$ -f /dev/null </dev/null >/dev/null 2>&1 &
for f in mounts mountinfo ns/mnt; do
  ln -sfn "/proc/$!/$f" "$root/rootfs/proc/1/$f"
done
exec unshare --mount --propagation slave chroot "$root" %[2]s "$@"
`

func (c *containerized) start(ctx context.Context) error {
	var err error
	if c.c, err = c.e.StartStockCluster(ctx, c.base, node.Config{Name: "node1"}); err != nil {
		return err
	}
	p := c.e.UnderTest(c.base, "kubelet")
	dir := c.e.Path("container")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	c.binary = p.Path
	script := fmt.Sprintf(inContainer, dir, p.Path)
	p.Path = filepath.Join(dir, "kubelet")
	if err := os.WriteFile(p.Path, []byte(script), 0o755); err != nil {
		return err
	}
	// The log shows each bind at 3 and each program at 5.
	if err := c.c.Nodes[0].StartKubelet(ctx, p, "--containerized=true", "--v=5"); err != nil {
		return err
	}
	if err := c.c.WaitNodeReady(ctx, "node1", time.Minute); err != nil {
		return err
	}
	log, err := c.c.Nodes[0].Kubelet.LastRunLog()
	if err == nil && !strings.Contains(log, "Running kubelet in containerized mode") {
		err = fmt.Errorf("the kubelet's log does not say that it runs in containerized mode")
	}
	return err
}

func (c *containerized) create(ctx context.Context) error {
	dir := c.e.Path("volume")
	if err := os.MkdirAll(filepath.Join(dir, "dir"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "dir", "file"), []byte("x"), 0o644); err != nil {
		return err
	}
	if err := os.Symlink("dir", filepath.Join(dir, "link")); err != nil {
		return err
	}
	p := node.Pod("node1-subpaths", "node1")
	p.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}},
		{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	for name, mount := range subPathMounts {
		w := node.Web(name, "sleep")
		if name == "empty" {
			w = node.Web(name, "fill", "/m/file", "10")
		}
		w.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.Exec("/labpod", "probe", "/m/file"), PeriodSeconds: 1}
		w.VolumeMounts = []corev1.VolumeMount{mount}
		p.Spec.Containers = append(p.Spec.Containers, w)
	}
	events, err := c.c.Client.Record(ctx, kube.Events, ns)
	if err != nil {
		return err
	}
	if err := c.c.Client.Make(ctx, ns, p); err != nil {
		return err
	}
	var o boundSubPaths
	err = wait.Until(ctx, "the pod is ready", 90*time.Second, func(ctx context.Context) (bool, error) {
		live, err := c.c.Client.Get(ctx, kube.Pods, ns, "node1-subpaths")
		o.Ready = err == nil && kubeletlab.PodReady(live)
		return o.Ready, err
	})
	if ctx.Err() != nil {
		return err
	}
	if !o.Ready {
		for _, ev := range events.Events() {
			if ev.Object != nil && kube.String(ev.Object, "type") == "Warning" {
				o.Events = append(o.Events, kube.String(ev.Object, "message"))
			}
		}
	}
	log, err := c.c.Nodes[0].Kubelet.LastRunLog()
	if err != nil {
		return err
	}
	for _, line := range strings.Split(log, "\n") {
		// The bind itself, not the mount(8) after it that sets the flags.
		if strings.Contains(line, "Running nsenter command") && strings.Contains(line, "/volume-subpaths/") && strings.Contains(line, " -o bind ") {
			o.Nsenter++
		}
	}
	// The link exe shows the binary below the folder that is the kubelet's root.
	namespaces, err := c.c.Nodes[0].Output(ctx, "sh", "-c", `readlink /proc/self/ns/mnt
for p in /proc/[0-9]*; do
  case "$(readlink "$p/exe")" in *"$0") readlink "$p/ns/mnt";; esac
done`, c.binary)
	if err != nil {
		return err
	}
	n := strings.Fields(namespaces)
	o.Apart = len(n) == 2 && n[0] != n[1]
	if o.Other, err = kubeletlab.Metric(ctx, c.c.Nodes[0], "holdfast_subpath_symlink_race_other_mounted_total"); err != nil {
		return err
	}
	c.e.Record(o)
	return nil
}

func (c *containerized) remove(ctx context.Context) error {
	if err := c.c.Client.Delete(ctx, kube.Pods, ns, "node1-subpaths"); err != nil {
		return err
	}
	if err := c.c.Client.WaitGone(ctx, kube.Pods, ns, "node1-subpaths", time.Minute); err != nil {
		return err
	}
	var o leftSubPaths
	err := wait.Until(ctx, "no mount of a subPath is left", 30*time.Second, func(context.Context) (bool, error) {
		mounts, err := c.c.Nodes[0].Output(ctx, "cat", "/proc/self/mounts")
		o.Mounts = nil
		for _, line := range strings.Split(mounts, "\n") {
			if strings.Contains(line, "/volume-subpaths/") {
				o.Mounts = append(o.Mounts, line)
			}
		}
		return err == nil && len(o.Mounts) == 0, err
	})
	if ctx.Err() != nil || err != nil && len(o.Mounts) == 0 {
		return err
	}
	c.e.Record(o)
	return nil
}

func judgeContainerized(h *history.History) labkit.Outcome {
	o, left := history.One[boundSubPaths](h), history.One[leftSubPaths](h)
	switch {
	case !o.Ready:
		return labkit.FailedBecause("the pod does not become ready: %s", strings.Join(o.Events, "; "))
	case !o.Apart:
		return labkit.InconclusiveBecause("the kubelet has the node's mount namespace, or is not one process")
	case o.Nsenter < len(subPathMounts):
		return labkit.InconclusiveBecause("the kubelet's log has %d binds through nsenter, the pod has %d subPaths", o.Nsenter, len(subPathMounts))
	case o.Other > 0:
		return labkit.FailedBecause("the kubelet reports a wrong mounted file for %v subPaths, although nobody exchanged a file", o.Other)
	case len(left.Mounts) > 0:
		return labkit.FailedBecause("%d mounts of subPaths are left, first %s", len(left.Mounts), left.Mounts[0])
	}
	return labkit.PassedBecause("%d subPaths were bound through nsenter, each container saw its file, and no mount is left", o.Nsenter)
}
