// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admissionacrossrestart is the lab admission-across-restart: a kubelet is
// restarted on a node whose pods would not be admitted as new ones. See
// tools/labs/admission-across-restart/README.md.
package admissionacrossrestart

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base = "v1.9.11"
	ns   = "default"
	// webs is how many pods of a case serve; one more is in back-off.
	webs = 3
	// patience is for what takes a second on an idle machine.
	patience = 90 * time.Second
	// away is for how long the list of Nodes fails after that of the pods was answered. A
	// kubelet of Holdfast waits twice as long for it.
	away = 15 * time.Second
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "admission-across-restart",
		Summary: "a kubelet that starts rejects pods that already run on its node: labels, reserved resources, disk pressure",
		Test:    []labkit.Variant{labkit.Ours},
		Steps:   steps,
		Oracle:  oracle,
		Timeout: func(labkit.Profile) time.Duration { return 12 * time.Minute },
		Needs:   labkit.KubeletNeeds(base, labkit.StockBinary(base, "kubelet")),
	}}
}

type lab struct {
	e     *labkit.Env
	c     *node.Cluster
	node  *node.Node
	proxy *kube.Proxy
	// cpu is what the pods of the node can have, in thousandths.
	cpu int64
	// lists of pods that were answered before the kubelet started.
	lists int
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	s := []labkit.Step{
		{Text: "start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet v1.9.11 behind a proxy", Do: l.start},
	}
	for _, t := range l.trials() {
		kill := e.Rand.IntN(2) == 0
		how := map[bool]string{true: "kill -9", false: "SIGTERM"}[kill]
		s = append(s, labkit.Step{Text: fmt.Sprintf("%s: %d pods, and one in back-off; %s, %s; a new pod", t.name, webs, how, t.text),
			Do: func(ctx context.Context) error { return l.try(ctx, t, kill) }})
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }))
}

func (l *lab) start(ctx context.Context) error {
	c, err := l.e.StartStockCluster(ctx, base)
	if err != nil {
		return err
	}
	l.c = c
	if l.proxy, err = l.e.StartProxy(c.APIServer, "proxy", l.e.Seed); err != nil {
		return err
	}
	if l.node, err = l.e.StartNode(ctx, l.proxy.Before(c.APIServer), node.Config{Name: "node1", Kubelet: l.e.Stock(base, "kubelet"),
		KubeletArgs: []string{"--node-status-update-frequency=2s"}}); err != nil {
		return err
	}
	l.c.Nodes = []*node.Node{l.node}
	if err := c.WaitNodeReady(ctx, l.node.Name, patience); err != nil {
		return err
	}
	n, err := c.Client.Get(ctx, kube.Nodes, "", l.node.Name)
	if err != nil {
		return err
	}
	if l.cpu = allocatable(n); l.cpu < 100 {
		return fmt.Errorf("the Node has %dm of cpu for pods: too little for this trial", l.cpu)
	}
	return nil
}

// pod is called <trial>-<role>.
func (l *lab) pod(t trial, role string, command ...string) *corev1.Pod {
	p := node.Pod(strings.ReplaceAll(t.name, " ", "-")+"-"+role, l.node.Name, node.Web("web", command...))
	t.demand(p)
	return p
}

// try is one trial.
func (l *lab) try(ctx context.Context, t trial, kill bool) error {
	if t.before != nil {
		if err := t.before(ctx); err != nil {
			return err
		}
	}
	var all []runtime.Object
	var pods []string
	for i := range webs {
		all = append(all, l.pod(t, fmt.Sprintf("web-%d", i)))
	}
	backOff := l.pod(t, "back-off", "exit", "1")
	all = append(all, backOff)
	for _, o := range all {
		pods = append(pods, o.(*corev1.Pod).Name)
	}
	if err := l.c.Client.Make(ctx, ns, all...); err != nil {
		return err
	}
	for _, name := range pods {
		if _, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, name, patience, "runs, or is in back-off", func(p *kube.Object) (bool, error) {
			return kube.Condition(p, "Ready") == "True" || name == backOff.Name && restarts(p) > 0, nil
		}); err != nil {
			return err
		}
	}
	before, err := kubeletlab.Take(ctx, l.node)
	if err != nil {
		return err
	}
	if kill {
		err = l.node.KillKubelet()
	} else {
		err = l.node.StopKubelet()
	}
	if err != nil {
		return err
	}
	if t.down != nil {
		if err := t.down(ctx); err != nil {
			return err
		}
	}
	o := tried{Trial: t.name, Fits: t.fits, Pods: map[string]string{}}
	newPod := l.pod(t, "new")
	if t.fits { // it comes with the others
		if err := l.c.Client.Make(ctx, ns, newPod); err != nil {
			return err
		}
	}
	if o.Met, err = l.startUntil(ctx, t); err != nil {
		return err
	}
	if err := l.lookedAt(ctx, pods); err != nil {
		return err
	}
	after, err := kubeletlab.WaitStable(ctx, l.node, 5*time.Second, patience)
	if err != nil {
		return err
	}
	if err := l.ended(ctx, &o, pods, backOff.Name, before, after); err != nil {
		return err
	}
	if !t.fits {
		if err := l.c.Client.Make(ctx, ns, newPod); err != nil {
			return err
		}
	}
	if _, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, newPod.Name, patience, "runs or is rejected", func(p *kube.Object) (bool, error) {
		if o.New = rejection(p); o.New == "" && kube.Condition(p, "Ready") == "True" {
			o.New = admitted
		}
		return o.New != "", nil
	}); err != nil {
		return err
	}
	l.e.Record(o)
	return l.remove(ctx, append(pods, newPod.Name))
}

