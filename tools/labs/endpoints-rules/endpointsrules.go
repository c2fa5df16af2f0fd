// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointsrules is the lab endpoints-rules: the images of 20 pods change,
// and a client that follows Endpoints switches pods on whose old container is still
// there. See tools/labs/endpoints-rules/README.md.
package endpointsrules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/violation"
)

const (
	base = "v1.9.11"
	ns   = "default"
	pods = 20
	// stuck is the longest that a ready pod may be missing from the ready addresses.
	stuck = 5 * time.Second
	// tripped is the longest until the breaker has taken the webhook out.
	tripped = 20 * time.Second
)

func init() {
	labkit.Register(labkit.Lab{
		Modules: []string{"webhook"},
		Name:    "endpoints-rules",
		Summary: "a client that follows Endpoints switches pods on whose old container is still there",
		Plan: func(p labkit.Profile) []string {
			return []string{
				"start etcd, kube-apiserver and kube-controller-manager, all stock; pods are API objects, no kubelet runs them",
				"ours: endpoints-rules with the manifests that it writes itself, rule set image-pending, and its breaker",
				fmt.Sprintf("%d pods of a Service change their images within 1 s; the old containers end after 0.3 to 9 s; half are never seen not ready; %d round(s)", pods, labkit.Pick(p, 1, 10)),
				"oracle L: the report's client, which gathers updates for 2 s (fixed, and trailing), switches no pod on before its old container is gone",
				"ours: all addresses are ready 5 s after the last pod is, and the metric of misplaced ones is 0",
				"ours: kill -9 of the program in the middle of a round; when it is back, no address is stuck",
				"ours: SIGSTOP; the breaker empties the webhook configuration within 20 s, and fills it again after SIGCONT",
			}
		},
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 6*time.Minute, 25*time.Minute)
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
		},
		Run: run,
	})
}

type lab struct {
	e       *labkit.Env
	c       *node.Cluster
	eps     *kube.Recorder
	program *process.Proc
	spec    process.Process
	metrics func(context.Context) (string, error)
	image   int // of all pods now
}

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	l := &lab{e: e}
	res, err := l.run(ctx)
	return violation.Result(ctx, res, err, l.c.Alive)
}

func (l *lab) run(ctx context.Context) (labkit.Result, error) {
	if err := l.start(ctx); err != nil {
		return labkit.Result{}, err
	}
	ours := l.e.Variant == labkit.Ours
	if ours {
		if err := l.install(ctx); err != nil {
			return labkit.Result{}, err
		}
	}
	switched := 0
	for i := range labkit.Pick(l.e.Profile, 1, 10) {
		r, err := l.round(ctx, nil)
		if err != nil {
			return labkit.Result{}, err
		}
		l.e.Fact("round %d: L broken for %d of %d pods (fixed), %d (trailing); %d updates of the Endpoints; all ready %v after the last pod was",
			i+1, len(r.broken[fixed]), pods, len(r.broken[trailing]), r.updates, r.late.Round(10*time.Millisecond))
		if n := len(r.broken[fixed]) + len(r.broken[trailing]); n > 0 {
			return labkit.ReproducedBecause("the client switched on pods whose old container was still there: %v (fixed windows), %v (trailing)", r.broken[fixed], r.broken[trailing]), nil
		}
		switched += r.updates
		if ours {
			if err := l.settled(ctx); err != nil {
				return labkit.Result{}, err
			}
		}
	}
	if !ours {
		return labkit.AbsentBecause("no pod of %d was switched on too early", pods), nil
	}
	for _, step := range []func(context.Context) error{l.away, l.stopped} {
		if err := step(ctx); err != nil {
			return labkit.Result{}, err
		}
	}
	return labkit.AbsentBecause("no pod of %d was switched on before its old container was gone, in %d updates of the Endpoints, and none was stuck", pods, switched), nil
}

func (l *lab) start(ctx context.Context) error {
	var err error
	if l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.Stock(base, "kube-controller-manager"),
			// The pods' node does not exist. The rest is as it is in a cluster.
			ExtraArgs: []string{"--controllers=*,-podgc,-node"}},
	}); err != nil {
		return err
	}
	if l.eps, err = l.c.Client.Record(ctx, kube.Endpoints, ns); err != nil {
		return err
	}
	if _, err := l.c.Client.CreateYAML(ctx, ns, "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}"); err != nil {
		return err
	}
	for i := range pods {
		if _, err := l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {app: web}}, spec: {nodeName: node1, containers: [{name: web, image: 'web:0'}]}}", pod(i))); err != nil {
			return err
		}
		if err := l.status(ctx, i, 0, true); err != nil {
			return err
		}
	}
	return l.allReady(ctx, time.Minute)
}

func pod(i int) string { return fmt.Sprintf("web-%02d", i) }

// status is what a kubelet publishes: the container of an image, and readiness.
func (l *lab) status(ctx context.Context, i, image int, ready bool) error {
	word := map[bool]string{true: "True", false: "False"}[ready]
	_, err := l.c.Client.PatchMerge(ctx, kube.Pods, ns, pod(i), fmt.Sprintf(
		`{"status":{"phase":"Running","podIP":"10.91.1.%d","conditions":[{"type":"Ready","status":%q}],"containerStatuses":[{"name":"web","image":"web:%d","imageID":"docker://sha256:%d","containerID":"docker://%d-%d","ready":%v,"restartCount":%d,"state":{"running":{"startedAt":%q}}}]}}`,
		i+1, word, image, image, i, image, ready, image, time.Now().UTC().Format(time.RFC3339)), "status")
	return err
}

