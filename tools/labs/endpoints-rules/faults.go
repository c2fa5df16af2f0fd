// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/webset"
)

func faultsLab() labkit.Lab {
	return labkit.Lab{
		Name:    "endpoints-rules-faults",
		Folder:  "endpoints-rules",
		Summary: "a webhook for Endpoints that hangs blocks all Endpoints, and a controller manager loses its lease if the webhook also reviews its lock",
		Steps:   faultSteps,
		Oracle:  faultOracle,
		Timeout: func(labkit.Profile) time.Duration { return 25 * time.Minute },
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(base, "kube-scheduler"),
		},
	}
}

const (
	// other is a namespace that has not opted in.
	other      = "other"
	kubeSystem = "kube-system"
)

// rig is what labs of a webhook that fails share: Services whose pods change all the time, a
// model of their Endpoints, writes, and the leases.
type rig struct {
	e       *labkit.Env
	c       *node.Cluster
	program *program
	ep      *kube.Recorder
	leases  *kube.Recorder
	load    *flips
	// targets are the Services whose Endpoints the lab writes.
	targets []string
	// patient: the API server may be away, and then a change is made when it is back.
	patient bool
}

// faults is the lab of a webhook that fails in all ways.
type faults struct {
	rig
	kubelet *keeper // nil in the control
	front   *front
}

func faultSteps(e *labkit.Env) []labkit.Step {
	l := &faults{rig: rig{e: e, targets: allTargets()}}
	all := []labkit.Step{
		{Text: "start etcd, kube-apiserver, kube-controller-manager and kube-scheduler, all stock; watch the leases", Do: l.startCluster},
		{Text: fmt.Sprintf("create %d Services in a namespace that opts in and %d in another one; their pods are API objects; change the readiness of one pod of each Service all the time", insides, outsides), Do: l.start},
	}
	if e.Variant == labkit.Stock {
		return append(all,
			labkit.Step{Text: "install endpoints-rules without breaker, liveness probe and its own deadline, and opt kube-system in", Do: l.unguarded},
			labkit.Step{Text: "put a server that delays each answer by 40 s before the webhook, until the controller manager ends", Do: l.control},
			labkit.Step{Text: "read the leases", Do: l.readLeases},
			labkit.Step{Text: "check that etcd and kube-apiserver run, and that no watch was lost", Always: true, Do: l.intact})
	}
	return append(all,
		labkit.Step{Text: "install endpoints-rules with the manifests that it writes itself, rule set traffic-off, its breaker, and a liveness probe like the kubelet's", Do: l.install},
		labkit.Step{Text: "SIGSTOP of endpoints-rules", Do: l.stopped},
		labkit.Step{Text: "drop all packets from and to endpoints-rules until its breaker has emptied the webhook configuration", Do: l.dropped},
		labkit.Step{Text: "kill -9 of endpoints-rules", Do: l.killed},
		labkit.Step{Text: "drop all packets between endpoints-rules and the API server, except those of reviews, until endpoints-rules ends", Do: l.deaf},
		labkit.Step{Text: "start endpoints-rules with a certificate of another authority", Do: l.certificate},
		labkit.Step{Text: "slow request bodies, late answers and invalid answers, by a server between kube-apiserver and endpoints-rules", Do: l.between},
		labkit.Step{Text: "send made-up AdmissionReviews to endpoints-rules", Do: l.fuzz},
		labkit.Step{Text: "a rule that fails when it is evaluated", Do: l.rule},
		labkit.Step{Text: "update Endpoints of 5,000 and 10,000 addresses", Do: l.large},
		labkit.Step{Text: fmt.Sprintf("change the rules %d times, %d of them to invalid rules, and the certificate %d times", goodRules+badRules, badRules, certificates), Do: l.reload},
		labkit.Step{Text: "compare all Endpoints with a model", Do: l.compare},
		labkit.Step{Text: "read the leases", Do: l.readLeases},
		labkit.Step{Text: "check that etcd and kube-apiserver run, and that no watch was lost", Always: true, Do: l.intact})
}

// intact: the controller manager and the scheduler end when they lose their lease, which is
// for the oracle.
func (l *faults) intact(context.Context) error {
	if n := l.ep.Gaps() + l.leases.Gaps(); n > 0 {
		return fmt.Errorf("a watch was lost %d times: updates may be missing", n)
	}
	if l.kubelet != nil {
		if err := l.kubelet.failed(); err != nil {
			return err
		}
	}
	return process.AllAlive(l.c.Etcd.Proc, l.c.APIServer.Proc)
}

func (l *faults) startCluster(ctx context.Context) (err error) {
	l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.Stock(base, "kube-controller-manager"),
			// The pods' node does not exist. The rest is as it is in a cluster.
			ExtraArgs: []string{"--controllers=*,-podgc,-node"}},
		Scheduler: &kube.SchedulerConfig{Program: l.e.Stock(base, "kube-scheduler")},
	})
	if err != nil {
		return err
	}
	l.leases, err = l.c.Client.Record(ctx, kube.Endpoints, kubeSystem)
	return err
}

