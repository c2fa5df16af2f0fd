// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/webset"
)

const (
	// insides and outsides are how many Services change all the time, in the namespace that
	// opted in and in the other one: more inside than the 5 workers of the controller.
	insides, outsides = 8, 4
	// moving and off end the names of a Service's pods: one whose readiness changes, and one
	// that the rules keep from the ready addresses.
	moving, off = "moving", "off"
	// targets is the label of the pods of the Services whose Endpoints the lab itself writes.
	targets = "target"
	// gone is when a change of readiness is given up.
	givenUp = 90 * time.Second
)

// Names of the targets beside those of the rows.
const probe, probe2 = "probe", "probe-2"

// sizes are how many addresses large Endpoints have.
var sizes = []int{5000, 10000}

const largePrefix = "large-"

func largeName(n int) string { return fmt.Sprintf("%s%d", largePrefix, n) }

// allTargets are the Services whose Endpoints the lab of all faults writes, until they are
// deleted.
func allTargets() []string {
	out := []string{probe, probe2}
	for _, n := range sizes {
		out = append(out, largeName(n))
	}
	for _, m := range modes {
		out = append(out, m.name)
	}
	return out
}

// flips changes the readiness of a pod of each Service, and looks when it is in the Endpoints.
type flips struct {
	c       *kube.Client
	ep      *kube.Recorder
	ips     int // given so far
	all     []*flipper
	patient bool // see rig

	mu     sync.Mutex
	done   []flip
	paused bool
	err    error
}

type flipper struct {
	ns, name string
	rng      *rand.Rand
	// ready and busy are under the mutex of flips.
	ready, busy bool
}

// flip is one change. A change that is not seen within givenUp is lost.
type flip struct {
	ns         string
	begin, end time.Time
	lost       bool
}

func (f *flips) add(in, name string, seed uint64) {
	f.all = append(f.all, &flipper{ns: in, name: name, rng: rand.New(rand.NewPCG(seed, 1)), ready: true})
}

func (f *flips) start(ctx context.Context) {
	for _, x := range f.all {
		go func() {
			for ctx.Err() == nil {
				if err := f.once(ctx, x); err != nil && ctx.Err() == nil {
					f.mu.Lock()
					f.err = err
					f.mu.Unlock()
					return
				}
				if wait.Pause(ctx, 600*time.Millisecond+time.Duration(x.rng.IntN(800))*time.Millisecond) != nil {
					return
				}
			}
		}()
	}
}

func (f *flips) once(ctx context.Context, x *flipper) error {
	f.mu.Lock()
	if f.paused {
		f.mu.Unlock()
		return nil
	}
	x.ready, x.busy = !x.ready, true
	want := x.ready
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		x.busy = false
		f.mu.Unlock()
	}()
	r := flip{ns: x.ns, begin: time.Now()}
	pod := x.name + "-" + moving
	err := webset.PublishReady(ctx, f.c, x.ns, pod, "", want)
	if err != nil && f.patient {
		err = wait.Until(ctx, "readiness of "+pod+" is published", givenUp, func(ctx context.Context) (bool, error) {
			err := webset.PublishReady(ctx, f.c, x.ns, pod, "", want)
			return err == nil, err
		})
	}
	if err != nil {
		return err
	}
	_, err = f.ep.Wait(ctx, givenUp, pod+" in the Endpoints", func(ev kube.RecordedEvent) bool {
		return !ev.Time.Before(r.begin) && ev.Object.GetName() == x.name && ev.Object.GetNamespace() == x.ns &&
			slices.Contains(kubeletlab.ReadyPods(ev.Object), pod) == want
	})
	if ctx.Err() != nil {
		return err
	}
	r.end, r.lost = time.Now(), err != nil
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, r)
	return nil
}

// pause ends the changes, and waits until the last ones are through.
func (f *flips) pause(ctx context.Context) error {
	f.mu.Lock()
	f.paused = true
	f.mu.Unlock()
	return wait.Until(ctx, "the last changes are in the Endpoints", givenUp+10*time.Second, func(context.Context) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !slices.ContainsFunc(f.all, func(x *flipper) bool { return x.busy }), f.err
	})
}

// drain waits until the changes that were begun are through, and goes on.
func (f *flips) drain(ctx context.Context) error {
	err := f.pause(ctx)
	f.resume()
	return err
}

