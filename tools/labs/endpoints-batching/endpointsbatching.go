// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointsbatching is the lab endpoints-batching: 20 pods become not ready
// one after another, and the Endpoints of their Service are written once a pod. See
// tools/labs/endpoints-batching/README.md.
package endpointsbatching

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/webset"
)

const (
	pods = webset.Pods
	flag = "--endpoint-updates-batch-period"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{of("v1.9.11"), labkit.OnBase(of, "v1.12.10")}
}

// of is the lab of a base.
func of(base string) labkit.Lab {
	return labkit.Lab{
		Name:    "endpoints-batching",
		Summary: "when several pods change within two seconds, the controller updates their Endpoints once for each pod",
		Steps:   func(e *labkit.Env) []labkit.Step { return steps(e, base) },
		Oracle:  oracle,
		Test:    []labkit.Variant{labkit.Ours},
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 6*time.Minute, 25*time.Minute)
		},
		Needs: labkit.ManagerNeeds(base),
	}
}

// rounds is how often a batch, or a kill, is repeated.
func rounds(p labkit.Profile) int { return labkit.Pick(p, 1, 10) }

type lab struct {
	e    *labkit.Env
	base string
	c    *node.Cluster
	cm   *kube.ControllerManager
	web  *webset.Set
	n    int // controller managers started so far
	has  bool
}

func steps(e *labkit.Env, base string) []labkit.Step {
	l := &lab{e: e, base: base}
	batches := fmt.Sprintf("%d pods become not ready within about 2 s, in %d round(s)", pods, rounds(e.Profile))
	return []labkit.Step{
		{Text: "check whether the program under test has " + flag, Do: l.ask},
		{Text: fmt.Sprintf("start etcd, kube-apiserver and the kube-controller-manager under test; create a Service and %d pods, which are API objects: no kubelet runs them", pods), Do: l.start},
		{Text: "without the flag: " + batches + "; if the program has no flag, the run ends here", Do: l.without},
		{Text: "with period 0: " + batches, Do: l.with("0")},
		{Text: "with period 1s: " + batches, Do: l.with("1s")},
		{Text: "with period 5s: " + batches, Do: l.with("5s")},
		{Text: "with period 5s: read /configz, and change the Service while a pod's change waits", Do: l.service},
		{Text: "with period 5s: delete a pod", Do: l.delete},
		{Text: fmt.Sprintf("kill -9 while changes wait for a period of 5s, and start again without the flag, %d time(s)", rounds(e.Profile)), Do: l.kill},
		{Text: "start the program with a negative period", Do: l.negative},
		{Text: "check that etcd and kube-apiserver run", Always: true, Do: func(ctx context.Context) error { return l.c.Alive(ctx) }},
	}
}

// ask reads the program's own help.
func (l *lab) ask(ctx context.Context) error {
	path := l.e.UnderTest(l.base, "kube-controller-manager").Path
	out, err := exec.CommandContext(ctx, path, "--help").CombinedOutput()
	if !strings.Contains(string(out), "--concurrent-endpoint-syncs") {
		return fmt.Errorf("%s --help: %w: %.200s", path, err, out)
	}
	l.has = strings.Contains(string(out), flag+" ")
	l.e.Record(program{HasFlag: l.has})
	return nil
}

func (l *lab) start(ctx context.Context) error {
	var err error
	l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(l.base, "kube-apiserver")},
	})
	if err != nil {
		return err
	}
	if err := l.swap(ctx, ""); err != nil {
		return err
	}
	if err := l.c.Client.WaitPodsAdmitted(ctx, webset.NS, 90*time.Second); err != nil {
		return err
	}
	l.web, err = webset.Create(ctx, l.c.Client, pod)
	return err
}

func pod(int) *corev1.Pod { return webset.Object("none") }

// swap ends the controller manager, if there is one, and starts one with that period;
// "" is without the flag. It waits until the new one has looked at the Services.
func (l *lab) swap(ctx context.Context, period string) error {
	if l.cm != nil && l.cm.Alive() {
		if err := l.cm.Kill(); err != nil {
			return err
		}
	}
	program := l.e.UnderTest(l.base, "kube-controller-manager")
	args := []string{
		// The pods' node does not exist.
		"--controllers=*,-podgc,-" + program.NodeController(),
		// The client's own limit must not look like batching.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--leader-elect=false",
	}
	if period != "" {
		args = append(args, flag+"="+period)
	}
	l.n++
	var err error
	l.cm, err = l.e.StartControllerManager(ctx, l.c.APIServer, kube.ControllerManagerConfig{
		Name: fmt.Sprintf("kube-controller-manager-%d", l.n), Program: program, ExtraArgs: args})
	return err
}

func (l *lab) without(ctx context.Context) error {
	if err := l.batches(ctx, ""); err != nil || l.has {
		return err
	}
	return labkit.Enough
}

// with starts a controller manager with that period, and makes all pods not ready.
func (l *lab) with(period string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := l.swap(ctx, period); err != nil {
			return err
		}
		return l.batches(ctx, period)
	}
}

func (l *lab) batches(ctx context.Context, period string) error {
	for round := range rounds(l.e.Profile) {
		var b batch
		err := l.e.Sweep.Undisturbed(ctx, func() (err error) {
			b, err = l.batch(ctx)
			return err
		})
		if err != nil {
			return err
		}
		b.Period, b.Round = period, round
		l.e.Record(b)
	}
	return nil
}