func (l *lab) allReady(ctx context.Context, bound time.Duration) error {
	return wait.Until(ctx, "all addresses are ready", bound, func(context.Context) (bool, error) {
		n := 0
		if ep := l.eps.Latest(ns, "web"); ep != nil {
			n = len(kube.ReadyAddresses(ep))
		}
		if n < pods {
			return false, fmt.Errorf("%d of %d", n, pods)
		}
		return true, nil
	})
}

// result is what became of one change of all images.
type result struct {
	broken  map[window][]string
	updates int
	late    time.Duration // from the last pod's readiness to the last address'
}

// round changes all images and plays the kubelets. during, if set, is called right
// after the images were changed.
func (l *lab) round(ctx context.Context, during func(context.Context) error) (result, error) {
	l.image++
	l.e.Step("all images to web:%d", l.image)
	off := time.Now()
	gone := map[string]time.Time{}
	var mu sync.Mutex
	errs := make(chan error, pods)
	type plan struct{ patch, end, start time.Duration }
	plans := make([]plan, pods)
	for i := range plans {
		ms := func(n int) time.Duration { return time.Duration(l.e.Rand.IntN(n)) * time.Millisecond }
		plans[i] = plan{ms(1000), 300*time.Millisecond + ms(8700), 500*time.Millisecond + ms(1500)}
	}
	var changed sync.WaitGroup
	changed.Add(pods)
	for i, p := range plans {
		go func() {
			errs <- func() error {
				pause(ctx, p.patch)
				_, err := l.c.Client.PatchStrategic(ctx, kube.Pods, ns, pod(i), fmt.Sprintf(`{"spec":{"containers":[{"name":"web","image":"web:%d"}]}}`, l.image))
				changed.Done()
				if err != nil {
					return err
				}
				pause(ctx, p.end)
				mu.Lock()
				gone[pod(i)] = time.Now()
				mu.Unlock()
				if i%2 == 0 { // half are seen not ready, after the kill; the others never
					if err := l.status(ctx, i, l.image-1, false); err != nil {
						return err
					}
				}
				pause(ctx, p.start)
				return l.status(ctx, i, l.image, true)
			}()
		}()
	}
	if during != nil {
		changed.Wait()
		if err := during(ctx); err != nil {
			return result{}, err
		}
	}
	for range pods {
		if err := <-errs; err != nil {
			return result{}, err
		}
	}
	ready := time.Now()
	if err := l.allReady(ctx, stuck); err != nil {
		if ctx.Err() != nil {
			return result{}, context.Cause(ctx)
		}
		return result{}, violation.Of(fmt.Errorf("%v after the last pod was ready: %w", stuck, err))
	}
	r := result{broken: map[window][]string{}, late: time.Since(ready)}
	if l.eps.Gaps() > 0 {
		return r, errors.New("the watch of Endpoints was lost: events may be missing")
	}
	var updates []update
	for _, ev := range l.eps.Of(ns, "web") {
		u := update{ev.Time, map[string]bool{}}
		if ev.Type != "DELETED" {
			kube.EachReadyAddress(ev.Object, func(pod, _ string) { u.ready[pod] = true })
		}
		updates = append(updates, u)
		if !ev.Time.Before(off) {
			r.updates++
		}
	}
	if r.updates == 0 {
		return r, errors.New("the Endpoints never changed: the trigger is missing")
	}
	for _, w := range []window{fixed, trailing} {
		r.broken[w] = broken(updates, off, w, gone)
	}
	return r, nil
}

// pause plays the time that something takes; it is no oracle.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// away: the program is killed when the images have changed, and comes back.
func (l *lab) away(ctx context.Context) error {
	r, err := l.round(ctx, func(ctx context.Context) error {
		l.e.Step("kill -9 of endpoints-rules, and start it again after 2 s")
		if err := l.program.Kill(); err != nil {
			return err
		}
		pause(ctx, 2*time.Second)
		return l.serve(ctx)
	})
	if err != nil {
		return err
	}
	l.e.Fact("killed in the middle: L broken for %d pods (fixed), %d (trailing); none is stuck", len(r.broken[fixed]), len(r.broken[trailing]))
	return l.settled(ctx)
}

// stopped: a program that hangs is taken out of the configuration by the breaker.
func (l *lab) stopped(ctx context.Context) error {
	l.e.Step("SIGSTOP of endpoints-rules")
	if err := syscall.Kill(l.program.Pid, syscall.SIGSTOP); err != nil {
		return err
	}
	start := time.Now()
	err := l.webhooks(ctx, 0, tripped)
	took := time.Since(start)
	if kerr := syscall.Kill(l.program.Pid, syscall.SIGCONT); kerr != nil {
		return kerr
	}
	if err != nil {
		return violation.Of(fmt.Errorf("a webhook that hangs stays in the configuration: %w", err))
	}
	if err := l.webhooks(ctx, 1, time.Minute); err != nil {
		return violation.Of(fmt.Errorf("the webhook answers again: %w", err))
	}
	l.e.Fact("SIGSTOP: the configuration was empty after %v", took.Round(100*time.Millisecond))
	return nil
}

var configurations = kube.GVR{Group: "admissionregistration.k8s.io", Version: "v1beta1", Resource: "mutatingwebhookconfigurations"}

func (l *lab) webhooks(ctx context.Context, n int, bound time.Duration) error {
	_, err := l.c.Client.WaitFor(ctx, configurations, "", "endpoints-rules", bound, fmt.Sprintf("has %d webhooks", n), func(o *kube.Object) (bool, error) {
		return len(kube.Slice(o, "webhooks")) == n, nil
	})
	return err
}

// sortedFiles lists the names of a folder's files, sorted: the order to apply them in.
func sortedFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out, nil
}
