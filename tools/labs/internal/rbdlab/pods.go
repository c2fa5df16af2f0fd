// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

// DataFile is in every image from the start, with DataOf its name.
const DataFile = "file"

// DataOf is what DataFile says in an image.
func DataOf(image string) string { return "data of " + image }

// Image makes an image of 64 MiB with an ext4 that has DataFile. more are options of rbd
// import, such as --image-feature.
func (r *Rig) Image(ctx context.Context, name string, more ...string) error {
	dir, file := filepath.Join(r.Ceph.dir, "image-"+name), filepath.Join(r.Ceph.dir, "image-"+name+".raw")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, DataFile), []byte(DataOf(name)+"\n"), 0o644); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-d", dir, file, "64M").CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4 %s: %w: %s", file, err, out)
	}
	_, err := r.Ceph.Run(ctx, "rbd", append([]string{"import", "--no-progress", file, name}, more...)...)
	if err != nil {
		return err
	}
	return os.Remove(file)
}

// Contents is what an image holds.
type Contents struct {
	Image, When string
	// Fsck is what e2fsck -fn finds wrong, "" if nothing.
	Fsck string
	// Files are those that were asked for, with their last newline cut; a file that is not
	// there is missing here.
	Files map[string]string
	// SHA256 is of the whole image.
	SHA256 string
}

// Lost says what is wrong with the contents: an unclean filesystem, DataFile, or files that
// do not have the text that was written; "" if nothing.
func (c Contents) Lost(written map[string]string) string {
	if c.Fsck != "" {
		return fmt.Sprintf("%s is not clean: %s", c.Image, c.Fsck)
	}
	if got := c.Files[DataFile]; got != DataOf(c.Image) {
		return fmt.Sprintf("%s: %s has %q", c.Image, DataFile, got)
	}
	for file, text := range written {
		if got := c.Files[file]; got != text {
			return fmt.Sprintf("%s: %s has %q, %q was written", c.Image, file, got, text)
		}
	}
	return ""
}

// Contents exports an image, which nobody should have open, checks its filesystem, reads
// DataFile and the files, and records that.
func (r *Rig) Contents(ctx context.Context, image, when string, files ...string) (Contents, error) {
	c := Contents{Image: image, When: when, Files: map[string]string{}}
	file := filepath.Join(r.Ceph.dir, "export-"+image+".raw")
	if _, err := r.Ceph.Run(ctx, "rbd", "export", "--no-progress", image, file); err != nil {
		return c, err
	}
	defer os.Remove(file)
	out, err := exec.CommandContext(ctx, "e2fsck", "-fn", file).CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			return c, err
		}
		c.Fsck = fmt.Sprintf("%v: %s", err, strings.TrimSpace(string(out)))
	}
	for _, name := range append([]string{DataFile}, files...) {
		out, err := exec.CommandContext(ctx, "debugfs", "-R", "cat /"+name, file).Output()
		if err != nil {
			return c, fmt.Errorf("debugfs %s: %w", file, err)
		}
		if text, ok := strings.CutSuffix(string(out), "\n"); ok {
			c.Files[name] = text
		}
	}
	f, err := os.Open(file)
	if err != nil {
		return c, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return c, err
	}
	c.SHA256 = hex.EncodeToString(h.Sum(nil))
	r.e.Record(c)
	return c, nil
}

