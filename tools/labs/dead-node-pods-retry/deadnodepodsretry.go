// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deadnodepodsretry is the lab dead-node-pods-retry: a node dies, and what would make
// its pods not ready fails once. See tools/labs/dead-node-pods-retry/README.md.
package deadnodepodsretry

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/webset"
)

const (
	base = "v1.9.11"
	ns   = webset.NS
	web  = webset.Service
	pods = 3
	// grace is --node-monitor-grace-period, monitor --node-monitor-period.
	grace   = 12 * time.Second
	monitor = time.Second
	// bound is how long the pods have from when the node is Unknown, or from when the next
	// leader has had the grace period. Eviction comes after 5 minutes.
	bound = 20 * time.Second
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "dead-node-pods-retry",
		Summary: "pods of a dead node stay ready because one request failed",
		Steps:   steps,
		Oracle:  oracle,
		Test:    []labkit.Variant{labkit.Ours},
		Timeout: func(labkit.Profile) time.Duration { return 8 * time.Minute },
		Needs:   labkit.ManagerNeeds(base),
	}}
}

type lab struct {
	e     *labkit.Env
	c     *node.Cluster
	proxy *kube.Proxy
	n     int // controller managers started so far

	mu     sync.Mutex
	silent bool // the node "dead" is
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: fmt.Sprintf("start etcd, kube-apiserver, a proxy, and the kube-controller-manager under test behind it; two nodes that are API objects, and on one of them %d ready pods of a Service", pods), Do: l.start},
		{Text: "the node dies; the first write of a pod's status is answered with 500", Do: l.request},
		{Text: "the node comes back, and so do its pods", Do: l.back},
		{Text: "the node dies; all writes of pods' status are answered with 500 until the controller manager is killed; the next one leads", Do: l.leader},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

func (l *lab) start(ctx context.Context) error {
	var err error
	if l.c, l.proxy, err = l.e.StartProxied(ctx, base); err != nil {
		return err
	}
	for _, name := range []string{"dead", "well"} {
		if err := l.c.Client.Make(ctx, "", kube.Node(name)); err != nil {
			return err
		}
		if err := l.heartbeat(ctx, name); err != nil {
			return err
		}
	}
	go l.heartbeats(ctx)
	if err := l.lead(ctx); err != nil {
		return err
	}
	if err := l.c.Client.WaitPodsAdmitted(ctx, ns, 90*time.Second); err != nil {
		return err
	}
	if err := l.c.Client.Make(ctx, ns, kube.Service(web, web, 8080)); err != nil {
		return err
	}
	for i := range pods {
		p := webset.Object("none")
		p.Name, p.Labels, p.Spec.NodeName, p.Spec.Containers[0].Name = webset.Name(i), map[string]string{"app": web}, "dead", web
		if err := l.c.Client.Make(ctx, ns, p); err != nil {
			return err
		}
	}
	return l.publish(ctx)
}

