// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointsbatching is the lab endpoints-batching: 20 pods become not ready
// one after another, and the Endpoints of their Service are written once a pod. See
// tools/labs/endpoints-batching/README.md.
package endpointsbatching

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/violation"
)

const (
	base = "v1.9.11"
	ns   = "default"
	pods = 20
	flag = "--endpoint-updates-batch-period"
)

func init() {
	labkit.Register(labkit.Lab{
		Name:    "endpoints-batching",
		Summary: "a batch of pods that changes within two seconds is as many updates of Endpoints as pods",
		Plan: func(p labkit.Profile) []string {
			return []string{
				"start etcd, kube-apiserver and the kube-controller-manager under test; pods are API objects, no kubelet runs them",
				fmt.Sprintf("%d pods of a Service become not ready within about 2 s, in %d round(s); count the updates of the Endpoints", pods, labkit.Pick(p, 1, 10)),
				"oracle: more than half as many updates as pods is the incident",
				"if the program has the flag: the same with period 0, 1 s and 5 s; 0 must be as without the flag, also in the queue's metrics",
				"with a period: the first change starts it, a change of the Service meanwhile does not wait, the deletion of a pod does",
				"with a period: kill -9 while a change waits, and go on without the flag: the change is not lost",
				"a negative period ends the program with status 2",
			}
		},
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 6*time.Minute, 25*time.Minute)
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.BinaryUnderTest(base, "kube-controller-manager"),
		},
		Run: run,
	})
}

type lab struct {
	e   *labkit.Env
	c   *node.Cluster
	cm  *kube.ControllerManager
	eps *kube.Recorder
	n   int // controller managers started so far
}

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	l := &lab{e: e}
	has, err := hasFlag(ctx, e.UnderTest(base, "kube-controller-manager").Path)
	if err != nil {
		return labkit.Result{}, err
	}
	e.Fact("the program has %s: %v", flag, has)
	if err := l.start(ctx); err != nil {
		return labkit.Result{}, err
	}
	without, err := l.measure(ctx, "")
	if err != nil {
		return l.judge(ctx, err)
	}
	if without.updates <= pods/2 {
		return labkit.Result{}, fmt.Errorf("only %d updates for %d pods without the flag: the trigger is missing", without.updates, pods)
	}
	if !has {
		return labkit.ReproducedBecause("%d pods that became not ready within %v: %d updates of their Endpoints, and no flag that changes it", pods, without.took, without.updates), nil
	}
	for _, step := range []func(context.Context, result) error{l.zero, l.second, l.five, l.killed, l.negative} {
		if err := step(ctx, without); err != nil {
			return l.judge(ctx, err)
		}
	}
	return labkit.AbsentBecause("%d pods that became not ready within %v: %d updates without the flag, 1 with 5s", pods, without.took, without.updates), nil
}

func (l *lab) judge(ctx context.Context, err error) (labkit.Result, error) {
	return violation.Result(ctx, labkit.Result{}, err, l.c.Alive)
}

// hasFlag asks the program itself.
func hasFlag(ctx context.Context, program string) (bool, error) {
	out, err := exec.CommandContext(ctx, program, "--help").CombinedOutput()
	if !strings.Contains(string(out), "--concurrent-endpoint-syncs") {
		return false, fmt.Errorf("%s --help: %w: %.200s", program, err, out)
	}
	return strings.Contains(string(out), flag+" "), nil
}

func (l *lab) start(ctx context.Context) error {
	var err error
	l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
	})
	if err != nil {
		return err
	}
	if err := l.swap(ctx, ""); err != nil {
		return err
	}
	if _, err := l.c.Client.WaitFor(ctx, kube.ServiceAccounts, ns, "default", 90*time.Second, "with a token", func(o *kube.Object) (bool, error) {
		return len(kube.Slice(o, "secrets")) > 0, nil
	}); err != nil {
		return err
	}
	if l.eps, err = l.c.Client.Record(ctx, kube.Endpoints, ns); err != nil {
		return err
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`); err != nil {
		return err
	}
	for i := range pods {
		if err := l.create(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func pod(i int) string { return fmt.Sprintf("web-%02d", i) }

func (l *lab) create(ctx context.Context, i int) error {
	if _, err := l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: web}}
spec: {nodeName: node1, containers: [{name: web, image: none, ports: [{containerPort: 8080}]}]}
`, pod(i))); err != nil {
		return err
	}
	return l.set(ctx, i, true)
}

// set is what a kubelet does that publishes a pod's readiness.
func (l *lab) set(ctx context.Context, i int, ready bool) error {
	status := map[bool]string{true: "True", false: "False"}[ready]
	_, err := l.c.Client.PatchStrategic(ctx, kube.Pods, ns, pod(i), fmt.Sprintf(
		`{"status":{"phase":"Running","podIP":"10.91.1.%d","conditions":[{"type":"Ready","status":%q}]}}`, i+1, status), "status")
	return err
}

