// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpodidentity is the lab static-pod-identity: kubelets of several releases take
// over each other's static pods. See tools/labs/static-pod-identity/README.md.
package staticpodidentity

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base   = "v1.9.11"
	oldest = "v1.7.0"
	older  = "v1.8.15"
	ns     = "kube-system"
	// edited is the pod whose manifest is changed while the kubelet is away.
	edited   = "kube-scheduler"
	patience = 4 * time.Minute
)

// masters are the static pods, in the order of their ports.
var masters = []string{"etcd", "kube-apiserver", "kube-controller-manager", edited}

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:      "static-pod-identity",
		Summary:   "a kubelet upgrade restarts the static pods of a master",
		Test:      []labkit.Variant{labkit.Ours},
		Steps:     steps,
		Oracle:    oracle,
		Needs:     labkit.KubeletNeeds(base, labkit.StockBinary(oldest, "kubelet")),
		LongNeeds: []labkit.Binary{labkit.StockBinary(older, "kubelet")},
		Timeout:   func(p labkit.Profile) time.Duration { return labkit.Pick(p, 15*time.Minute, 30*time.Minute) },
	}}
}

// swap is a kubelet that takes over from the one before.
type swap struct {
	// to is a release, or underTest.
	to string
	// judged: what runs must be kept. Else old kubelets do what they do among themselves.
	judged bool
	// kill ends the kubelet before with SIGKILL, edit changes a manifest meanwhile.
	kill, edit bool
}

const underTest = "under test"

func (s swap) String() string {
	text := "swap the kubelet to " + s.to
	if s.kill {
		text += " (kill -9)"
	} else {
		text += " (SIGTERM)"
	}
	if s.edit {
		text += ", and change the manifest of " + edited + " meanwhile"
	}
	if !s.judged {
		text += "; not judged"
	}
	return text
}

// chain is what follows v1.7.0.
func chain(v labkit.Variant, p labkit.Profile) []swap {
	if v != labkit.Ours {
		return []swap{{to: underTest, judged: true}}
	}
	all := []swap{
		{to: underTest, judged: true},
		{to: underTest, judged: true, kill: true},
		{to: oldest, judged: true},
		{to: underTest, judged: true, kill: true, edit: true},
	}
	if p == labkit.Long {
		all = append(all, swap{to: older}, swap{to: underTest, judged: true}, swap{to: older, judged: true, kill: true}, swap{to: underTest, judged: true})
	}
	return all
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	node *node.Node
	load *load.Load
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	s := []labkit.Step{
		{Text: "start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet " + oldest, Do: l.start},
		{Text: fmt.Sprintf("write the manifests of %d static pods as a master has them, and ask each every 100 ms", len(masters)), Do: l.create},
	}
	for i, w := range chain(e.Variant, e.Profile) {
		s = append(s, labkit.Step{Text: w.String(), Do: func(ctx context.Context) error { return l.swap(ctx, i, w) }})
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error {
		l.load.Stop()
		return l.c.Alive(ctx)
	}))
}

func (l *lab) start(ctx context.Context) error {
	c, err := l.e.StartStockCluster(ctx, base, node.Config{Name: "node1", Kubelet: l.e.Stock(oldest, "kubelet"), KubeletArgs: []string{kubeletlab.LogComparisons}})
	if err == nil {
		l.c, l.node = c, c.Nodes[0]
	}
	return err
}

func port(i int) int { return 18200 + i }

