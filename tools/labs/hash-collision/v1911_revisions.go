// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollision

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

func init() {
	labkit.Register(labkit.Lab{
		Name:    "hash-collision-forced-conflicts",
		Folder:  "hash-collision",
		Summary: "a cache that lags makes a StatefulSet create its revision again and again; a DaemonSet works with another's revision",
		Plan: func(p labkit.Profile) []string {
			return []string{
				"put a proxy between the controller manager and the apiserver that holds back the watch events of ControllerRevisions",
				fmt.Sprintf("create a StatefulSet and touch it until %d creations of a revision have met AlreadyExists", conflicts(p)),
				"oracle: at most 2 ControllerRevisions",
				"let the events through; put a ControllerRevision of another owner, same name and data, in the way of a new DaemonSet and of a new StatefulSet",
				"oracle: each controls a revision of its own, and the other's is unchanged",
			}
		},
		Needs: needs(),
		Run:   runConflicts,
	})
	labkit.Register(labkit.Lab{
		Name:    "hash-collision-equal-label",
		Folder:  "hash-collision",
		Summary: "after a collision a StatefulSet's revision is found again or not, by the size of its hash label",
		Plan: func(labkit.Profile) []string {
			return []string{
				"create StatefulSets until two have hash labels below 2^31 for collision counts 0 and 1, and two above",
				"set their collisionCount to 1, as a collision does",
				"oracle: no template gets a second ControllerRevision, no pod is replaced, whatever the label",
			}
		},
		Needs: needs(),
		Run:   runEqualLabel,
	})
	labkit.Register(labkit.Lab{
		Name:    "hash-collision-stable-order",
		Folder:  "hash-collision",
		Summary: "two revisions of equal number make a StatefulSet roll back and forth",
		Plan: func(labkit.Profile) []string {
			return []string{
				"create a StatefulSet whose pods become ready at once, and a second ControllerRevision with the same data and number",
				"touch the StatefulSet until it has been synced 50 times",
				"oracle: status.updateRevision settles and the pods are not replaced",
			}
		},
		Needs: needs(),
		Run:   runOrder,
	})
}

// conflicts is how many AlreadyExists are forced.
func conflicts(p labkit.Profile) int64 {
	if p == labkit.Long {
		return 1000
	}
	return 100
}

// revisionProxy stands between the controller manager and the apiserver.
type revisionProxy struct {
	URL      string
	hold     atomic.Bool  // watches of ControllerRevisions stay silent
	conflict atomic.Int64 // creations of a ControllerRevision that met AlreadyExists
}

