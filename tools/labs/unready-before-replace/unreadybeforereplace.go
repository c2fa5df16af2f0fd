// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unreadybeforereplace is the lab unready-before-replace: the images of 20 pods
// on two nodes change, and containers are killed that the API has as ready. See
// tools/labs/unready-before-replace/README.md.
package unreadybeforereplace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/violation"
)

const (
	base = "v1.9.11"
	ns   = "default"
	pods = 20

	drainAnnotation  = "holdfast/drain-seconds"
	optOutAnnotation = "holdfast/replace-at-once"
)

func init() {
	labkit.Register(labkit.Lab{
		Name:    "unready-before-replace",
		Summary: "in-place image updates kill containers that the API still has as ready",
		Plan: func(p labkit.Profile) []string {
			return []string{
				"start etcd, kube-apiserver, kube-controller-manager, and two nodes with the kubelet under test",
				fmt.Sprintf("%d pods of a Service, half of them without a readiness probe, that take 0 to 8 s to end", pods),
				fmt.Sprintf("wait until the kubelets have requests to spare, change all images within 1 s; %d round(s)", labkit.Pick(p, 1, 10)),
				"oracle K, for each container: docker's stream has no kill before the API's watch has the pod not ready, and the pod is not ready again before the new container is; each address leaves Endpoints once and comes once",
				"stock: K must be broken for at least half, or the trigger was missing; requests to what Endpoints has must fail",
				"ours: with " + drainAnnotation + " 5 no request to what Endpoints has fails",
				"ours: put back, another image meanwhile, an image that is not there, deletion, a failed liveness probe, opt-out, each during the wait",
				"ours: kill -9 of the kubelet between not ready and the kill; nothing is ready again; a stock kubelet in its place",
				"ours: a static pod with a uid of its own is changed while the API server is stopped: replaced after 20 s",
			}
		},
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 10*time.Minute, 40*time.Minute)
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(base, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Run: run,
	})
}

type lab struct {
	e         *labkit.Env
	c         *node.Cluster
	pods, eps *kube.Recorder
	image     string // of all pods of the Service now

	mu     sync.Mutex
	killed map[string]time.Time // first kill by container ID
	lost   error                // of docker's streams
}

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	l := &lab{e: e, killed: map[string]time.Time{}, image: node.WebImage("v1")}
	res, err := l.run(ctx)
	// The kubelets are killed by the lab.
	return violation.Result(ctx, res, err, func(context.Context) error { return process.AllAlive(l.c.APIServer.Proc, l.c.Etcd.Proc) })
}

func (l *lab) run(ctx context.Context) (labkit.Result, error) {
	if err := l.start(ctx); err != nil {
		return labkit.Result{}, err
	}
	var last round
	for i := range labkit.Pick(l.e.Profile, 1, 10) {
		r, err := l.replaceAll(ctx, fmt.Sprintf("round %d", i+1), "")
		if err != nil {
			return labkit.Result{}, err
		}
		last = r
		if len(r.broken) > 0 {
			if len(r.broken) < pods/2 && l.e.Variant == labkit.Stock {
				return labkit.Result{}, fmt.Errorf("stock killed only %d of %d containers before they were not ready: the trigger was missing", len(r.broken), pods)
			}
			if l.e.Variant == labkit.Stock && r.requests.Failed == r.requests.NoTarget {
				return labkit.Result{}, fmt.Errorf("K was broken, and no request failed (%v): the load cannot see what it is for", r.requests)
			}
			return labkit.ReproducedBecause("%d of %d containers were killed while the API had them ready; %v; first: %s", len(r.broken), pods, r.requests, r.broken[0]), l.streams()
		}
	}
	if l.e.Variant == labkit.Stock {
		return labkit.AbsentBecause("no container of %d was killed while the API had it ready", pods), l.streams()
	}
	r, err := l.replaceAll(ctx, "with "+drainAnnotation+" 5", "5")
	if err != nil {
		return labkit.Result{}, err
	}
	if len(r.broken) > 0 {
		return labkit.Result{}, violation.Of(fmt.Errorf("with drain-seconds: %s", r.broken[0]))
	}
	if r.requests.Failed > r.requests.NoTarget || r.requests.OK == 0 {
		return labkit.Result{}, violation.Of(fmt.Errorf("with drain-seconds 5: %v", r.requests))
	}
	for range labkit.Pick(l.e.Profile, 1, 10) {
		for _, step := range []func(context.Context) error{l.during, l.restarted} {
			if err := step(ctx); err != nil {
				return labkit.Result{}, err
			}
		}
	}
	for _, step := range []func(context.Context) error{l.toStock, l.away} {
		if err := step(ctx); err != nil {
			return labkit.Result{}, err
		}
	}
	return labkit.AbsentBecause("%d containers were killed after the API had them not ready, at %v at the latest; with drain-seconds 5 %d requests, none failed",
		pods, last.slowest.Round(10*time.Millisecond), r.requests.OK), l.streams()
}

