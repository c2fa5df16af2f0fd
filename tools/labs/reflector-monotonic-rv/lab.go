// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reflectormonotonicrv is the lab reflector-monotonic-rv: an API server
// that sends old resourceVersions with deletions makes the controller manager's
// watches restart from the past, and the endpoints controller deletes the Endpoints
// of live Services.
package reflectormonotonicrv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/sweep"
	"holdfast/tools/labkit/wait"
)

const (
	base = "v1.9.11"
	ns   = "default"

	servicesPath = "/api/v1/services"
)

// Gates of the fix.
const (
	reflectorGate = "ReflectorMonotonicResourceVersion"
	endpointsGate = "EndpointsLiveServiceCheck"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	var all []labkit.Lab
	for _, l := range []struct {
		name, server string
		test         []labkit.Variant
	}{
		{"reflector-monotonic-rv", "v1.9.0", []labkit.Variant{labkit.Stock, labkit.Ours}},
		{"reflector-monotonic-rv-1.8", "v1.8.0", nil},
		{"reflector-monotonic-rv-1.7", "v1.7.0", nil},
	} {
		server := l.server
		all = append(all, labkit.Lab{
			Name:    strings.ReplaceAll(l.name, ".", "-"),
			Folder:  "reflector-monotonic-rv",
			Test:    l.test,
			Summary: fmt.Sprintf("Endpoints of live Services are deleted after a watch restarts from an older version (kube-apiserver %s)", server),
			Steps:   func(e *labkit.Env) []labkit.Step { return steps(e, server) },
			Oracle:  oracle,
			Needs: []labkit.Binary{
				labkit.StockBinary(server, "kube-apiserver"),
				labkit.BinaryUnderTest(base, "kube-controller-manager"),
				labkit.BinaryUnderTest(base, "rvcount"),
			},
			Timeout: func(p labkit.Profile) time.Duration {
				return labkit.Pick(p, 8*time.Minute, 40*time.Minute)
			},
		})
	}
	return all
}

// size is how much of everything a profile does.
type size struct {
	services, restarts int
	churnServices      int
	churn              time.Duration
}

func sizeOf(p labkit.Profile) size {
	if p == labkit.Long {
		return size{services: 30, restarts: 6, churnServices: 200, churn: 10 * time.Minute}
	}
	return size{services: 30, restarts: 3, churnServices: 40, churn: 20 * time.Second}
}

type lab struct {
	size
	e      *labkit.Env
	server string
	c      *node.Cluster
	p      *kube.Proxy
	eps    *kube.Recorder
	svcs   *kube.Recorder
	// The gate was off from offFrom to offTo.
	offFrom, offTo time.Time
	shown          bool         // the incident, in what was recorded so far
	counted        metrics.Page // after the first incident
}

func steps(e *labkit.Env, server string) []labkit.Step {
	l := &lab{size: sizeOf(e.Profile), e: e, server: server}
	s := []labkit.Step{
		{Text: fmt.Sprintf("start etcd, kube-apiserver %s (TLS, RBAC, audit log), a proxy that shortens watches to seconds, and the kube-controller-manager under test behind the proxy; create two ready pods", server), Do: l.start},
		{Text: fmt.Sprintf("create the Service old, then create, delete and create again %d Services with ready Endpoints; delete old, whose deletion an independent watcher must get with an old resourceVersion; "+
			"wait for %d restarts of the controller manager's watch of Services", l.services, l.restarts), Do: l.first},
	}
	if e.Variant != labkit.GateOff { // the counting controller has no gates
		s = append(s, labkit.Step{Text: "the same with ConfigMaps and Secrets and a controller that counts", Do: l.count})
	}
	s = append(s, labkit.Step{Text: "kubectl-holdfast audit-rv reads the apiserver's audit log; the remaining steps run only if the incident was not found so far", Do: l.auditIncident})
	if e.Variant != labkit.GateOff {
		s = append(s,
			labkit.Step{Text: "read Holdfast's counter and warning about the incident", Do: l.says},
			labkit.Step{Text: "repeat the incident with " + reflectorGate + " off and " + endpointsGate + " on", Do: l.liveCheckAlone},
			labkit.Step{Text: "delay all watches until the server no longer has the events: after 410 Gone the controller manager must list again, and Endpoints must converge", Do: l.gone},
			labkit.Step{Text: "restart the API server: Endpoints must converge", Do: l.restartServer},
			labkit.Step{Text: "restore etcd from an older copy: the controller manager must list at a lower resourceVersion, and Endpoints must converge", Do: l.restore},
			labkit.Step{Text: fmt.Sprintf("change %d Services for %v while the proxy cuts watches at random: Endpoints must converge", l.churnServices, l.churn), Do: l.churnAndCut},
			labkit.Step{Text: "kubectl-holdfast audit-rv reads the audit log of all steps, except while the gate was off", Do: l.auditAll})
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }))
}

