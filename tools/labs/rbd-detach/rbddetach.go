// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbddetach is the lab rbd-detach: whether an RBD image is let go of when its
// pod is gone. See tools/labs/rbd-detach/README.md.
package rbddetach

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

const (
	base = "v1.9.11"
	ns   = "default"
	// bound is how long the image may be watched after it should be free. Ours needed 0.1 s to
	// 3.4 s on a busy machine; stock never lets go.
	bound = 45 * time.Second
)

func init() {
	labkit.Register(labkit.Lab{
		Name:    "rbd-detach",
		Summary: "an RBD image stays mapped when its pod is gone",
		Plan: func(p labkit.Profile) []string {
			plan := []string{"start Ceph (one monitor, one OSD), etcd, apiserver and controller manager v1.9.11, and a node with the kubelet under test, whose rbd maps by rbd-fuse"}
			for _, r := range rowsOf(p) {
				plan = append(plan, r.image+": "+r.text)
			}
			return append(plan, fmt.Sprintf("oracle: rbd status names no watcher of the image within %v, the kernel has it mapped no longer; each filesystem is clean and has its data", bound))
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Packages: []string{"ceph-mon", "ceph-osd", "ceph-common", "rbd-fuse"},
		Timeout:  func(labkit.Profile) time.Duration { return 10 * time.Minute },
		Run:      run,
	})
}

type lab struct {
	e     *labkit.Env
	c     *node.Cluster
	node  *node.Node
	ceph  *ceph
	state string // the shim's
}

// row is one way in which an image can stay.
type row struct {
	image, fstype, text string
	// late: the pod is created by the row.
	late bool
	do   func(*lab, context.Context, row) error
}

var rows = []row{
	{"busy", "ext4", "a process holds the device open while the pod is deleted, until rbd unmap has failed", false, (*lab).busy},
	{"down", "ext4", "the pod is deleted while the kubelet is stopped", false, (*lab).down},
	{"badfs", "xfs", "the volume says xfs, the image has ext4; the pod is deleted", true, (*lab).badfs},
}

// rowsOf are the rows of a profile. Stock takes the whole bound for each.
func rowsOf(p labkit.Profile) []row {
	if p == labkit.Short {
		return rows[:1]
	}
	return rows
}

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	l := &lab{e: e, state: e.Path("rbdshim")}
	var err error
	if l.ceph, err = startCeph(ctx, e); err != nil {
		return labkit.Result{}, err
	}
	e.OnStop("loop devices", l.freeLoops) // after the node
	if l.c, err = e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.Stock(base, "kube-controller-manager")},
		Nodes:             []node.Config{{Name: "node1", KubeletArgs: []string{"--v=4"}}},
	}); err != nil {
		return labkit.Result{}, err
	}
	l.node = l.c.Nodes[0]
	if err := l.prepare(ctx); err != nil {
		return labkit.Result{}, err
	}
	var held, freed []string
	for _, r := range rowsOf(e.Profile) {
		if err := r.do(l, ctx, r); err != nil {
			return labkit.Result{}, fmt.Errorf("%s: %w", r.image, err)
		}
		took, stays, err := l.ceph.released(ctx, r.image, bound)
		if err != nil {
			return labkit.Result{}, fmt.Errorf("%s: %w", r.image, err)
		}
		if stays {
			held = append(held, r.image)
			e.Fact("%s: still watched after %v", r.image, bound)
			continue
		}
		freed = append(freed, r.image)
		e.Fact("%s: free after %.1f s", r.image, took.Seconds())
		e.Measure(r.image+" until free", took.Seconds(), "s")
		if err := l.check(ctx, r); err != nil {
			return labkit.Result{}, fmt.Errorf("%s: %w", r.image, err)
		}
	}
	switch {
	case len(held) == 0:
		return labkit.AbsentBecause("%s let go of, clean and with their data", strings.Join(freed, ", ")), nil
	case e.Variant != labkit.Ours && len(freed) > 0:
		return labkit.InconclusiveBecause("%s held, %s let go of", strings.Join(held, ", "), strings.Join(freed, ", ")), nil
	}
	return labkit.ReproducedBecause("%s still watched after %v", strings.Join(held, ", "), bound), nil
}

