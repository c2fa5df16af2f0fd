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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	ns     = "default"
	probed = 20
	// period is the probes' period. A kubelet waits a random part of it before
	// a pod's first probe.
	period = 4 * time.Second
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{of("v1.9.11"), labkit.OnBase(of, "v1.12.10")}
}

// of is the lab of a base.
func of(base string) labkit.Lab {
	return labkit.Lab{
		Name:    "readiness-across-restart",
		Summary: "each restart of a kubelet takes the probed pods of its node out of their Services",
		Test:    []labkit.Variant{labkit.Ours},
		Steps:   func(e *labkit.Env) []labkit.Step { return steps(e, base) },
		Oracle:  oracle,
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 10*time.Minute, 30*time.Minute)
		},
		Needs: labkit.KubeletNeeds(base, labkit.StockBinary(base, "kubelet")),
	}
}

// restarts is how often the kubelet is restarted after the first swap. Any restart shows
// the incident where nothing is done about it, so in the short profile one is enough there.
func restarts(v labkit.Variant, p labkit.Profile) int {
	if v != labkit.Ours && p == labkit.Short {
		return 1
	}
	return labkit.Pick(p, 3, 10)
}

// objects are the Service and its pods. Kinds of probe: http, exec, tcp; thresholds; two
// containers.
func objects() []runtime.Object {
	all := []runtime.Object{kube.Service("web", "web", 8080)}
	pod := func(name string, web corev1.Container, more ...corev1.Container) {
		p := node.Pod(name, "node1", append([]corev1.Container{web}, more...)...)
		p.Labels, p.Spec.TerminationGracePeriodSeconds = map[string]string{"app": "web"}, new(int64(2))
		all = append(all, p)
	}
	container := func(probe *corev1.Probe, env ...corev1.EnvVar) corev1.Container {
		c := node.Web("web")
		c.Env, c.ReadinessProbe = append([]corev1.EnvVar{{Name: "LABPOD_READY_FILE", Value: "/tmp/ready"}}, env...), probe
		return c
	}
	// On a busy machine a probe that works may fail for a few periods, which must not
	// count; the pods that fail have less time.
	probe := func(h corev1.ProbeHandler) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: h, PeriodSeconds: int32(period.Seconds()), FailureThreshold: 6}
	}
	http := kube.HTTPGet("/ready", 8080)
	for i := range probed {
		p, more := probe(http), []corev1.Container(nil)
		switch i % 5 {
		case 0:
			p.FailureThreshold = failThreshold
		case 1:
			p = probe(kube.Exec("/labpod", "probe", "/tmp/ready"))
		case 2:
			p = probe(kube.TCP(8080))
		case 3:
			p.SuccessThreshold, p.InitialDelaySeconds = 2, 2
		case 4:
			second := node.Web("second")
			second.Env, second.ReadinessProbe = []corev1.EnvVar{{Name: "LABPOD_LISTEN", Value: ":8081"}}, probe(kube.HTTPGet("/ready", 8081))
			more = append(more, second)
		}
		name := fmt.Sprintf("web-%02d", i)
		if name == stuck {
			p.PeriodSeconds = int32(stuckPeriod.Seconds())
		}
		pod(name, container(p), more...)
	}
	pod("never-ready", container(probe(http), corev1.EnvVar{Name: "LABPOD_READY_AFTER", Value: "10h"}))
	pod("no-probe", container(nil))
	return all
}

// allPods is how many pods there are.
const allPods = probed + 2

type lab struct {
	e         *labkit.Env
	base      string
	c         *node.Cluster
	node      *node.Node
	pods, eps *kube.Recorder
	load      *load.Load
	control   *load.Load // requests that must fail
	alive     int        // pods on the node
	gone      map[string]bool
}

