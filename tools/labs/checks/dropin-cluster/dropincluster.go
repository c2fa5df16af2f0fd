// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dropincluster is the check dropin-cluster: what a cluster shows of ours that it
// does not show of stock is of a fix, and nothing else. See
// tools/labs/checks/dropin-cluster/README.md.
package dropincluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdfast/tools/build/dropin"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const on = "node1"

// Labs are those of this folder.
func Labs() []labkit.Lab {
	all := []labkit.Lab{of(dropin.Base)}
	for _, base := range dropin.Bases[1:] {
		all = append(all, labkit.OnBase(of, base))
	}
	return all
}

// of is the check of a base.
func of(base string) labkit.Lab {
	return labkit.Lab{
		Name:     "dropin-cluster",
		Folder:   "checks/dropin-cluster",
		Summary:  "compares what a cluster with stock and a cluster with Holdfast show from the outside",
		Steps:    func(e *labkit.Env) []labkit.Step { return steps(e, base) },
		Oracle:   oracle(base),
		Variants: []labkit.Variant{labkit.Ours}, // the builds take turns within one run
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 30*time.Minute, 90*time.Minute)
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-scheduler"),
			labkit.StockBinary(base, dropin.Manager),
			labkit.BinaryUnderTest(base, dropin.Manager),
			labkit.StockBinary(base, dropin.Kubelet),
			labkit.BinaryUnderTest(base, dropin.Kubelet),
		},
	}
}

// stock is the build that others are compared with, beside dropin.Builds.
const stock = "stock"

// mutant is ours with a kubelet that has changes which must be seen: long profile, dropin.Base.
const mutant = "mutant"

// rounds is how often each build has a turn.
const rounds = 3

// settle is how long a turn goes on when all its objects are there: what is done at an
// interval falls into each.
const settle = 40 * time.Second

// started is how long a turn has gone on when its objects are created.
const started = 20 * time.Second

type lab struct {
	e       *labkit.Env
	base    string
	c       *node.Cluster
	n       *node.Node
	cm      *kube.ControllerManager
	proxies map[string]*kube.Proxy // by component
	wire    *wire
	calls   string          // the kubelet's --docker-endpoint
	off     map[string]bool // gates, for the build with gates off
	ns      string          // of this turn
	begin   time.Time       // of this turn
}

func steps(e *labkit.Env, base string) []labkit.Step {
	l := &lab{e: e, base: base, proxies: map[string]*kube.Proxy{}}
	l.wire = newWire(l.normal)
	all := []labkit.Step{
		{Text: "start etcd, kube-apiserver and kube-scheduler, stock; start a recording proxy before the API server for the kubelet, one for the controller manager, and one before dockerd; start a node", Do: l.start},
	}
	for i, build := range turns(e.Profile, base) {
		all = append(all, labkit.Step{Text: fmt.Sprintf("turn %d, %s: swap both; create a Deployment and roll it out again, a DaemonSet, a StatefulSet, a Job, a pod that does not start, and a Service that is deleted; record the facts; delete the namespace", i+1, build),
			Do: func(ctx context.Context) error { return l.turn(ctx, i+1, build) }})
	}
	return append(all, labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }))
}

