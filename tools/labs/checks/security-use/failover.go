// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package securityuse

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

func failoverLab(base string) labkit.Lab {
	return labkit.Lab{
		Name:     "security-use-failover",
		Folder:   "checks/security-use",
		Summary:  "the ordered deletion of a namespace continues when another controller manager takes over: Holdfast, stock, or Holdfast with the gate off",
		Needs:    labkit.ManagerNeeds(base, labkit.StockBinary(base, "kube-controller-manager")),
		Variants: []labkit.Variant{labkit.Ours},
		Steps: func(e *labkit.Env) []labkit.Step {
			f := &failover{e: e, base: base}
			steps := []labkit.Step{{Text: "start etcd and kube-apiserver of stock " + base + "; create a namespace for each failover, with a NetworkPolicy and a pod that a finalizer holds", Do: f.start}}
			for _, w := range successions {
				steps = append(steps, labkit.Step{Text: fmt.Sprintf("%s: delete the namespace under the first controller manager and read the NetworkPolicy; stop this controller manager, start the second one and read the NetworkPolicy again; remove the finalizer and wait until the namespace is gone", w.name),
					Do: func(ctx context.Context) error { return f.succeed(ctx, w) }})
			}
			return append(steps, labkit.Step{Text: "check that etcd and kube-apiserver run", Always: true, Do: func(context.Context) error { return process.AllAlive(f.c.Etcd.Proc, f.c.APIServer.Proc) }})
		},
		Oracle: labkit.Oracle{
			Text:  []string{"the NetworkPolicy stays while a controller manager with the gate on leads, and only then; the pod stays until its finalizer is gone; each namespace is deleted"},
			Judge: judgeFailover,
		},
	}
}

// orderedGate is that of ordered-namespace-deletion.
const orderedGate = "OrderedNamespaceDeletion"

// succession is two controller managers that lead one after the other.
type succession struct {
	name          string
	first, second string // a key of managers
	kept          [2]bool
}

var successions = []succession{
	{"ours to stock", "on", "stock", [2]bool{true, false}},
	{"ours to gate off", "on", "off", [2]bool{true, false}},
	{"ours to ours", "on", "on", [2]bool{true, true}},
	{"stock to ours", "stock", "on", [2]bool{false, false}},
}

// failover is a control plane whose controller managers change.
type failover struct {
	e    *labkit.Env
	base string
	c    *node.Cluster
	n    int
}

// ledBy is what was there while a controller manager led.
type ledBy struct {
	Way, Manager string
	Second       bool
	Policy       bool // the NetworkPolicy is there and is not being deleted
	Pod          bool // the pod is there, being deleted
	Seconds      float64
}

// ended is a namespace that is gone.
type ended struct {
	Way     string
	Seconds float64 // after the finalizer was taken away
}

var networkPolicies = kube.GVR{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}

func namespace(w succession) string { return "ns-" + w.first + "-" + w.second }

func (f *failover) start(ctx context.Context) error {
	var err error
	if f.c, err = f.e.StartStockAPIServer(ctx, f.base); err != nil {
		return err
	}
	cm, err := f.manager(ctx, "stock")
	if err != nil {
		return err
	}
	for _, w := range successions {
		if err := f.c.Client.Make(ctx, "", kube.Namespace(namespace(w))); err != nil {
			return err
		}
		if err := f.c.Client.WaitPodsAdmitted(ctx, namespace(w), time.Minute); err != nil {
			return err
		}
		// No node: a pod that was never started goes at once, but for its finalizer.
		held := kube.Pod("held")
		held.Finalizers = []string{"holdfast.test/held"}
		held.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.example/none"}}
		if err := f.c.Client.Make(ctx, namespace(w), held); err != nil {
			return err
		}
		if _, err := f.c.Client.CreateYAML(ctx, namespace(w), "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny}, spec: {podSelector: {}, policyTypes: [Ingress]}}"); err != nil {
			return err
		}
	}
	return cm.Stop()
}

// manager starts one of: stock's, ours with the gate on, ours with it off.
func (f *failover) manager(ctx context.Context, which string) (*kube.ControllerManager, error) {
	p := f.e.Stock(f.base, "kube-controller-manager")
	if which != "stock" {
		p = f.e.UnderTest(f.base, "kube-controller-manager").WithGates(map[string]bool{orderedGate: which == "on"})
	}
	f.n++
	return f.e.StartControllerManager(ctx, f.c.APIServer, kube.ControllerManagerConfig{Name: fmt.Sprintf("kube-controller-manager-%d", f.n), Program: p})
}

