// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package unreadybeforereplace

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/webset"
)

// waiter is a pod of a case, on node1, whose drain is longer than the case.
type waiter struct {
	*lab
	name  string // of the pod and of the case
	round int
	id    string // its container when the image was changed
}

// create makes the pods of cases, waits for them, and changes their images.
func (l *lab) create(ctx context.Context, round int, names ...string) (map[string]*waiter, error) {
	all := map[string]*waiter{}
	for _, name := range names {
		p := webset.Slow(name, "node1", 0)
		p.Annotations = map[string]string{drainAnnotation: long}
		switch name {
		case optedOut:
			p.Annotations[optOutAnnotation] = "web"
		case notLive:
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/live", 8080), PeriodSeconds: 1, FailureThreshold: 1, InitialDelaySeconds: 1}
		}
		if err := l.c.Client.Make(ctx, ns, p); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		o, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, name, time.Minute, "is ready", func(o *kube.Object) (bool, error) { return kubeletlab.PodReady(o), nil })
		if err != nil {
			return nil, err
		}
		all[name] = &waiter{l, name, round, webset.ContainerID(o)}
	}
	for _, name := range names {
		image := node.WebImage("v2")
		if name == noImage || name == thirdImage {
			image = node.WebImage("none")
		}
		if err := l.web.SetImage(ctx, name, image); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// record records whether something came within the bound. What had to come and did not
// is enough, and so is a kill before it.
func (w *waiter) record(ctx context.Context, state podState, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		w.e.Logf("%s: %v", w.name, err)
	}
	o := stateSeen{Case: w.name, Round: w.round, State: state, In: err == nil, Killed: !w.web.At(w.id).IsZero()}
	w.e.Record(o)
	if o.wrong() != "" {
		return labkit.Enough
	}
	return nil
}

// bound is how long a case waits for what must come. It is long for a busy machine; a whole
// round of cases must be over before a drain is.
const bound = 2 * time.Minute

// until waits for a state of the pod and records whether it came.
func (w *waiter) until(ctx context.Context, state podState, ok func(*kube.Object) bool) error {
	_, err := w.c.Client.WaitFor(ctx, kube.Pods, ns, w.name, bound, string(state), func(o *kube.Object) (bool, error) { return ok(o), nil })
	return w.record(ctx, state, err)
}

func (w *waiter) notReady(ctx context.Context) error {
	return w.until(ctx, unready, func(o *kube.Object) bool { return !kubeletlab.PodReady(o) })
}

func (w *waiter) replaced(ctx context.Context) error {
	return w.until(ctx, anew, func(o *kube.Object) bool { return kubeletlab.PodReady(o) && webset.ContainerID(o) != w.id })
}

// recordEvents records all that the watcher saw of the pod since its image was changed: whether
// it was ready again with its old container.
func (w *waiter) recordEvents() {
	w.e.Record(watchedPod{w.name, w.round, w.id, w.since(w.name, time.Time{})})
}

// during is what happens to pods between not ready and the kill: they are in their
// drain, which is longer than the case.
func (l *lab) during(ctx context.Context, round int) error {
	ws, err := l.create(ctx, round, duringCases...)
	if err != nil {
		return err
	}
	for _, name := range duringCases {
		if name == optedOut {
			continue
		}
		if err := ws[name].notReady(ctx); err != nil {
			return err
		}
	}
	if err := ws[optedOut].replaced(ctx); err != nil {
		return err
	}

	// Each of these ends the wait at once.
	if err := l.web.SetImage(ctx, putBack, node.WebImage("v1")); err != nil {
		return err
	}
	if err := l.web.SetImage(ctx, thirdImage, node.WebImage("v2")); err != nil {
		return err
	}
	if err := l.c.Client.Delete(ctx, kube.Pods, ns, deleted); err != nil {
		return err
	}
	o, err := l.c.Client.Get(ctx, kube.Pods, ns, notLive)
	if err != nil {
		return err
	}
	if _, err := load.Get(ctx, "http://"+kube.String(o, "status", "podIP")+":8080/set?live=false"); err != nil {
		return err
	}
	if err := ws[putBack].until(ctx, again, func(o *kube.Object) bool { return kubeletlab.PodReady(o) && webset.ContainerID(o) == ws[putBack].id }); err != nil {
		return err
	}
	if err := ws[deleted].record(ctx, gone, l.c.Client.WaitGone(ctx, kube.Pods, ns, deleted, bound)); err != nil {
		return err
	}
	if err := ws[notLive].replaced(ctx); err != nil {
		return err
	}

	// The drain of the others is over now.
	for _, name := range []string{thirdImage, noImage} {
		if err := ws[name].record(ctx, waits, nil); err != nil {
			return err
		}
		if err := l.annotate(ctx, name, drainAnnotation, "0"); err != nil {
			return err
		}
	}
	if err := ws[thirdImage].replaced(ctx); err != nil {
		return err
	}
	if err := wait.Until(ctx, "the container whose new image does not exist is killed", time.Minute, func(context.Context) (bool, error) {
		return !l.web.At(ws[noImage].id).IsZero(), nil
	}); err != nil {
		return err
	}
	if err := l.web.SetImage(ctx, noImage, node.WebImage("v2")); err != nil {
		return err
	}
	if err := ws[noImage].replaced(ctx); err != nil {
		return err
	}
	for _, name := range []string{thirdImage, noImage, notLive} {
		ws[name].recordEvents()
	}
	return l.remove(ctx, putBack, thirdImage, noImage, notLive, optedOut)
}