// hasAudit says whether that release writes an audit log that can be judged: 1.7
// writes text only.
func hasAudit(server string) bool { return !strings.HasPrefix(server, "v1.7.") }

// coarseAudit says whether the server's audit log has times of whole seconds.
func coarseAudit(server string) bool { return strings.HasPrefix(server, "v1.8.") }

func (l *lab) start(ctx context.Context) error {
	var err error
	l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(l.server, "kube-apiserver"), Audit: hasAudit(l.server)},
	})
	if err != nil {
		return err
	}
	if l.p, err = l.e.StartProxy(l.c.APIServer, "proxy", l.e.Seed); err != nil {
		return err
	}
	shortest := 4
	if coarseAudit(l.server) {
		// 1.8's audit log does not tell when a watch ended; shorter ones cannot be judged.
		shortest = 2 * int(coarseLag/time.Second)
	}
	l.p.ShortenWatches(shortest, 3)
	if err := l.startControllerManager(ctx, "kube-controller-manager", l.e.UnderTest(base, "kube-controller-manager")); err != nil {
		return err
	}
	if err := l.c.Client.WaitPodsAdmitted(ctx, ns, 90*time.Second); err != nil {
		return err
	}
	if err := l.record(ctx); err != nil {
		return err
	}
	return l.addPods(ctx, 2)
}

// record starts the independent watchers, which talk to the API server directly.
func (l *lab) record(ctx context.Context) error {
	var err error
	if l.eps, err = l.c.Client.Record(ctx, kube.Endpoints, ns); err != nil {
		return err
	}
	l.svcs, err = l.c.Client.Record(ctx, kube.Services, ns)
	return err
}

func (l *lab) startControllerManager(ctx context.Context, name string, program kube.Program) error {
	cm, err := l.e.StartControllerManager(ctx, l.p.Before(l.c.APIServer), kube.ControllerManagerConfig{Name: name, Program: program,
		ExtraArgs: []string{
			// The pods' node does not exist.
			"--controllers=*,-podgc,-node",
			"--kube-api-qps=500", "--kube-api-burst=1000",
			// It must live through a restart of the only API server, longer than any lease.
			"--leader-elect=false",
			// What this controller decides of each Service: see skipped.
			"--vmodule=endpoints_controller=5",
		}})
	if err != nil {
		return err
	}
	l.c.ControllerManager = cm
	return nil
}

// addPods makes ready pods that every Service of the lab selects. No kubelet runs
// them: the endpoints controller asks for an address and a condition only.
func (l *lab) addPods(ctx context.Context, n int) error {
	for i := range n {
		name := fmt.Sprintf("web-%d", i)
		p := node.Pod(name, "node1", corev1.Container{Name: "web", Image: "none", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}})
		p.Labels = map[string]string{"app": "web"}
		if err := l.c.Client.Make(ctx, ns, p); err != nil {
			return err
		}
		status := fmt.Sprintf(`{"status":{"phase":"Running","podIP":"10.91.1.%d","conditions":[{"type":"Ready","status":"True"}]}}`, i+1)
		if _, err := l.c.Client.PatchStrategic(ctx, kube.Pods, ns, name, status, "status"); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) createService(ctx context.Context, name string) error {
	return l.c.Client.Make(ctx, ns, kube.Service(name, "web", 8080))
}

// ready says whether the recorder has Endpoints of that name with all addresses.
func (l *lab) ready(name string) bool {
	ep := l.eps.Latest(ns, name)
	return ep != nil && len(kube.ReadyAddresses(ep)) == 2
}

func (l *lab) waitEndpoints(ctx context.Context, names []string, there bool) error {
	what := fmt.Sprintf("Endpoints of %d Services exist: %v", len(names), there)
	return wait.Until(ctx, what, 90*time.Second, func(context.Context) (bool, error) {
		for _, n := range names {
			if there != l.ready(n) {
				return false, fmt.Errorf("%s is not", n)
			}
		}
		return true, nil
	})
}