// startProxy starts it on loopback. What carries a token goes on under it,
// the rest as the cluster's administrator.
func startProxy(e *labkit.Env, api *kube.APIServer) (*revisionProxy, error) {
	port, err := e.FreePort()
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(api.URL)
	if err != nil {
		return nil, err
	}
	p := &revisionProxy{URL: fmt.Sprintf("http://127.0.0.1:%d", port)}
	admin := &http.Transport{TLSClientConfig: api.TLS.Clone(), MaxIdleConnsPerHost: 200}
	token := admin.Clone()
	token.TLSClientConfig.Certificates = nil
	rp := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Authorization") != "" {
				return token.RoundTrip(r)
			}
			return admin.RoundTrip(r)
		}),
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodPost && strings.HasSuffix(r.Request.URL.Path, "/controllerrevisions") && r.StatusCode == http.StatusConflict {
				p.conflict.Add(1)
			}
			return nil
		},
	}
	srv := &http.Server{Addr: strings.TrimPrefix(p.URL, "http://"), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watch := r.URL.Query().Get("watch")
		if strings.HasSuffix(r.URL.Path, "/controllerrevisions") && (watch == "true" || watch == "1") && p.hold.Load() {
			w.Header().Set("Content-Type", r.Header.Get("Accept"))
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			for p.hold.Load() {
				select {
				case <-r.Context().Done():
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
			return // the watch closes, and its client starts another where it was
		}
		rp.ServeHTTP(w, r)
	})}
	go srv.ListenAndServe()
	e.OnStop("proxy", func(context.Context) error { return srv.Close() })
	return p, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func runConflicts(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	k, err := e.StartCluster(ctx, node.ClusterConfig{APIServer: &kube.APIServerConfig{Program: e.Stock(v1911, "kube-apiserver")}})
	if err != nil {
		return labkit.Result{}, err
	}
	proxy, err := startProxy(e, k.APIServer)
	if err != nil {
		return labkit.Result{}, err
	}
	proxy.hold.Store(true)
	e.Step("start the controller manager behind the proxy")
	cm, err := e.StartControllerManager(ctx, k.APIServer, kube.ControllerManagerConfig{Program: e.UnderTest(v1911, "kube-controller-manager"),
		ExtraArgs: []string{"--master=" + proxy.URL, "--kube-api-qps=1000", "--kube-api-burst=1000"}})
	if err != nil {
		return labkit.Result{}, err
	}
	c := &cluster{e, k.Client, k.APIServer, cm}
	if _, err := c.WaitFor(ctx, kube.ServiceAccounts, ns, "default", 60*time.Second, "with a token", func(o *kube.Object) (bool, error) {
		return len(kube.Slice(o, "secrets")) > 0, nil
	}); err != nil {
		return labkit.Result{}, err
	}

	set, err := c.workload("StatefulSet", "db", "v1.0.0")
	if err != nil {
		return labkit.Result{}, err
	}
	if set, err = c.Create(ctx, kube.StatefulSets, ns, set); err != nil {
		return labkit.Result{}, err
	}
	want, i := conflicts(e.Profile), 0
	e.Step("touch the StatefulSet until %d creations met AlreadyExists", want)
	if err := wait.Until(ctx, fmt.Sprintf("%d conflicts", want), 3*time.Minute, func(ctx context.Context) (bool, error) {
		for before := proxy.conflict.Load(); proxy.conflict.Load() == before && ctx.Err() == nil; {
			if err := c.touch(ctx, kube.StatefulSets, "db", i); err != nil {
				return false, err
			}
			i++
		}
		return proxy.conflict.Load() >= want, nil
	}); err != nil {
		return labkit.Result{}, err
	}
	revs, err := c.owned(ctx, kube.ControllerRevisions, set.GetUID())
	if err != nil {
		return labkit.Result{}, err
	}
	live, err := c.Get(ctx, kube.StatefulSets, ns, "db")
	if err != nil {
		return labkit.Result{}, err
	}
	left := len(revs)
	e.Fact("StatefulSet: %d creations met AlreadyExists; %d ControllerRevisions of one template, collisionCount %d",
		proxy.conflict.Load(), left, kube.Int(live, "status", "collisionCount"))
	if left == 0 {
		return labkit.Result{}, fmt.Errorf("there is no revision at all")
	}

	e.Step("let the events through")
	if err := c.remove(ctx, kube.StatefulSets, live, kube.ControllerRevisions); err != nil {
		return labkit.Result{}, err
	}
	proxy.hold.Store(false)
	bad := []string{}
	if left > 2 {
		bad = append(bad, fmt.Sprintf("%d conflicts left %d revisions of one template", proxy.conflict.Load(), left))
	}
	for _, kind := range []struct {
		name string
		gvr  kube.GVR
	}{{"DaemonSet", kube.DaemonSets}, {"StatefulSet", kube.StatefulSets}} {
		words, taken, err := c.foreignRevision(ctx, kind.name, kind.gvr)
		if err != nil {
			return labkit.Result{}, fmt.Errorf("revision of another owner, %s: %w", kind.name, err)
		}
		e.Fact("revision of another owner in the way of a %s: %s", kind.name, words)
		if taken {
			bad = append(bad, kind.name+": "+words)
		}
	}
	if err := c.alive(); err != nil {
		return labkit.Result{}, err
	}
	if len(bad) > 0 {
		return labkit.ReproducedBecause("%s", strings.Join(bad, "; ")), nil
	}
	return labkit.AbsentBecause("%d conflicts left %d revision(s); a revision of another owner was neither used nor changed", want, left), nil
}

