// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// filesPod is a pod with a subPath.
const filesPod = "files"

// precious is the text of its file.
const precious = "precious\n"

func (r *runbook) preciousFile() string { return filepath.Join(r.dir, "host", "app", "precious") }

// startFiles starts a pod with a subPath, and mounts it once more below volume-subpaths: what Holdfast
// leaves there if it is killed at the wrong moment, and a stock 1.9 always. Where Holdfast has
// unmounted it, an empty file is.
func (r *runbook) startFiles(ctx context.Context) error {
	r.e.Step("start pod %s, whose subPath is a directory of the host, and mount it once more below volume-subpaths", filesPod)
	if err := os.MkdirAll(filepath.Dir(r.preciousFile()), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(r.preciousFile(), []byte(precious), 0o644); err != nil {
		return err
	}
	web := node.Web("web")
	web.VolumeMounts = []corev1.VolumeMount{{Name: "data", SubPath: "app", MountPath: "/data"}}
	p := node.Pod(filesPod, r.Node.Name, web)
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(r.dir, "host")}}}}
	if err := r.Cluster.Client.Make(ctx, ns, p); err != nil {
		return err
	}
	o, err := r.Cluster.Client.WaitFor(ctx, kube.Pods, ns, filesPod, time.Minute, "runs", func(o *kube.Object) (bool, error) {
		return kubeletlab.PodReady(o), nil
	})
	if err != nil {
		return err
	}
	mount := filepath.Join("/var/lib/kubelet/pods", string(o.GetUID()), "volume-subpaths/data/web/0")
	return r.Node.Run(ctx, "sh", "-c", `rm -f "$2" && mkdir -p "$2" && mount --bind "$1" "$2"`, "sh", filepath.Dir(r.preciousFile()), mount)
}

// deleteFiles deletes that pod and records what the old kubelet then did to its file.
func (r *runbook) deleteFiles(ctx context.Context) error {
	o, err := r.Cluster.Client.Get(ctx, kube.Pods, ns, filesPod)
	if err != nil {
		return err
	}
	dir := filepath.Join(r.Node.Dir, "kubelet", "pods", string(o.GetUID()))
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	if err := r.Cluster.Client.Delete(ctx, kube.Pods, ns, filesPod); err != nil {
		return err
	}
	// The clean-up comes after the directory's volumes and is tried every 2 s.
	err = wait.Until(ctx, "the kubelet has removed the pod's directory", time.Minute, func(context.Context) (bool, error) {
		if _, err := os.Stat(dir); err == nil {
			return false, fmt.Errorf("%s still exists", dir)
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