// first is the incident with all gates as they are under test.
func (l *lab) first(ctx context.Context) (err error) {
	l.counted, err = l.incident(ctx, phaseIncident)
	return err
}

// incident does what the incident takes, records the deletions of Endpoints of live Services,
// and returns the controller manager's metrics after it. A controller manager that a kill test
// killed meanwhile has listed all Services anew, and counts from 0; an API server has lost the watches.
// So it is done again then, if nothing was deleted.
func (l *lab) incident(ctx context.Context, phase string) (page metrics.Page, err error) {
	o, again := incidentSeen{}, false
	if err := l.e.Sweep.Undisturbed(ctx, func() (err error) {
		if len(o.Deleted) > 0 {
			return nil
		}
		if again {
			if err := l.deleteServices(ctx); err != nil {
				return err
			}
			if err := l.waitNoEndpoints(ctx); err != nil {
				return err
			}
		}
		again = true
		if o, err = l.provoke(ctx, phase); err != nil {
			return err
		}
		page, err = metrics.Get(ctx, l.c.ControllerManager.URL+"/metrics")
		return err
	}, sweep.ControllerManager, sweep.APIServer); err != nil {
		return nil, err
	}
	l.e.Record(o)
	l.shown = l.shown || len(o.Deleted) > 0
	return page, nil
}

func (l *lab) deleteServices(ctx context.Context) error {
	for _, svc := range l.liveServices() {
		if err := l.c.Client.Delete(ctx, kube.Services, ns, svc); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) waitNoEndpoints(ctx context.Context) error {
	return wait.Until(ctx, "no Endpoints are left", time.Minute, func(context.Context) (bool, error) { return len(l.liveEndpoints()) == 0, nil })
}

// provoke does what the incident takes once.
func (l *lab) provoke(ctx context.Context, phase string) (incidentSeen, error) {
	o := incidentSeen{Phase: phase, Restarts: l.restarts}
	var names []string
	for i := range l.services {
		names = append(names, fmt.Sprintf("s%02d", i))
	}
	each := func(f func(context.Context, string) error) error {
		for _, n := range names {
			if err := f(ctx, n); err != nil {
				return err
			}
		}
		return nil
	}
	remove := func(ctx context.Context, n string) error { return l.c.Client.Delete(ctx, kube.Services, ns, n) }

	l.e.Step("create old; create, delete and create %d Services", l.services)
	if err := l.createService(ctx, "old"); err != nil {
		return o, err
	}
	if err := l.waitEndpoints(ctx, []string{"old"}, true); err != nil {
		return o, err
	}
	if coarseAudit(l.server) {
		// The detector proves the fault by a creation that came well after the start
		// of a watch, and here the log tells whole seconds only. A real cluster has
		// such creations; in this short one the watch must have started before them.
		if err := l.p.WaitWatches(ctx, servicesPath, 1, time.Minute); err != nil {
			return o, err
		}
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return o, context.Cause(ctx)
		}
	}
	for _, f := range []struct {
		do    func(context.Context, string) error
		there bool
	}{{l.createService, true}, {remove, false}, {l.createService, true}} {
		if err := each(f.do); err != nil {
			return o, err
		}
		if err := l.waitEndpoints(ctx, names, f.there); err != nil {
			return o, err
		}
	}

	l.e.Step("delete old, the oldest, and wait for %d restarts of the watch", l.restarts)
	before, known, gaps := len(l.eps.Events()), len(l.svcs.Events()), l.eps.Gaps()+l.svcs.Gaps()
	deleted := time.Now()
	if err := remove(ctx, "old"); err != nil {
		return o, err
	}
	var err error
	if o.Sent, o.Last, err = l.trigger(ctx, known); err != nil {
		return o, err
	}
	if err := l.p.WaitWatches(ctx, servicesPath, l.restarts, 2*time.Minute); err != nil {
		return o, err
	}
	// What the last watch brought needs a moment to have its effect, and what was
	// deleted comes back.
	if err := l.p.WaitWatches(ctx, servicesPath, 1, time.Minute); err != nil {
		return o, err
	}
	if err := l.waitEndpoints(ctx, names, true); err != nil {
		return o, err
	}
	o.Gaps = l.eps.Gaps() + l.svcs.Gaps() - gaps
	after := l.eps.Events()[before:]
	o.Series = seriesOf(after, l.services, deleted, time.Now())
	for _, ev := range after {
		if ev.Type == "DELETED" && strings.HasPrefix(ev.Object.GetName(), "s") {
			o.Deleted = append(o.Deleted, ev.Object.GetName())
		}
	}
	return o, nil
}