func (l *lab) batch(ctx context.Context) (batch, error) {
	var b batch
	if err := l.publish(ctx, pods, true); err != nil {
		return b, err
	}
	if err := l.settled(ctx, pods); err != nil {
		return b, err
	}
	adds, retries, err := l.queue(ctx)
	if err != nil {
		return b, err
	}
	begin := time.Now()
	for i := range pods {
		// The kubelets of two nodes publish about that fast.
		if err := wait.Pause(ctx, time.Duration(60+l.e.Rand.IntN(80))*time.Millisecond); err != nil {
			return b, err
		}
		if err := l.web.Publish(ctx, i, false); err != nil {
			return b, err
		}
	}
	b.Took = time.Since(begin)
	if err := l.settled(ctx, 0); err != nil {
		return b, err
	}
	for _, ev := range l.web.Versions() {
		if ev.Type == "MODIFIED" && ev.Time.After(begin) {
			b.Updates = append(b.Updates, ev.Time.Sub(begin))
		}
	}
	if l.web.Endpoints.Gaps() > 0 {
		return b, errors.New("the watch of Endpoints was lost: updates may be missing")
	}
	x, y, err := l.queue(ctx)
	b.Adds, b.Retries = x-adds, y-retries
	return b, err
}

// publish makes the first n pods ready or not, as fast as the API server is.
func (l *lab) publish(ctx context.Context, n int, ready bool) error {
	for i := range n {
		if err := l.web.Publish(ctx, i, ready); err != nil {
			return err
		}
	}
	return nil
}

// settled waits until so many addresses are ready and no update followed for longer
// than the longest period.
func (l *lab) settled(ctx context.Context, n int) error {
	if err := l.web.WaitReady(ctx, n, time.Minute); err != nil {
		return err
	}
	return wait.Until(ctx, "no update of the Endpoints for 6 s", time.Minute, func(context.Context) (bool, error) {
		return time.Since(l.updated()) > 6*time.Second, nil
	})
}

// updated is when the Endpoints were updated for the last time.
func (l *lab) updated() time.Time {
	evs := l.web.Versions()
	return evs[len(evs)-1].Time
}

// queue has the metrics of the endpoints controller's queue.
func (l *lab) queue(ctx context.Context) (adds, retries float64, err error) {
	page, err := metrics.Get(ctx, l.cm.URL+"/metrics")
	if err != nil {
		return 0, 0, err
	}
	adds, n := page.Sum("endpoint_adds")
	retries, _ = page.Sum("endpoint_retries")
	if n == 0 {
		err = errors.New("the controller manager has no metric endpoint_adds")
	}
	return adds, retries, err
}

func (l *lab) service(ctx context.Context) error {
	text, err := load.Get(ctx, l.cm.URL+"/configz")
	if err != nil {
		return err
	}
	l.e.Record(configz{Text: text})

	begin := time.Now()
	if err := l.web.Publish(ctx, 0, true); err != nil {
		return err
	}
	if err := wait.Pause(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	changed := time.Now()
	if _, err := l.c.Client.PatchMerge(ctx, kube.Services, webset.NS, webset.Service, `{"spec":{"ports":[{"port":80,"targetPort":8081,"protocol":"TCP"}]}}`); err != nil {
		return err
	}
	ev, err := l.web.Endpoints.Wait(ctx, 20*time.Second, "the Service's new port", func(ev kube.RecordedEvent) bool {
		return ev.Time.After(begin) && strings.Contains(fmt.Sprint(kube.Field(ev.Object, "subsets")), "8081")
	})
	if err == nil {
		l.e.Record(serviceChanged{After: ev.Time.Sub(changed)})
	}
	return err
}

func (l *lab) delete(ctx context.Context) error {
	if err := l.settled(ctx, 1); err != nil {
		return err
	}
	begin := time.Now()
	if err := l.c.Client.DeleteNow(ctx, kube.Pods, webset.NS, webset.Name(0)); err != nil {
		return err
	}
	if err := l.web.WaitReady(ctx, 0, time.Minute); err != nil {
		return err
	}
	l.e.Record(podDeleted{LeftAfter: l.updated().Sub(begin)})
	return l.web.Make(ctx, 0, pod(0))
}

// kill: the program dies while a change waits, and one without the flag follows, as
// when the flag is taken back.
func (l *lab) kill(ctx context.Context) error {
	for round := range rounds(l.e.Profile) {
		if err := l.swap(ctx, "5s"); err != nil {
			return err
		}
		if err := l.publish(ctx, pods, true); err != nil {
			return err
		}
		if err := l.settled(ctx, pods); err != nil {
			return err
		}
		if err := l.publish(ctx, pods/2, false); err != nil {
			return err
		}
		if err := wait.Pause(ctx, time.Duration(l.e.Rand.IntN(3000))*time.Millisecond); err != nil {
			return err
		}
		o := killed{Round: round, Before: l.web.Ready()}
		if err := l.swap(ctx, ""); err != nil {
			return err
		}
		// That it does not happen is for the oracle.
		if err := l.web.WaitReady(ctx, pods/2, time.Minute); ctx.Err() != nil {
			return err
		}
		o.After = l.web.Ready()
		l.e.Record(o)
	}
	return nil
}

func (l *lab) negative(ctx context.Context) error {
	var o negative
	for _, c := range []struct {
		arg    string
		status *int
	}{{"--concurrent-endpoint-syncs=none", &o.Usual}, {flag + "=-1s", &o.Status}} {
		out, err := exec.CommandContext(ctx, l.e.UnderTest(l.base, "kube-controller-manager").Path, c.arg).CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return err
		}
		o.Said = fmt.Sprintf("%.300s", out)
		if exit != nil {
			*c.status = exit.ExitCode()
		}
	}
	l.e.Record(o)
	return nil
}
