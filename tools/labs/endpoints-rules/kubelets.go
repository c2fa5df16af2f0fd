// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/webset"
)

func kubeletsLab() labkit.Lab {
	return labkit.Lab{
		Name:    "endpoints-rules-kubelets",
		Folder:  "endpoints-rules",
		Summary: "with real kubelets: a client that copies Endpoints to a load balancer enables pods whose old container still runs",
		Steps:   kubeletsSteps,
		Oracle:  kubeletsOracle,
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 20*time.Minute, 90*time.Minute)
		},
		Needs: labkit.KubeletNeeds(base,
			labkit.BinaryUnderTest(base, "kube-controller-manager"), labkit.StockBinary(base, "kubelet")),
	}
}

// column is which of the parts are in place.
type column string

const (
	stockColumn    column = "stock"
	batchingColumn column = "batching 5s"
	webhookColumn  column = "webhook"
	bothColumn     column = "kubelet and webhook"
	kubeletColumn  column = "kubelet"
)

// period is that of the batching column.
const period = 5 * time.Second

// columnsOf are in the order in which they need the fewest swaps.
func columnsOf(v labkit.Variant) []column {
	if v == labkit.Stock {
		return []column{stockColumn}
	}
	return []column{batchingColumn, webhookColumn, bothColumn, kubeletColumn}
}

// kubelets is the lab with nodes.
type kubelets struct {
	e        *labkit.Env
	c        *node.Cluster
	cm       *kube.ControllerManager
	managers int // started so far
	nodes    int
	web      *webset.Running
	program  *program
}

func kubeletsSteps(e *labkit.Env) []labkit.Step {
	l := &kubelets{e: e, nodes: 2, web: &webset.Running{Action: "die"}}
	all := []labkit.Step{
		{Text: "start etcd, kube-apiserver, kube-controller-manager and two nodes with kubelets, all stock; record docker's events", Do: l.startCluster},
		{Text: fmt.Sprintf("create a Service and %d pods that take 0 to 8 s to end, half of them without a readiness probe", pods), Do: l.start},
	}
	into := map[column]labkit.Step{
		batchingColumn: {Text: fmt.Sprintf("the controller manager under test takes over, with a batch period of %v", period), Do: func(ctx context.Context) error {
			return l.manager(ctx, l.e.UnderTest(base, "kube-controller-manager"), "--endpoint-updates-batch-period="+period.String())
		}},
		webhookColumn: {Text: "the stock controller manager is back; install endpoints-rules, rule set image-pending, and its breaker", Do: l.withWebhook},
		bothColumn: {Text: "swap the kubelets for those under test", Do: func(ctx context.Context) error {
			return l.swapKubelets(ctx, l.e.UnderTest(base, "kubelet"))
		}},
		kubeletColumn: {Text: "remove endpoints-rules", Do: l.withoutWebhook},
	}
	return append(append(all, l.columns(columnsOf(e.Variant), into)...), l.end())
}

// columns are the changes of all images in each of these columns, and before them what into has.
func (l *kubelets) columns(list []column, into map[column]labkit.Step) []labkit.Step {
	var all []labkit.Step
	for _, col := range list {
		if s, ok := into[col]; ok {
			all = append(all, s)
		}
		for i := range rounds(l.e.Profile) {
			all = append(all, labkit.Step{Text: fmt.Sprintf("%s, round %d: wait until the kubelets have not used up their request limit, and change all images within 1 s", col, i+1),
				Do: func(ctx context.Context) error { return l.replaceAll(ctx, col, i) }})
		}
	}
	return all
}

func (l *kubelets) end() labkit.Step {
	return labkit.Step{Text: "check that all components run, and that no stream of events was lost", Always: true, Do: l.intact}
}

func (l *kubelets) intact(ctx context.Context) error {
	return errors.Join(l.web.Lost(), l.c.Alive(ctx), process.AllAlive(l.cm.Proc))
}