func (l *lab) start(ctx context.Context) error {
	if slices.Contains(turns(l.e.Profile, l.base), mutant) {
		if _, err := os.Stat(mutantFile(l.e)); err != nil {
			return exit.Preconditionf("the kubelet with changes that must be detected: %v: run _output/tools/lab, which builds it", err)
		}
	}
	table, err := fixes.Load(l.e.Root)
	if err != nil {
		return err
	}
	known, err := dropin.New(table, l.base)
	if err != nil {
		return err
	}
	l.e.Record(allowed{*known})
	l.off = map[string]bool{}
	for _, g := range dropin.GatesToSet(table, l.base) {
		l.off[g] = false
	}
	if l.c, err = l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(l.base, "kube-apiserver")},
		Scheduler: &kube.SchedulerConfig{Program: l.e.Stock(l.base, "kube-scheduler"), ExtraArgs: []string{"--leader-elect=false"}},
	}); err != nil {
		return err
	}
	for _, c := range dropin.Components {
		if l.proxies[c], err = l.e.StartProxy(l.c.APIServer, "proxy-"+c, l.e.Seed); err != nil {
			return err
		}
		l.wire.tap(l.proxies[c], c)
	}
	if err := l.manager(ctx, stock); err != nil {
		return err
	}
	if err := l.c.Client.WaitPodsAdmitted(ctx, "default", 90*time.Second); err != nil {
		return err
	}
	l.n, err = l.e.StartNode(ctx, l.proxies[dropin.Kubelet].Before(l.c.APIServer), node.Config{Name: on})
	if err != nil {
		return err
	}
	if l.calls, err = l.n.ProxyDocker(l.wire.dockerCall); err != nil {
		return err
	}
	if err := l.kubelet(ctx, stock); err != nil {
		return err
	}
	l.c.Nodes = append(l.c.Nodes, l.n)
	return l.c.WaitNodeReady(ctx, on, time.Minute)
}

// program is a component of a build.
func (l *lab) program(build, name string) kube.Program {
	p := l.e.UnderTest(l.base, name)
	switch {
	case build == stock:
		return l.e.Stock(l.base, name)
	case build == dropin.GatesOff:
		return p.WithGates(l.off)
	case build == mutant && name == dropin.Kubelet:
		p.Path = mutantFile(l.e)
	}
	return p
}

func mutantFile(e *labkit.Env) string { return filepath.Join(e.Root, dropin.MutantDir, dropin.Kubelet) }

// kubelet starts the build's.
func (l *lab) kubelet(ctx context.Context, build string) error {
	return l.n.StartKubelet(ctx, l.program(build, dropin.Kubelet), "--docker-endpoint="+l.calls)
}

// manager starts the build's controller manager.
func (l *lab) manager(ctx context.Context, build string) (err error) {
	l.cm, err = l.e.StartControllerManager(ctx, l.proxies[dropin.Manager].Before(l.c.APIServer), kube.ControllerManagerConfig{
		Program: l.program(build, dropin.Manager), ExtraArgs: []string{"--leader-elect=false"}})
	l.c.ControllerManager = l.cm
	return err
}

// turn swaps both components, has the cluster do what clusters do, and records what was seen.
func (l *lab) turn(ctx context.Context, number int, build string) error {
	if err := errors.Join(l.cm.Stop(), l.n.StopKubelet()); err != nil {
		return err
	}
	// The build of the turn before sends nothing any more.
	l.ns, l.begin = fmt.Sprintf("turn-%d", number), time.Now()
	l.wire.reset()
	if err := l.manager(ctx, build); err != nil {
		return err
	}
	if err := l.kubelet(ctx, build); err != nil {
		return err
	}
	if err := l.c.WaitNodeReady(ctx, on, time.Minute); err != nil {
		return err
	}
	// Stock's Node is Ready 10 s later than Holdfast's. With either the controllers have their
	// caches by then.
	if err := wait.Pause(ctx, time.Until(l.begin.Add(started))); err != nil {
		return err
	}
	if err := l.scenario(ctx); err != nil {
		return err
	}
	if err := wait.Pause(ctx, settle); err != nil {
		return err
	}
	t := turn{Number: number, Build: build}
	var err error
	if t.Facts, err = l.look(ctx); err != nil {
		return err
	}
	if build == mutant { // its folder stays, and would be the next build's
		if err := os.Remove(filepath.Join(l.n.Dir, "kubelet", dropin.MutantName)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if err := l.c.Client.Delete(ctx, kube.Namespaces, "", l.ns); err != nil {
		return err
	}
	if err := l.c.Client.WaitGone(ctx, kube.Namespaces, "", l.ns, 3*time.Minute); err != nil {
		return err
	}
	l.e.Record(t)
	l.e.Logf("%s: %d facts", build, len(t.Facts))
	return nil
}

// objects are the same in each turn. Their pods have no token: its Secret has a made-up
// name, which the hash of a container would have too.
var objects = fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {key: value}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {key: value}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: leaving}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: policy/v1beta1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: web}}
---
apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      volumes:
      - {name: settings, configMap: {name: settings}}
      - {name: secret, secret: {secretName: secret}}
      - {name: scratch, emptyDir: {}}
      containers:
      - name: web
        image: %[1]s
        imagePullPolicy: IfNotPresent
        env: [{name: A, value: b}, {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 500m, memory: 64Mi}}
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
        livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 5}
        volumeMounts:
        - {name: settings, mountPath: /settings}
        - {name: secret, mountPath: /secret/key, subPath: key}
        - {name: scratch, mountPath: /scratch, subPath: made}