func steps(e *labkit.Env, base string) []labkit.Step {
	l := &lab{e: e, base: base, alive: allPods, gone: map[string]bool{}}
	s := []labkit.Step{
		{Text: "start etcd, apiserver and controller manager " + base + ", and a node with the stock kubelet " + base, Do: l.startCluster},
		{Text: fmt.Sprintf("create %d probed pods of several kinds behind a Service, one that is never ready, and one without a probe; record every event of pods and Endpoints, and send requests to the addresses that were in Endpoints within the last second", probed), Do: l.start},
	}
	n := restarts(e.Variant, e.Profile)
	for i := 0; i <= n; i++ {
		r := restart{round: i, what: fmt.Sprintf("restart %d of %d", i, n), kill: e.Rand.IntN(2) == 0, down: time.Duration(e.Rand.IntN(3000)) * time.Millisecond}
		if i == 0 {
			r.what = "swap stock for the kubelet under test"
		}
		how := "SIGTERM"
		if r.kill {
			how = "kill -9"
		}
		text := fmt.Sprintf("%s (%s, down for %v)", r.what, how, r.down)
		if i == n {
			r.during = l.changes
			text += "; while it is down delete a pod, change the image of another, and let a third fail its probe"
		}
		s = append(s, labkit.Step{Text: text, Do: func(ctx context.Context) error { return l.step(ctx, r) }})
	}
	s = append(s, labkit.Step{Text: "check the changed pods, and stop the requests", Do: l.end})
	if e.Variant == labkit.Ours {
		s = append(s, labkit.Step{Text: "let a pod fail its probe, and restart the kubelet again and again before the probe's failure threshold; the pod must not stay ready", Do: l.fasterThanProbes})
	}
	if e.Variant == labkit.Ours && e.Profile == labkit.Long {
		// The controller manager and the kubelet are ended in it, so nothing can be asked whether it runs.
		return append(s, labkit.Step{Text: fmt.Sprintf("stop the controller manager, and the kubelet for %v; the next kubelet must not keep the readiness that was published before", awayFor), Do: l.away})
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }))
}

func (l *lab) startCluster(ctx context.Context) error {
	c, err := l.e.StartStockCluster(ctx, l.base, node.Config{Name: "node1", Kubelet: l.e.Stock(l.base, "kubelet")})
	if err == nil {
		l.c, l.node = c, c.Nodes[0]
	}
	return err
}

// end holds the pods that were changed, ends the load and records what it met.
func (l *lab) end(ctx context.Context) error {
	if err := l.judgeChanges(ctx); err != nil {
		return err
	}
	l.e.Record(requests{Load: l.load.Stop(), Control: l.control.Stop()})
	l.e.Record(l.neverReady())
	return nil
}

