// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeupgrade is the lab node-upgrade: the rehearsal of an upgrade of
// kubelets in place, and back, under load. See tools/labs/node-upgrade/README.md.
package nodeupgrade

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base = "v1.9.11"
	old  = "v1.7.0"
	ns   = "default"
	// services with perNode pods on each node.
	services, perNode = 2, 4
)

var nodeNames = []string{"node1", "node2"}

func init() {
	labkit.Register(labkit.Lab{
		Name:    "node-upgrade",
		Summary: "kubelets go from 1.7.0 to 1.9.11 and back in place, under load, with kill -9",
		Plan: func(p labkit.Profile) []string {
			return []string{
				"start the control plane v1.9.11 (it is upgraded first) and two nodes with the stock kubelet v1.7.0",
				fmt.Sprintf("create %d Services with %d probed pods each on both nodes; load on the addresses that were in each one's Endpoints within the last second", services, perNode*len(nodeNames)),
				"make a plan from the seed: which node goes first, who is ended by SIGTERM and who by kill -9, how long it is down, which kubelet is killed in between",
				"swap both kubelets v1.7.0 → under test, node by node",
				fmt.Sprintf("kill -9 and restart kubelets under test, %d time(s)", kills(p)),
				"swap both back to v1.7.0",
				"control per step: the image of a pod of its own is changed while the kubelet is down, and its container must be replaced; the kubelet must say of every pod that it compared it",
				"oracle per step: requests failed, addresses removed from Endpoints, containers recreated, restart counts",
				"a step to v1.7.0 starts an old kubelet: addresses that it removes are counted and not judged, containers and requests are",
			}
		},
		Needs: needs, Timeout: timeout,
		Run: run,
	})
}

// needs and timeout are those of the rehearsal, on whatever nodes.
var needs = []labkit.Binary{
	labkit.StockBinary(base, "kube-apiserver"),
	labkit.StockBinary(base, "kube-controller-manager"),
	labkit.StockBinary(old, "kubelet"),
	labkit.BinaryUnderTest(base, "kubelet"),
}

func timeout(p labkit.Profile) time.Duration {
	if p == labkit.Long {
		return 40 * time.Minute
	}
	return 10 * time.Minute
}

// planAfter is the plan of node-upgrade behind lines of a lab that runs it on
// other nodes.
func planAfter(lines ...string) func(labkit.Profile) []string {
	return func(p labkit.Profile) []string {
		l, err := labkit.Find("node-upgrade")
		if err != nil {
			panic(err) // it is registered beside them
		}
		return append(append([]string{}, lines...), l.Plan(p)...)
	}
}

func kills(p labkit.Profile) int {
	if p == labkit.Long {
		return 10
	}
	return 1
}

// step is one thing that happens to one node's kubelet.
type step struct {
	node int
	to   string // "under test" or v1.7.0
	kill bool
	down time.Duration
	what string // upgrade, restart or back
}

func (s step) String() string {
	how := "SIGTERM"
	if s.kill {
		how = "kill -9"
	}
	return fmt.Sprintf("%s %s to %s (%s, down %v)", s.what, nodeNames[s.node], s.to, how, s.down)
}

const underTest = "under test"

// makePlan takes all chance from r.
func makePlan(r *rand.Rand, p labkit.Profile) []step {
	one := func(node int, to, what string) step {
		return step{node: node, to: to, what: what, kill: r.IntN(2) == 0, down: time.Duration(r.IntN(4000)) * time.Millisecond}
	}
	var plan []step
	for _, n := range r.Perm(len(nodeNames)) {
		plan = append(plan, one(n, underTest, "upgrade"))
	}
	for range kills(p) {
		s := one(r.IntN(len(nodeNames)), underTest, "restart")
		s.kill = true
		plan = append(plan, s)
	}
	for _, n := range r.Perm(len(nodeNames)) {
		plan = append(plan, one(n, old, "back"))
	}
	return plan
}

type lab struct {
	e         *labkit.Env
	c         *node.Cluster
	pods, eps *kube.Recorder
	loads     []*load.Load
}

// row is what one step did.
type row struct {
	step                                       step
	requests, failed, removed, recreated, kept int
	noHostPort                                 error
}

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	return rehearse(ctx, e, node.Config{})
}