// startUntil starts the kubelet, and lets a list through only when the trial's matter is met.
func (l *lab) startUntil(ctx context.Context, t trial) (met string, err error) {
	l.proxy.Answer(1<<30, func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Path == t.fails }, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not now", http.StatusServiceUnavailable)
	})
	defer l.proxy.Answer(0, nil, nil)
	l.lists = l.proxy.Lists(podsPath)
	if err := l.node.StartKubelet(ctx, l.e.UnderTest(base, "kubelet"), t.args()...); err != nil {
		return "", err
	}
	return t.met(ctx)
}

// lookedAt waits until the new kubelet has rejected each pod or begun to sync it.
func (l *lab) lookedAt(ctx context.Context, pods []string) error {
	return wait.Until(ctx, "the new kubelet has synced or rejected each pod", patience, func(ctx context.Context) (bool, error) {
		synced, err := kubeletlab.Metric(ctx, l.node, "kubelet_pod_start_latency_microseconds_count")
		if err != nil {
			return false, err
		}
		n := int(synced)
		for _, name := range pods {
			p, err := l.c.Client.Get(ctx, kube.Pods, ns, name)
			if err != nil {
				return false, err
			}
			if rejection(p) != "" {
				n++
			}
		}
		if n < len(pods) {
			return false, fmt.Errorf("%d of %d", n, len(pods))
		}
		return true, nil
	})
}

// ended says of each pod what it lost, "" if nothing.
func (l *lab) ended(ctx context.Context, o *tried, pods []string, backOff string, before, after kubeletlab.Snapshot) error {
	for _, name := range pods {
		p, err := l.c.Client.Get(ctx, kube.Pods, ns, name)
		if err != nil {
			return err
		}
		o.Pods[name] = rejection(p)
		// The container of a pod in back-off ends by itself; its sandbox stays.
		d := kubeletlab.Compare(before, after, func(_ string, c kubeletlab.Container) bool {
			return c.Pod == name && (c.Sandbox || name != backOff)
		})
		o.Kept += len(d.Kept)
		if lost := append(d.Recreated, d.Gone...); len(lost) > 0 && o.Pods[name] == "" {
			o.Pods[name] = "no longer runs: " + strings.Join(lost, ", ")
		}
	}
	return nil
}

// remove makes room for the next trial. A pod in back-off takes a minute to be deleted with
// grace.
func (l *lab) remove(ctx context.Context, pods []string) error {
	for _, name := range pods {
		if err := l.c.Client.DeleteNow(ctx, kube.Pods, ns, name); err != nil {
			return err
		}
	}
	return wait.Until(ctx, "no container of the trial runs", patience, func(ctx context.Context) (bool, error) {
		s, err := kubeletlab.Take(ctx, l.node)
		for key, c := range s {
			if slices.Contains(pods, c.Pod) {
				return false, fmt.Errorf("%s does", key)
			}
		}
		return err == nil, err
	})
}

// rejection is why the kubelet has failed a pod, "" if it has not.
func rejection(p *kube.Object) string {
	if kube.String(p, "status", "phase") != "Failed" {
		return ""
	}
	return fmt.Sprintf("%s: %s", kube.String(p, "status", "reason"), kube.String(p, "status", "message"))
}

func restarts(p *kube.Object) (n int64) {
	for _, c := range kube.Slice(p, "status", "containerStatuses") {
		r, _ := c.(map[string]any)["restartCount"].(int64)
		n += r
	}
	return n
}