func (l *kubelets) startCluster(ctx context.Context) error {
	cfg := node.ClusterConfig{APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")}}
	var err error
	if l.c, err = l.e.StartCluster(ctx, cfg); err != nil {
		return err
	}
	if err := l.manager(ctx, l.e.Stock(base, "kube-controller-manager")); err != nil {
		return err
	}
	if err := l.c.Client.WaitPodsAdmitted(ctx, ns, 90*time.Second); err != nil {
		return err
	}
	for i := range l.nodes {
		name := fmt.Sprintf("node%d", i+1)
		n, err := l.e.StartNode(ctx, l.c.APIServer, node.Config{Name: name, Kubelet: l.e.Stock(base, "kubelet")})
		if err != nil {
			return err
		}
		l.c.Nodes = append(l.c.Nodes, n)
		if err := l.c.WaitNodeReady(ctx, name, time.Minute); err != nil {
			return err
		}
		if err := l.web.Watch(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// manager ends the controller manager, if there is one, and starts another.
func (l *kubelets) manager(ctx context.Context, p kube.Program, extra ...string) (err error) {
	if l.cm != nil {
		if err := l.cm.Stop(); err != nil {
			return err
		}
	}
	l.managers++
	l.cm, err = l.e.StartControllerManager(ctx, l.c.APIServer, kube.ControllerManagerConfig{
		Name: fmt.Sprintf("kube-controller-manager-%d", l.managers), Program: p, ExtraArgs: append([]string{"--leader-elect=false"}, extra...)})
	return err
}

func (l *kubelets) start(ctx context.Context) error {
	return l.web.Create(ctx, l.c.Client, l.e.Rand)
}

func (l *kubelets) withWebhook(ctx context.Context) (err error) {
	if err := l.manager(ctx, l.e.Stock(base, "kube-controller-manager")); err != nil {
		return err
	}
	if l.program, err = prepare(ctx, l.e, l.c, "image-pending", ns); err != nil {
		return err
	}
	return l.program.install(ctx, webset.Service)
}

// withoutWebhook leaves the objects of the program: without webhook configuration and
// processes they do nothing.
func (l *kubelets) withoutWebhook(ctx context.Context) error {
	if err := l.c.Client.Delete(ctx, configurations, "", "endpoints-rules"); err != nil {
		return err
	}
	return errors.Join(l.program.guard.Stop(), l.program.run.Stop())
}

func (l *kubelets) swapKubelets(ctx context.Context, p kube.Program) error {
	for _, n := range l.c.Nodes {
		if err := n.SwapKubelet(ctx, p); err != nil {
			return err
		}
		if err := kubeletlab.WaitSynced(ctx, n, pods/len(l.c.Nodes), 2*time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// replaceAll changes all images and records what became of it.
func (l *kubelets) replaceAll(ctx context.Context, col column, number int) error {
	if err := l.web.WaitReady(ctx, pods, 2*time.Minute); err != nil {
		return err
	}
	old, err := l.web.Quiet(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := l.web.Change(ctx, func(int) time.Duration { return time.Duration(l.e.Rand.IntN(800)) * time.Millisecond }); err != nil {
		return err
	}
	r := change{replacement{Round: number}, col, time.Since(begin)}
	if err := l.web.WaitReplaced(ctx, old); err != nil {
		return err
	}
	if r.Late, err = late(ctx, l.web.Set, col.stuck()); err != nil {
		return err
	}
	r.Addresses = l.web.Ready()
	for i := range pods {
		p := replaced{Name: webset.Name(i)}
		if at := l.web.At(old[p.Name]); !at.IsZero() {
			p.Gone = at.Sub(begin)
		}
		r.Pods = append(r.Pods, p)
	}
	r.Updates = updatesSince(l.web.Set, begin)
	l.e.Record(r)
	l.e.Logf("%s", r)
	if r.wrong() != "" {
		return labkit.Enough
	}
	return nil
}
