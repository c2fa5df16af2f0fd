// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package costatrest is the check cost-at-rest: what a kubelet with many pods and a
// controller manager with many Deployments take of the computer, stock against ours. See
// tools/labs/checks/cost-at-rest/README.md.
package costatrest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/costlab"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/webset"
)

const (
	base    = "v1.9.11"
	ns      = "default"
	kubelet = "kubelet"
	manager = "kube-controller-manager"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:      "cost-at-rest",
		Folder:    "checks/cost-at-rest",
		OnRequest: true,
		Summary:   "memory, CPU, start, goroutines, open files and requests of a kubelet with many pods and a controller manager with many Deployments, stock compared with Holdfast",
		Steps:     steps,
		Oracle:    oracle,
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, manager),
			labkit.StockBinary(base, kubelet),
			labkit.BinaryUnderTest(base, manager),
			labkit.BinaryUnderTest(base, kubelet),
		},
		Variants: []labkit.Variant{labkit.Ours},
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 20*time.Minute, 120*time.Minute)
		},
	}}
}

// size is what a profile makes. The kubelet's default --max-pods is 110.
type size struct {
	pods, deployments int
	rounds            int // of four turns each, see round
	// starts is how often a turn starts its processes, to measure that; the last ones stay.
	starts int
	// A process is measured from the age rest to the age end.
	rest, end time.Duration
}

func sizeOf(p labkit.Profile) size {
	return labkit.Pick(p,
		size{pods: 20, deployments: 40, rounds: 2, starts: 3, rest: 30 * time.Second, end: time.Minute},
		size{pods: 110, deployments: 200, rounds: 3, starts: 9, rest: 200 * time.Second, end: 5 * time.Minute})
}

// pairs is how many of each program there are: two in each round.
func (s size) pairs() int { return 2 * s.rounds }

// turn is whose kubelet and whose controller manager run.
type turn struct{ kubelet, manager string }

// pair is that of a program in its round, by the build of the other one.
func pair(round int, beside string) int {
	if beside == costlab.Ours {
		return 2*round + 1
	}
	return 2 * round
}

// round has both builds of each program beside both of the other one, so that each is compared
// beside the same: a stock kubelet that starts publishes all pods as not ready and as ready
// again, and the controller manager follows. Of the two pairs of each program stock is first in
// one, and ours in the other. The rest is chance.
func round(rng *rand.Rand) []turn {
	builds := []string{costlab.Stock, costlab.Ours}
	k, m := rng.IntN(2), rng.IntN(2)
	turns := []turn{
		{builds[k], builds[m]}, {builds[1-k], builds[1-m]},
		{builds[k], builds[1-m]}, {builds[1-k], builds[m]},
	}
	if rng.IntN(2) == 0 {
		turns[2], turns[3] = turns[3], turns[2]
	}
	return turns
}

type lab struct {
	e *labkit.Env
	c *node.Cluster
	size
	containers kubeletlab.Snapshot
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e, size: sizeOf(e.Profile)}
	s := []labkit.Step{
		{Text: "start the control plane v1.9.11 and a node with the kubelet v1.9.11, all stock", Do: l.start},
		{Text: fmt.Sprintf("create %d Deployments of one pod each, each with a Service; %d of the pods run on the node", l.deployments, l.pods), Do: l.create},
	}
	for i := range l.rounds {
		for _, t := range round(e.Rand) {
			s = append(s, labkit.Step{
				Text: fmt.Sprintf("round %d: start the kubelet (%s) and the controller manager (%s) and measure them until they are %v old", i+1, t.kubelet, t.manager, l.end),
				Do:   func(ctx context.Context) error { return l.measure(ctx, i, t) }})
		}
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }))
}

func (l *lab) start(ctx context.Context) (err error) {
	l.c, err = l.e.StartStockCluster(ctx, base, node.Config{Name: "node1", Kubelet: l.e.Stock(base, kubelet)})
	return err
}

func deploymentName(i int) string { return fmt.Sprintf("web-%03d", i) }

// deployment is one of a pod that runs on the node on. "" binds it to none: no scheduler
// runs.
func deployment(name, on string) *appsv1.Deployment {
	web := node.Web("web")
	web.Env = []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
	web.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}
	web.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/ready", 8080), PeriodSeconds: 10}
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: node.Pod("", on, web).Spec},
		},
	}
}