// trigger returns the version that the server sent with the deletion of old, which comes after
// the first known events of Services, and the last one before it.
func (l *lab) trigger(ctx context.Context, known int) (sent, last int, err error) {
	err = wait.Until(ctx, "the deletion of old", 30*time.Second, func(context.Context) (bool, error) {
		for _, ev := range l.svcs.Events()[known:] {
			if ev.Type == "DELETED" && ev.Object.GetName() == "old" {
				sent, err = strconv.Atoi(ev.Object.GetResourceVersion())
				return err == nil, err
			}
		}
		return false, nil
	})
	if err != nil {
		return 0, 0, err
	}
	for _, ev := range l.svcs.Events() {
		if ev.Type != "ADDED" { // a gap has no object
			continue
		}
		if rv, _ := strconv.Atoi(ev.Object.GetResourceVersion()); rv > last {
			last = rv
		}
	}
	return sent, last, nil
}

const (
	regressions = "holdfast_reflector_monotonic_rv_regressions_total"
	liveChecks  = "holdfast_endpoints_live_service_check_checks_total"
)

var warning = regexp.MustCompile(`watch of \*v1\.Service: the server sent DELETED default/\S+ with resourceVersion \d+ after resourceVersion \d+; .* Server version: (\S+) `)

func (l *lab) says(context.Context) error {
	log, err := os.ReadFile(l.c.ControllerManager.LogPath)
	if err != nil {
		return err
	}
	o := oursSays{Server: l.server}
	o.Kept, _ = l.counted.Sum(regressions, "type", "*v1.Service", "result", "kept")
	if m := warning.FindSubmatch(log); m != nil {
		o.Warning, o.Named = string(m[0]), string(m[1])
	}
	l.e.Record(o)
	return nil
}

// liveCheckAlone repeats the incident with the reflector as upstream's and only the
// endpoints controller's check on.
func (l *lab) liveCheckAlone(ctx context.Context) error {
	if err := l.c.ControllerManager.Stop(); err != nil {
		return err
	}
	if err := l.deleteServices(ctx); err != nil {
		return err
	}
	l.offFrom = time.Now()
	program := l.e.UnderTest(base, "kube-controller-manager").WithGates(map[string]bool{reflectorGate: false})
	if err := l.startControllerManager(ctx, "kube-controller-manager-live-check", program); err != nil {
		return err
	}
	if err := l.waitNoEndpoints(ctx); err != nil {
		return err
	}
	page, err := l.incident(ctx, phaseLiveCheck)
	if err != nil {
		return err
	}
	o := liveCheck{}
	o.Kept, _ = page.Sum(liveChecks, "result", "kept")
	o.Followed, _ = page.Sum(regressions, "type", "*v1.Service", "result", "followed")
	l.e.Record(o)
	// back to the program with all gates
	if err := l.c.ControllerManager.Stop(); err != nil {
		return err
	}
	l.offTo = time.Now()
	return l.startControllerManager(ctx, "kube-controller-manager-2", l.e.UnderTest(base, "kube-controller-manager"))
}

// live are the names that a recorder knows as existing, without those that the
// control plane makes.
func live(r *kube.Recorder) []string {
	state := map[string]bool{}
	for _, ev := range r.Events() {
		if ev.Object != nil {
			state[ev.Object.GetName()] = ev.Type != "DELETED"
		}
	}
	var names []string
	for n, there := range state {
		if there && n != "kubernetes" {
			names = append(names, n)
		}
	}
	return names
}

func (l *lab) liveServices() []string  { return live(l.svcs) }
func (l *lab) liveEndpoints() []string { return live(l.eps) }

