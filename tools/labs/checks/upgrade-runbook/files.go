// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// filesPod is a pod with a subPath. Its name is that of a static pod of the
// node, which the page's lists leave out.
const filesPod = "files-node1"

// keepMounts is the gate without which ours keeps the mounts of subPaths.
const keepMounts = "SubpathUnbindAfterStart"

// precious is the text of its file.
const precious = "precious\n"

func (r *runbook) preciousFile() string { return filepath.Join(r.dir, "host", "app", "precious") }

// startFiles starts a pod with a subPath and makes sure that there is a mount
// that can do harm: ours keeps it with its gates off. The page's check of the
// flags came before, as the old kubelet does not know the gates.
func (r *runbook) startFiles(ctx context.Context) error {
	r.e.Step("ours keeps the mounts of subPaths from here on")
	if err := errors.Join(r.readUnit(), r.node.StopKubelet()); err != nil {
		return err
	}
	keeping := r.node.KubeletProgram().WithGates(map[string]bool{keepMounts: false, "OrphanedPodSubpathUnmount": false})
	if err := r.node.StartKubelet(ctx, keeping); err != nil {
		return err
	}
	r.e.Step("start pod %s, whose subPath is a directory of the host", filesPod)
	if err := os.MkdirAll(filepath.Dir(r.preciousFile()), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(r.preciousFile(), []byte(precious), 0o644); err != nil {
		return err
	}
	web := node.Web("web")
	web.VolumeMounts = []corev1.VolumeMount{{Name: "data", SubPath: "app", MountPath: "/data"}}
	p := node.Pod(filesPod, "node1", web)
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(r.dir, "host")}}}}
	if err := r.c.Client.Make(ctx, ns, p); err != nil {
		return err
	}
	if _, err := r.c.Client.WaitFor(ctx, kube.Pods, ns, filesPod, time.Minute, "runs", func(o *kube.Object) (bool, error) {
		return kubeletlab.PodReady(o), nil
	}); err != nil {
		return err
	}
	mounts, err := r.node.Mounts()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(mounts, func(m *mountinfo.Info) bool { return strings.Contains(m.Mountpoint, "/volume-subpaths/") })
	if i < 0 {
		return fmt.Errorf("the kubelet has no mount below volume-subpaths, so the page's command has nothing to do")
	}
	// Where the root directory is a symbolic link, stock mounts once more at each restart.
	for range 2 {
		if err := r.node.Run(ctx, "mount", "--bind", mounts[i].Mountpoint, mounts[i].Mountpoint); err != nil {
			return err
		}
	}
	return nil
}

// deleteFiles deletes that pod and records what the kubelet then did to its file.
func (r *runbook) deleteFiles(ctx context.Context) error {
	o, err := r.c.Client.Get(ctx, kube.Pods, ns, filesPod)
	if err != nil {
		return err
	}
	dir := filepath.Join(r.node.Dir, "kubelet", "pods", string(o.GetUID()))
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	if err := r.c.Client.Delete(ctx, kube.Pods, ns, filesPod); err != nil {
		return err
	}
	// The clean-up comes after the directory's volumes and is tried every 2 s.
	err = wait.Until(ctx, "the kubelet has removed the pod's directory", time.Minute, func(context.Context) (bool, error) {
		if _, err := os.Stat(dir); err == nil {
			return false, fmt.Errorf("%s is there", dir)
		}
		return true, nil
	})
	left := fileLeft{}
	text, readErr := os.ReadFile(r.preciousFile())
	if left.Text = string(text); readErr != nil {
		left.Error = readErr.Error()
	}
	r.e.Record(left)
	if readErr != nil || left.Text != precious {
		return nil
	}
	return err
}
