// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package unreadybeforereplace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/violation"
)

// long is a drain that no case waits for.
const long = "120"

// create makes pods of cases on node1, with their long drain, and waits for them.
func (l *lab) create(ctx context.Context, names map[string]string) error {
	var b strings.Builder
	for name, more := range names {
		annotations := fmt.Sprintf("%s: %q", drainAnnotation, long)
		if name == "opted-out" {
			annotations += fmt.Sprintf(", %s: web", optOutAnnotation)
		}
		b.WriteString(podYAML(name, "case", "node1", 0, more, annotations))
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, b.String()); err != nil {
		return err
	}
	for name := range names {
		if err := l.until(ctx, name, "is ready", kubeletlab.PodReady); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) until(ctx context.Context, name, what string, ok func(*kube.Object) bool) error {
	_, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, name, time.Minute, what, func(o *kube.Object) (bool, error) { return ok(o), nil })
	return err
}

func notReady(o *kube.Object) bool { return !kubeletlab.PodReady(o) }

// wasKilled says whether docker's stream has a kill of that container.
func (l *lab) wasKilled(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, killed := l.killed[id]
	return killed
}

// replaced waits until a pod is ready with another container than that.
func (l *lab) replaced(ctx context.Context, name, id string) error {
	return l.until(ctx, name, "is ready with a new container", func(o *kube.Object) bool {
		return kubeletlab.PodReady(o) && containerID(o) != id
	})
}

// during is what happens to pods between not ready and the kill: they are in their
// drain, which is longer than the case.
func (l *lab) during(ctx context.Context) error {
	l.e.Step("put back, another image, no such image, deletion, liveness, opt-out: during the wait")
	live := "livenessProbe: {httpGet: {path: /live, port: 8080}, periodSeconds: 1, failureThreshold: 1, initialDelaySeconds: 1}"
	names := map[string]string{"put-back": "", "third-image": "", "no-image": "", "deleted": "", "not-live": live, "opted-out": ""}
	if err := l.create(ctx, names); err != nil {
		return err
	}
	ids := map[string]string{}
	for name := range names {
		o, err := l.c.Client.Get(ctx, kube.Pods, ns, name)
		if err != nil {
			return err
		}
		ids[name] = containerID(o)
		image := node.WebImage("v2")
		if name == "no-image" || name == "third-image" {
			image = node.WebImage("none")
		}
		if err := l.setImage(ctx, name, image); err != nil {
			return err
		}
	}
	for name := range names {
		if name == "opted-out" {
			continue
		}
		if err := l.until(ctx, name, "is not ready", notReady); err != nil {
			return violation.Of(err)
		}
		if l.wasKilled(ids[name]) {
			return violation.Of(fmt.Errorf("%s was killed during its drain", name))
		}
	}
	if err := l.replaced(ctx, "opted-out", ids["opted-out"]); err != nil {
		return violation.Of(fmt.Errorf("an opted-out container is replaced without a drain: %w", err))
	}

	// Each of these ends the wait at once.
	if err := l.setImage(ctx, "put-back", node.WebImage("v1")); err != nil {
		return err
	}
	if err := l.setImage(ctx, "third-image", node.WebImage("v2")); err != nil {
		return err
	}
	if err := l.c.Client.Delete(ctx, kube.Pods, ns, "deleted"); err != nil {
		return err
	}
	o, err := l.c.Client.Get(ctx, kube.Pods, ns, "not-live")
	if err != nil {
		return err
	}
	if _, err := load.Get(ctx, "http://"+kube.String(o, "status", "podIP")+":8080/set?live=false"); err != nil {
		return err
	}
	if err := l.until(ctx, "put-back", "is ready again", kubeletlab.PodReady); err != nil {
		return violation.Of(err)
	}
	if o, err := l.c.Client.Get(ctx, kube.Pods, ns, "put-back"); err != nil || containerID(o) != ids["put-back"] || l.wasKilled(ids["put-back"]) {
		return violation.Of(fmt.Errorf("the image was put back, and the container was killed (%v)", err))
	}
	if err := l.c.Client.WaitGone(ctx, kube.Pods, ns, "deleted", 40*time.Second); err != nil {
		return violation.Of(fmt.Errorf("a pod deleted during its drain: %w", err))
	}
	if err := l.replaced(ctx, "not-live", ids["not-live"]); err != nil {
		return violation.Of(fmt.Errorf("liveness failed during the drain: %w", err))
	}

	// The drain of the others is over now.
	for _, name := range []string{"third-image", "no-image"} {
		if l.wasKilled(ids[name]) {
			return violation.Of(fmt.Errorf("%s was killed during its drain", name))
		}
		if err := l.annotate(ctx, name, drainAnnotation, "0"); err != nil {
			return err
		}
	}
	if err := l.replaced(ctx, "third-image", ids["third-image"]); err != nil {
		return violation.Of(err)
	}
	if err := wait.Until(ctx, "the container whose new image is not there is killed", time.Minute, func(context.Context) (bool, error) {
		return l.wasKilled(ids["no-image"]), nil
	}); err != nil {
		return err
	}
	if err := l.setImage(ctx, "no-image", node.WebImage("v2")); err != nil {
		return err
	}
	if err := l.replaced(ctx, "no-image", ids["no-image"]); err != nil {
		return err
	}
	begin := time.Time{}
	for _, name := range []string{"third-image", "no-image", "not-live"} {
		if why := l.readyAgain(name, ids[name], begin); why != nil {
			return why
		}
	}
	return l.remove(ctx, "put-back", "third-image", "no-image", "not-live", "opted-out")
}

func (l *lab) remove(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, name); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := l.c.Client.WaitGone(ctx, kube.Pods, ns, name, time.Minute); err != nil {
			return err
		}
	}
	// A new pod of that name must not be taken for the old one.
	return nil
}