func (l *lab) streams() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.pods.Gaps() + l.eps.Gaps(); n > 0 {
		return fmt.Errorf("a watch was lost %d times: events may be missing", n)
	}
	return l.lost
}

func (l *lab) start(ctx context.Context) error {
	cfg := node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		// It must live through a stopped API server.
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.Stock(base, "kube-controller-manager"),
			ExtraArgs: []string{"--leader-elect=false", "--controllers=*,-node", "--kube-api-qps=100", "--kube-api-burst=200"}},
	}
	for _, name := range []string{"node1", "node2"} {
		cfg.Nodes = append(cfg.Nodes, node.Config{Name: name, Kubelet: l.e.UnderTest(base, "kubelet")})
	}
	var err error
	if l.c, err = l.e.StartCluster(ctx, cfg); err != nil {
		return err
	}
	if l.pods, err = l.c.Client.Record(ctx, kube.Pods, ns); err != nil {
		return err
	}
	if l.eps, err = l.c.Client.Record(ctx, kube.Endpoints, ns); err != nil {
		return err
	}
	for _, n := range l.c.Nodes {
		ended, err := n.Docker.WatchEvents(ctx, func(ev node.DockerEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if _, seen := l.killed[ev.ID]; ev.Action == "kill" && !seen {
				l.killed[ev.ID] = ev.Time
			}
		})
		if err != nil {
			return err
		}
		go func() {
			err := <-ended
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lost = errors.Join(l.lost, err)
		}()
	}
	l.e.Step("create %d pods and a Service", pods)
	var b strings.Builder
	b.WriteString(`
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`)
	for i := range pods {
		probe := ""
		if i%4 < 2 {
			probe = "readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, failureThreshold: 10}"
		}
		b.WriteString(podYAML(pod(i), "web", fmt.Sprintf("node%d", i%2+1), l.e.Rand.IntN(9), probe, ""))
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, b.String()); err != nil {
		return err
	}
	return l.allReady(ctx)
}

func pod(i int) string { return fmt.Sprintf("web-%02d", i) }

// podYAML is a pod whose container takes delay seconds to end.
func podYAML(name, app, on string, delay int, probe, annotations string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}, annotations: {%s}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 12
  containers:
  - name: web
    image: %s
    imagePullPolicy: IfNotPresent
    env: [{name: LABPOD_TERM_DELAY, value: %ds}]
    %s
