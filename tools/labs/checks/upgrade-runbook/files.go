// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upgraderunbook

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// filesPod is a pod with a subPath. Its name is that of a static pod of the
// node, which the page's lists leave out.
const filesPod = "files-node1"

func (r *runbook) precious() string { return filepath.Join(r.dir, "host", "app", "precious") }

// startFiles starts a pod with a subPath and makes sure that there is a mount
// that can do harm: ours keeps it with its gates off. The page's check of the
// flags came before, as the old kubelet does not know the gates.
func (r *runbook) startFiles(ctx context.Context) error {
	r.e.Step("ours keeps the mounts of subPaths from here on")
	if err := r.node.StopKubelet(); err != nil {
		return err
	}
	keeping := r.node.KubeletProgram().WithGates(map[string]bool{"SubpathUnbindAfterStart": false, "OrphanedPodSubpathUnmount": false})
	if err := r.node.StartKubelet(ctx, keeping); err != nil {
		return err
	}
	r.e.Step("start pod %s, whose subPath is a directory of the host", filesPod)
	if err := os.MkdirAll(filepath.Dir(r.precious()), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(r.precious(), []byte("precious\n"), 0o644); err != nil {
		return err
	}
	if _, err := r.c.Client.CreateYAML(ctx, ns, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, hostPath: {path: %s}}]
  containers:
  - name: web
    image: %s
    imagePullPolicy: IfNotPresent
    volumeMounts: [{name: data, subPath: app, mountPath: /data}]
`, filesPod, filepath.Join(r.dir, "host"), node.WebImage("v1"))); err != nil {
		return err
	}
	if _, err := r.c.Client.WaitFor(ctx, kube.Pods, ns, filesPod, time.Minute, "runs", func(o *kube.Object) (bool, error) {
		return kubeletlab.PodReady(o), nil
	}); err != nil {
		return err
	}
	mounts, err := r.node.Output(ctx, "cat", "/proc/mounts")
	if err == nil && !strings.Contains(mounts, "/volume-subpaths/") {
		err = fmt.Errorf("the kubelet has no mount below volume-subpaths, so the page's command has nothing to do")
	}
	return err
}

// deleteFiles deletes that pod and says what the kubelet then did to its file.
func (r *runbook) deleteFiles(ctx context.Context) (string, error) {
	r.e.Step("delete pod %s", filesPod)
	o, err := r.c.Client.Get(ctx, kube.Pods, ns, filesPod)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(r.node.Dir, "kubelet", "pods", string(o.GetUID()))
	if _, err := os.Stat(dir); err != nil {
		return "", err
	}
	if err := r.c.Client.Delete(ctx, kube.Pods, ns, filesPod); err != nil {
		return "", err
	}
	// The clean-up comes after the directory's volumes and is tried every 2 s.
	err = wait.Until(ctx, "the kubelet has removed the pod's directory", time.Minute, func(context.Context) (bool, error) {
		if _, err := os.Stat(dir); err == nil {
			return false, fmt.Errorf("%s is there", dir)
		}
		return true, nil
	})
	if b, readErr := os.ReadFile(r.precious()); readErr != nil || string(b) != "precious\n" {
		return fmt.Sprintf("the file behind the subPath of pod %s is %q, %v", filesPod, b, readErr), nil
	}
	return "", err
}
