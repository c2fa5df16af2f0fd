// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodereadyacrossrestart is the lab node-ready-across-restart: what a kubelet that starts
// publishes of its node. See tools/labs/node-ready-across-restart/README.md.
package nodereadyacrossrestart

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	base = "v1.9.11"
	ns   = "default"
	// patience is for what takes seconds on an idle machine.
	patience = 90 * time.Second
	// starts of the kubelet while dockerd answers.
	starts = 10
	// looked is how many statuses of each start are waited for. The first is the one that
	// may come too early.
	looked = 2
	// constructs is how often a kubelet of 1.9 asks docker's version before it runs. Without an
	// answer to the last, that of the sysctls, it ends.
	constructs = 5
	// downBound is for the first status of a start without dockerd: Holdfast waits for 10 s. A
	// kubelet that has seen its runtime takes it for down 30 s later.
	downBound = 25 * time.Second
)

// pods run meanwhile. In the long profile they are as many as a kubelet takes by default.
func pods(p labkit.Profile) int { return labkit.Pick(p, 4, 110) }

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "node-ready-across-restart",
		Summary: "a kubelet that starts publishes its node as NotReady: container runtime is down",
		Test:    []labkit.Variant{labkit.Ours},
		Steps:   steps,
		Oracle:  oracle,
		Timeout: func(p labkit.Profile) time.Duration { return labkit.Pick(p, 8*time.Minute, 40*time.Minute) },
		Needs:   labkit.KubeletNeeds(base, labkit.StockBinary(base, "kubelet")),
	}}
}

type lab struct {
	e     *labkit.Env
	c     *node.Cluster
	node  *node.Node
	nodes *kube.Recorder
	calls string // the endpoint of the proxy before dockerd
	// versions is how often docker's version is still answered; dockerd is killed at the last.
	versions atomic.Int32
	killed   chan error
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e, killed: make(chan error, 1)}
	s := []labkit.Step{{Text: fmt.Sprintf("start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet and %d pods", pods(e.Profile)), Do: l.start},
		{Text: "control: start the kubelet under test, and kill dockerd before the kubelet's first check of dockerd; start dockerd", Do: l.down}}
	for i := range starts {
		kill := e.Rand.IntN(2) == 0
		how := map[bool]string{true: "kill -9", false: "SIGTERM"}[kill]
		s = append(s, labkit.Step{Text: fmt.Sprintf("start %d: %s, start the kubelet under test, and record its first %d statuses", i+1, how, looked),
			Do: func(ctx context.Context) error { return l.again(ctx, i+1, kill) }})
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }))
}

func (l *lab) start(ctx context.Context) error {
	c, err := l.e.StartStockCluster(ctx, base, node.Config{Name: "node1", Kubelet: l.e.Stock(base, "kubelet"),
		KubeletArgs: []string{"--node-status-update-frequency=2s"}})
	if err != nil {
		return err
	}
	l.c, l.node = c, c.Nodes[0]
	if l.calls, err = l.node.ProxyDocker(l.saw); err != nil {
		return err
	}
	for i := range pods(l.e.Profile) {
		if err := c.Client.Make(ctx, ns, node.Pod(fmt.Sprintf("web-%d", i), l.node.Name, node.Web("web"))); err != nil {
			return err
		}
	}
	if _, err := c.Client.WaitList(ctx, kube.Pods, ns, "", labkit.Pick(l.e.Profile, patience, 15*time.Minute), "are ready", func(all []kube.Object) (bool, error) {
		n := 0
		for i := range all {
			if kube.Condition(&all[i], "Ready") == "True" {
				n++
			}
		}
		if n < pods(l.e.Profile) {
			return false, fmt.Errorf("%d of %d", n, pods(l.e.Profile))
		}
		return true, nil
	}); err != nil {
		return err
	}
	l.nodes, err = c.Client.Record(ctx, kube.Nodes, "")
	return err
}

// saw kills dockerd when it has answered the last call that a kubelet makes before it runs.
// The answer waits for that.
func (l *lab) saw(r *http.Request, _ int) {
	if strings.HasSuffix(r.URL.Path, "/version") && l.versions.Add(-1) == 0 {
		l.killed <- l.node.KillDocker()
	}
}

// started is what a kubelet published first: the Ready condition of each status, as
// published returns it.
type started struct {
	Start    int
	Statuses []string
}

// without is the same of the start without dockerd, and what it published when dockerd was back.
type without struct {
	Statuses []string
	Back     string
}

// heartbeat is the Ready condition of a Node: what it says, and when the kubelet wrote it.
func heartbeat(o *kube.Object) (says, at string) {
	for _, c := range kube.Slice(o, "status", "conditions") {
		m, _ := c.(map[string]any)
		if m["type"] != "Ready" {
			continue
		}
		at, _ = m["lastHeartbeatTime"].(string)
		says, _ = m["status"].(string)
		if says != ready {
			says = fmt.Sprintf("%s: %v", says, m["message"])
		}
	}
	return says, at
}

// ready is a status that says so; any other is "STATUS: MESSAGE".
const ready = "True"

// published are the statuses that a kubelet wrote among a Node's events after the first seen
// ones: those with another heartbeat, or that say something else.
func published(evs []kube.RecordedEvent, seen int) []string {
	var out []string
	var says, at string
	for i, ev := range evs {
		nextSays, nextAt := heartbeat(ev.Object)
		if i >= seen && (nextSays != says || nextAt != at) {
			out = append(out, nextSays)
		}
		says, at = nextSays, nextAt
	}
	return out
}

// run ends the kubelet, starts the one under test, and waits for the statuses that it publishes.
func (l *lab) run(ctx context.Context, kill bool, want int, bound time.Duration, args ...string) ([]string, int, error) {
	end := l.node.StopKubelet
	if kill {
		end = l.node.KillKubelet
	}
	if err := end(); err != nil {
		return nil, 0, err
	}
	seen := len(l.nodes.Of("", l.node.Name))
	if err := l.node.StartKubelet(ctx, l.e.UnderTest(base, "kubelet"), args...); err != nil {
		return nil, 0, err
	}
	var says []string
	err := wait.Until(ctx, fmt.Sprintf("the kubelet has published %d statuses", want), bound, func(context.Context) (bool, error) {
		says = published(l.nodes.Of("", l.node.Name), seen)
		return len(says) >= want, nil
	})
	if err == nil && l.nodes.Gaps() > 0 {
		err = fmt.Errorf("a watch was lost: events may be missing")
	}
	return says, seen, err
}

func (l *lab) again(ctx context.Context, i int, kill bool) error {
	says, _, err := l.run(ctx, kill, looked, patience)
	if err != nil {
		return err
	}
	l.e.Logf("%q", says)
	l.e.Record(started{Start: i, Statuses: says})
	return nil
}

func (l *lab) down(ctx context.Context) error {
	l.versions.Store(constructs)
	says, seen, err := l.run(ctx, false, 1, downBound, "--docker-endpoint="+l.calls)
	if err != nil {
		return err
	}
	select {
	case err := <-l.killed:
		if err != nil {
			return err
		}
	default:
		return fmt.Errorf("the kubelet has published, but requested docker's version fewer than %d times", constructs)
	}
	l.e.Logf("%q", says)
	o := without{Statuses: says}
	if err := l.node.StartDocker(ctx); err != nil {
		return err
	}
	if err := wait.Until(ctx, "the Node is Ready after dockerd is back", patience, func(context.Context) (bool, error) {
		all := published(l.nodes.Of("", l.node.Name), seen)
		o.Back = all[len(all)-1]
		return o.Back == ready, nil
	}); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}