func (l *rig) start(ctx context.Context) (err error) {
	if err := l.c.Client.Make(ctx, "", kube.Namespace(other)); err != nil {
		return err
	}
	if err := l.c.Client.WaitPodsAdmitted(ctx, other, time.Minute); err != nil {
		return err
	}
	if l.ep, err = l.c.Client.Record(ctx, kube.Endpoints, ""); err != nil {
		return err
	}
	l.load = &flips{c: l.c.Client, ep: l.ep, patient: l.patient}
	if err := l.makePods(ctx, ns, targets); err != nil {
		return err
	}
	for _, name := range l.targets {
		if err := l.c.Client.Make(ctx, ns, kube.Service(name, targets, 8080)); err != nil {
			return err
		}
	}
	for i := range insides + outsides {
		in, name := ns, fmt.Sprintf("in-%d", i)
		if i >= insides {
			in, name = other, fmt.Sprintf("out-%d", i-insides)
		}
		if err := l.makePods(ctx, in, name); err != nil {
			return err
		}
		if err := l.c.Client.Make(ctx, in, kube.Service(name, name, 8080)); err != nil {
			return err
		}
		l.load.add(in, name, l.e.Rand.Uint64())
	}
	if err := wait.Until(ctx, "all Services have two ready addresses", time.Minute, func(context.Context) (bool, error) {
		for _, s := range l.model(false) {
			if got := l.seen(s.ns, s.name); got != s.want {
				return false, fmt.Errorf("%s/%s: %s", s.ns, s.name, got)
			}
		}
		return true, nil
	}); err != nil {
		return err
	}
	l.load.start(ctx)
	return nil
}

// makePods makes two ready pods with the label app: one whose readiness may change, and one
// that the release platform has taken out of traffic.
func (l *rig) makePods(ctx context.Context, in, app string) error {
	for _, role := range []string{moving, off} {
		p := webset.Object("none")
		p.Name, p.Labels, p.Spec.Containers[0].Name = app+"-"+role, map[string]string{"app": app}, "web"
		if role == off {
			p.Annotations = map[string]string{"holdfast/traffic": "off"}
		}
		if err := l.c.Client.Make(ctx, in, p); err != nil {
			return err
		}
		l.load.ips++
		if err := webset.PublishReady(ctx, l.c.Client, in, p.Name, fmt.Sprintf("10.92.0.%d", l.load.ips), true); err != nil {
			return err
		}
	}
	return nil
}

func (l *faults) install(ctx context.Context) (err error) {
	if l.program, err = prepare(ctx, l.e, l.c, "traffic-off", ns); err != nil {
		return err
	}
	if err := l.ownWay(ctx); err != nil {
		return err
	}
	if err := l.program.install(ctx, probe); err != nil {
		return err
	}
	probes, err := probesOf(l.program.pod)
	if err != nil {
		return err
	}
	l.kubelet = &keeper{p: l.program, probes: probes}
	go l.kubelet.run(ctx)
	return l.settled(ctx)
}

// unguarded is what the program would be without what it has against its own failing.
func (l *faults) unguarded(ctx context.Context) (err error) {
	if l.program, err = prepare(ctx, l.e, l.c, "traffic-off", ns, kubeSystem); err != nil {
		return err
	}
	if err := l.program.serve(ctx); err != nil {
		return err
	}
	if err := l.program.configure(ctx, probe); err != nil {
		return err
	}
	return l.settled(ctx)
}

// settled waits until each address of the targets is where the rules want it.
func (l *rig) settled(ctx context.Context) error {
	return wait.Until(ctx, "the addresses without traffic are not ready", time.Minute, func(context.Context) (bool, error) {
		for _, name := range l.targets {
			if strings.HasPrefix(name, largePrefix) { // they are deleted after their row
				continue
			}
			if got := l.seen(ns, name); got != (places{targets + "-" + moving, targets + "-" + off}) {
				return false, fmt.Errorf("%s: %s", name, got)
			}
		}
		return true, nil
	})
}

// row has a fault in force, and records what was seen meanwhile: calls, and changes of
// readiness that ended after its begin.
func (l *faults) row(ctx context.Context, name row, f func(ctx context.Context, o *fault) error) error {
	o := fault{Row: name}
	begin := time.Now()
	if err := f(ctx, &o); err != nil {
		return err
	}
	// A row that is over soon waits for a change of each namespace.
	if err := wait.Until(ctx, "changes in both namespaces", time.Minute, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(l.load.since(begin), func(s served) bool { return s.Updates+s.Lost == 0 }), nil
	}); err != nil {
		return err
	}
	if err := l.load.drain(ctx); err != nil {
		return err
	}
	o.Served = l.load.since(begin)
	l.e.Record(o)
	l.e.Logf("%s", o)
	return nil
}