// remove waits until the pods are gone: a new pod of that name must not be taken for
// the old one.
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
	return nil
}

// waiting makes a pod that waits in its drain.
func (l *lab) waiting(ctx context.Context, round int, name string) (*waiter, error) {
	ws, err := l.create(ctx, round, name)
	if err != nil {
		return nil, err
	}
	return ws[name], ws[name].notReady(ctx)
}

// restarted kills the kubelet while a pod without a readiness probe waits.
func (l *lab) restarted(ctx context.Context, round int) error {
	w, err := l.waiting(ctx, round, restarted)
	if err != nil {
		return err
	}
	n := l.c.Nodes[0]
	if err := n.KillKubelet(); err != nil {
		return err
	}
	if err := n.StartKubelet(ctx, l.e.UnderTest(l.base, "kubelet")); err != nil {
		return err
	}
	// The new process has looked at it when it says that it holds it.
	if err := w.record(ctx, held, wait.Until(ctx, "the new kubelet has synced the pod", bound, func(ctx context.Context) (bool, error) {
		held, err := kubeletlab.Metric(ctx, n, "holdfast_unready_before_replace_marked_total")
		return held > 0, err
	})); err != nil {
		return err
	}
	if err := l.annotate(ctx, restarted, drainAnnotation, "0"); err != nil {
		return err
	}
	if err := w.replaced(ctx); err != nil {
		return err
	}
	w.recordEvents()
	return l.remove(ctx, restarted)
}

// toStock swaps the stock kubelet in while a pod waits, and ours back.
func (l *lab) toStock(ctx context.Context) error {
	w, err := l.waiting(ctx, 0, toStock)
	if err != nil {
		return err
	}
	n := l.c.Nodes[0]
	if err := n.SwapKubelet(ctx, l.e.Stock(l.base, "kubelet")); err != nil {
		return err
	}
	if err := w.replaced(ctx); err != nil {
		return err
	}
	if err := n.SwapKubelet(ctx, l.e.UnderTest(l.base, "kubelet")); err != nil {
		return err
	}
	return l.remove(ctx, toStock)
}

// away changes a static pod, whose manifest has a uid, while the API server does not
// answer: it is the only change that reaches a kubelet then.
func (l *lab) away(ctx context.Context) error {
	n := l.c.Nodes[1]
	manifest := func(tag string) error {
		c := node.Web("web")
		c.Image, c.Env = node.WebImage(tag), []corev1.EnvVar{{Name: "LABPOD_LISTEN", Value: ":18080"}}
		p := node.Pod("static", "", c)
		p.Namespace, p.UID = ns, "6b1c1f7e-0000-4000-8000-000000000001"
		p.Spec.HostNetwork, p.Spec.TerminationGracePeriodSeconds = true, new(int64(2))
		o, err := kube.Untyped(p)
		if err != nil {
			return err
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(n.Dir, "manifests", "static.yaml"), text, 0o644)
	}
	if err := os.MkdirAll(filepath.Join(n.Dir, "manifests"), 0o755); err != nil {
		return err
	}
	if err := manifest("v1"); err != nil {
		return err
	}
	mirror := "static-" + n.Name
	o, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, mirror, time.Minute, "is ready", func(o *kube.Object) (bool, error) { return kubeletlab.PodReady(o), nil })
	if err != nil {
		return err
	}
	w := &waiter{lab: l, name: mirror, id: webset.ContainerID(o)}
	if err := l.c.APIServer.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { _ = l.c.APIServer.Signal(syscall.SIGCONT) }()
	begin := time.Now()
	if err := manifest("v2"); err != nil {
		return err
	}
	// The kubelet looks at its manifests every 20 s; then the wait of 20 s begins.
	var seen alone
	if err := wait.Until(ctx, "the container is killed without the API server", 90*time.Second, func(context.Context) (bool, error) {
		killed := l.web.At(w.id)
		seen.KilledAfter = killed.Sub(begin)
		return !killed.IsZero(), nil
	}); err != nil {
		if ctx.Err() != nil {
			return err
		}
		l.e.Record(alone{})
		return labkit.Enough
	}
	if err := l.c.APIServer.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	_, err = l.c.Client.WaitFor(ctx, kube.Pods, ns, mirror, bound, string(anew), func(o *kube.Object) (bool, error) {
		return kubeletlab.PodReady(o) && webset.ContainerID(o) != w.id, nil
	})
	if ctx.Err() != nil {
		return err
	}
	seen.Replaced = err == nil
	if seen.TimeOuts, err = kubeletlab.Metric(ctx, n, "holdfast_unready_before_replace_waits_total", "outcome", "timeout"); err != nil {
		return err
	}
	l.e.Record(seen)
	return nil
}