// Secret makes a Secret with a key of Ceph's.
func (r *Rig) Secret(ctx context.Context, name, key string) error {
	_, err := r.Client.CreateYAML(ctx, NS, fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\ntype: kubernetes.io/rbd\nstringData: {key: %q}\n", name, key))
	return err
}

// Pod is a pod with one RBD volume, mounted at /data.
type Pod struct {
	Name, Node, Image string
	// Claimed: the volume is the claim of the image's name, see Claim. The controller
	// manager attaches such a volume to one node at a time, one in the pod itself to many.
	Claimed bool
	// FSType is ext4 by default.
	FSType   string
	ReadOnly bool
	// User is admin by default, Secret AdminSecret. With a Keyring, a file on the node, no
	// Secret is named.
	User, Secret, Keyring string
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// Claim makes a PersistentVolume of one writer for an image, and the claim that has it; both
// have the image's name.
func (r *Rig) Claim(ctx context.Context, image, user, secret string) error {
	if _, err := r.Client.CreateYAML(ctx, NS, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 64Mi}
  persistentVolumeReclaimPolicy: Retain
  storageClassName: none
  claimRef: {namespace: %[5]s, name: %[1]s}
  rbd: {monitors: [%[2]q], pool: rbd, image: %[1]s, user: %[3]s, fsType: ext4, secretRef: {name: %[4]s, namespace: %[5]s}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
  storageClassName: none
  volumeName: %[1]s
`, image, Monitor, user, secret, NS)); err != nil {
		return err
	}
	_, err := r.Client.WaitFor(ctx, kube.PersistentVolumeClaims, NS, image, time.Minute, "Bound", func(o *kube.Object) (bool, error) {
		return kube.String(o, "status", "phase") == "Bound", nil
	})
	return err
}

func (p Pod) yaml() string {
	access := fmt.Sprintf("secretRef: {name: %s}", or(p.Secret, AdminSecret))
	if p.Keyring != "" {
		access = "keyring: " + p.Keyring
	}
	volume := fmt.Sprintf("rbd: {monitors: [%q], pool: rbd, image: %s, user: %s, fsType: %s, readOnly: %t, %s}",
		Monitor, p.Image, or(p.User, "admin"), or(p.FSType, "ext4"), p.ReadOnly, access)
	if p.Claimed {
		volume = fmt.Sprintf("persistentVolumeClaim: {claimName: %s, readOnly: %t}", p.Image, p.ReadOnly)
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers: [{name: c, image: %s, volumeMounts: [{name: data, mountPath: /data, readOnly: %t}]}]
  volumes: [{name: data, %s}]
`, p.Name, p.Node, node.WebImage("v1"), p.ReadOnly, volume)
}

// Create creates a pod on its node.
func (r *Rig) Create(ctx context.Context, p Pod) error {
	_, err := r.Client.CreateYAML(ctx, NS, p.yaml())
	return err
}

// Running waits until a pod runs, and returns for how long it did not.
func (r *Rig) Running(ctx context.Context, pod string, bound time.Duration) (time.Duration, error) {
	start := time.Now()
	_, err := r.Client.WaitFor(ctx, kube.Pods, NS, pod, bound, "Running", func(o *kube.Object) (bool, error) {
		return kube.String(o, "status", "phase") == "Running", nil
	})
	return time.Since(start), err
}

// Delete deletes a pod gracefully and waits until the API has it no longer: its kubelet has
// ended its containers.
func (r *Rig) Delete(ctx context.Context, pod string) error {
	if err := r.Client.Delete(ctx, kube.Pods, NS, pod); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return r.Client.WaitGone(ctx, kube.Pods, NS, pod, 2*time.Minute)
}

// Event waits for an event of a pod whose message contains a text.
func (r *Rig) Event(ctx context.Context, pod, text string, bound time.Duration) error {
	return wait.Until(ctx, fmt.Sprintf("an event of pod %s with %q", pod, text), bound, func(ctx context.Context) (bool, error) {
		events, err := r.Client.List(ctx, kube.Events, NS, "")
		for i := range events {
			if kube.String(&events[i], "involvedObject", "name") == pod && strings.Contains(kube.String(&events[i], "message"), text) {
				return true, nil
			}
		}
		return false, err
	})
}

// MountedEvents counts, by pod, the events in which a kubelet says that it has mounted the
// pod's volume, beside that of its token. Each kubelet process makes events of its own.
func (r *Rig) MountedEvents(ctx context.Context) (map[string]int64, error) {
	events, err := r.Client.List(ctx, kube.Events, NS, "")
	all := map[string]int64{}
	for i := range events {
		message := kube.String(&events[i], "message")
		if strings.Contains(message, "MountVolume.SetUp succeeded") && !strings.Contains(message, "token") {
			all[kube.String(&events[i], "involvedObject", "name")] += max(kube.Int(&events[i], "count"), 1)
		}
	}
	return all, err
}

// MountedAgain waits until each pod has more of those events than before.
func (r *Rig) MountedAgain(ctx context.Context, before map[string]int64, bound time.Duration, pods ...string) error {
	return wait.Until(ctx, fmt.Sprintf("the mounts of %v, reported again", pods), bound, func(ctx context.Context) (bool, error) {
		now, err := r.MountedEvents(ctx)
		for _, p := range pods {
			if now[p] <= before[p] {
				return false, err
			}
		}
		return err == nil, err
	})
}

// learnBound is for a kubelet of 1.9 to report a mount after its start, which took 17 s on a
// busy machine.
const learnBound = 45 * time.Second

// Learned says whether a restarted kubelet has reported the mount of a pod's volume again.
// A stock kubelet of 1.9 that has not lets go of the image never, whatever else is wrong
// with it; one of ours knows the volume from its start, and reports nothing.
type Learned struct {
	Pod  string
	Seen bool
}

// Learn waits until a restarted kubelet has more of the pod's events than before, see
// MountedEvents, and records whether it has.
func (r *Rig) Learn(ctx context.Context, before map[string]int64, pod string) error {
	err := r.MountedAgain(ctx, before, learnBound, pod)
	if ctx.Err() != nil {
		return err
	}
	r.e.Record(Learned{Pod: pod, Seen: err == nil})
	return nil
}