// swap ends the controller manager, if there is one, and starts one with that period;
// "" is without the flag. It waits until the new one has looked at the Services.
func (l *lab) swap(ctx context.Context, period string) error {
	if l.cm != nil && l.cm.Alive() {
		if err := l.cm.Kill(); err != nil {
			return err
		}
	}
	args := []string{
		// The pods' node does not exist.
		"--controllers=*,-podgc,-node",
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
		Name: fmt.Sprintf("kube-controller-manager-%d", l.n), Program: l.e.UnderTest(base, "kube-controller-manager"), ExtraArgs: args})
	return err
}

// ready waits until so many addresses are ready, and the controller's queue is empty.
func (l *lab) ready(ctx context.Context, n int) error {
	return wait.Until(ctx, fmt.Sprintf("%d ready addresses", n), time.Minute, func(ctx context.Context) (bool, error) {
		ep := l.eps.Latest(ns, "web")
		if ep == nil || len(kube.ReadyAddresses(ep)) != n {
			return false, nil
		}
		return true, nil
	})
}

// result is what became of one batch.
type result struct {
	updates int
	// took is from the first change to the last, first and last are from the first
	// change to the first and the last update of the Endpoints.
	took, first, last time.Duration
	// adds and retries are how the queue's metrics grew.
	adds, retries float64
}

func (r result) String() string {
	return fmt.Sprintf("%d updates for %d pods in %v, the first after %v, the last after %v; the queue's metrics: %v adds, %v retries",
		r.updates, pods, r.took.Round(10*time.Millisecond), r.first.Round(10*time.Millisecond), r.last.Round(10*time.Millisecond), r.adds, r.retries)
}

// measure starts a controller manager with that period, and makes all pods not
// ready. It returns the round with most updates.
func (l *lab) measure(ctx context.Context, period string) (result, error) {
	l.e.Step("period %q", period)
	if err := l.swap(ctx, period); err != nil {
		return result{}, err
	}
	var worst result
	for range labkit.Pick(l.e.Profile, 1, 10) {
		r, err := l.batch(ctx)
		if err != nil {
			return r, err
		}
		l.e.Fact("period %q: %v", period, r)
		if r.updates > worst.updates {
			worst = r
		}
	}
	return worst, nil
}

func (l *lab) batch(ctx context.Context) (result, error) {
	for i := range pods {
		if err := l.set(ctx, i, true); err != nil {
			return result{}, err
		}
	}
	if err := l.settled(ctx, pods); err != nil {
		return result{}, err
	}
	adds, retries, err := l.metrics(ctx)
	if err != nil {
		return result{}, err
	}
	begin := time.Now()
	for i := range pods {
		// The kubelets of two nodes publish about that fast.
		pause(ctx, time.Duration(60+l.e.Rand.IntN(80))*time.Millisecond)
		if err := l.set(ctx, i, false); err != nil {
			return result{}, err
		}
	}
	r := result{took: time.Since(begin)}
	if r.took > 4*time.Second {
		return r, fmt.Errorf("%d changes took %v: too slow to judge", pods, r.took)
	}
	if err := l.settled(ctx, 0); err != nil {
		return r, err
	}
	for _, ev := range l.eps.Of(ns, "web") {
		if ev.Type == "MODIFIED" && ev.Time.After(begin) {
			if r.updates++; r.updates == 1 {
				r.first = ev.Time.Sub(begin)
			}
			r.last = ev.Time.Sub(begin)
		}
	}
	if l.eps.Gaps() > 0 {
		return r, errors.New("the watch of Endpoints was lost: updates may be missing")
	}
	a, b, err := l.metrics(ctx)
	r.adds, r.retries = a-adds, b-retries
	return r, err
}

