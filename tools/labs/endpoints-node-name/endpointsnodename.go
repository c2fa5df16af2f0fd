// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointsnodename is the lab endpoints-node-name: a node is renamed, and the API
// server refuses the Endpoints of its pods. See tools/labs/endpoints-node-name/README.md.
package endpointsnodename

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/webset"
)

const (
	base = "v1.9.11"
	ns   = webset.NS
	web  = webset.Service
	// bound is how long the controller has for a change of a pod.
	bound = 10 * time.Second
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "endpoints-node-name",
		Summary: "after a node was renamed, the API server refuses the Endpoints of a Service",
		Steps:   steps,
		Oracle:  oracle,
		Test:    []labkit.Variant{labkit.Ours},
		Timeout: func(labkit.Profile) time.Duration { return 6 * time.Minute },
		Needs:   labkit.ManagerNeeds(base),
	}}
}

type lab struct {
	e     *labkit.Env
	c     *node.Cluster
	proxy *kube.Proxy
	eps   *kube.Recorder
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: "start etcd, kube-apiserver, a proxy that counts the API server's answers, and the kube-controller-manager under test behind it; create a Service with the ready pods old and gone on n1, and other on n3", Do: l.start},
		{Text: "set pod old to not ready; annotate the Endpoints; delete pod gone, and create the ready pod new on n2 with the address of old; wait 10 s at most", Do: l.rename},
		{Text: "create the ready pod more on n2; wait 10 s at most", Do: l.more},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

func (l *lab) start(ctx context.Context) error {
	var err error
	if l.c, l.proxy, err = webset.StartBehindProxy(ctx, l.e, base); err != nil {
		return err
	}
	if l.eps, err = l.c.Client.Record(ctx, kube.Endpoints, ns); err != nil {
		return err
	}
	if err := l.c.Client.Make(ctx, ns, kube.Service(web, web, 8080)); err != nil {
		return err
	}
	for _, p := range []struct{ name, node, ip string }{{"old", "n1", "10.91.1.1"}, {"gone", "n1", "10.91.1.2"}, {"other", "n3", "10.91.3.1"}} {
		if err := l.pod(ctx, p.name, p.node, p.ip); err != nil {
			return err
		}
	}
	_, err = l.wait(ctx, "gone", "old", "other")
	return err
}

// pod makes a ready pod, which no kubelet runs.
func (l *lab) pod(ctx context.Context, name, node, ip string) error {
	return webset.MakeReady(ctx, l.c.Client, ns, name, web, node, ip)
}

// ready are the pods of the ready addresses in ep.
func ready(ep *kube.Object) []string {
	var pods []string
	if ep != nil {
		kube.EachReadyAddress(ep, func(pod, _ string) { pods = append(pods, pod) })
	}
	slices.Sort(pods)
	return pods
}

// wait waits until these pods' addresses are ready.
func (l *lab) wait(ctx context.Context, pods ...string) (*kube.Object, error) {
	ev, err := l.eps.Wait(ctx, bound, "ready addresses of "+strings.Join(pods, ", "), func(ev kube.RecordedEvent) bool {
		return ev.Object != nil && ev.Object.GetName() == web && slices.Equal(ready(ev.Object), pods)
	})
	return ev.Object, err
}

func (l *lab) rename(ctx context.Context) error {
	if err := webset.PublishReady(ctx, l.c.Client, ns, "old", "10.91.1.1", false); err != nil {
		return err
	}
	was, err := l.wait(ctx, "gone", "other")
	if err != nil {
		return err
	}
	if _, err := l.c.Client.PatchMerge(ctx, kube.Endpoints, ns, web, `{"metadata":{"annotations":{"somebody":"else"}}}`); err != nil {
		return err
	}
	if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, "gone"); err != nil {
		return err
	}
	if err := l.pod(ctx, "new", "n2", "10.91.1.1"); err != nil {
		return err
	}
	begin := time.Now()
	// That it does not happen is for the oracle.
	if _, err := l.wait(ctx, "new", "other"); ctx.Err() != nil {
		return err
	}
	is := l.eps.Latest(ns, web)
	o := renamed{After: time.Since(begin), Ready: ready(is), Refused: l.proxy.Count(func(r kube.ProxyRequest) bool {
		return r.Method == http.MethodPut && r.Status == http.StatusUnprocessableEntity && strings.HasSuffix(r.Path, "/endpoints/"+web)
	})}
	if is != nil {
		o.Kept = is.GetUID() == was.GetUID() && is.GetAnnotations()["somebody"] == "else"
	}
	l.e.Record(o)
	return nil
}

func (l *lab) more(ctx context.Context) error {
	if err := l.pod(ctx, "more", "n2", "10.91.2.1"); err != nil {
		return err
	}
	if _, err := l.wait(ctx, "more", "new", "other"); ctx.Err() != nil {
		return err
	}
	l.e.Record(later{Ready: ready(l.eps.Latest(ns, web))})
	return nil
}
