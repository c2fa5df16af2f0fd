// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
)

func podLab() labkit.Lab {
	return labkit.Lab{
		Name:    "endpoints-rules-pod",
		Folder:  "endpoints-rules",
		Summary: "a webhook for Endpoints that hangs in its pod blocks the Endpoints of all namespaces",
		Steps:   podSteps,
		Oracle:  podOracle,
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 12*time.Minute, 75*time.Minute)
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(base, "kube-scheduler"),
			labkit.StockBinary(base, "kubelet"),
			labkit.StockBinary(base, "kube-proxy"),
			labkit.StockBinary(base, "kubectl"),
		},
	}
}

// inPods is the lab in which kubelets run the program.
type inPods struct {
	rig
	probes  probes // of the manifest
	master  *node.Node
	proxies []*process.Proc
	conf    *kube.Recorder // of webhook configurations
	keep    *supervisor
	// away is how often the API server was killed: each time watches are lost.
	away int
	// began is when the fault did that is in force.
	began time.Time
}

const (
	masterNode  = "master"
	programPods = "endpoints-rules" // their namespace, and label app
	// Containers of such a pod.
	serving, guarding = "endpoints-rules", "breaker"
	podImage          = "holdfast.test/endpoints-rules:lab"
)

func podSteps(e *labkit.Env) []labkit.Step {
	l := &inPods{rig: rig{e: e, targets: []string{probe, probe2}, patient: true}}
	guarded := e.Variant != labkit.Stock
	install := "apply the manifests that endpoints-rules writes, with kubectl as its page shows, rule set traffic-off, and wait until its pods are ready"
	if !guarded {
		install = "apply the manifests that endpoints-rules writes, with kubectl, but without the liveness probe and the breaker, rule set traffic-off, and wait until its pods are ready"
	}
	all := []labkit.Step{
		{Text: "start etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and on the same network a master node with dockerd, kubelet and kube-proxy, all stock; watch the leases", Do: l.startCluster},
		{Text: fmt.Sprintf("create %d Services in a namespace that opts in and %d in another one; their pods are API objects; change the readiness of one pod of each Service all the time", insides, outsides), Do: l.start},
		{Text: install, Do: func(ctx context.Context) error { return l.install(ctx, guarded) }},
	}
	if guarded {
		for i, rows := range podPlan(e.Profile, e.Rand) {
			for _, name := range rows {
				all = append(all, labkit.Step{Text: fmt.Sprintf("round %d: %s", i+1, name), Do: func(ctx context.Context) error { return l.provoke(ctx, i, name) }})
			}
		}
		all = append(all, labkit.Step{Text: "compare all Endpoints with a model", Do: l.compare})
	} else {
		all = append(all, labkit.Step{Text: fmt.Sprintf("SIGSTOP of endpoints-rules, and SIGCONT after %v", unguardedFor), Do: l.unguarded})
	}
	return append(all,
		labkit.Step{Text: "read the leases", Do: l.readLeases},
		labkit.Step{Text: "check that all components run, and that no watch was lost except when the API server ended", Always: true, Do: l.intact})
}

// podPlan are the faults of each round, in their order.
func podPlan(p labkit.Profile, random *rand.Rand) [][]row {
	if p == labkit.Short {
		return [][]row{{stoppedRow, killedRow}}
	}
	var out [][]row
	for range podRounds {
		rows := append([]row(nil), podRows...)
		random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		out = append(out, rows)
	}
	return out
}

func (l *inPods) startCluster(ctx context.Context) (err error) {
	l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.Stock(base, "kube-controller-manager"),
			// The node of the load's pods does not exist. The rest is as it is in a cluster.
			ExtraArgs: []string{"--controllers=*,-podgc,-node"}},
		Scheduler: &kube.SchedulerConfig{Program: l.e.Stock(base, "kube-scheduler")},
		Nodes: []node.Config{{Name: masterNode, InMachine: true, Kubelet: l.e.Stock(base, "kubelet"),
			Images: []node.Image{{Ref: podImage, Program: binary(l.e), Path: "/endpoints-rules"}}}},
	})
	if err != nil {
		return err
	}
	l.master = l.c.Nodes[0]
	// As kubeadm marks a master.
	if _, err := l.c.Client.PatchStrategic(ctx, kube.Nodes, "", masterNode,
		`{"metadata":{"labels":{"node-role.kubernetes.io/master":""}},"spec":{"taints":[{"key":"node-role.kubernetes.io/master","effect":"NoSchedule"}]}}`); err != nil {
		return err
	}
	for _, n := range l.c.Nodes {
		p, err := n.StartProxy(ctx, l.e.Stock(base, "kube-proxy"))
		if err != nil {
			return err
		}
		l.proxies = append(l.proxies, p)
	}
	l.keep = newSupervisor(l.e, map[string]*process.Proc{leaseNames[0]: l.c.ControllerManager.Proc, leaseNames[1]: l.c.Scheduler})
	l.keep.start(ctx)
	if l.conf, err = l.c.Client.Record(ctx, configurations, ""); err != nil {
		return err
	}
	l.leases, err = l.c.Client.Record(ctx, kube.Endpoints, kubeSystem)
	return err
}

// intact: the controller manager and the scheduler are for the oracle.
func (l *inPods) intact(context.Context) error {
	if n := l.ep.Gaps() + l.leases.Gaps() + l.conf.Gaps(); n > 0 && l.away == 0 {
		return fmt.Errorf("a watch was lost %d times: updates may be missing", n)
	}
	if err := l.keep.failed(); err != nil {
		return err
	}
	procs := append([]*process.Proc{l.c.Etcd.Proc, l.c.APIServer.Proc}, l.proxies...)
	for _, n := range l.c.Nodes {
		procs = append(procs, n.Dockerd, n.Kubelet)
	}
	return process.AllAlive(procs...)
}

// readLeases reads what was seen of the leases, whose holders the supervisor knows.
func (l *inPods) readLeases(context.Context) error {
	var all []lease
	for _, name := range leaseNames {
		alive, ended := l.keep.state(name)
		all = append(all, lease{Name: name, Alive: alive, Ended: ended})
	}
	return l.leasesOf(all...)
}
