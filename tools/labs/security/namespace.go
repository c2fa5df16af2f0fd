// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/sweep"
)

var namespaces = row{
	fix:     "ordered-namespace-deletion",
	gate:    "OrderedNamespaceDeletion",
	off:     true,
	summary: "when a namespace is deleted, its NetworkPolicies are deleted before its pods",
	starts:  "create two namespaces, one with a NetworkPolicy and a pod that takes seconds to end, one with a ConfigMap only",
	does:    "delete both namespaces",
	oracle:  "the NetworkPolicy is deleted before the pod; absent: it is deleted after the pod, and both namespaces disappear",
	start:   startNamespaces,
	look:    lookNamespaces,
	judge:   judgeNamespaces,
}

// deletion is when watchers saw policy and pod deleted, and how long each namespace took.
type deletion struct {
	Policy, Pod time.Time
	Took        map[string]time.Duration
	Counted     int // series that say that one namespace was waited for
}

var networkPolicies = kube.GVR{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}

const isolated, plain = "isolated", "plain"

func startNamespaces(ctx context.Context, l *lab) error {
	for _, name := range []string{isolated, plain} {
		if err := l.c.Client.Make(ctx, "", kube.Namespace(name)); err != nil {
			return err
		}
	}
	if err := l.c.Client.WaitPodsAdmitted(ctx, isolated, patience); err != nil {
		return err
	}
	// The hook makes the pod take its time, as a server with connections does.
	server := pod("server", func(c *corev1.Container) {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: kube.Exec("/labpod", "sleep", "3s").Exec}}
	})
	server.Spec.TerminationGracePeriodSeconds = new(int64(6))
	if err := l.c.Client.Make(ctx, isolated, server); err != nil {
		return err
	}
	if _, err := l.c.Client.CreateYAML(ctx, isolated, "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}, policyTypes: [Ingress]}\n"); err != nil {
		return err
	}
	return l.c.Client.Make(ctx, plain, kube.ConfigMap("one", nil))
}

func lookNamespaces(ctx context.Context, l *lab) error {
	o, again := deletion{}, false
	// A controller manager that a kill test killed counts from 0.
	if err := l.e.Sweep.Undisturbed(ctx, func() (err error) {
		if o.Pod.After(o.Policy) {
			return nil // is enough
		}
		if again {
			if err := startNamespaces(ctx, l); err != nil {
				return err
			}
		}
		again = true
		o, err = l.deleteNamespaces(ctx)
		return err
	}, sweep.ControllerManager); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

func (l *lab) deleteNamespaces(ctx context.Context) (deletion, error) {
	o := deletion{Took: map[string]time.Duration{}}
	if _, err := l.c.Client.WaitFor(ctx, kube.Pods, isolated, "server", patience, "runs", func(o *kube.Object) (bool, error) {
		return kube.String(o, "status", "phase") == "Running", nil
	}); err != nil {
		return o, err
	}
	policies, err := l.c.Client.Record(ctx, networkPolicies, isolated)
	if err != nil {
		return o, err
	}
	pods, err := l.c.Client.Record(ctx, kube.Pods, isolated)
	if err != nil {
		return o, err
	}
	begin := time.Now()
	for _, name := range []string{isolated, plain} {
		if err := l.c.Client.Delete(ctx, kube.Namespaces, "", name); err != nil {
			return o, err
		}
	}
	for _, name := range []string{plain, isolated} {
		if err := l.c.Client.WaitGone(ctx, kube.Namespaces, "", name, 2*time.Minute); err != nil {
			return o, err
		}
		o.Took[name] = time.Since(begin)
	}
	deleted := func(ev kube.RecordedEvent) bool { return ev.Type == "DELETED" }
	policy, err := policies.Wait(ctx, patience, "the NetworkPolicy is deleted", deleted)
	if err != nil {
		return o, err
	}
	pod, err := pods.Wait(ctx, patience, "the pod is deleted", deleted)
	if err != nil {
		return o, err
	}
	o.Policy, o.Pod = policy.Time, pod.Time
	if o.Counted, err = l.managerCounted(ctx, "holdfast_ordered_namespace_deletion_waited_total 1"); err != nil {
		return o, err
	}
	return o, nil
}

func judgeNamespaces(h *history.History) finding {
	o := history.One[deletion](h)
	ahead, word := o.Pod.Sub(o.Policy), "before"
	ours := h.Variant == string(labkit.Ours)
	switch {
	case ours && !o.Policy.IsZero() && !o.Pod.IsZero() && ahead > 0: // whatever else there was
	case o.Policy.IsZero() || o.Pod.IsZero() || o.Took[isolated] == 0 || o.Took[plain] == 0:
		return cannotTell("not all observations were recorded: %+v", o)
	case o.Took[plain] > 45*time.Second:
		return cannotTell("the namespace without pods took %v", o.Took[plain])
	case ours && o.Counted != 1:
		return cannotTell("the controller manager has not counted exactly one namespace that it waited for")
	}
	if ahead <= 0 {
		word = "after"
	}
	return finding{happened: ahead > 0, saw: fmt.Sprintf("the NetworkPolicy was deleted %.1f s %s the pod; the namespace with a pod took %.1f s, the namespace without pods %.1f s",
		ahead.Abs().Seconds(), word, o.Took[isolated].Seconds(), o.Took[plain].Seconds())}.
		measure("from the NetworkPolicy's deletion to the pod's", ahead.Seconds(), "s")
}
