// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointsrules is the lab endpoints-rules: the images of 20 pods change,
// and a client that follows Endpoints switches pods on whose old container is still
// there. See tools/labs/endpoints-rules/README.md.
package endpointsrules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/sweep"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/webset"
)

const (
	base = "v1.9.11"
	ns   = webset.NS
	pods = webset.Pods
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{endpointsRulesLab(), faultsLab(), kubeletsLab(), podLab(), queuedLab(), replicasLab()}
}

func endpointsRulesLab() labkit.Lab {
	return labkit.Lab{
		Name:    "endpoints-rules",
		Summary: "a client that copies Endpoints to a load balancer enables pods whose old container still runs",
		Steps:   steps,
		Oracle:  oracle,
		Test:    []labkit.Variant{labkit.Ours},
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 6*time.Minute, 25*time.Minute)
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
		},
	}
}

// rounds is how often all images are changed.
func rounds(p labkit.Profile) int { return labkit.Pick(p, 1, 10) }

type lab struct {
	e       *labkit.Env
	c       *node.Cluster
	web     *webset.Set
	program *program
	image   int // of all pods now
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	ours := e.Variant == labkit.Ours
	all := []labkit.Step{
		{Text: "start etcd, kube-apiserver and kube-controller-manager, all stock", Do: l.startCluster},
		{Text: fmt.Sprintf("create a Service and %d ready pods, which are API objects: no kubelet runs them", pods), Do: l.start},
	}
	if ours {
		all = append(all, labkit.Step{Text: "install endpoints-rules with the manifests that it writes itself, rule set image-pending, and its breaker", Do: l.install})
	}
	change := "change all images within 1 s; the old containers end after 0.3 to 9 s; half of the pods are never published as not ready"
	for i := range rounds(e.Profile) {
		all = append(all, labkit.Step{Text: fmt.Sprintf("round %d: %s; a pod that is enabled too early, or an address that is stuck, ends the run", i+1, change),
			Do: func(ctx context.Context) error { return l.replaceAll(ctx, i, nil) }})
		if ours {
			all = append(all, labkit.Step{Text: fmt.Sprintf("round %d: read the metric of misplaced addresses until it is 0", i+1),
				Do: func(ctx context.Context) error { return l.settled(ctx, i) }})
		}
	}
	if ours {
		n := rounds(e.Profile)
		all = append(all,
			labkit.Step{Text: change + "; kill -9 of endpoints-rules right after the change, and start it again after 2 s",
				Do: func(ctx context.Context) error { return l.replaceAll(ctx, n, l.kill) }},
			labkit.Step{Text: "read the metric of misplaced addresses until it is 0", Do: func(ctx context.Context) error { return l.settled(ctx, n) }},
			labkit.Step{Text: "SIGSTOP of endpoints-rules until the webhook configuration is empty, then SIGCONT, and wait until the configuration is filled again", Do: l.stop})
	}
	return append(all, labkit.Step{Text: "check that etcd, kube-apiserver and kube-controller-manager run, and that no watch was lost", Always: true, Do: l.intact})
}

// intact: endpoints-rules is not asked for, as what it does is judged.
func (l *lab) intact(ctx context.Context) error {
	if n := l.web.Endpoints.Gaps(); n > 0 {
		return fmt.Errorf("the watch of Endpoints was lost %d times: updates may be missing", n)
	}
	return l.c.Alive(ctx)
}

func (l *lab) startCluster(ctx context.Context) (err error) {
	l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.Stock(base, "kube-controller-manager"),
			// The pods' node does not exist. The rest is as it is in a cluster.
			ExtraArgs: []string{"--controllers=*,-podgc,-node"}},
	})
	return err
}

func (l *lab) start(ctx context.Context) (err error) {
	if l.web, err = webset.Create(ctx, l.c.Client, func(int) *corev1.Pod { return webset.Object(image(0)) }); err != nil {
		return err
	}
	for i := range pods {
		if err := l.status(ctx, i, 0, true); err != nil {
			return err
		}
	}
	return l.web.WaitReady(ctx, pods, time.Minute)
}

func image(n int) string { return fmt.Sprintf("web:%d", n) }

func (l *lab) install(ctx context.Context) (err error) {
	if l.program, err = prepare(ctx, l.e, l.c, "image-pending", ns); err != nil {
		return err
	}
	return l.program.install(ctx, webset.Service)
}

// status does what a kubelet does that publishes the container of an image, and readiness.
func (l *lab) status(ctx context.Context, i, n int, ready bool) error {
	patch, err := json.Marshal(map[string]any{"status": corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: webset.IP(i),
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: webset.Service, Image: image(n), ImageID: fmt.Sprintf("docker://sha256:%d", n), ContainerID: fmt.Sprintf("docker://%d-%d", i, n),
			Ready: ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}},
	}})
	if err != nil {
		return err
	}
	_, err = l.c.Client.PatchMerge(ctx, kube.Pods, ns, webset.Name(i), string(patch), "status")
	return err
}

