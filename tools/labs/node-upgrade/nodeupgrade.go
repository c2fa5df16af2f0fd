// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeupgrade is the lab node-upgrade: the rehearsal of an upgrade of
// kubelets in place, and back, under load. See tools/labs/node-upgrade/README.md.
package nodeupgrade

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{cniLab(), nodeUpgradeKindsLab(), nodeUpgradeLab(), systemdLab()}
}

func nodeUpgradeLab() labkit.Lab {
	return labkit.Lab{
		Name:    "node-upgrade",
		Summary: "kubelets go from 1.7.0 to 1.9.11 and back in place, under load, with kill -9",
		Needs:   needs, Timeout: timeout,
		// The labs of the fixes themselves show what stock does.
		Steps:  func(e *labkit.Env) []labkit.Step { return rehearsal(e, node.Config{}, "") },
		Oracle: oracle,
	}
}

// needs and timeout are those of the rehearsal, on whatever nodes.
var needs = labkit.KubeletNeeds(base, labkit.StockBinary(old, "kubelet"))

func timeout(p labkit.Profile) time.Duration {
	return labkit.Pick(p, 10*time.Minute, 40*time.Minute)
}

func kills(p labkit.Profile) int {
	return labkit.Pick(p, 1, 10)
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
	on        node.Config
	c         *node.Cluster
	pods, eps *kube.Recorder
	loads     []*load.Load
}

// rehearsal is the lab on nodes like this one. All chance is in the steps.
func rehearsal(e *labkit.Env, on node.Config, nodes string) []labkit.Step {
	l := &lab{e: e, on: on}
	plan := makePlan(e.Rand, e.Profile)
	steps := []labkit.Step{
		{Text: "start the control plane v1.9.11 (a cluster's control plane is upgraded first) and two nodes with the stock kubelet v1.7.0" + nodes, Do: func(ctx context.Context) error {
			e.Record(planned{len(plan)})
			return l.startCluster(ctx)
		}},
		{Text: fmt.Sprintf("create %d Services with %d probed pods each on both nodes; send requests to the addresses that were in their Endpoints within the last second", services, perNode*len(nodeNames)),
			Do: l.start},
	}
	for i, s := range plan {
		steps = append(steps, labkit.Step{Text: s.String(), Do: func(ctx context.Context) error { return l.do(ctx, i+1, s) }})
	}
	return append(steps, labkit.AllRun(l.end))
}

func (l *lab) startCluster(ctx context.Context) error {
	cc := node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.Stock(base, "kube-controller-manager")},
	}
	on := l.on
	on.Kubelet, on.KubeletArgs = l.e.Stock(old, "kubelet"), []string{kubeletlab.LogComparisons}
	for _, on.Name = range nodeNames {
		cc.Nodes = append(cc.Nodes, on)
	}
	var err error
	l.c, err = l.e.StartCluster(ctx, cc)
	return err
}

// end stops the load and looks once more at what the lab stands on.
func (l *lab) end(ctx context.Context) error {
	for _, ld := range l.loads {
		ld.Stop()
	}
	for _, n := range l.c.Nodes {
		if err := checkScopes(ctx, n, l.on.CgroupDriver == node.Systemd); err != nil {
			return err
		}
	}
	return l.c.Alive(ctx)
}