// rehearse runs the lab on nodes like this one.
func rehearse(ctx context.Context, e *labkit.Env, on node.Config) (labkit.Result, error) {
	plan := makePlan(e.Rand, e.Profile)
	for i, s := range plan {
		e.Step("plan %2d: %v", i+1, s)
	}
	cc := node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.Stock(base, "kube-controller-manager")},
	}
	on.Kubelet, on.KubeletArgs = e.Stock(old, "kubelet"), []string{kubeletlab.LogComparisons}
	for _, on.Name = range nodeNames {
		cc.Nodes = append(cc.Nodes, on)
	}
	c, err := e.StartCluster(ctx, cc)
	if err != nil {
		return labkit.Result{}, err
	}
	l := &lab{e: e, c: c}
	if err := l.start(ctx); err != nil {
		return labkit.Result{}, err
	}
	for _, n := range c.Nodes {
		// The bridge is made by the plug-in, for the first pod.
		if err := n.Run(ctx, "ip", "link", "show", "cni0"); (err == nil) != on.CNI {
			return labkit.Result{}, fmt.Errorf("CNI is %v for this lab, and on %s: ip link show cni0: %v", on.CNI, n.Name, err)
		}
		if err := checkScopes(ctx, n, on.CgroupDriver == node.Systemd); err != nil {
			return labkit.Result{}, err
		}
	}
	e.Fact("%-42s %8s %6s %8s %9s %5s", "step", "requests", "failed", "removed", "recreated", "kept")
	var wrong []string
	for i, s := range plan {
		e.Step("step %d: %v", i+1, s)
		r, err := l.do(ctx, s)
		if err != nil {
			return labkit.Result{}, fmt.Errorf("step %d, %v: %w", i+1, s, err)
		}
		e.Fact("%-42s %8d %6d %8d %9d %5d", fmt.Sprintf("%d. %s %s", i+1, s.what, nodeNames[s.node]), r.requests, r.failed, r.removed, r.recreated, r.kept)
		add := func(n int, what string) {
			if n > 0 {
				wrong = append(wrong, fmt.Sprintf("step %d (%s %s): %d %s", i+1, s.what, nodeNames[s.node], n, what))
			}
		}
		add(r.failed, "requests failed")
		add(r.recreated, "containers recreated")
		if r.noHostPort != nil {
			add(1, fmt.Sprintf("host port lost (%v)", r.noHostPort))
		}
		if s.to != old {
			add(r.removed, "addresses removed")
		}
		if r.requests == 0 {
			return labkit.Result{}, fmt.Errorf("step %d: the load sent nothing", i+1)
		}
	}
	for _, ld := range l.loads {
		ld.Stop()
	}
	for _, n := range c.Nodes {
		if err := checkScopes(ctx, n, on.CgroupDriver == node.Systemd); err != nil {
			return labkit.Result{}, err
		}
	}
	if len(wrong) > 0 {
		return labkit.ReproducedBecause("%s", strings.Join(wrong, "; ")), nil
	}
	return labkit.AbsentBecause("%d steps: no container recreated, no request failed, no address removed by the kubelet under test", len(plan)), nil
}

func (l *lab) start(ctx context.Context) error {
	l.e.Step("create %d Services with %d pods each", services, perNode*len(nodeNames))
	for s := range services {
		name := fmt.Sprintf("svc%d", s+1)
		if _, err := l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {selector: {app: %s}, ports: [{port: 80, targetPort: 8080}]}
`, name, name)); err != nil {
			return err
		}
		for _, on := range nodeNames {
			for i := range perNode {
				// Half of them with what a kubelet of 1.7 does not know the fields of.
				security := ""
				if i%2 == 1 {
					security = "\n    securityContext: {runAsUser: 1000}\n    volumeMounts: [{name: data, mountPath: /data}]"
				}
				if _, err := l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s-%s-%d, labels: {app: %s}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 5
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: web
    image: %s
    imagePullPolicy: IfNotPresent
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 3}%s
`, name, on, i, name, on, node.WebImage("v1"), security)); err != nil {
					return err
				}
			}
		}
	}
	for _, on := range nodeNames {
		if _, err := l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: control}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 2
  containers:
  - {name: main, image: %q, imagePullPolicy: IfNotPresent, ports: [{containerPort: 8080, hostPort: %d}]}