// prepare gives the node its rbd, makes the images with a file each, and starts the kubelet
// and the pods of the rows that do not create theirs.
func (l *lab) prepare(ctx context.Context) error {
	l.e.Step("make the images and give the node its rbd")
	sys := filepath.Join(l.state, "sysfs")
	for _, d := range []string{"devices", "sysfs/rbd/devices", "work"} {
		if err := os.MkdirAll(filepath.Join(l.state, d), 0o755); err != nil {
			return err
		}
	}
	config, err := json.Marshal(map[string]any{"Real": filepath.Join(l.state, "rbd"), "State": l.state, "Sysfs": "/sys/bus/rbd/devices", "First": 10 * (1 + os.Getppid()%1000)})
	if err != nil {
		return err
	}
	if err := l.node.Run(ctx, "bash", "-euc", `cp /usr/bin/rbd "$1/rbd"; mount --bind "$2" /usr/bin/rbd
mount -t overlay -o "lowerdir=/sys/bus,upperdir=$3,workdir=$1/work" none /sys/bus; echo "$4" > /run/rbdshim.json
# The kit binds it from the run's folder, where each mount would be seen a second time.
mount --make-rprivate /var/lib/kubelet`,
		"-", l.state, node.ToolPath(l.e.Root, "rbdshim"), sys, string(config)); err != nil {
		return err
	}
	for _, r := range rowsOf(l.e.Profile) {
		if _, err := l.ceph.run(ctx, "rbd", "create", r.image, "--size", "64"); err != nil {
			return err
		}
		if err := l.node.Run(ctx, "bash", "-euc", `d=$(rbd map "$1" --pool rbd --id admin -m "$2" --key="$3"); mkfs.ext4 -q "$d"
mkdir -p "$4"; mount "$d" "$4"; echo "data of $1" > "$4/file"; umount "$4"; rbd unmap "$d"`,
			"-", r.image, monitor, l.ceph.key, filepath.Join(l.state, "mnt")); err != nil {
			return err
		}
	}
	if err := l.node.StartKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	if err := l.c.WaitNodeReady(ctx, "node1", 2*time.Minute); err != nil {
		return err
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, "apiVersion: v1\nkind: Secret\nmetadata: {name: ceph}\ntype: kubernetes.io/rbd\nstringData: {key: \""+l.ceph.key+"\"}\n"); err != nil {
		return err
	}
	for _, r := range rowsOf(l.e.Profile) {
		if r.late {
			continue
		}
		if err := l.create(ctx, r); err != nil {
			return err
		}
		if _, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, r.image, 2*time.Minute, "Running", func(o *kube.Object) (bool, error) {
			return kube.String(o, "status", "phase") == "Running", nil
		}); err != nil {
			return err
		}
		if w, err := l.ceph.watchers(ctx, r.image); err != nil || len(w) != 1 {
			return fmt.Errorf("pod %s runs, the image's watchers are %v (%v)", r.image, w, err)
		}
	}
	return nil
}

func (l *lab) create(ctx context.Context, r row) error {
	_, err := l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: %[2]s, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, rbd: {monitors: ["%[3]s"], pool: rbd, image: %[1]s, user: admin, fsType: %[4]s, secretRef: {name: ceph}}}]