// foreignRevision puts a ControllerRevision of another owner in the way of a
// new object of kind. It returns what came of it, in words, and whether that
// is the incident.
func (c *cluster) foreignRevision(ctx context.Context, kind string, r kube.GVR) (string, bool, error) {
	name := "foreign-" + strings.ToLower(kind)
	o, err := c.workload(kind, name, "v3.0.0")
	if err != nil {
		return "", false, err
	}
	owner, err := c.Create(ctx, kube.ConfigMaps, ns, &kube.Object{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}})
	if err != nil {
		return "", false, err
	}
	first, err := c.Create(ctx, r, ns, o)
	if err != nil {
		return "", false, err
	}
	revs, err := c.waitOwned(ctx, kube.ControllerRevisions, first.GetUID(), 1, 30*time.Second)
	if err != nil {
		return "", false, err
	}
	foreign := copyOf(&revs[0])
	if err := c.remove(ctx, r, first, kube.ControllerRevisions); err != nil {
		return "", false, err
	}
	foreign, err = c.Create(ctx, kube.ControllerRevisions, ns, ownedBy(foreign, owner))
	if err != nil {
		return "", false, err
	}
	second, err := c.Create(ctx, r, ns, o)
	if err != nil {
		return "", false, err
	}
	if _, err := c.WaitFor(ctx, r, ns, name, 30*time.Second, "synced", func(o *kube.Object) (bool, error) {
		return kube.Int(o, "status", "observedGeneration") > 0 || kube.Int(o, "status", "collisionCount") > 0, nil
	}); err != nil {
		return "", false, err
	}
	var own []kube.Object
	wait := wait.Until(ctx, "a revision of its own", 10*time.Second, func(ctx context.Context) (bool, error) {
		var err error
		own, err = c.owned(ctx, kube.ControllerRevisions, second.GetUID())
		return len(own) > 0, err
	})
	after, err := c.Get(ctx, kube.ControllerRevisions, ns, foreign.GetName())
	if err != nil {
		return "", false, err
	}
	if after.GetResourceVersion() != foreign.GetResourceVersion() {
		return "the other's revision was changed", true, nil
	}
	if wait != nil {
		return "it has no revision of its own and works with the other's", true, nil
	}
	live, err := c.Get(ctx, r, ns, name)
	if err != nil {
		return "", false, err
	}
	return fmt.Sprintf("%d revision(s) of its own, collisionCount %d", len(own), kube.Int(live, "status", "collisionCount")), false, nil
}