func (f *flips) resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = false
}

// since are the changes that ended after begin, by namespace.
func (f *flips) since(begin time.Time) []served {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []served
	for _, in := range []string{ns, other} {
		s := served{Namespace: in}
		for _, r := range f.done {
			switch {
			case r.ns != in || r.end.Before(begin):
			case r.lost:
				s.Lost++
			default:
				s.Updates++
				s.Slowest = max(s.Slowest, r.end.Sub(r.begin))
			}
		}
		out = append(out, s)
	}
	return out
}

// places are the pods of some Endpoints, each list sorted and joined by commas.
type places struct{ Ready, NotReady string }

func (p places) String() string { return fmt.Sprintf("ready %q, not ready %q", p.Ready, p.NotReady) }

func placesOf(o *kube.Object) places {
	join := func(l []string) string {
		slices.Sort(l)
		return strings.Join(slices.Compact(l), ",")
	}
	var p places
	if o != nil {
		p = places{join(kubeletlab.ReadyPods(o)), join(kubeletlab.NotReadyPods(o))}
	}
	return p
}

func (l *rig) seen(in, name string) places { return placesOf(l.ep.Latest(in, name)) }

// service is where the pods of a Service should be.
type service struct {
	ns, name string
	want     places
}

// model is what the Endpoints should be, with the rules in force or not.
func (l *rig) model(rules bool) []service {
	var out []service
	place := func(in, name, app string, ready bool) {
		var lists [2][]string // ready ones, others
		for pod, r := range map[string]bool{app + "-" + moving: ready, app + "-" + off: !rules || in == other} {
			i := map[bool]int{true: 0, false: 1}[r]
			lists[i] = append(lists[i], pod)
		}
		slices.Sort(lists[0])
		slices.Sort(lists[1])
		out = append(out, service{in, name, places{strings.Join(lists[0], ","), strings.Join(lists[1], ",")}})
	}
	l.load.mu.Lock()
	defer l.load.mu.Unlock()
	for _, x := range l.load.all {
		place(x.ns, x.name, x.name, x.ready)
	}
	for _, name := range l.targets {
		if !rules || !strings.HasPrefix(name, largePrefix) { // these are deleted
			place(ns, name, targets, true)
		}
	}
	return out
}