`, r.image, node.WebImage("v1"), monitor, r.fstype))
	return err
}

// called waits until the node's rbd was called so and ended so.
func (l *lab) called(ctx context.Context, what, end string) error {
	return wait.Until(ctx, "call of rbd "+what+" that ends with "+end, time.Minute, func(context.Context) (bool, error) {
		b, err := os.ReadFile(filepath.Join(l.state, "calls.log"))
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, " rbd "+what) && strings.HasSuffix(line, "-> "+end+"\n") {
				return true, nil
			}
		}
		return false, err
	})
}

// device is where the node has an image mapped.
func (l *lab) device(image string) (string, error) {
	names, err := filepath.Glob(filepath.Join(l.state, "sysfs/rbd/devices/*/name"))
	if err != nil {
		return "", err
	}
	for _, f := range names {
		if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == image {
			return "/dev/rbd" + filepath.Base(filepath.Dir(f)), nil
		}
	}
	return "", nil
}

func (l *lab) busy(ctx context.Context, _ row) error {
	device, err := l.device("busy")
	if err != nil || device == "" {
		return fmt.Errorf("the image is not mapped (%v)", err)
	}
	l.e.Step("hold %s open and delete pod busy", device)
	holder, err := l.e.Start(ctx, process.Process{Name: "holder", Path: "/bin/bash", Args: []string{"-c", `exec 9<"$0"; exec sleep 600`, device}, In: l.node})
	if err != nil {
		return err
	}
	if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, "busy"); err != nil {
		return err
	}
	if err := l.called(ctx, "unmap "+device, "16"); err != nil {
		return err
	}
	l.e.Step("rbd unmap has failed: let go of %s", device)
	return holder.Stop()
}

func (l *lab) down(ctx context.Context, _ row) error {
	l.e.Step("stop the kubelet, delete pod down, start the kubelet")
	if err := l.node.StopKubelet(); err != nil {
		return err
	}
	if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, "down"); err != nil {
		return err
	}
	if w, err := l.ceph.watchers(ctx, "down"); err != nil || len(w) != 1 {
		return fmt.Errorf("no kubelet runs, the image's watchers are %v (%v)", w, err)
	}
	return l.node.StartKubelet(ctx, l.e.UnderTest(base, "kubelet"))
}

func (l *lab) badfs(ctx context.Context, r row) error {
	l.e.Step("create pod badfs, delete it when its image has been mapped and not mounted")
	if err := l.create(ctx, r); err != nil {
		return err
	}
	if err := l.called(ctx, "map badfs", "0"); err != nil {
		return err
	}
	if err := wait.Until(ctx, "an event of the failed mount", time.Minute, func(ctx context.Context) (bool, error) {
		events, err := l.c.Client.List(ctx, kube.Events, ns, "")
		for i := range events {
			if kube.String(&events[i], "involvedObject", "name") == "badfs" && strings.Contains(kube.String(&events[i], "message"), "MountVolume.MountDevice failed") {
				return true, nil
			}
		}
		return false, err
	}); err != nil {
		return err
	}
	return l.c.Client.DeleteNow(ctx, kube.Pods, ns, "badfs")
}

// check looks at what an image that was let go of holds, and that the node has it no longer.
func (l *lab) check(ctx context.Context, r row) error {
	if err := wait.Until(ctx, "the node without the device", 10*time.Second, func(context.Context) (bool, error) {
		d, err := l.device(r.image)
		return d == "", err
	}); err != nil {
		return err
	}
	return l.node.Run(ctx, "bash", "-euc", `d=$(rbd map "$1" --pool rbd --id admin -m "$2" --key="$3"); ok=0
e2fsck -fn "$d" || ok=1; got=$(debugfs -R 'cat /file' "$d" 2>/dev/null); rbd unmap "$d"; [ "$got" = "data of $1" ] && [ "$ok" = 0 ]`,
		"-", r.image, monitor, l.ceph.key)
}

// freeLoops gives back the computer's loop devices and names of devices: a run that ends
// with an image mapped leaves them, and no namespace holds them.
func (l *lab) freeLoops(ctx context.Context) error {
	loops, err := filepath.Glob(filepath.Join(l.state, "devices/*/loop"))
	if err != nil {
		return err
	}
	for _, f := range loops {
		name, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "losetup", "-d", string(name)).CombinedOutput(); err != nil {
			return fmt.Errorf("losetup -d %s: %w: %s", name, err, out)
		}
		if err := os.RemoveAll("/dev/rbd" + filepath.Base(filepath.Dir(f))); err != nil {
			return err
		}
	}
	return nil
}