func (l *lab) create(ctx context.Context) error {
	for i := range l.deployments {
		on := ""
		if i < l.pods {
			on = "node1"
		}
		if err := l.c.Client.Make(ctx, ns, deployment(deploymentName(i), on), kube.Service(deploymentName(i), deploymentName(i), 8080)); err != nil {
			return err
		}
	}
	published := map[string]bool{}
	_, err := l.c.Client.WaitList(ctx, kube.Pods, ns, "", 20*time.Minute, "all ready", func(list []kube.Object) (bool, error) {
		ready := 0
		for i := range list {
			p := &list[i]
			switch {
			case kubeletlab.PodReady(p):
				ready++
			case kube.String(p, "spec", "nodeName") == "" && !published[p.GetName()]:
				// Nobody else publishes the status of a pod without a node.
				n := len(published)
				if err := webset.PublishReady(ctx, l.c.Client, ns, p.GetName(), fmt.Sprintf("10.94.%d.%d", n/250, n%250+1), true); err != nil {
					return false, err
				}
				published[p.GetName()] = true
			}
		}
		if ready != l.deployments {
			return false, fmt.Errorf("%d of %d", ready, l.deployments)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	l.containers, err = kubeletlab.WaitStable(ctx, l.c.Nodes[0], 10*time.Second, 5*time.Minute)
	return err
}

func (l *lab) program(who, name string) kube.Program {
	if who == costlab.Ours {
		return l.e.UnderTest(base, name)
	}
	return l.e.Stock(base, name)
}

// measure starts one build of each and measures both.
func (l *lab) measure(ctx context.Context, round int, t turn) error {
	n := l.c.Nodes[0]
	if err := costlab.DeleteEvents(ctx, l.c.Client, ns); err != nil {
		return err
	}
	startManager, err := costlab.SwapManager(ctx, l.e, l.c, l.program(t.manager, manager), l.starts)
	if err != nil {
		return err
	}
	startKubelet, err := costlab.SwapKubelet(ctx, n, l.program(t.kubelet, kubelet), l.starts)
	if err != nil {
		return err
	}
	born := n.Kubelet.Started // the controller manager is a little older
	if err := wait.Pause(ctx, time.Until(born.Add(l.rest))); err != nil {
		return err
	}
	if err := l.atRest(ctx); err != nil {
		return err
	}
	targets := []costlab.Target{
		{Proc: n.Kubelet, ProfilesURL: "https://" + n.IP + ":10250/debug/pprof", TLS: l.c.APIServer.TLS},
		{Proc: l.c.ControllerManager.Proc, ProfilesURL: l.c.ControllerManager.URL + "/debug/pprof"},
	}
	readings := []costlab.Reading{
		{Component: kubelet, Who: t.kubelet, Pair: pair(round, t.manager)},
		{Component: manager, Who: t.manager, Pair: pair(round, t.kubelet)},
	}
	var before []costlab.Counts
	var startCPU []float64
	for i, target := range targets {
		cpu, err := target.CPU()
		if err != nil {
			return err
		}
		asked, err := costlab.ReadRequests(ctx, l.c.APIServer, readings[i].Component)
		if err != nil {
			return err
		}
		startCPU, before = append(startCPU, cpu), append(before, asked)
	}
	meter, err := costlab.StartMeter(ctx, targets...)
	if err != nil {
		return err
	}
	waited := wait.Pause(ctx, time.Until(born.Add(l.end)))
	took, err := meter.Stop()
	if err := errors.Join(waited, err); err != nil {
		return err
	}
	for i, target := range targets {
		r := &readings[i]
		asked, err := costlab.ReadRequests(ctx, l.c.APIServer, r.Component)
		if err != nil {
			return err
		}
		r.Took, r.Asked = took[i], asked.Since(before[i])
		r.Took[costlab.Start] = []float64{startKubelet, startManager}[i]
		r.Took[costlab.StartCPU] = startCPU[i]
		r.Took[costlab.Requests] = r.Asked.All()
		if err := target.Inside(ctx, r.Took); err != nil {
			return err
		}
		l.e.Step("%s", r)
	}
	if err := l.atRest(ctx); err != nil {
		return err
	}
	for _, r := range readings {
		l.e.Record(r)
	}
	return nil
}

// atRest is an error unless the kubelet has seen all pods, and the containers are still
// those that ran before the first turn.
func (l *lab) atRest(ctx context.Context) error {
	n := l.c.Nodes[0]
	if err := kubeletlab.WaitSynced(ctx, n, l.pods, 30*time.Second); err != nil { // it may be slow to answer
		return err
	}
	now, err := kubeletlab.Take(ctx, n)
	if err != nil {
		return err
	}
	d := kubeletlab.Compare(l.containers, now, func(string, kubeletlab.Container) bool { return true })
	if len(d.Kept) != len(l.containers) || len(now) != len(l.containers) {
		return fmt.Errorf("%d containers ran before the first turn and %d run now, %d of them the same", len(l.containers), len(now), len(d.Kept))
	}
	return nil
}