// compare: with the webhook in force and nothing changing any more, all is as in the model.
func (l *rig) compare(ctx context.Context) error {
	if err := l.load.pause(ctx); err != nil {
		return err
	}
	o, err := l.compared(ctx)
	if err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

// compared waits until all is as in the model, and says what is not. The load must be paused.
func (l *rig) compared(ctx context.Context) (compared, error) {
	var o compared
	begin := time.Now()
	err := wait.Until(ctx, "all Endpoints match the model", rightBound, func(ctx context.Context) (bool, error) {
		o.Wrong, o.Services = nil, 0
		for _, s := range l.model(true) {
			o.Services++
			if got := l.seen(s.ns, s.name); got != s.want {
				o.Wrong = append(o.Wrong, fmt.Sprintf("%s/%s has %s; want %s", s.ns, s.name, got, s.want))
			}
		}
		if len(o.Wrong) > 0 {
			return false, nil
		}
		page, err := l.program.metrics(ctx)
		if err != nil {
			return false, err
		}
		var n int
		o.Misplaced, n = page.Sum("endpoints_rules_misplaced_addresses")
		o.Asked = n > 0
		return o.Asked && o.Misplaced == 0, nil
	})
	o.After = time.Since(begin)
	if ctx.Err() != nil {
		return o, err
	}
	return o, nil // what is wrong is for the oracle
}

// call writes Endpoints of a target with all addresses ready, and says what the API server
// made of it and how long that took.
func (l *rig) call(ctx context.Context, name string) call { return l.callWith(ctx, name, 2) }

func (l *rig) callWith(ctx context.Context, name string, n int) call {
	out := call{Name: name, Addresses: n}
	body, err := l.body(ctx, n)
	if err != nil {
		out.Err = err.Error()
		return out
	}
	// By itself the API server gives up a write after 30 s, as it does a webhook.
	path := fmt.Sprintf("/api/v1/namespaces/%s/endpoints/%s?timeout=85s", ns, name)
	begin := time.Now()
	status, answer, err := l.c.Client.Raw(ctx, http.MethodPatch, path, "application/merge-patch+json", body)
	out.Took = time.Since(begin)
	switch {
	case err != nil:
		out.Err = err.Error()
		return out
	case status != http.StatusOK:
		out.Err = fmt.Sprintf("%d: %.300s", status, answer)
		return out
	}
	o := &kube.Object{}
	if err := json.Unmarshal(answer, &o.Object); err != nil {
		out.Err = err.Error()
		return out
	}
	ready, not := kubeletlab.ReadyPods(o), kubeletlab.NotReadyPods(o)
	switch held := targets + "-" + off; {
	case len(ready) == n && len(not) == 0:
		out.Placed = unchanged
	case len(ready) == n-1 && len(not) == 1 && not[0] == held:
		out.Placed = patched
	default:
		out.Placed = placed(fmt.Sprintf("%d ready, %d not ready", len(ready), len(not)))
	}
	return out
}

// body is a merge patch with n ready addresses: those of the targets' pods, and made-up ones.
func (l *rig) body(ctx context.Context, n int) ([]byte, error) {
	type m = map[string]any
	var list []m
	for _, role := range []string{moving, off} {
		p, err := l.c.Client.Get(ctx, kube.Pods, ns, targets+"-"+role)
		if err != nil {
			return nil, err
		}
		list = append(list, m{"ip": kube.String(p, "status", "podIP"), "nodeName": "node1",
			"targetRef": m{"kind": "Pod", "namespace": ns, "name": p.GetName(), "uid": string(p.GetUID()), "resourceVersion": p.GetResourceVersion()}})
	}
	for i := range n - len(list) {
		list = append(list, m{"ip": fmt.Sprintf("10.93.%d.%d", i/250, i%250+1), "nodeName": "node1",
			"targetRef": m{"kind": "Pod", "namespace": ns, "name": fmt.Sprintf("made-up-%d", i), "uid": fmt.Sprintf("made-up-%d", i)}})
	}
	return json.Marshal(m{"metadata": m{"labels": m{"lab": fmt.Sprintf("n%d", time.Now().UnixNano())}},
		"subsets": []m{{"addresses": list, "ports": []m{{"port": 8080, "protocol": "TCP"}}}}})
}

// right waits until the stored Endpoints are as the rules want, and says how long that took;
// 0 if it was not in time.
func (l *rig) right(ctx context.Context, name string, n int) time.Duration {
	begin := time.Now()
	err := wait.Until(ctx, "the Endpoints are correct", rightBound, func(context.Context) (bool, error) {
		o := l.ep.Latest(ns, name)
		if o == nil {
			return false, nil
		}
		not := kubeletlab.NotReadyPods(o)
		return len(kubeletlab.ReadyPods(o)) == n-1 && len(not) == 1 && not[0] == targets+"-"+off, nil
	})
	if err != nil {
		return 0
	}
	return max(time.Since(begin), time.Millisecond)
}

// readLeases reads what was seen of the leases of controller manager and scheduler.
func (l *faults) readLeases(context.Context) error {
	return l.leasesOf(lease{Name: leaseNames[0], Alive: l.c.ControllerManager.Alive()}, lease{Name: leaseNames[1], Alive: l.c.Scheduler.Alive()})
}

// leasesOf adds to these what was seen of them, and records them.
func (l *rig) leasesOf(all ...lease) error {
	for _, o := range all {
		name := o.Name
		var last time.Time
		for _, ev := range l.leases.Of(kubeSystem, name) {
			var r struct {
				HolderIdentity string    `json:"holderIdentity"`
				RenewTime      time.Time `json:"renewTime"`
			}
			text := ev.Object.GetAnnotations()["control-plane.alpha.kubernetes.io/leader"]
			if text == "" {
				continue
			}
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				return fmt.Errorf("lease %s: %w", name, err)
			}
			o.Renewals++
			if !slices.Contains(o.Holders, r.HolderIdentity) {
				o.Holders = append(o.Holders, r.HolderIdentity)
			}
			if !last.IsZero() {
				o.LongestGap = max(o.LongestGap, ev.Time.Sub(last))
			}
			last = ev.Time
		}
		l.e.Record(o)
	}
	return nil
}
