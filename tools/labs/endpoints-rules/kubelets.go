// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/webset"
)

func init() {
	labkit.Register(labkit.Lab{
		Modules: []string{"webhook"},
		Name:    "endpoints-rules-kubelets",
		Folder:  "endpoints-rules",
		Summary: "with real kubelets: a client that follows Endpoints switches pods on whose old container is still there",
		Steps:   kubeletsSteps,
		Oracle:  kubeletsOracle,
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 20*time.Minute, 90*time.Minute)
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.BinaryUnderTest(base, "kube-controller-manager"),
			labkit.StockBinary(base, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		LongOnly: true, // four columns, each with a change of all images
	})
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
	web      *webset.Set
	pods     *kube.Recorder
	program  *program
	image    string // of all pods now

	mu   sync.Mutex
	died map[string]time.Time // by container ID
	lost error                // of docker's streams
}

func kubeletsSteps(e *labkit.Env) []labkit.Step {
	l := &kubelets{e: e, died: map[string]time.Time{}, image: node.WebImage("v1")}
	all := []labkit.Step{
		{Text: "start etcd, kube-apiserver, kube-controller-manager and two nodes with kubelets, all stock; record docker's events", Do: l.startCluster},
		{Text: fmt.Sprintf("create a Service and %d pods that take 0 to 8 s to end, half of them without a readiness probe", pods), Do: l.start},
	}
	into := map[column]labkit.Step{
		batchingColumn: {Text: fmt.Sprintf("the controller manager under test takes over, with a batch period of %v", period), Do: func(ctx context.Context) error {
			return l.manager(ctx, l.e.UnderTest(base, "kube-controller-manager"), "--endpoint-updates-batch-period="+period.String())
		}},
		webhookColumn: {Text: "the stock controller manager is back; install endpoints-rules, rule set image-pending, and its breaker", Do: l.withWebhook},
		bothColumn:    {Text: "swap the kubelets for those under test", Do: l.swapKubelets},
		kubeletColumn: {Text: "take endpoints-rules away", Do: l.withoutWebhook},
	}
	for _, col := range columnsOf(e.Variant) {
		if s, ok := into[col]; ok {
			all = append(all, s)
		}
		for i := range rounds(e.Profile) {
			all = append(all, labkit.Step{Text: fmt.Sprintf("%s, round %d: wait until the kubelets have requests to spare, and change all images within 1 s", col, i+1),
				Do: func(ctx context.Context) error { return l.replaceAll(ctx, col, i) }})
		}
	}
	return append(all, labkit.Step{Text: "look whether all components run, and no stream of events was lost", Always: true, Do: l.intact})
}