// replaceAll changes all images and records what became of it. during, if set, is called
// right after the images were changed.
func (l *lab) replaceAll(ctx context.Context, number int, during func(context.Context) error) error {
	r := round{Killed: during != nil}
	// While one of these is away nobody puts right what is stored, and the client acts upon it. A
	// kill of the lab's own shows that for the program.
	if err := l.e.Sweep.Undisturbed(ctx, func() (err error) {
		r.replacement, err = l.change(ctx, stuck, during)
		return err
	}, sweep.Webhook, sweep.APIServer, sweep.Etcd); err != nil {
		return err
	}
	r.Round = number
	l.e.Record(r)
	if r.enough() {
		return labkit.Enough
	}
	return nil
}

// change changes all images, plays the kubelets, and waits at most bound until all
// addresses are ready.
func (l *lab) change(ctx context.Context, bound time.Duration, during func(context.Context) error) (replacement, error) {
	l.image++
	type times struct{ patch, end, start time.Duration }
	plan := make([]times, pods)
	for i := range plan {
		ms := func(n int) time.Duration { return time.Duration(l.e.Rand.IntN(n)) * time.Millisecond }
		plan[i] = times{ms(1000), 300*time.Millisecond + ms(8700), 500*time.Millisecond + ms(1500)}
	}
	r := replacement{Pods: make([]replaced, pods)}
	begin := time.Now()
	errs := make(chan error, pods)
	var changed sync.WaitGroup
	changed.Add(pods)
	for i, p := range plan {
		go func() {
			errs <- func() error {
				err := wait.Pause(ctx, p.patch)
				if err == nil {
					err = l.web.SetImage(ctx, webset.Name(i), image(l.image))
				}
				changed.Done()
				if err != nil {
					return err
				}
				if err := wait.Pause(ctx, p.end); err != nil {
					return err
				}
				r.Pods[i] = replaced{webset.Name(i), time.Since(begin)}
				if i%2 == 0 { // half are seen not ready, after the kill; the others never
					if err := l.status(ctx, i, l.image-1, false); err != nil {
						return err
					}
				}
				if err := wait.Pause(ctx, p.start); err != nil {
					return err
				}
				return l.status(ctx, i, l.image, true)
			}()
		}()
	}
	if during != nil {
		changed.Wait()
		if err := during(ctx); err != nil {
			return r, err
		}
	}
	for range pods {
		if err := <-errs; err != nil {
			return r, err
		}
	}
	var err error
	if r.Late, err = late(ctx, l.web, bound); err != nil {
		return r, err
	}
	r.Addresses = l.web.Ready()
	r.Updates = updatesSince(l.web, begin)
	return r, nil
}

// late waits until all addresses are ready and says how long that took, 0 if it was not in
// time: that is for the oracle.
func late(ctx context.Context, web *webset.Set, bound time.Duration) (time.Duration, error) {
	begin := time.Now()
	if err := web.WaitReady(ctx, pods, bound); err == nil {
		return max(time.Since(begin), time.Millisecond), nil
	} else if ctx.Err() != nil {
		return 0, err
	}
	return 0, nil
}

// updatesSince are the updates of the Endpoints that a watcher saw from begin on.
func updatesSince(web *webset.Set, begin time.Time) []update {
	var out []update
	for _, ev := range web.Versions() {
		if ev.Time.Before(begin) {
			continue
		}
		u := update{At: ev.Time.Sub(begin)}
		if ev.Type != "DELETED" {
			u.Ready = kubeletlab.ReadyPods(ev.Object)
		}
		out = append(out, u)
	}
	return out
}

// kill ends the program when the images have changed, and starts it again.
func (l *lab) kill(ctx context.Context) error {
	l.e.Step("kill -9 of endpoints-rules")
	if err := l.program.run.Kill(); err != nil {
		return err
	}
	if err := wait.Pause(ctx, 2*time.Second); err != nil {
		return err
	}
	return l.program.serve(ctx)
}

// settled asks the program until it says that nothing is misplaced.
func (l *lab) settled(ctx context.Context, number int) error {
	o := settled{Round: number}
	err := wait.Until(ctx, "no address is misplaced", stuck, func(ctx context.Context) (bool, error) {
		page, err := l.program.metrics(ctx)
		if err == nil {
			var n int
			if o.Misplaced, n = page.Sum("endpoints_rules_misplaced_addresses"); n == 0 {
				err = errors.New("the page has no such metric")
			}
		}
		if ctx.Err() == nil {
			o.Unread = ""
			if err != nil {
				o.Unread = err.Error()
			}
		}
		return o.Misplaced == 0, err
	})
	if ctx.Err() != nil {
		return err
	}
	if err != nil && o.Misplaced == 0 && o.Unread == "" {
		o.Unread = err.Error()
	}
	l.e.Record(o)
	if err != nil {
		return labkit.Enough
	}
	return nil
}

// stop: a program that hangs is taken out of the configuration by the breaker.
func (l *lab) stop(ctx context.Context) error {
	if err := l.program.run.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var o hung
	var err error
	o.EmptyAfter, err = l.program.webhooks(ctx, 0, tripped)
	if kerr := l.program.run.Signal(syscall.SIGCONT); kerr != nil {
		return kerr
	}
	if err == nil {
		o.FilledAfter, err = l.program.webhooks(ctx, 1, back)
	}
	if ctx.Err() != nil {
		return err
	}
	l.e.Record(o) // an error is for the oracle
	return nil
}