// readyAgain says that the pod was ready with that container after it was not.
func (l *lab) readyAgain(name, id string, since time.Time) error {
	was, unready := false, false
	for _, ev := range l.pods.Of(ns, name) {
		if ev.Time.Before(since) || containerID(ev.Object) != id || ev.Type == "DELETED" {
			continue
		}
		if kubeletlab.PodReady(ev.Object) {
			if unready {
				return violation.Of(fmt.Errorf("%s was ready again before its container was replaced", name))
			}
			was = true
		} else if was {
			unready = true
		}
	}
	if !unready {
		return violation.Of(fmt.Errorf("%s was never seen not ready with its old container", name))
	}
	return nil
}

// waiting makes a pod that waits in its drain, and returns its container.
func (l *lab) waiting(ctx context.Context, name string) (id string, err error) {
	if err := l.create(ctx, map[string]string{name: ""}); err != nil {
		return "", err
	}
	o, err := l.c.Client.Get(ctx, kube.Pods, ns, name)
	if err != nil {
		return "", err
	}
	if err := l.setImage(ctx, name, node.WebImage("v2")); err != nil {
		return "", err
	}
	if err := l.until(ctx, name, "is not ready", notReady); err != nil {
		return "", violation.Of(err)
	}
	return containerID(o), nil
}

// restarted kills the kubelet while a pod without a readiness probe waits.
func (l *lab) restarted(ctx context.Context) error {
	l.e.Step("kill -9 of the kubelet between not ready and the kill")
	id, err := l.waiting(ctx, "restarted")
	if err != nil {
		return err
	}
	n := l.c.Nodes[0]
	if err := n.KillKubelet(); err != nil {
		return err
	}
	if err := n.StartKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	// The new process has looked at it when it says that it holds it.
	if err := wait.Until(ctx, "the new kubelet has looked at the pod", time.Minute, func(ctx context.Context) (bool, error) {
		held, err := kubeletlab.Metric(ctx, n, "holdfast_unready_before_replace_marked_total")
		return held > 0, err
	}); err != nil {
		return violation.Of(err)
	}
	if l.wasKilled(id) {
		return violation.Of(fmt.Errorf("the container was killed before its drain was over"))
	}
	if err := l.annotate(ctx, "restarted", drainAnnotation, "0"); err != nil {
		return err
	}
	if err := l.replaced(ctx, "restarted", id); err != nil {
		return violation.Of(err)
	}
	if err := l.readyAgain("restarted", id, time.Time{}); err != nil {
		return err
	}
	return l.remove(ctx, "restarted")
}

// toStock swaps the stock kubelet in while a pod waits, and ours back.
func (l *lab) toStock(ctx context.Context) error {
	l.e.Step("the stock kubelet takes over while a pod waits")
	id, err := l.waiting(ctx, "to-stock")
	if err != nil {
		return err
	}
	n := l.c.Nodes[0]
	if err := n.SwapKubelet(ctx, l.e.Stock(base, "kubelet")); err != nil {
		return err
	}
	if err := l.replaced(ctx, "to-stock", id); err != nil {
		return violation.Of(fmt.Errorf("stock does not replace what ours left waiting: %w", err))
	}
	if err := n.SwapKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	return l.remove(ctx, "to-stock")
}

// away changes a static pod, whose manifest has a uid, while the API server does not
// answer: it is the only change that reaches a kubelet then.
func (l *lab) away(ctx context.Context) error {
	l.e.Step("a static pod with a uid is changed while the API server does not answer")
	n := l.c.Nodes[1]
	write := func(tag string) error {
		text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: static, namespace: %s, uid: 6b1c1f7e-0000-4000-8000-000000000001}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  containers:
  - {name: web, image: %q, imagePullPolicy: IfNotPresent, env: [{name: LABPOD_LISTEN, value: ":18080"}]}
`, ns, node.WebImage(tag))
		return os.WriteFile(filepath.Join(n.Dir, "manifests", "static.yaml"), []byte(text), 0o644)
	}
	if err := os.MkdirAll(filepath.Join(n.Dir, "manifests"), 0o755); err != nil {
		return err
	}
	if err := write("v1"); err != nil {
		return err
	}
	mirror := "static-" + n.Name
	if err := l.until(ctx, mirror, "is ready", kubeletlab.PodReady); err != nil {
		return err
	}
	o, err := l.c.Client.Get(ctx, kube.Pods, ns, mirror)
	if err != nil {
		return err
	}
	id := containerID(o)
	if err := l.c.APIServer.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { _ = l.c.APIServer.Signal(syscall.SIGCONT) }()
	begin := time.Now()
	if err := write("v2"); err != nil {
		return err
	}
	// The kubelet looks at its manifests every 20 s; then the wait of 20 s begins.
	var killed time.Time
	if err := wait.Until(ctx, "the container is killed without the API server", 90*time.Second, func(context.Context) (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		killed = l.killed[id]
		return !killed.IsZero(), nil
	}); err != nil {
		return violation.Of(err)
	}
	took := killed.Sub(begin)
	l.e.Fact("a static pod changed while the API server did not answer: killed after %v (20 s of it, at least, for the API server)", took.Round(100*time.Millisecond))
	if took < 20*time.Second {
		return violation.Of(fmt.Errorf("killed after %v: it did not wait for the API server", took))
	}
	if err := l.c.APIServer.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err := l.replaced(ctx, mirror, id); err != nil {
		return violation.Of(err)
	}
	timeouts, err := kubeletlab.Metric(ctx, n, "holdfast_unready_before_replace_waits_total", "outcome", "timeout")
	if err == nil && timeouts < 1 {
		err = violation.Of(fmt.Errorf("the metric has no timeout"))
	}
	return err
}
