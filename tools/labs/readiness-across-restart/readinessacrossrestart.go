// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package readinessacrossrestart is the lab readiness-across-restart: a kubelet
// is restarted under probed pods behind a Service. See
// tools/labs/readiness-across-restart/README.md.
package readinessacrossrestart

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base   = "v1.9.11"
	ns     = "default"
	probed = 20
	// period is the probes' period. A kubelet waits a random part of it before
	// a pod's first probe.
	period = 4 * time.Second
)

func init() {
	labkit.Register(labkit.Lab{
		Name:    "readiness-across-restart",
		Summary: "each restart of a kubelet takes the probed pods of its node out of their Services",
		Plan: func(p labkit.Profile) []string {
			return []string{
				"start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet v1.9.11",
				fmt.Sprintf("create %d probed pods of several kinds behind a Service, one that is never ready, and one without a probe", probed),
				"record every event of pods and Endpoints, and send requests to the addresses that were in Endpoints within the last second",
				"swap the kubelet for the one under test",
				fmt.Sprintf("restart it %d times, at random by SIGTERM or kill -9, down for a random time up to 3 s", restarts(p)),
				"while it is down once: delete a pod, change the image of another, and let a third fail its probe",
				"control: requests to the second of them, whose container is replaced, must fail if they go on for a minute after it left Endpoints",
				"ours: let a pod fail its probe and restart the kubelet faster than the probe's threshold; it must not stay ready",
				"ours, long profile: end the controller manager, and the kubelet for 45 s; what was published before must not be kept",
				"oracle: MODIFIED events with Ready=False, addresses that left Endpoints, failed requests; for the pods of the step before, that they left",
			}
		},
		Timeout: func(p labkit.Profile) time.Duration {
			if p == labkit.Long {
				return 30 * time.Minute
			}
			return 10 * time.Minute
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

func restarts(p labkit.Profile) int {
	if p == labkit.Long {
		return 10
	}
	return 5
}

// pods are bound to the node, so that no scheduler is needed. Kinds of probe:
// http, exec, tcp; thresholds; two containers.
func pods() string {
	var b strings.Builder
	b.WriteString(`
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`)
	pod := func(name, env, probe, more string) {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: web}}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 2
  containers:
  - name: web
    image: %s
    imagePullPolicy: IfNotPresent
    env: [{name: LABPOD_READY_FILE, value: /tmp/ready}%s]
%s%s`, name, node.WebImage("v1"), env, probe, more)
	}
	// What is kept ends after failureThreshold periods and one more. On a busy machine
	// a probe that works may take a few periods; the pods that fail have less time.
	threshold := 6
	probe := func(handler, more string) string {
		return fmt.Sprintf("    readinessProbe: {%s, periodSeconds: %d, failureThreshold: %d%s}\n", handler, int(period.Seconds()), threshold, more)
	}
	http := "httpGet: {path: /ready, port: 8080}"
	second := fmt.Sprintf("  - name: second\n    image: %s\n    imagePullPolicy: IfNotPresent\n    env: [{name: LABPOD_LISTEN, value: ':8081'}]\n", node.WebImage("v1"))
	for i := range probed {
		if threshold = 6; i%5 == 0 {
			threshold = stuckThreshold
		}
		p, more := probe(http, ""), ""
		switch i % 5 {
		case 1:
			p = probe("exec: {command: [/labpod, probe, /tmp/ready]}", "")
		case 2:
			p = probe("tcpSocket: {port: 8080}", "")
		case 3:
			p = probe(http, ", successThreshold: 2, initialDelaySeconds: 2")
		case 4:
			more = second + probe("httpGet: {path: /ready, port: 8081}", "")
		}
		pod(fmt.Sprintf("web-%02d", i), "", p, more)
	}
	pod("never-ready", ", {name: LABPOD_READY_AFTER, value: 10h}", probe(http, ""), "")
	pod("no-probe", "", "", "")
	return b.String()
}

// allPods is what pods creates.
const allPods = probed + 2

type lab struct {
	e         *labkit.Env
	c         *node.Cluster
	node      *node.Node
	pods, eps *kube.Recorder
	load      *load.Load
	control   *load.Load // requests that must fail
	alive     int        // pods on the node
	gone      map[string]bool
}

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	c, err := e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.Stock(base, "kube-controller-manager")},
		Nodes:             []node.Config{{Name: "node1", Kubelet: e.Stock(base, "kubelet")}},
	})
	if err != nil {
		return labkit.Result{}, err
	}
	l := &lab{e: e, c: c, node: c.Nodes[0], alive: allPods, gone: map[string]bool{}}
	if err := l.start(ctx); err != nil {
		return labkit.Result{}, err
	}
	total := kubeletlab.Published{NotReady: map[string]int{}, Lowest: probed}
	add := func(p kubeletlab.Published) {
		for k, v := range p.NotReady {
			total.NotReady[k] += v
		}
		total.Removed += p.Removed
		total.Lowest = min(total.Lowest, p.Lowest)
		if total.First == "" {
			total.First = p.First
		}
	}
	steps := restarts(e.Profile)
	for i := 0; i <= steps; i++ {
		what := fmt.Sprintf("restart %d of %d", i, steps)
		if i == 0 {
			what = "swap stock for the kubelet under test"
		}
		var during func(context.Context) error
		if i == steps {
			during = l.changes
		}
		p, err := l.step(ctx, what, during)
		if err != nil {
			return labkit.Result{}, err
		}
		add(p)
		e.Fact("%s: %v", what, p)
	}
	if err := l.judgeChanges(ctx); err != nil {
		return labkit.Result{}, err
	}
	r := l.load.Stop()
	e.Fact("load: %v", r)
	if r.OK == 0 {
		return labkit.Result{}, fmt.Errorf("the load sent nothing")
	}
	control := l.control.Stop()
	e.Fact("control, the pod whose container was replaced: %v", control)
	if control.Failed == control.NoTarget {
		return labkit.Result{}, fmt.Errorf("no request to the pod whose container was replaced failed (%v): the load cannot see what it is for", control)
	}
	never := l.neverReady()
	if never != nil {
		e.Fact("%v", never)
	}
	if e.Variant == labkit.Ours {
		endless, err := l.fasterThanProbes(ctx)
		if err != nil {
			return labkit.Result{}, err
		}
		if endless != nil {
			return labkit.ReproducedBecause("%v", endless), nil
		}
	}
	if e.Variant == labkit.Ours && e.Profile == labkit.Long {
		trusted, err := l.away(ctx)
		if err != nil {
			return labkit.Result{}, err
		}
		if trusted != nil {
			return labkit.ReproducedBecause("%v", trusted), nil
		}
	}
	if len(total.NotReady) > 0 || total.Removed > 0 || r.Failed > 0 || never != nil {
		return labkit.ReproducedBecause("in %d restarts: %v; %d of %d requests failed", steps+1, total, r.Failed, r.OK+r.Failed), nil
	}
	return labkit.AbsentBecause("in %d restarts no pod of %d was published as not ready, no address left Endpoints, %d requests, none failed",
		steps+1, probed, r.OK), nil
}

// start creates the pods and waits until all but one are ready.
func (l *lab) start(ctx context.Context) error {
	l.e.Step("create %d pods and a Service", allPods)
	if _, err := l.c.Client.CreateYAML(ctx, ns, pods()); err != nil {
		return err
	}
	if _, err := l.c.Client.WaitFor(ctx, kube.Endpoints, ns, "web", 3*time.Minute, "has all addresses", func(ep *kube.Object) (bool, error) {
		n := len(kube.ReadyAddresses(ep))
		if n < allPods-1 {
			return false, fmt.Errorf("%d of %d", n, allPods-1)
		}
		return true, nil
	}); err != nil {
		return err
	}
	var err error
	if l.pods, err = l.c.Client.Record(ctx, kube.Pods, ns); err != nil {
		return err
	}
	if l.eps, err = l.c.Client.Record(ctx, kube.Endpoints, ns); err != nil {
		return err
	}
	l.load = load.Start(ctx, load.Config{Interval: 50 * time.Millisecond, Targets: func() []string {
		// Not the pods that the lab itself deletes or changes: what their requests
		// meet is not the kubelet's doing.
		return kubeletlab.RecentAddresses(l.eps, ns, "web", time.Second, func(pod string) bool { return pod != deleted && pod != imaged && pod != failing })
	}})
	// The same, but for a client that learns so late that it cannot miss that the
	// container is replaced.
	l.control = load.Start(ctx, load.Config{Interval: 20 * time.Millisecond, Workers: 1, Targets: func() []string {
		return kubeletlab.RecentAddresses(l.eps, ns, "web", time.Minute, func(pod string) bool { return pod == imaged })
	}})
	return nil
}

// tracked are the pods that must stay ready.
func (l *lab) tracked(pod string) bool { return strings.HasPrefix(pod, "web-") && !l.gone[pod] }

// step ends the kubelet, does something while it is down, starts the one under
// test and waits until each probe has had its chance.
func (l *lab) step(ctx context.Context, what string, during func(context.Context) error) (kubeletlab.Published, error) {
	kill, down := l.e.Rand.IntN(2) == 0, time.Duration(l.e.Rand.IntN(3000))*time.Millisecond
	how := "SIGTERM"
	if kill {
		how = "kill -9"
	}
	l.e.Step("%s (%s, down for %v)", what, how, down)
	since := time.Now()
	var err error
	if kill {
		err = l.node.KillKubelet()
	} else {
		err = l.node.StopKubelet()
	}
	if err != nil {
		return kubeletlab.Published{}, err
	}
	if during != nil {
		if err := during(ctx); err != nil {
			return kubeletlab.Published{}, err
		}
	}
	// The time that a package upgrade takes; no oracle.
	select {
	case <-time.After(down):
	case <-ctx.Done():
		return kubeletlab.Published{}, context.Cause(ctx)
	}
	if err := l.node.StartKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return kubeletlab.Published{}, err
	}
	if err := kubeletlab.WaitSynced(ctx, l.node, l.alive, 60*time.Second); err != nil {
		return kubeletlab.Published{}, err
	}
	synced := time.Now()
	// Every probe has run twice after two periods; that is what successThreshold 2
	// needs. An own pod's readiness may take longer when the machine is busy.
	if _, err := l.c.Client.WaitFor(ctx, kube.Endpoints, ns, "web", 60*time.Second, "has all addresses and two periods have passed", func(ep *kube.Object) (bool, error) {
		n := 0
		for _, p := range kubeletlab.ReadyPods(ep) {
			if l.tracked(p) {
				n++
			}
		}
		if want := probed - len(l.gone); n < want {
			return false, fmt.Errorf("%d of %d", n, want)
		}
		return time.Since(synced) > 2*period, nil
	}); err != nil {
		return kubeletlab.Published{}, err
	}
	if l.e.Variant == labkit.Ours {
		kept, err := kubeletlab.Metric(ctx, l.node, "holdfast_readiness_across_restart_kept_total")
		if err != nil {
			return kubeletlab.Published{}, err
		}
		l.e.Logf("%s: readiness kept of %v containers", what, kept)
		if int(kept) < probed-len(l.gone) {
			return kubeletlab.Published{}, fmt.Errorf("the kubelet says that it kept the readiness of %v containers, want at least %d", kept, probed-len(l.gone))
		}
	}
	return kubeletlab.Seen(l.pods, l.eps, ns, "web", since, l.tracked)
}

// The pods that something happens to while the kubelet is down.
const (
	deleted = "web-00"
	imaged  = "web-05"
	failing = "web-10"
)

func (l *lab) changes(ctx context.Context) error {
	for _, p := range []string{deleted, imaged, failing} {
		l.gone[p] = true
	}
	if err := l.c.Client.Delete(ctx, kube.Pods, ns, deleted); err != nil {
		return err
	}
	if _, err := l.c.Client.PatchStrategic(ctx, kube.Pods, ns, imaged,
		fmt.Sprintf(`{"spec":{"containers":[{"name":"web","image":%q}]}}`, node.WebImage("v2"))); err != nil {
		return err
	}
	pod, err := l.c.Client.Get(ctx, kube.Pods, ns, failing)
	if err != nil {
		return err
	}
	_, err = load.Get(ctx, "http://"+kube.String(pod, "status", "podIP")+":8080/set?ready=false")
	return err
}

// judgeChanges: these three are judged as stock does, in every variant.
func (l *lab) judgeChanges(ctx context.Context) error {
	l.e.Step("pods that were changed while the kubelet was down")
	if err := l.c.Client.WaitGone(ctx, kube.Pods, ns, deleted, 30*time.Second); err != nil {
		return err
	}
	if _, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, failing, 30*time.Second, "is not ready", func(o *kube.Object) (bool, error) {
		return !kubeletlab.PodReady(o), nil
	}); err != nil {
		return err
	}
	if _, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, imaged, 30*time.Second, "runs the new image and is ready", func(o *kube.Object) (bool, error) {
		cs := kube.Slice(o, "status", "containerStatuses")
		if len(cs) != 1 || !kubeletlab.PodReady(o) {
			return false, nil
		}
		m := cs[0].(map[string]any)
		return m["restartCount"] == int64(1) && strings.Contains(fmt.Sprint(m["image"]), "v2"), nil
	}); err != nil {
		return err
	}
	// Neither the container whose image changed nor the one of the deleted pod was
	// kept. The API need not show it: a kubelet publishes some 2 pods a second, and
	// the new container may be ready by then.
	last, err := l.node.Kubelet.LastRunLog()
	if err != nil {
		return err
	}
	for _, pod := range []string{deleted, imaged} {
		if logged(last, "Keeping the published readiness", pod) {
			return fmt.Errorf("the readiness of pod %s was kept", pod)
		}
	}
	return nil
}

// stuck is the pod whose probe fails while the kubelet restarts faster than that
// counts. Its probe is http, without an initial delay.
const (
	stuck          = "web-15"
	stuckThreshold = 2
	// bound is what the page says for it: failureThreshold × period + period.
	bound = (stuckThreshold + 1) * period
)

// fasterThanProbes restarts the kubelet under test again and again, too fast for
// a failing probe to reach its threshold. The pod must be kept ready at first, or
// the case says nothing, and not for longer than bound. It answers why not.
func (l *lab) fasterThanProbes(ctx context.Context) (wrong, err error) {
	l.e.Step("restart the kubelet faster than a failing probe's threshold")
	pod, err := l.c.Client.Get(ctx, kube.Pods, ns, stuck)
	if err != nil {
		return nil, err
	}
	url := "http://" + kube.String(pod, "status", "podIP") + ":8080/set?ready="
	if err := l.node.KillKubelet(); err != nil {
		return nil, err
	}
	if _, err := load.Get(ctx, url+"false"); err != nil {
		return nil, err
	}
	begin, starts := time.Now(), 0
	for time.Since(begin) < 3*bound {
		if starts++; starts > 1 {
			if err := l.node.KillKubelet(); err != nil {
				return nil, err
			}
		}
		// Else it would not live long enough to publish every pod.
		if err := l.node.StartKubelet(ctx, l.e.UnderTest(base, "kubelet"), "--kube-api-qps=100", "--kube-api-burst=200"); err != nil {
			return nil, err
		}
		// It decides at its first sync of the pod. Then it lives for half a period, so
		// that the second failure of the probe never comes.
		kept, err := l.decided(ctx, stuck)
		if err != nil {
			return nil, err
		}
		if starts == 1 && !kept {
			return nil, fmt.Errorf("the first of the fast restarts did not keep the readiness of %s", stuck)
		}
		select {
		case <-time.After(period / 2):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		log, err := l.node.Kubelet.LastRunLog()
		if err != nil {
			return nil, err
		}
		if n := strings.Count(log, `Readiness probe for "`+stuck+`_`); n > 1 {
			return nil, fmt.Errorf("%d probes of %s ran under one process: the restarts are too slow for this case", n, stuck)
		}
		for _, ev := range l.pods.Of(ns, stuck) {
			if ev.Time.After(begin) && !kubeletlab.PodReady(ev.Object) {
				l.e.Fact("%d restarts faster than a failing probe: kept at first, not ready after %v (bound %v)", starts, ev.Time.Sub(begin).Round(time.Second), bound)
				return nil, nil
			}
		}
	}
	return fmt.Errorf("%d restarts in %v, each faster than the probe's threshold, kept a failing pod ready: the bound is %v", starts, time.Since(begin).Round(time.Second), bound), nil
}

// away ends the controller manager and then the kubelet, for longer than the node
// controller would wait: nobody marks the pods. It answers why the kubelet still
// trusted what it had published.
func (l *lab) away(ctx context.Context) (wrong, err error) {
	const gone = 45 * time.Second // heartbeats are trusted for 40 s
	// What an earlier process kept, and no probe has confirmed, is not kept for long.
	const pod = "web-01"
	o, err := l.c.Client.Get(ctx, kube.Pods, ns, pod)
	if err != nil {
		return nil, err
	}
	records := filepath.Join(l.node.Dir, "kubelet", "pods", string(o.GetUID()), "holdfast_readiness_*.json")
	if err := wait.Until(ctx, "a probe has confirmed the readiness of "+pod, time.Minute, func(context.Context) (bool, error) {
		left, err := filepath.Glob(records)
		return len(left) == 0 && kubeletlab.PodReady(l.pods.Latest(ns, pod)), err
	}); err != nil {
		return nil, err
	}
	l.e.Step("no controller manager, and no kubelet for %v", gone)
	if err := l.c.ControllerManager.Stop(); err != nil {
		return nil, err
	}
	if err := l.node.KillKubelet(); err != nil {
		return nil, err
	}
	select {
	case <-time.After(gone):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := l.node.StartKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return nil, err
	}
	kept, err := l.decided(ctx, pod)
	if err != nil {
		return nil, err
	}
	if !kept {
		return nil, fmt.Errorf("pod %s was not ready before", pod)
	}
	var withdrawn float64
	err = wait.Until(ctx, "the kubelet has given up what it kept", time.Minute, func(ctx context.Context) (bool, error) {
		var err error
		withdrawn, err = kubeletlab.Metric(ctx, l.node, "holdfast_readiness_across_restart_withdrawn_total")
		return withdrawn > 0, err
	})
	if ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		return fmt.Errorf("%v without a kubelet and a controller manager, and what was published before is kept: %w", gone, err), nil
	}
	l.e.Fact("no kubelet and no controller manager for %v: the readiness of %v containers is given up at the first publish", gone, withdrawn)
	return nil, nil
}

