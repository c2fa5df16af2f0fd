// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
)

var namespaces = row{
	slug:    "ordered-namespace-deletion",
	gate:    "OrderedNamespaceDeletion",
	off:     true,
	summary: "the NetworkPolicies of a namespace that is deleted go before its pods",
	plan: []string{
		"create two namespaces, one with a NetworkPolicy and a pod that takes seconds to end, one with a ConfigMap only, and delete both",
		"oracle: whether the NetworkPolicy is deleted before the pod is; both namespaces must go",
	},
	start: startNamespaces,
	judge: judgeNamespaces,
}

var networkPolicies = kube.GVR{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}

const isolated, plain = "isolated", "plain"

func startNamespaces(ctx context.Context, l *lab) error {
	for _, name := range []string{isolated, plain} {
		if _, err := l.c.Client.CreateYAML(ctx, "", fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", name)); err != nil {
			return err
		}
	}
	if _, err := l.c.Client.WaitFor(ctx, kube.ServiceAccounts, isolated, "default", 60*time.Second, "has a token", func(o *kube.Object) (bool, error) {
		return len(kube.Slice(o, "secrets")) > 0, nil
	}); err != nil {
		return err
	}
	// The hook makes the pod take its time, as a server with connections does.
	text := pod("server", "    lifecycle: {preStop: {exec: {command: [/labpod, sleep, 3s]}}}\n", "")
	text = strings.Replace(text, "terminationGracePeriodSeconds: 1", "terminationGracePeriodSeconds: 6", 1)
	if _, err := l.c.Client.CreateYAML(ctx, isolated, text+"---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}, policyTypes: [Ingress]}\n"); err != nil {
		return err
	}
	_, err := l.c.Client.CreateYAML(ctx, plain, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n")
	return err
}

func judgeNamespaces(ctx context.Context, l *lab) (outcome, error) {
	if _, err := l.c.Client.WaitFor(ctx, kube.Pods, isolated, "server", 60*time.Second, "runs", func(o *kube.Object) (bool, error) {
		return kube.String(o, "status", "phase") == "Running", nil
	}); err != nil {
		return outcome{}, err
	}
	policies, err := l.c.Client.Record(ctx, networkPolicies, isolated)
	if err != nil {
		return outcome{}, err
	}
	pods, err := l.c.Client.Record(ctx, kube.Pods, isolated)
	if err != nil {
		return outcome{}, err
	}
	begin := time.Now()
	for _, name := range []string{isolated, plain} {
		if err := l.c.Client.Delete(ctx, kube.Namespaces, "", name); err != nil {
			return outcome{}, err
		}
	}
	took := map[string]time.Duration{}
	for _, name := range []string{plain, isolated} {
		if err := l.c.Client.WaitGone(ctx, kube.Namespaces, "", name, 2*time.Minute); err != nil {
			return outcome{}, err
		}
		took[name] = time.Since(begin)
	}
	deleted := func(ev kube.RecordedEvent) bool { return ev.Type == "DELETED" }
	policy, err := policies.Wait(ctx, 10*time.Second, "the NetworkPolicy is deleted", deleted)
	if err != nil {
		return outcome{}, err
	}
	pod, err := pods.Wait(ctx, 10*time.Second, "the pod is deleted", deleted)
	if err != nil {
		return outcome{}, err
	}
	if took[plain] > 45*time.Second {
		return outcome{}, fmt.Errorf("the namespace without pods took %v", took[plain])
	}
	ahead := pod.Time.Sub(policy.Time)
	l.e.Fact("ordered-namespace-deletion: the namespace with a pod took %.1f s, the one without %.1f s", took[isolated].Seconds(), took[plain].Seconds())
	o := outcome{ahead > 0, fmt.Sprintf("the NetworkPolicy went %.1f s before the pod", ahead.Seconds())}
	if !o.happened {
		o.saw = fmt.Sprintf("the NetworkPolicy went %.1f s after the pod", -ahead.Seconds())
	}
	if l.e.Variant == labkit.Ours {
		n, err := series(ctx, l.c.ControllerManager.URL+"/metrics", "holdfast_ordered_namespace_deletion_waited_total 1")
		if err == nil && n != 1 {
			err = fmt.Errorf("the controller manager has not counted one namespace that it waited for")
		}
		return o, err
	}
	return o, nil
}