// heartbeat reports a node as ready, as its kubelet does.
func (l *lab) heartbeat(ctx context.Context, name string) error {
	now := time.Now().UTC().Format(time.RFC3339)
	_, err := l.c.Client.PatchStrategic(ctx, kube.Nodes, "", name,
		fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":%q}]}}`, now), "status")
	return err
}

// heartbeats reports the nodes every 2 s, "dead" unless it is silent. One that fails is made
// up for by the next.
func (l *lab) heartbeats(ctx context.Context) {
	for wait.Pause(ctx, 2*time.Second) == nil {
		_ = l.heartbeat(ctx, "well")
		// Under the lock: none may follow the one that made the node silent.
		l.mu.Lock()
		if !l.silent {
			_ = l.heartbeat(ctx, "dead")
		}
		l.mu.Unlock()
	}
}

func (l *lab) setSilent(silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = silent
}

// lead starts the next controller manager.
func (l *lab) lead(ctx context.Context) error {
	l.n++
	var err error
	l.c.ControllerManager, err = l.e.StartControllerManager(ctx, l.proxy.Before(l.c.APIServer), kube.ControllerManagerConfig{
		Name: fmt.Sprintf("kube-controller-manager-%d", l.n), Program: l.e.UnderTest(base, "kube-controller-manager"),
		ExtraArgs: []string{"--leader-elect=false", "--node-monitor-grace-period=" + grace.String(), "--node-monitor-period=" + monitor.String()}})
	return err
}

// publish makes the pods ready, and waits until their addresses are.
func (l *lab) publish(ctx context.Context) error {
	for i := range pods {
		if err := webset.PublishReady(ctx, l.c.Client, ns, webset.Name(i), webset.IP(i), true); err != nil {
			return err
		}
	}
	_, err := l.addresses(ctx, pods, 20*time.Second)
	return err
}

// addresses waits until n addresses are ready, and returns how many are.
func (l *lab) addresses(ctx context.Context, n int, bound time.Duration) (int, error) {
	got := -1
	_, err := l.c.Client.WaitFor(ctx, kube.Endpoints, ns, web, bound, fmt.Sprintf("has %d ready addresses", n), func(ep *kube.Object) (bool, error) {
		got = len(kube.ReadyAddresses(ep))
		return got == n, nil
	})
	return got, err
}

// refuse has the next n writes of pods' status answered with 500, 0 ends that.
func (l *lab) refuse(n int) (refused func() int) {
	return l.proxy.Answer(n, func(r *http.Request) bool {
		return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/pods/") && strings.HasSuffix(r.URL.Path, "/status")
	}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":"etcdserver: request timed out"}`)
	})
}

// die makes the node silent, and waits until it is Unknown.
func (l *lab) die(ctx context.Context) error {
	l.setSilent(true)
	_, err := l.c.Client.WaitFor(ctx, kube.Nodes, "", "dead", grace+30*time.Second, "is Unknown", func(n *kube.Object) (bool, error) {
		return kube.Condition(n, "Ready") == "Unknown", nil
	})
	return err
}

// left records how many addresses are ready when all should be gone, or bound is over.
func (l *lab) left(ctx context.Context, when string, refused int, within time.Duration) error {
	begin := time.Now()
	got, err := l.addresses(ctx, 0, within)
	if ctx.Err() != nil { // that they stay is for the oracle
		return err
	}
	l.e.Record(died{When: when, Refused: refused, Left: got, After: time.Since(begin)})
	return nil
}

func (l *lab) request(ctx context.Context) error {
	refused := l.refuse(1)
	if err := l.die(ctx); err != nil {
		return err
	}
	if err := wait.Until(ctx, "a refused write", 10*time.Second, func(context.Context) (bool, error) { return refused() == 1, nil }); err != nil {
		return err
	}
	return l.left(ctx, oneRequest, refused(), bound)
}

func (l *lab) back(ctx context.Context) error {
	l.setSilent(false)
	if _, err := l.c.Client.WaitFor(ctx, kube.Nodes, "", "dead", 30*time.Second, "is ready", func(n *kube.Object) (bool, error) {
		return kube.Condition(n, "Ready") == "True", nil
	}); err != nil {
		return err
	}
	// Two passes of the controller see it ready.
	if err := wait.Pause(ctx, 2*monitor+time.Second); err != nil {
		return err
	}
	return l.publish(ctx)
}

func (l *lab) leader(ctx context.Context) error {
	refused := l.refuse(1 << 30)
	if err := l.die(ctx); err != nil {
		return err
	}
	if err := wait.Until(ctx, "refused writes of all pods", 20*time.Second, func(context.Context) (bool, error) { return refused() >= pods, nil }); err != nil {
		return err
	}
	if err := l.c.ControllerManager.Kill(); err != nil {
		return err
	}
	n := refused()
	l.refuse(0)
	if err := l.lead(ctx); err != nil {
		return err
	}
	return l.left(ctx, newLeader, n, grace+bound)
}