// start creates the pods and waits until all but one are ready.
func (l *lab) start(ctx context.Context) error {
	if err := l.c.Client.Make(ctx, ns, objects()...); err != nil {
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

// restart is one of the kubelet's, with what the seed chose and what happens during it.
type restart struct {
	round  int
	what   string
	kill   bool
	down   time.Duration
	during func(context.Context) error
}

// step ends the kubelet, does something while it is down, starts the one under
// test and waits until each probe has had its chance.
func (l *lab) step(ctx context.Context, r restart) error {
	since := time.Now()
	var err error
	if r.kill {
		err = l.node.KillKubelet()
	} else {
		err = l.node.StopKubelet()
	}
	if err != nil {
		return err
	}
	if r.during != nil {
		if err := r.during(ctx); err != nil {
			return err
		}
	}
	// The time that a package upgrade takes; no oracle.
	if err := wait.Pause(ctx, r.down); err != nil {
		return err
	}
	if err := l.node.StartKubelet(ctx, l.e.UnderTest(l.base, "kubelet")); err != nil {
		return err
	}
	if err := kubeletlab.WaitSynced(ctx, l.node, l.alive, 60*time.Second); err != nil {
		return err
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
		return err
	}
	o := restarted{Round: r.round, What: r.what, MustKeep: probed - len(l.gone)}
	if l.e.Variant == labkit.Ours {
		var err error
		if o.Kept, err = kubeletlab.Metric(ctx, l.node, "holdfast_readiness_across_restart_kept_total"); err != nil {
			return err
		}
	}
	if o.Seen, err = kubeletlab.Seen(l.pods, l.eps, ns, "web", since, l.tracked); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
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
	// The container of the deleted pod was not kept. The API need not show it: a kubelet
	// publishes some 2 pods a second. That whose image changed is kept until the kubelet
	// makes it not ready, which the lab unready-before-replace looks at.
	last, err := l.node.Kubelet.LastRunLog()
	if err != nil {
		return err
	}
	if logged(last, "Keeping the published readiness", deleted) {
		return fmt.Errorf("the readiness of pod %s was kept", deleted)
	}
	return nil
}

// stuck is the pod whose probe fails while the kubelet restarts faster than that
// counts. Its probe is http, without an initial delay.
const (
	stuck         = "web-15"
	failThreshold = 2
	// stuckPeriod is longer than the others', so that a slow start of the kubelet is no
	// second failure, but not so long that a restart is over before its first probe.
	stuckPeriod = 2 * period
	// bound is what the page says for it: failureThreshold × period + period + timeout
	// is less than 40 s.
	bound = 40 * time.Second
	// boundSlack is the time in which a kubelet starts, and another one after it.
	boundSlack = 30 * time.Second
)

// fasterThanProbes restarts the kubelet under test again and again, too fast for
// a failing probe to reach its threshold. The pod must be kept ready at first, or
// the case says nothing, and not for longer than bound.
func (l *lab) fasterThanProbes(ctx context.Context) error {
	pod, err := l.c.Client.Get(ctx, kube.Pods, ns, stuck)
	if err != nil {
		return err
	}
	url := "http://" + kube.String(pod, "status", "podIP") + ":8080/set?ready="
	if err := l.node.KillKubelet(); err != nil {
		return err
	}
	if _, err := load.Get(ctx, url+"false"); err != nil {
		return err
	}
	begin, starts := time.Now(), 0
	for time.Since(begin) < bound+boundSlack {
		if starts++; starts > 1 {
			if err := l.node.KillKubelet(); err != nil {
				return err
			}
		}
		// Else it would not live long enough to publish every pod.
		if err := l.node.StartKubelet(ctx, l.e.UnderTest(l.base, "kubelet"), "--kube-api-qps=100", "--kube-api-burst=200"); err != nil {
			return err
		}
		// It decides at its first sync of the pod. Then it lives for half a period, so
		// that the second failure of the probe never comes.
		kept, err := l.decided(ctx, stuck)
		if err != nil {
			return err
		}
		if starts == 1 && !kept {
			return fmt.Errorf("the first of the fast restarts did not keep the readiness of %s", stuck)
		}
		// What it gives up it publishes next, which takes longer on a busy machine.
		alive := stuckPeriod / 2
		if !kept {
			alive = 30 * time.Second
		}
		for end := time.Now().Add(alive); ; {
			log, err := l.node.Kubelet.LastRunLog()
			if err != nil {
				return err
			}
			if n := strings.Count(log, `Readiness probe for "`+stuck+`_`); n > 1 {
				return fmt.Errorf("%d probes of %s ran under one process: the restarts are too slow for this case", n, stuck)
			}
			for _, ev := range l.pods.Of(ns, stuck) {
				if ev.Time.After(begin) && !kubeletlab.PodReady(ev.Object) {
					l.e.Record(fast{Starts: starts, NotReadyAfter: ev.Time.Sub(begin)})
					return nil
				}
			}
			if time.Now().After(end) {
				break
			}
			if err := wait.Pause(ctx, period/8); err != nil {
				return err
			}
		}
		if !kept {
			return fmt.Errorf("the kubelet discarded the readiness of %s, but has not published this after %v", stuck, alive)
		}
	}
	l.e.Record(fast{Starts: starts, For: time.Since(begin)})
	return nil
}

// awayFor is longer than heartbeats are trusted, which is 40 s.
const awayFor = 45 * time.Second

// away ends the controller manager and then the kubelet, for longer than the node
// controller would wait: nobody marks the pods. The kubelet must not trust what it had
// published.
func (l *lab) away(ctx context.Context) error {
	// What an earlier process kept, and no probe has confirmed, is not kept for long.
	const pod = "web-01"
	o, err := l.c.Client.Get(ctx, kube.Pods, ns, pod)
	if err != nil {
		return err
	}
	records := filepath.Join(l.node.Dir, "kubelet", "pods", string(o.GetUID()), "holdfast_readiness_*.json")
	if err := wait.Until(ctx, "a probe has confirmed the readiness of "+pod, time.Minute, func(context.Context) (bool, error) {
		left, err := filepath.Glob(records)
		return len(left) == 0 && kubeletlab.PodReady(l.pods.Latest(ns, pod)), err
	}); err != nil {
		return err
	}
	if err := l.c.ControllerManager.Stop(); err != nil {
		return err
	}
	if err := l.node.KillKubelet(); err != nil {
		return err
	}
	if err := wait.Pause(ctx, awayFor); err != nil {
		return err
	}
	if err := l.node.StartKubelet(ctx, l.e.UnderTest(l.base, "kubelet")); err != nil {
		return err
	}
	kept, err := l.decided(ctx, pod)
	if err != nil {
		return err
	}
	if !kept {
		return fmt.Errorf("pod %s was not ready before", pod)
	}
	seen := wentAway{For: awayFor}
	err = wait.Until(ctx, "the kubelet has discarded the kept readiness", time.Minute, func(ctx context.Context) (bool, error) {
		var err error
		seen.Withdrawn, err = kubeletlab.Metric(ctx, l.node, "holdfast_readiness_across_restart_withdrawn_total")
		return seen.Withdrawn > 0, err
	})
	if ctx.Err() != nil {
		return err
	}
	l.e.Record(seen)
	return nil
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

// neverReady reads when the pod that never is ready was published as ready.
func (l *lab) neverReady() everReady {
	o := everReady{}
	for _, ev := range l.pods.Of(ns, "never-ready") {
		o.Events++
		if kubeletlab.PodReady(ev.Object) {
			o.At = append(o.At, ev.Time.UTC().Format("15:04:05.000"))
		}
	}
	return o
}