func (l *lab) start(ctx context.Context) error {
	l.e.Step("create %d Services with %d pods each", services, perNode*len(nodeNames))
	for s := range services {
		name := fmt.Sprintf("svc%d", s+1)
		if err := l.c.Client.Make(ctx, ns, kube.Service(name, name, 8080)); err != nil {
			return err
		}
		for _, on := range nodeNames {
			for i := range perNode {
				// Half of them with what a kubelet of 1.7 does not know the fields of.
				web := node.Web("web")
				web.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/ready", 8080), PeriodSeconds: 3}
				if i%2 == 1 {
					web.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000))}
					web.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
				}
				p := node.Pod(fmt.Sprintf("%s-%s-%d", name, on, i), on, web)
				p.Labels, p.Spec.TerminationGracePeriodSeconds = map[string]string{"app": name}, new(int64(5))
				p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				if err := l.c.Client.Make(ctx, ns, p); err != nil {
					return err
				}
			}
		}
	}
	for _, on := range nodeNames {
		main := node.Web("main")
		main.Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: controlPort}}
		p := node.Pod(control(on), on, main)
		p.Labels, p.Spec.TerminationGracePeriodSeconds = map[string]string{"app": "control"}, new(int64(2))
		if err := l.c.Client.Make(ctx, ns, p); err != nil {
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
	for _, n := range l.c.Nodes {
		// The bridge is made by the plug-in, for the first pod.
		if err := n.Run(ctx, "ip", "link", "show", "cni0"); (err == nil) != l.on.CNI {
			return fmt.Errorf("CNI is %v for this lab, and on %s: ip link show cni0: %v", l.on.CNI, n.Name, err)
		}
		if err := checkScopes(ctx, n, l.on.CgroupDriver == node.Systemd); err != nil {
			return err
		}
	}
	return nil
}

// counts are the requests of all loads, and those that failed.
func counts(loads []*load.Load) (requests, failed int) {
	for _, ld := range loads {
		r := ld.Report()
		requests += r.OK + r.Failed
		failed += r.Failed
	}
	return
}

// do carries a step out and waits until the cluster is whole again.
func (l *lab) do(ctx context.Context, i int, s step) error {
	r := swapped{Step: i, What: s.what, Node: nodeNames[s.node], To: s.to}
	n := l.c.Nodes[s.node]
	before, err := l.agreed(ctx, n)
	if err != nil {
		return err
	}
	program := l.e.Stock(old, "kubelet")
	if s.to == underTest {
		program = l.e.UnderTest(base, "kubelet")
	}
	if r.Forecast, err = kubeletlab.Forecast(ctx, l.e, l.c.APIServer.URL, n.Name, program); err != nil {
		return err
	}
	requests, failed := counts(l.loads)
	since := time.Now()
	if s.kill {
		err = n.KillKubelet()
	} else {
		err = n.StopKubelet()
	}
	if err != nil {
		return err
	}
	if err := l.changeControl(ctx, n.Name); err != nil {
		return err
	}
	if err := wait.Pause(ctx, s.down); err != nil { // the time that a package upgrade takes
		return err
	}
	if err := n.StartKubelet(ctx, program); err != nil {
		return err
	}
	if err := kubeletlab.WaitSynced(ctx, n, services*perNode+1, 2*time.Minute); err != nil {
		return err
	}
	if err := kubeletlab.WaitCompared(ctx, n, before.Pods(), 3*time.Minute); err != nil {
		return err
	}
	// What it decided to stop is stopped by now or has 5 s, and is not ready.
	if _, err := kubeletlab.WaitStable(ctx, n, 6*time.Second, 3*time.Minute); err != nil {
		return err
	}
	after, err := l.agreed(ctx, n)
	if err != nil {
		return err
	}
	r.Before, r.After, r.Control = before, after, ns+"/"+control(n.Name)+"/main"
	if err := wait.Until(ctx, "the host port answers", 15*time.Second, func(ctx context.Context) (bool, error) {
		_, err := load.Get(ctx, fmt.Sprintf("http://%s:%d/", n.IP, controlPort))
		return err == nil, err
	}); err != nil {
		r.NoHostPort = err.Error()
	}
	for i := range services {
		p, err := kubeletlab.Seen(l.pods, l.eps, ns, fmt.Sprintf("svc%d", i+1), since, func(string) bool { return true })
		if err != nil {
			return err
		}
		r.Removed += p.Removed
	}
	q, f := counts(l.loads)
	r.Requests, r.Failed = q-requests, f-failed
	l.e.Record(r)
	return nil
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