`, name, app, annotations, on, node.WebImage("v1"), delay, probe)
}

func (l *lab) allReady(ctx context.Context) error {
	_, err := l.c.Client.WaitFor(ctx, kube.Endpoints, ns, "web", 3*time.Minute, "has all addresses", func(ep *kube.Object) (bool, error) {
		if n := len(kube.ReadyAddresses(ep)); n < pods {
			return false, fmt.Errorf("%d of %d", n, pods)
		}
		return true, nil
	})
	return err
}

// round is what became of one change of all images.
type round struct {
	broken   []string
	slowest  time.Duration // from the change to the last "not ready" in the API
	requests load.Report
}

// replaceAll changes the images of all pods, with drain-seconds if that is not "".
func (l *lab) replaceAll(ctx context.Context, what, drain string) (round, error) {
	l.image = node.WebImage(map[bool]string{true: "v2", false: "v1"}[l.image == node.WebImage("v1")])
	l.e.Step("%s: all images to %s", what, l.image)
	if drain != "" {
		for i := range pods {
			if err := l.annotate(ctx, pod(i), drainAnnotation, drain); err != nil {
				return round{}, err
			}
		}
	}
	// The kubelets' limiters of 5 requests a second have to fill up, and what still
	// happens from before has to be over.
	begin := time.Now()
	if err := wait.Until(ctx, "nothing happens to pods for 5 s", 2*time.Minute, func(context.Context) (bool, error) {
		evs := l.pods.Events()
		return time.Since(begin) > 5*time.Second && time.Since(evs[len(evs)-1].Time) > 5*time.Second, nil
	}); err != nil {
		return round{}, err
	}
	old := map[string]string{}
	for i := range pods {
		id := containerID(l.pods.Latest(ns, pod(i)))
		if id == "" {
			return round{}, fmt.Errorf("pod %s has no container", pod(i))
		}
		old[pod(i)] = id
	}
	requests := load.Start(ctx, load.Config{Interval: 25 * time.Millisecond, Targets: func() []string {
		return kubeletlab.RecentAddresses(l.eps, ns, "web", time.Second, func(string) bool { return true })
	}})
	begin = time.Now()
	errs := make(chan error, pods)
	for i := range pods {
		go func() { errs <- l.setImage(ctx, pod(i), l.image) }()
	}
	for range pods {
		if err := <-errs; err != nil {
			return round{}, err
		}
	}
	l.e.Logf("all images changed after %v", time.Since(begin))
	if err := wait.Until(ctx, "all pods are ready with new containers", 3*time.Minute, func(context.Context) (bool, error) {
		for name, id := range old {
			if o := l.pods.Latest(ns, name); !kubeletlab.PodReady(o) || containerID(o) == id {
				return false, fmt.Errorf("%s is not", name)
			}
		}
		return true, nil
	}); err != nil {
		return round{}, err
	}
	if err := l.allReady(ctx); err != nil {
		return round{}, err
	}
	r := round{requests: requests.Stop()}
	for i := range pods {
		why, took, err := l.judge(pod(i), old[pod(i)], begin)
		if err != nil {
			return r, err
		}
		if why != "" {
			r.broken = append(r.broken, why)
		}
		r.slowest = max(r.slowest, took)
	}
	l.e.Fact("%s: K broken for %d of %d; the last pod not ready in the API after %v; %v", what, len(r.broken), pods, r.slowest.Round(10*time.Millisecond), r.requests)
	return r, nil
}

// lag is what a watch may be late: the kubelet kills some milliseconds after the API
// server's answer, and docker's event may be here before the watch's.
const lag = 300 * time.Millisecond

// judge is K for one container. why is "" if it holds. took is from begin to the first
// "not ready" in the API.
func (l *lab) judge(name, id string, begin time.Time) (why string, took time.Duration, err error) {
	l.mu.Lock()
	killed, ok := l.killed[strings.TrimPrefix(id, "docker://")]
	l.mu.Unlock()
	if !ok {
		return "", 0, fmt.Errorf("docker's stream has no kill of %s of pod %s", id, name)
	}
	var unready time.Time
	for _, ev := range l.pods.Of(ns, name) {
		switch ready := kubeletlab.PodReady(ev.Object); {
		case ev.Time.Before(begin):
		case !ready && unready.IsZero():
			unready = ev.Time
		case ready && !unready.IsZero() && containerID(ev.Object) == id:
			return fmt.Sprintf("%s was ready again before its new container", name), 0, nil
		}
	}
	switch {
	case unready.IsZero():
		return name + " was never seen not ready", 0, nil
	case unready.After(killed.Add(lag)):
		return fmt.Sprintf("%s was not ready %v after the kill", name, unready.Sub(killed).Round(10*time.Millisecond)), unready.Sub(begin), nil
	}
	off, on, was := 0, 0, true
	for _, ev := range l.eps.Of(ns, "web") {
		if ev.Time.Before(begin) {
			continue
		}
		is := false
		for _, p := range kubeletlab.ReadyPods(ev.Object) {
			is = is || p == name
		}
		if was && !is {
			off++
		} else if !was && is {
			on++
		}
		was = is
	}
	if off != 1 || on != 1 {
		return fmt.Sprintf("the address of %s left Endpoints %d times and came %d times", name, off, on), unready.Sub(begin), nil
	}
	return "", unready.Sub(begin), nil
}

func containerID(o *kube.Object) string {
	if o == nil {
		return ""
	}
	return kube.ContainerIDs(o)["web"]
}

func (l *lab) setImage(ctx context.Context, name, image string) error {
	_, err := l.c.Client.PatchStrategic(ctx, kube.Pods, ns, name, fmt.Sprintf(`{"spec":{"containers":[{"name":"web","image":%q}]}}`, image))
	return err
}

func (l *lab) annotate(ctx context.Context, name, key, value string) error {
	_, err := l.c.Client.PatchMerge(ctx, kube.Pods, ns, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
	return err
}