// decided waits until the kubelet's log has what it does about the readiness of a
// pod that was published as ready or not, and says whether it keeps it.
func (l *lab) decided(ctx context.Context, pod string) (kept bool, err error) {
	err = wait.Until(ctx, "the kubelet has decided about "+pod, 30*time.Second, func(context.Context) (bool, error) {
		log, err := l.node.Kubelet.LastRunLog()
		if err != nil {
			return false, err
		}
		kept = logged(log, "Keeping the published readiness", pod)
		if o := l.pods.Latest(ns, pod); o != nil && !kubeletlab.PodReady(o) {
			return true, nil // nothing to keep
		}
		return kept || logged(log, "Not keeping the readiness", pod), nil
	})
	return kept, err
}

// logged says whether a line of log has both.
func logged(log, what, pod string) bool {
	for _, line := range strings.Split(log, "\n") {
		if strings.Contains(line, what) && strings.Contains(line, pod+"_") {
			return true
		}
	}
	return false
}

// neverReady: nothing became ready that was not.
func (l *lab) neverReady() error {
	for _, ev := range l.pods.Of(ns, "never-ready") {
		if kubeletlab.PodReady(ev.Object) {
			return fmt.Errorf("the pod that never was ready was published as ready at %s", ev.Time.UTC().Format("15:04:05.000"))
		}
	}
	return nil
}
