// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpodidentity is the lab static-pod-identity: kubelets of several releases take
// over each other's static pods. See tools/labs/static-pod-identity/README.md.
package staticpodidentity

import (
	"context"
	"net/http"
	"sync"
	"time"

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

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:      "static-pod-identity",
		Summary:   "a kubelet upgrade restarts the static pods of a master",
		Test:      []labkit.Variant{labkit.Ours},
		Steps:     steps,
		Oracle:    oracle,
		Needs:     labkit.KubeletNeeds(base, labkit.StockBinary(oldest, "kubelet"), labkit.StockBinary(base, "kube-scheduler")),
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
	// kill ends the kubelet before with SIGKILL, edit changes a manifest meanwhile, and reboot
	// ends all that runs on the node.
	kill, edit, reboot bool
}

const underTest = "under test"

func (s swap) String() string {
	text := "swap the kubelet to " + s.to
	if s.reboot {
		return text + " at a reboot"
	}
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
		{to: oldest, judged: true},
	}
	if p == labkit.Long {
		all = append(all,
			swap{to: underTest, judged: true}, swap{to: underTest, judged: true, reboot: true}, swap{to: oldest, judged: true},
			swap{to: older}, swap{to: underTest, judged: true}, swap{to: older, judged: true, kill: true}, swap{to: underTest, judged: true})
	}
	return all
}

type lab struct {
	e      *labkit.Env
	c      *node.Cluster
	node   *node.Node
	loads  map[string]*load.Load // by pod
	writer *writer
	server *http.Server

	mu      sync.Mutex
	fromURL []byte // the manifest that the server gives, nil as long as there is none
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	s := []labkit.Step{
		{Text: "start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet " + oldest, Do: l.start},
		{Text: "start etcd, apiserver, controller manager and scheduler as static pods of the node, and a fifth pod from --manifest-url; every 100 ms send a request to each and write an object", Do: l.create},
	}
	for i, w := range chain(e.Variant, e.Profile) {
		s = append(s, labkit.Step{Text: w.String(), Do: func(ctx context.Context) error { return l.swap(ctx, i, w) }})
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error {
		if err := l.stop(); err != nil {
			return err
		}
		return l.c.Alive(ctx)
	}))
}

func (l *lab) start(ctx context.Context) error {
	images, err := l.images(ctx)
	if err != nil {
		return err
	}
	if err := l.serve(); err != nil {
		return err
	}
	c, err := l.e.StartStockCluster(ctx, base, node.Config{Name: "node1", Kubelet: l.e.Stock(oldest, "kubelet"), Images: images,
		KubeletArgs: []string{kubeletlab.LogComparisons, "--manifest-url=" + manifestURL, "--http-check-frequency=2s"}})
	if err == nil {
		l.c, l.node = c, c.Nodes[0]
	}
	return err
}

// mirrors waits until the API shows each pod as ready, with the container that runs, and
// returns the hashes of their manifests by pod.
func (l *lab) mirrors(ctx context.Context) (map[string]string, error) {
	hashes := map[string]string{}
	for _, m := range masters {
		name, pod := m.name, m.name+"-"+l.node.Name
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
	o := swapped{Step: i, Name: w.to, Judged: w.judged, Edit: w.edit, Reboot: w.reboot}
	var err error
	if o.HashesBefore, err = l.mirrors(ctx); err != nil {
		return err
	}
	if o.Before, err = kubeletlab.Take(ctx, l.node); err != nil {
		return err
	}
	program := l.e.UnderTest(base, "kubelet")
	if w.to != underTest {
		program = l.e.Stock(w.to, "kubelet")
	}
	if o.Forecast, err = kubeletlab.Forecast(ctx, l.e, l.c.APIServer.URL, l.node.Name, program); err != nil {
		return err
	}
	besides := ""
	if w.edit {
		besides = edited
	}
	before := l.count(besides)
	if w.reboot {
		err = l.node.Reboot(ctx, program)
	} else {
		err = l.takeOver(ctx, w, program)
	}
	if err != nil {
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
	o.count = l.count(besides).since(before)
	l.e.Record(o)
	return nil
}

// takeOver ends the kubelet and starts program in its place.
func (l *lab) takeOver(ctx context.Context, w swap, program kube.Program) error {
	end := l.node.StopKubelet
	if w.kill {
		end = l.node.KillKubelet
	}
	if err := end(); err != nil {
		return err
	}
	if w.edit {
		if err := l.write(scheduler, "2m"); err != nil {
			return err
		}
	}
	return l.node.StartKubelet(ctx, program)
}