func runEqualLabel(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	c, err := start(ctx, e)
	if err != nil {
		return labkit.Result{}, err
	}
	pods, err := c.readyPods(ctx)
	if err != nil {
		return labkit.Result{}, err
	}
	const each = 2
	chosen := map[bool][]string{} // below 2^31? -> StatefulSets
	labels := map[string]string{}
	for i := 0; len(chosen[true]) < each || len(chosen[false]) < each; i++ {
		if i == 100 {
			return labkit.Result{}, fmt.Errorf("100 StatefulSets and no labels on both sides of 2^31: %v", chosen)
		}
		name := fmt.Sprintf("db%d", i)
		o, err := c.workload("StatefulSet", name, fmt.Sprintf("v1.%d.0", i))
		if err != nil {
			return labkit.Result{}, err
		}
		for _, path := range [][]string{{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
			set(o, map[string]any{"app": name}, path...)
		}
		if o, err = c.Create(ctx, kube.StatefulSets, ns, o); err != nil {
			return labkit.Result{}, err
		}
		revs, err := c.waitOwned(ctx, kube.ControllerRevisions, o.GetUID(), 1, 30*time.Second)
		if err != nil {
			return labkit.Result{}, err
		}
		zero, err := revisionHash(revs[0].Object["data"], 0)
		if err != nil {
			return labkit.Result{}, err
		}
		one, err := revisionHash(revs[0].Object["data"], 1)
		if err != nil {
			return labkit.Result{}, err
		}
		if got := revs[0].GetLabels()[hashLabel]; got != strconv.Itoa(int(zero)) {
			return labkit.Result{}, fmt.Errorf("revision %s has label %s, the lab computes %d", revs[0].GetName(), got, zero)
		}
		below := zero < 1<<31 && one < 1<<31
		if above := zero >= 1<<31 && one >= 1<<31; !below && !above || len(chosen[below]) == each {
			continue
		}
		chosen[below] = append(chosen[below], name)
		labels[name] = fmt.Sprintf("%d and %d", zero, one)
	}

	result := map[bool]int{} // below? -> StatefulSets that got another revision
	for _, below := range []bool{true, false} {
		for _, name := range chosen[below] {
			pod := name + "-0"
			if err := wait.Until(ctx, pod+" ready and the rollout complete", 60*time.Second, func(ctx context.Context) (bool, error) {
				o, err := c.Get(ctx, kube.StatefulSets, ns, name)
				return err == nil && kube.Int(o, "status", "readyReplicas") == 1, err
			}); err != nil {
				return labkit.Result{}, err
			}
			before, err := c.Get(ctx, kube.Pods, ns, pod)
			if err != nil {
				return labkit.Result{}, err
			}
			if _, err := c.PatchMerge(ctx, kube.StatefulSets, ns, name, `{"status":{"collisionCount":1}}`, "status"); err != nil {
				return labkit.Result{}, err
			}
			o, err := c.Get(ctx, kube.StatefulSets, ns, name)
			if err != nil {
				return labkit.Result{}, err
			}
			// Touched until the controller has seen a change that came after the count.
			if err := c.settle(ctx, name, 3); err != nil {
				return labkit.Result{}, err
			}
			revs, err := c.owned(ctx, kube.ControllerRevisions, o.GetUID())
			if err != nil {
				return labkit.Result{}, err
			}
			after := pods.Latest(ns, pod)
			replaced := after == nil || after.GetUID() != before.GetUID()
			e.Fact("labels %s: %d revision(s), pod replaced: %t", labels[name], len(revs), replaced)
			if len(revs) > 1 {
				result[below]++
			}
		}
	}
	if err := c.alive(); err != nil {
		return labkit.Result{}, err
	}
	if result[true]+result[false] > 0 {
		return labkit.ReproducedBecause("a template got a second revision once the count had moved: %d of %d with labels below 2^31, %d of %d above",
			result[true], each, result[false], each), nil
	}
	return labkit.AbsentBecause("no template got a second revision, on either side of 2^31"), nil
}

// readyPods makes every pod of a StatefulSet ready as soon as it is there, as
// a node would, and records all pods.
func (c *cluster) readyPods(ctx context.Context) (*kube.Recorder, error) {
	rec, err := c.Record(ctx, kube.Pods, ns)
	if err != nil {
		return nil, err
	}
	go func() {
		seen := 0
		for ctx.Err() == nil {
			evs := rec.Events()
			for ; seen < len(evs); seen++ {
				if o := evs[seen].Object; o != nil && (evs[seen].Type == "ADDED" || evs[seen].Type == "LISTED") {
					now := time.Now().UTC().Format(time.RFC3339)
					status, _ := json.Marshal(map[string]any{"status": map[string]any{"phase": "Running", "startTime": now,
						"conditions": []any{map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": now}}}})
					c.PatchMerge(ctx, kube.Pods, ns, o.GetName(), string(status), "status") // one that is gone by now needs none
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return rec, nil
}

// settle has the StatefulSet synced n times: it scales it up by a replica and
// back, which only a sync answers in the status, and touches it in between.
func (c *cluster) settle(ctx context.Context, name string, n int) error {
	for i := 0; i < n; i++ {
		for _, replicas := range []int64{2, 1} {
			if err := c.touch(ctx, kube.StatefulSets, name, i); err != nil {
				return err
			}
			if _, err := c.PatchMerge(ctx, kube.StatefulSets, ns, name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)); err != nil {
				return err
			}
			if _, err := c.WaitFor(ctx, kube.StatefulSets, ns, name, 60*time.Second, fmt.Sprintf("with %d replicas", replicas), func(o *kube.Object) (bool, error) {
				return kube.Int(o, "status", "replicas") == replicas && kube.Int(o, "status", "readyReplicas") == replicas, nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

func runOrder(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	const syncs = 50
	c, err := start(ctx, e)
	if err != nil {
		return labkit.Result{}, err
	}
	pods, err := c.readyPods(ctx)
	if err != nil {
		return labkit.Result{}, err
	}
	o, err := c.workload("StatefulSet", "db", "v1.0.0")
	if err != nil {
		return labkit.Result{}, err
	}
	if o, err = c.Create(ctx, kube.StatefulSets, ns, o); err != nil {
		return labkit.Result{}, err
	}
	revs, err := c.waitOwned(ctx, kube.ControllerRevisions, o.GetUID(), 1, 30*time.Second)
	if err != nil {
		return labkit.Result{}, err
	}
	if _, err := c.WaitFor(ctx, kube.StatefulSets, ns, "db", 60*time.Second, "ready", func(o *kube.Object) (bool, error) {
		return kube.Int(o, "status", "readyReplicas") == 1, nil
	}); err != nil {
		return labkit.Result{}, err
	}
	sets, err := c.Record(ctx, kube.StatefulSets, ns)
	if err != nil {
		return labkit.Result{}, err
	}
	twin := copyOf(&revs[0])
	twin.SetName(revs[0].GetName() + "-twin")
	e.Step("create %s, a twin of %s with the same data and Revision %d", twin.GetName(), revs[0].GetName(), kube.Int(&revs[0], "revision"))
	if _, err := c.Create(ctx, kube.ControllerRevisions, ns, ownedBy(twin, o)); err != nil {
		return labkit.Result{}, err
	}
	// The roll to the younger of the two, which both variants may do, is over
	// when the first syncs are.
	if err := c.settle(ctx, "db", 2); err != nil {
		return labkit.Result{}, err
	}
	began := len(sets.Events())
	podsBegan := len(pods.Events())
	e.Step("%d syncs", syncs)
	for i := 0; i < syncs; i++ {
		if err := c.touch(ctx, kube.StatefulSets, "db", 1000+i); err != nil {
			return labkit.Result{}, err
		}
		time.Sleep(50 * time.Millisecond) // so that the controller's queue does not merge two touches; no oracle
	}
	if err := c.settle(ctx, "db", 1); err != nil {
		return labkit.Result{}, err
	}
	changes, seen, names := 0, "", map[string]int{}
	for _, ev := range sets.Events()[began:] {
		if ev.Object == nil {
			continue
		}
		update := kube.String(ev.Object, "status", "updateRevision")
		if seen != "" && update != seen {
			changes++
		}
		seen = update
		names[update]++
	}
	replaced := 0
	for _, ev := range pods.Events()[podsBegan:] {
		if ev.Type == "ADDED" && ev.Object.GetName() == "db-0" {
			replaced++
		}
	}
	list := []string{}
	for n := range names {
		list = append(list, n)
	}
	sort.Strings(list)
	e.Fact("%d syncs: status.updateRevision changed %d times between %v; pod db-0 was made anew %d times", syncs, changes, list, replaced)
	if err := c.alive(); err != nil {
		return labkit.Result{}, err
	}
	if changes > 0 || replaced > 0 {
		return labkit.ReproducedBecause("the update revision changed %d times and the pod was replaced %d times without a change of the template", changes, replaced), nil
	}
	return labkit.AbsentBecause("%d syncs, one update revision, no pod replaced", syncs), nil
}