// settled waits until so many addresses are ready and no update followed for longer
// than the longest period.
func (l *lab) settled(ctx context.Context, n int) error {
	if err := l.ready(ctx, n); err != nil {
		return err
	}
	return wait.Until(ctx, "no update of the Endpoints for 6 s", time.Minute, func(context.Context) (bool, error) {
		evs := l.eps.Of(ns, "web")
		return time.Since(evs[len(evs)-1].Time) > 6*time.Second, nil
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// metrics are those of the endpoints controller's queue.
func (l *lab) metrics(ctx context.Context) (adds, retries float64, err error) {
	text, err := load.Get(ctx, l.cm.URL+"/metrics")
	if err != nil {
		return 0, 0, err
	}
	found := false
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		switch name {
		case "endpoint_adds":
			found = true
			adds, err = strconv.ParseFloat(value, 64)
		case "endpoint_retries":
			retries, err = strconv.ParseFloat(value, 64)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	if !found {
		return 0, 0, errors.New("the controller manager has no metric endpoint_adds")
	}
	return adds, retries, nil
}

// zero: a period of 0 is as without the flag.
func (l *lab) zero(ctx context.Context, without result) error {
	r, err := l.measure(ctx, "0")
	if err != nil {
		return err
	}
	if r.updates <= pods/2 {
		return violation.Of(fmt.Errorf("period 0 batches: %v", r))
	}
	// A conflict is a retry too; a queue that is asked to wait 0 would have one a pod.
	for _, r := range []result{without, r} {
		if r.retries > pods/4 || r.adds < pods/2 {
			return violation.Of(fmt.Errorf("the queue's metrics without a period: %v", r))
		}
	}
	return nil
}

// tolerance is for a busy machine: from a due time to the event that the lab sees.
const tolerance = 1500 * time.Millisecond

func (l *lab) second(ctx context.Context, _ result) error {
	r, err := l.measure(ctx, "1s")
	if err != nil {
		return err
	}
	// One window follows the other while changes come.
	if most := int(r.took/time.Second) + 2; r.updates > most {
		return violation.Of(fmt.Errorf("period 1s: %v, expected at most %d updates", r, most))
	}
	if r.first < time.Second || r.last > r.took+time.Second+tolerance {
		return violation.Of(fmt.Errorf("period 1s: %v", r))
	}
	return nil
}

func (l *lab) five(ctx context.Context, _ result) error {
	const period = 5 * time.Second
	r, err := l.measure(ctx, "5s")
	if err != nil {
		return err
	}
	if r.updates != 1 || r.first < period || r.last > period+tolerance {
		return violation.Of(fmt.Errorf("period 5s: %v, expected one update 5 s after the first change", r))
	}
	if r.retries < 1 {
		return violation.Of(fmt.Errorf("period 5s: the page says that each wait counts as a retry: %v", r))
	}
	config, err := load.Get(ctx, l.cm.URL+"/configz")
	if err != nil {
		return err
	}
	if !strings.Contains(config, "concurrentEndpointSyncs") && !strings.Contains(config, "ConcurrentEndpointSyncs") {
		return fmt.Errorf("/configz answers %.200s", config)
	}
	if strings.Contains(strings.ToLower(config), "endpointupdates") {
		return violation.Of(errors.New("/configz has a field that stock's has not"))
	}

	l.e.Step("period 5s: a change of the Service while a pod's change waits")
	begin := time.Now()
	if err := l.set(ctx, 0, true); err != nil {
		return err
	}
	pause(ctx, 500*time.Millisecond)
	changed := time.Now()
	if _, err := l.c.Client.PatchMerge(ctx, kube.Services, ns, "web", `{"spec":{"ports":[{"port":80,"targetPort":8081,"protocol":"TCP"}]}}`); err != nil {
		return err
	}
	ev, err := l.eps.Wait(ctx, 20*time.Second, "the Service's new port", func(ev kube.RecordedEvent) bool {
		return ev.Time.After(begin) && strings.Contains(fmt.Sprint(kube.Field(ev.Object, "subsets")), "8081")
	})
	if err != nil {
		return err
	}
	l.e.Fact("period 5s: a change of the Service took %v", ev.Time.Sub(changed).Round(10*time.Millisecond))
	if took := ev.Time.Sub(changed); took > time.Second {
		return violation.Of(fmt.Errorf("a change of the Service took %v while a pod's change waited", took))
	}

	l.e.Step("period 5s: a pod is deleted")
	if err := l.settled(ctx, 1); err != nil {
		return err
	}
	begin = time.Now()
	if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, pod(0)); err != nil {
		return err
	}
	if err := l.ready(ctx, 0); err != nil {
		return err
	}
	evs := l.eps.Of(ns, "web")
	took := evs[len(evs)-1].Time.Sub(begin)
	l.e.Fact("period 5s: the address of a deleted pod left after %v", took.Round(10*time.Millisecond))
	if took < period-100*time.Millisecond || took > period+tolerance {
		return violation.Of(fmt.Errorf("the address of a deleted pod left after %v", took))
	}
	return l.create(ctx, 0)
}

// killed: the program dies while a change waits, and one without the flag follows, as
// when the flag is taken back.
func (l *lab) killed(ctx context.Context, _ result) error {
	for range labkit.Pick(l.e.Profile, 1, 10) {
		l.e.Step("kill -9 while a change waits, then no flag")
		if err := l.swap(ctx, "5s"); err != nil {
			return err
		}
		for i := range pods {
			if err := l.set(ctx, i, true); err != nil {
				return err
			}
		}
		if err := l.settled(ctx, pods); err != nil {
			return err
		}
		for i := range pods / 2 {
			if err := l.set(ctx, i, false); err != nil {
				return err
			}
		}
		pause(ctx, time.Duration(l.e.Rand.IntN(3000))*time.Millisecond)
		if n := len(kube.ReadyAddresses(l.eps.Latest(ns, "web"))); n != pods {
			return fmt.Errorf("%d addresses are ready before the controller manager is killed: no change waits", n)
		}
		if err := l.swap(ctx, ""); err != nil {
			return err
		}
		if err := l.ready(ctx, pods/2); err != nil {
			return violation.Of(fmt.Errorf("a change that waited is lost: %w", err))
		}
	}
	return nil
}

// negative: the program says what is wrong and ends before it does anything.
func (l *lab) negative(ctx context.Context, _ result) error {
	out, err := exec.CommandContext(ctx, l.e.UnderTest(base, "kube-controller-manager").Path, flag+"=-1s").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "is negative") {
		return violation.Of(fmt.Errorf("%s=-1s: %v: %.300s", flag, err, out))
	}
	return nil
}