`, control(on), on, node.WebImage("v1"), controlPort)); err != nil {
			return err
		}
	}
	for s := range services {
		if _, err := l.c.Client.WaitFor(ctx, kube.Endpoints, ns, fmt.Sprintf("svc%d", s+1), 3*time.Minute, "has all addresses", func(ep *kube.Object) (bool, error) {
			if n := len(kube.ReadyAddresses(ep)); n != perNode*len(nodeNames) {
				return false, fmt.Errorf("%d of %d", n, perNode*len(nodeNames))
			}
			return true, nil
		}); err != nil {
			return err
		}
	}
	var err error
	if l.pods, err = l.c.Client.Record(ctx, kube.Pods, ns); err != nil {
		return err
	}
	if l.eps, err = l.c.Client.Record(ctx, kube.Endpoints, ns); err != nil {
		return err
	}
	for s := range services {
		name := fmt.Sprintf("svc%d", s+1)
		l.loads = append(l.loads, load.Start(ctx, load.Config{Interval: 50 * time.Millisecond, Targets: func() []string {
			return kubeletlab.RecentAddresses(l.eps, ns, name, time.Second, func(string) bool { return true })
		}}))
	}
	return nil
}

func (l *lab) counts() (requests, failed int) {
	for _, ld := range l.loads {
		r := ld.Report()
		requests += r.OK + r.Failed
		failed += r.Failed
	}
	return
}

// do carries a step out and waits until the cluster is whole again.
func (l *lab) do(ctx context.Context, s step) (row, error) {
	r := row{step: s}
	n := l.c.Nodes[s.node]
	before, err := l.agreed(ctx, n)
	if err != nil {
		return r, err
	}
	requests, failed := l.counts()
	since := time.Now()
	if s.kill {
		err = n.KillKubelet()
	} else {
		err = n.StopKubelet()
	}
	if err != nil {
		return r, err
	}
	if err := l.changeControl(ctx, n.Name); err != nil {
		return r, err
	}
	select { // the time that a package upgrade takes; no oracle
	case <-time.After(s.down):
	case <-ctx.Done():
		return r, context.Cause(ctx)
	}
	program := l.e.Stock(old, "kubelet")
	if s.to == underTest {
		program = l.e.UnderTest(base, "kubelet")
	}
	if err := n.StartKubelet(ctx, program); err != nil {
		return r, err
	}
	if err := kubeletlab.WaitSynced(ctx, n, services*perNode+1, 2*time.Minute); err != nil {
		return r, err
	}
	if err := kubeletlab.WaitCompared(ctx, n, before.Pods(), 3*time.Minute); err != nil {
		return r, err
	}
	// What it decided to stop is stopped by now or has 5 s, and is not ready.
	if _, err := kubeletlab.WaitStable(ctx, n, 6*time.Second, 3*time.Minute); err != nil {
		return r, err
	}
	after, err := l.agreed(ctx, n)
	if err != nil {
		return r, err
	}
	key := ns + "/" + control(n.Name) + "/main"
	if before[key].ID == after[key].ID {
		return r, fmt.Errorf("the container whose image changed was not replaced: nothing says that containers were compared")
	}
	r.noHostPort = wait.Until(ctx, "the host port answers", 15*time.Second, func(ctx context.Context) (bool, error) {
		_, err := load.Get(ctx, fmt.Sprintf("http://%s:%d/", n.IP, controlPort))
		return err == nil, err
	})
	d := kubeletlab.Compare(before, after, func(k string, _ kubeletlab.Container) bool { return k != key }) // sandboxes too
	r.recreated, r.kept = len(d.Recreated)+len(d.Gone), len(d.Kept)
	for i := range services {
		p, err := kubeletlab.Seen(l.pods, l.eps, ns, fmt.Sprintf("svc%d", i+1), since, func(string) bool { return true })
		if err != nil {
			return r, err
		}
		r.removed += p.Removed
	}
	q, f := l.counts()
	r.requests, r.failed = q-requests, f-failed
	return r, nil
}

// control is the pod of a node whose image is changed in each step. It is in no
// Service and has a host port.
func control(on string) string { return "control-" + on }

const controlPort = 18080

func (l *lab) changeControl(ctx context.Context, on string) error {
	pod, err := l.c.Client.Get(ctx, kube.Pods, ns, control(on))
	if err != nil {
		return err
	}
	image := node.WebImage("v1")
	if c := kube.Slice(pod, "spec", "containers"); c[0].(map[string]any)["image"] == image {
		image = node.WebImage("v2")
	}
	_, err = l.c.Client.PatchStrategic(ctx, kube.Pods, ns, control(on), fmt.Sprintf(`{"spec":{"containers":[{"name":"main","image":%q}]}}`, image))
	return err
}

// agreed waits until every pod is ready and in its Endpoints and the API names
// the containers that run on n, and returns these.
func (l *lab) agreed(ctx context.Context, n *node.Node) (kubeletlab.Snapshot, error) {
	var snap kubeletlab.Snapshot
	_, err := l.c.Client.WaitList(ctx, kube.Pods, ns, "", 2*time.Minute, "ready, in Endpoints, with the containers that run", func(pods []kube.Object) (bool, error) {
		var err error
		if snap, err = kubeletlab.Take(ctx, n); err != nil {
			return false, err
		}
		for i := range pods {
			o := &pods[i]
			if !kubeletlab.PodReady(o) {
				return false, fmt.Errorf("pod %s is not ready", o.GetName())
			}
			if kube.String(o, "spec", "nodeName") != n.Name {
				continue
			}
			for name, id := range kube.ContainerIDs(o) {
				if got := snap[ns+"/"+o.GetName()+"/"+name].ID; got != id {
					return false, fmt.Errorf("container %s of pod %s: the API has %.12s, docker %.12s", name, o.GetName(), id, got)
				}
			}
		}
		for s := range services {
			name := fmt.Sprintf("svc%d", s+1)
			ep, err := l.c.Client.Get(ctx, kube.Endpoints, ns, name)
			if err != nil {
				return false, err
			}
			if got, want := len(kube.ReadyAddresses(ep)), perNode*len(nodeNames); got != want {
				return false, fmt.Errorf("%s has %d of %d addresses", name, got, want)
			}
		}
		return true, nil
	})
	return snap, err
}