---
apiVersion: extensions/v1beta1
kind: DaemonSet
metadata: {name: daemon}
spec:
  template:
    metadata: {labels: {app: daemon}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: %[1]s, imagePullPolicy: IfNotPresent}]
---
apiVersion: apps/v1beta1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 1
  template:
    metadata: {labels: {app: db}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: %[1]s, imagePullPolicy: IfNotPresent}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec:
      automountServiceAccountToken: false
      restartPolicy: Never
      containers: [{name: web, image: %[1]s, imagePullPolicy: IfNotPresent, command: [/labpod, exit, "0"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: lacking}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  volumes: [{name: v, secret: {secretName: none}}]
  containers: [{name: web, image: %[1]s, imagePullPolicy: IfNotPresent, volumeMounts: [{name: v, mountPath: /v}]}]
`, node.WebImage("v1"))

var deployments = kube.GVR{Group: "extensions", Version: "v1beta1", Resource: "deployments"}

// scenario creates the objects, waits for them, rolls the Deployment out once more, and
// deletes a Service.
func (l *lab) scenario(ctx context.Context) error {
	if err := l.c.Client.Make(ctx, "", kube.Namespace(l.ns)); err != nil {
		return err
	}
	if err := l.c.Client.WaitPodsAdmitted(ctx, l.ns, time.Minute); err != nil {
		return err
	}
	if _, err := l.c.Client.CreateYAML(ctx, l.ns, objects); err != nil {
		return err
	}
	if err := l.ready(ctx, node.WebImage("v1")); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":%q}]}}}}`, node.WebImage("v2"))
	if _, err := l.c.Client.PatchStrategic(ctx, deployments, l.ns, "web", patch); err != nil {
		return err
	}
	if err := l.ready(ctx, node.WebImage("v2")); err != nil {
		return err
	}
	if err := l.c.Client.Delete(ctx, kube.Services, l.ns, "leaving"); err != nil {
		return err
	}
	return l.c.Client.WaitGone(ctx, kube.Endpoints, l.ns, "leaving", time.Minute)
}

// ready waits until two pods of the Deployment with that image are the ready addresses, the
// other pods are ready, and the Job's is done.
func (l *lab) ready(ctx context.Context, image string) error {
	_, err := l.c.Client.WaitList(ctx, kube.Pods, l.ns, "", 3*time.Minute, "all objects exist", func(list []kube.Object) (bool, error) {
		got := map[string]int{}
		for i := range list {
			p := &list[i]
			app := p.GetLabels()["app"]
			switch {
			case p.GetDeletionTimestamp() != nil:
				return false, fmt.Errorf("%s is being deleted", p.GetName())
			case app == "web" && kubeletlab.PodReady(p) && kube.Image(p) == image:
				got["web"]++
			case app != "" && app != "web" && kubeletlab.PodReady(p):
				got[app]++
			case kube.String(p, "status", "phase") == "Succeeded":
				got["once"]++
			}
		}
		if got["web"] != 2 || got["daemon"] != 1 || got["db"] != 1 || got["once"] != 1 || len(list) != 6 {
			return false, fmt.Errorf("%v of %d pods", got, len(list))
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	_, err = l.c.Client.WaitFor(ctx, kube.Endpoints, l.ns, "web", time.Minute, "has two ready addresses", func(o *kube.Object) (bool, error) {
		return len(kube.ReadyAddresses(o)) == 2, nil
	})
	return err
}