// converged waits until there are ready Endpoints for exactly the Services of the
// server, by lists and not by watches, and records what there was. Anything else, when
// the bound is over, is enough.
func (l *lab) converged(ctx context.Context, after string) error {
	o := lists{After: after}
	err := wait.Until(ctx, "Endpoints for exactly the Services that exist", 2*time.Minute, func(ctx context.Context) (bool, error) {
		services, err := l.c.Client.List(ctx, kube.Services, ns, "")
		if err != nil {
			return false, err
		}
		endpoints, err := l.c.Client.List(ctx, kube.Endpoints, ns, "")
		if err != nil {
			return false, err
		}
		o.Services, o.Ready = nil, map[string]int{}
		for i := range endpoints {
			o.Ready[endpoints[i].GetName()] = len(kube.ReadyAddresses(&endpoints[i]))
		}
		for i := range services {
			o.Services = append(o.Services, services[i].GetName())
		}
		if fault := o.fault(); fault != "" {
			return false, errors.New(fault)
		}
		return true, nil
	})
	if ctx.Err() != nil || o.Ready == nil {
		return err
	}
	l.e.Record(o)
	if err != nil {
		return labkit.Enough
	}
	return nil
}

// gone makes the server forget what comes after the watches' place, so that it
// answers 410 Gone.
func (l *lab) gone(ctx context.Context) error {
	if err := l.createService(ctx, "changing"); err != nil {
		return err
	}
	if err := l.converged(ctx, phaseGoneBefore); err != nil {
		return err
	}
	lists := l.p.Lists(servicesPath)
	release := l.p.Hold(func(string) bool { return true })
	// The watch cache remembers a thousand changes of a resource at most.
	for i := range 1100 {
		// The server patches what its watch cache has. If that is the object before the last patch, it
		// takes the newer one for a change that conflicts (1.7.0, patchResource in endpoints/handlers).
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			_, err := l.c.Client.PatchMerge(ctx, kube.Services, ns, "changing", fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, i))
			return err
		}); err != nil {
			release()
			return err
		}
	}
	err := errors.Join(l.c.Client.Delete(ctx, kube.Services, ns, "changing"), l.createService(ctx, "after-gone"))
	release()
	if err != nil {
		return err
	}
	if err := wait.Until(ctx, "the controller manager lists Services again", time.Minute, func(context.Context) (bool, error) {
		return l.p.Lists(servicesPath) > lists, nil
	}); err != nil {
		return err
	}
	return l.converged(ctx, phaseGone)
}

// restartProc stops p, does what is to be done in between, and starts it again with
// the same arguments.
func (l *lab) restartProc(ctx context.Context, p **process.Proc, between func() error) error {
	spec := (*p).Spec
	if err := (*p).Stop(); err != nil {
		return err
	}
	if between != nil {
		if err := between(); err != nil {
			return err
		}
	}
	n, err := l.e.Start(ctx, spec)
	if err != nil {
		return err
	}
	*p = n
	return nil
}

func (l *lab) restartServer(ctx context.Context) error {
	if err := l.restartProc(ctx, &l.c.APIServer.Proc, nil); err != nil {
		return err
	}
	if err := l.createService(ctx, "after-restart"); err != nil {
		return err
	}
	return l.converged(ctx, phaseRestart)
}

// restore takes a copy of etcd's data, changes things, and goes back to the copy.
func (l *lab) restore(ctx context.Context) error {
	backup := l.c.Etcd.DataDir + ".copy"
	stopBoth := func() error {
		return errors.Join(l.c.APIServer.Stop(), l.c.Etcd.Stop())
	}
	startBoth := func() error {
		etcd, err := l.e.Start(ctx, l.c.Etcd.Spec)
		if err != nil {
			return err
		}
		l.c.Etcd.Proc = etcd
		api, err := l.e.Start(ctx, l.c.APIServer.Spec)
		if err != nil {
			return err
		}
		l.c.APIServer.Proc = api
		return nil
	}
	if err := errors.Join(stopBoth(), os.CopyFS(backup, os.DirFS(l.c.Etcd.DataDir)), startBoth()); err != nil {
		return err
	}
	for i := range 20 {
		if err := l.createService(ctx, fmt.Sprintf("lost-%d", i)); err != nil {
			return err
		}
	}
	if err := l.converged(ctx, phaseRestoreBefore); err != nil {
		return err
	}
	high, err := l.revision(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(stopBoth(), os.RemoveAll(l.c.Etcd.DataDir), os.CopyFS(l.c.Etcd.DataDir, os.DirFS(backup)), startBoth()); err != nil {
		return err
	}
	low, err := l.revision(ctx)
	if err != nil {
		return err
	}
	if low >= high {
		return fmt.Errorf("the restored server is at resourceVersion %d, not below %d", low, high)
	}
	if err := l.createService(ctx, "after-restore"); err != nil {
		return err
	}
	return l.converged(ctx, phaseRestore)
}

// revision is the resourceVersion of a list of Services.
func (l *lab) revision(ctx context.Context) (int, error) {
	code, body, err := l.c.Client.Raw(ctx, "GET", "/api/v1/namespaces/"+ns+"/services", "", nil)
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`"resourceVersion":\s*"(\d+)"`).FindSubmatch(body)
	if code != 200 || m == nil {
		return 0, fmt.Errorf("list of Services: status %d", code)
	}
	return strconv.Atoi(string(m[1]))
}