func (l *kubelets) intact(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.pods.Gaps() + l.web.Endpoints.Gaps(); n > 0 {
		return fmt.Errorf("a watch was lost %d times: events may be missing", n)
	}
	return errors.Join(l.lost, l.c.Alive(ctx), process.AllAlive(l.cm.Proc))
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
	if _, err := l.c.Client.WaitFor(ctx, kube.ServiceAccounts, ns, "default", 90*time.Second, "with a token", func(o *kube.Object) (bool, error) {
		return len(kube.Slice(o, "secrets")) > 0, nil
	}); err != nil {
		return err
	}
	for _, name := range []string{"node1", "node2"} {
		n, err := l.e.StartNode(ctx, l.c.APIServer, node.Config{Name: name, Kubelet: l.e.Stock(base, "kubelet")})
		if err != nil {
			return err
		}
		l.c.Nodes = append(l.c.Nodes, n)
		if err := l.c.WaitNodeReady(ctx, name, time.Minute); err != nil {
			return err
		}
		ended, err := n.Docker.WatchEvents(ctx, func(ev node.DockerEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if _, seen := l.died[ev.ID]; ev.Action == "die" && !seen {
				l.died[ev.ID] = ev.Time
			}
		})
		if err != nil {
			return err
		}
		go func() {
			err := <-ended
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lost = errors.Join(l.lost, err)
		}()
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

func (l *kubelets) start(ctx context.Context) (err error) {
	if l.pods, err = l.c.Client.Record(ctx, kube.Pods, ns); err != nil {
		return err
	}
	l.web, err = webset.Create(ctx, l.c.Client, func(i int) *corev1.Pod {
		c := node.Web("web")
		c.Env = []corev1.EnvVar{{Name: "LABPOD_TERM_DELAY", Value: fmt.Sprintf("%ds", l.e.Rand.IntN(9))}}
		if i%4 < 2 {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/ready", 8080), PeriodSeconds: 1, FailureThreshold: 10}
		}
		p := node.Pod("", fmt.Sprintf("node%d", i%2+1), c)
		p.Spec.TerminationGracePeriodSeconds = new(int64(12))
		return p
	})
	if err != nil {
		return err
	}
	return l.web.WaitReady(ctx, pods, 3*time.Minute)
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

func (l *kubelets) swapKubelets(ctx context.Context) error {
	for _, n := range l.c.Nodes {
		if err := n.SwapKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
			return err
		}
		if err := kubeletlab.WaitSynced(ctx, n, pods/len(l.c.Nodes), 2*time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// containerID is that of the pod's container, "" if it has none.
func containerID(o *kube.Object) string {
	if o == nil {
		return ""
	}
	return kube.ContainerIDs(o)[webset.Service]
}

// replaceAll changes all images and records what became of it.
func (l *kubelets) replaceAll(ctx context.Context, col column, number int) error {
	l.image = node.WebImage(map[bool]string{true: "v2", false: "v1"}[l.image == node.WebImage("v1")])
	if err := l.web.WaitReady(ctx, pods, 2*time.Minute); err != nil {
		return err
	}
	// The kubelets' limiters of 5 requests a second have to fill up, and what still
	// happens from before has to be over.
	begin := time.Now()
	if err := wait.Until(ctx, "nothing happens to pods for 5 s", 2*time.Minute, func(context.Context) (bool, error) {
		evs := l.pods.Events()
		return time.Since(begin) > 5*time.Second && time.Since(evs[len(evs)-1].Time) > 5*time.Second, nil
	}); err != nil {
		return err
	}
	old := map[string]string{}
	for i := range pods {
		id := containerID(l.pods.Latest(ns, webset.Name(i)))
		if id == "" {
			return fmt.Errorf("pod %s has no container", webset.Name(i))
		}
		old[webset.Name(i)] = id
	}
	begin = time.Now()
	errs := make(chan error, pods)
	for i := range pods {
		after := time.Duration(l.e.Rand.IntN(800)) * time.Millisecond
		go func() {
			err := webset.Pause(ctx, after)
			if err == nil {
				err = l.web.SetImage(ctx, webset.Name(i), l.image)
			}
			errs <- err
		}()
	}
	for range pods {
		if err := <-errs; err != nil {
			return err
		}
	}
	r := change{Column: col, Round: number, Patched: time.Since(begin)}
	if err := wait.Until(ctx, "all pods are ready with new containers", 3*time.Minute, func(context.Context) (bool, error) {
		for name, id := range old {
			if o := l.pods.Latest(ns, name); !kubeletlab.PodReady(o) || containerID(o) == id {
				return false, fmt.Errorf("%s is not", name)
			}
		}
		return true, nil
	}); err != nil {
		return err
	}
	ready := time.Now()
	if err := l.web.WaitReady(ctx, pods, col.stuck()); err == nil {
		r.Late = max(time.Since(ready), time.Millisecond)
	} else if ctx.Err() != nil { // else it is for the oracle
		return err
	}
	r.Addresses = l.web.Ready()
	l.mu.Lock()
	for i := range pods {
		name := webset.Name(i)
		p := replaced{Name: name}
		if at, ok := l.died[old[name]]; ok {
			p.Gone = at.Sub(begin)
		}
		r.Pods = append(r.Pods, p)
	}
	l.mu.Unlock()
	for _, ev := range l.web.Versions() {
		if ev.Time.Before(begin) {
			continue
		}
		u := update{At: ev.Time.Sub(begin)}
		if ev.Type != "DELETED" {
			u.Ready = kubeletlab.ReadyPods(ev.Object)
		}
		r.Updates = append(r.Updates, u)
	}
	l.e.Record(r)
	l.e.Logf("%s", r)
	if r.wrong() != "" {
		return labkit.Enough
	}
	return nil
}