// write writes a manifest in the form of kubeadm's: the host's network and a folder of the
// host, requests, a liveness probe, a mark of a critical pod. The program is labpod.
func (l *lab) write(i int, cpu string) error {
	name := masters[i]
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": ns, "creationTimestamp": nil,
			"annotations": map[string]string{"scheduler.alpha.kubernetes.io/critical-pod": ""},
			"labels":      map[string]string{"component": name, "tier": "control-plane"}},
		"spec": map[string]any{
			"hostNetwork": true, "terminationGracePeriodSeconds": 2,
			"containers": []any{map[string]any{
				"name": name, "image": node.WebImage("v1"), "imagePullPolicy": string(corev1.PullIfNotPresent),
				"env":       []any{map[string]string{"name": "LABPOD_LISTEN", "value": fmt.Sprintf(":%d", port(i))}},
				"resources": map[string]any{"requests": map[string]string{"cpu": cpu}},
				"livenessProbe": map[string]any{"failureThreshold": 8, "initialDelaySeconds": 15, "timeoutSeconds": 15,
					"httpGet": map[string]any{"host": "127.0.0.1", "path": "/", "port": port(i), "scheme": "HTTP"}},
				"volumeMounts": []any{map[string]any{"name": "k8s", "mountPath": "/etc/kubernetes", "readOnly": true}},
			}},
			"volumes": []any{map[string]any{"name": "k8s", "hostPath": map[string]string{"path": filepath.Join(l.node.Dir, "manifests")}}},
		},
		"status": map[string]any{},
	})
	if err != nil {
		return err
	}
	return l.node.WriteManifest(name, text)
}

func (l *lab) create(ctx context.Context) error {
	var targets []string
	for i := range masters {
		if err := l.write(i, "1m"); err != nil {
			return err
		}
		targets = append(targets, fmt.Sprintf("%s:%d", l.node.IP, port(i)))
	}
	if _, err := l.mirrors(ctx); err != nil {
		return err
	}
	l.load = load.Start(ctx, load.Config{Interval: 100 * time.Millisecond, Targets: func() []string { return targets }, Workers: len(targets)})
	return nil
}

// mirrors waits until the API shows each pod as ready, with the container that runs, and
// returns the hashes of their manifests by pod.
func (l *lab) mirrors(ctx context.Context) (map[string]string, error) {
	hashes := map[string]string{}
	for _, name := range masters {
		pod := name + "-" + l.node.Name
		o, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, pod, patience, "is ready and has the container that runs", func(o *kube.Object) (bool, error) {
			s, err := kubeletlab.Take(ctx, l.node)
			if err != nil || !kubeletlab.PodReady(o) {
				return false, err
			}
			return kube.ContainerIDs(o)[name] == s[ns+"/"+pod+"/"+name].ID, nil
		})
		if err != nil {
			return nil, err
		}
		hashes[pod] = o.GetAnnotations()["kubernetes.io/config.hash"]
	}
	return hashes, nil
}

func (l *lab) swap(ctx context.Context, i int, w swap) error {
	o := swapped{Step: i, Name: w.to, Judged: w.judged, Edit: w.edit}
	var err error
	if o.HashesBefore, err = l.mirrors(ctx); err != nil {
		return err
	}
	if o.Before, err = kubeletlab.Take(ctx, l.node); err != nil {
		return err
	}
	asked := l.load.Report()
	if w.kill {
		err = l.node.KillKubelet()
	} else {
		err = l.node.StopKubelet()
	}
	if err != nil {
		return err
	}
	if w.edit {
		if err := l.write(len(masters)-1, "2m"); err != nil {
			return err
		}
	}
	program := l.e.UnderTest(base, "kubelet")
	if w.to != underTest {
		program = l.e.Stock(w.to, "kubelet")
	}
	if err := l.node.StartKubelet(ctx, program); err != nil {
		return err
	}
	if err := kubeletlab.WaitCompared(ctx, l.node, o.Before.Pods(), patience); err != nil {
		return err
	}
	// What it decided to stop is stopped by now or has 2 s.
	if o.After, err = kubeletlab.WaitStable(ctx, l.node, 6*time.Second, patience); err != nil {
		return err
	}
	if o.HashesAfter, err = l.mirrors(ctx); err != nil {
		return err
	}
	now := l.load.Report()
	o.Asked, o.Failed = now.OK+now.Failed-asked.OK-asked.Failed, now.Failed-asked.Failed
	l.e.Record(o)
	return nil
}