// churnAndCut creates and deletes Services while watches are cut at random. A name is
// used again only after the Endpoints of the Service before are gone, so that every
// deletion of Endpoints while their Service lives is a wrong one.
func (l *lab) churnAndCut(ctx context.Context) error {
	l.eps.Stop()
	l.svcs.Stop()
	if err := l.record(ctx); err != nil {
		return err
	}
	type name struct {
		alive       bool
		made, since time.Time // before and after its creation
	}
	names := map[string]*name{}
	for i := range l.churnServices {
		names[fmt.Sprintf("churn-%03d", i)] = &name{}
	}
	var order []string
	for i := range l.churnServices {
		order = append(order, fmt.Sprintf("churn-%03d", i))
	}
	lives := map[string][]life{}
	cutsBefore := l.p.Cuts()
	l.p.CutWatches(2 * time.Second)
	defer l.p.CutWatches(0)
	made, removed := 0, 0
	for end := time.Now().Add(l.churn); time.Now().Before(end); {
		n := order[l.e.Rand.IntN(len(order))]
		s := names[n]
		switch {
		case s.alive && l.e.Rand.IntN(3) > 0: // an older one goes more often than a new one
			now := time.Now()
			if err := l.c.Client.Delete(ctx, kube.Services, ns, n); err != nil {
				return err
			}
			lives[n] = append(lives[n], life{s.since, now})
			s.alive = false
			removed++
		case !s.alive && l.eps.Latest(ns, n) == nil:
			s.made = time.Now()
			if err := l.createService(ctx, n); err != nil {
				return err
			}
			s.alive, s.since = true, time.Now()
			made++
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	l.p.CutWatches(0)
	cuts := l.p.Cuts()
	o := churned{Made: made, Removed: removed, Cuts: cuts - cutsBefore}
	born := map[string]time.Time{}
	for n, s := range names {
		if s.alive {
			born[n] = s.made
		}
	}
	var err error
	if o.Skipped, err = l.touchSkipped(ctx, born); err != nil {
		return err
	}
	converged := l.converged(ctx, phaseChurn)
	if converged != nil && !errors.Is(converged, labkit.Enough) {
		return converged
	}
	for n, s := range names {
		if s.alive {
			lives[n] = append(lives[n], life{s.since, time.Now().Add(time.Hour)})
		}
	}
	o.Lives, o.Gaps = lives, l.eps.Gaps()
	for _, ev := range l.eps.Events() {
		if ev.Type == "DELETED" {
			o.Deleted = append(o.Deleted, deletion{ev.Object.GetName(), ev.Time})
		}
	}
	l.e.Record(o)
	return converged
}

// touchSkipped changes the Services that still have no Endpoints because the controller
// says that it skipped them, and returns their names. Stock does so too: a Service is made
// again while the controller's cache still has the Endpoints of the one before (their watch
// was cut), so nothing seems to be left to do, and no event of Endpoints wakes it later. born
// are the Services that live, with the time before their creation.
func (l *lab) touchSkipped(ctx context.Context, born map[string]time.Time) ([]string, error) {
	missing := func() []string {
		var names []string
		for n := range born {
			if l.eps.Latest(ns, n) == nil {
				names = append(names, n)
			}
		}
		slices.Sort(names)
		return names
	}
	for end := time.Now().Add(15 * time.Second); len(missing()) > 0 && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
	log, err := os.ReadFile(l.c.ControllerManager.LogPath)
	if err != nil {
		return nil, err
	}
	var touched []string
	for _, n := range missing() {
		if !skipped(string(log), ns+"/"+n, born[n]) {
			continue
		}
		if _, err := l.c.Client.PatchMerge(ctx, kube.Services, ns, n, `{"metadata":{"annotations":{"touched":"true"}}}`); err != nil {
			return nil, err
		}
		touched = append(touched, n)
	}
	return touched, nil
}