func (f *failover) succeed(ctx context.Context, w succession) error {
	first, err := f.manager(ctx, w.first)
	if err != nil {
		return err
	}
	if err := f.c.Client.Delete(ctx, kube.Namespaces, "", namespace(w)); err != nil {
		return err
	}
	if err := f.look(ctx, w, false); err != nil {
		return err
	}
	if err := first.Stop(); err != nil {
		return err
	}
	second, err := f.manager(ctx, w.second)
	if err != nil {
		return err
	}
	if err := f.look(ctx, w, true); err != nil {
		return err
	}
	if _, err := f.c.Client.PatchMerge(ctx, kube.Pods, namespace(w), "held", `{"metadata":{"finalizers":null}}`); err != nil {
		return err
	}
	began := time.Now()
	if err := f.c.Client.WaitGone(ctx, kube.Namespaces, "", namespace(w), 2*time.Minute); err != nil {
		return err
	}
	f.e.Record(ended{w.name, time.Since(began).Seconds()})
	return second.Stop()
}

// quiet is how long a NetworkPolicy must stay to be called kept: more than the controller's
// retries of a deletion are apart in the beginning.
const quiet = 12 * time.Second

// look waits until the controller manager leads and has begun with the namespace, and then
// until the NetworkPolicy is gone, or still exists after the wait for a while.
func (f *failover) look(ctx context.Context, w succession, second bool) error {
	manager, began := w.first, time.Now()
	if second {
		manager = w.second
	}
	if err := wait.Until(ctx, manager+" leads", time.Minute, func(context.Context) (bool, error) {
		o, err := f.c.Client.Get(ctx, kube.Endpoints, "kube-system", "kube-controller-manager")
		if err != nil {
			return false, err
		}
		// A lease that was renewed after began is of the one that runs.
		renewed, err := leaseRenewed(o)
		return err == nil && renewed.After(began), err
	}); err != nil {
		return err
	}
	o := ledBy{Way: w.name, Manager: manager, Second: second}
	since := time.Now()
	err := wait.Until(ctx, "the NetworkPolicy is gone, or still exists after the wait", 90*time.Second, func(ctx context.Context) (bool, error) {
		p, err := f.c.Client.Get(ctx, networkPolicies, namespace(w), "deny")
		switch {
		case apierrors.IsNotFound(err):
			o.Policy = false
		case err != nil:
			return false, err
		default:
			o.Policy = p.GetDeletionTimestamp() == nil
		}
		pod, err := f.c.Client.Get(ctx, kube.Pods, namespace(w), "held")
		o.Pod = err == nil && pod.GetDeletionTimestamp() != nil
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		if !o.Pod {
			since = time.Now() // it has not begun with the pods
			return false, nil
		}
		return !o.Policy || time.Since(since) >= quiet, nil
	})
	if err != nil {
		return err
	}
	o.Seconds = time.Since(began).Seconds()
	f.e.Record(o)
	return nil
}

func judgeFailover(h *history.History) labkit.Outcome {
	looks, gone := map[string][]ledBy{}, map[string]float64{}
	for _, o := range history.Of[ledBy](h) {
		looks[o.Way] = append(looks[o.Way], o)
	}
	for _, o := range history.Of[ended](h) {
		gone[o.Way] = o.Seconds
	}
	for _, w := range successions {
		l := looks[w.name]
		if len(l) != 2 || l[0].Second || !l[1].Second {
			return labkit.InconclusiveBecause("%s: the NetworkPolicy was read %d times, want 2", w.name, len(l))
		}
		for i, o := range l {
			if !o.Pod {
				return labkit.FailedBecause("%s: the pod that a finalizer holds is gone under %s", w.name, o.Manager)
			}
			if o.Policy != w.kept[i] {
				return labkit.FailedBecause("%s: the NetworkPolicy exists under %s: %t, want %t", w.name, o.Manager, o.Policy, w.kept[i])
			}
		}
		if _, ok := gone[w.name]; !ok {
			return labkit.InconclusiveBecause("%s: the deletion of the namespace was not recorded", w.name)
		}
	}
	return labkit.PassedBecause("%d failovers: the NetworkPolicy stays while a controller manager with the gate on leads; each namespace is deleted", len(successions))
}

// leaseRenewed is when the leader last renewed its lock.
func leaseRenewed(o *kube.Object) (time.Time, error) {
	var lock struct{ RenewTime time.Time }
	text := o.GetAnnotations()["control-plane.alpha.kubernetes.io/leader"]
	if err := json.Unmarshal([]byte(text), &lock); err != nil {
		return time.Time{}, fmt.Errorf("the leader's lock has %q: %w", text, err)
	}
	return lock.RenewTime, nil
}
