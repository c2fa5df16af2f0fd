// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustersmoke is the check cluster-smoke: a cluster of the binaries under test
// does what a cluster is for, in every variant.
package clustersmoke

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{of("v1.9.11"), labkit.OnBase(of, "v1.12.10")}
}

// of is the check of a base.
func of(base string) labkit.Lab {
	return labkit.Lab{
		Name:    "cluster-smoke",
		Folder:  "checks/cluster-smoke",
		Summary: "a Deployment with a Service is created, updated, rolled back and deleted, with real containers",
		Test:    []labkit.Variant{labkit.Ours},
		Steps:   func(e *labkit.Env) []labkit.Step { return steps(e, base) },
		Oracle: labkit.Oracle{Text: []string{"each version was served by exactly 3 ready addresses of 3 pods, within its time limit; no request of the load failed; no restart recreated a container; the same controller manager and kubelet continued after a restart of the API server; at the end nothing is left"},
			Judge: judge},
		Needs: labkit.ManagerNeeds(base, labkit.StockBinary(base, "kube-scheduler"), labkit.BinaryUnderTest(base, "kubelet")),
	}
}

func steps(e *labkit.Env, base string) []labkit.Step {
	s := &smoke{e: e, base: base}
	where, names := "metrics", s.namesOfMetrics
	if s.fromLog() {
		where, names = "log", s.namesOfLog
	}
	return []labkit.Step{
		{Text: "start etcd, kube-apiserver (TLS, RBAC), kube-scheduler, and the kube-controller-manager and kubelet under test with docker", Do: s.start},
		{Text: "create a Deployment of 3 replicas with a readiness probe, image web:v1, and a Service; check its pods and Endpoints, and send a request to each address", Do: s.create},
		{Text: "read the names of the controller manager's reflectors, which must be those of upstream's build, from its " + where, Do: names},
		{Text: "roll out web:v2 by a strategic merge patch, under HTTP load on the Endpoints' addresses", Do: s.update},
		{Text: "kill the API server and start it again; the controller manager and the kubelet must keep running", Do: s.reconnect},
		{Text: "roll back through the rollback subresource", Do: s.rollback},
		{Text: fmt.Sprintf("restart the controller manager and the kubelet, %d time(s)", restarts(e.Profile)), Do: s.restart},
		{Text: "delete Deployment and Service and wait until nothing of them is left", Do: s.delete},
		labkit.AllRun(func(ctx context.Context) error { return s.c.Alive(ctx) }),
	}
}

func restarts(p labkit.Profile) int {
	return labkit.Pick(p, 1, 5)
}

const (
	ns       = "default"
	replicas = 3
)

// The termination delay lets load in flight and a proxy that has not heard yet
// be served, as a careful application does.
var objects = fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - name: web
        image: %s
        imagePullPolicy: IfNotPresent
        env: [{name: LABPOD_TERM_DELAY, value: 2s}]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
`, replicas, node.WebImage("v1"))

type smoke struct {
	e    *labkit.Env
	base string
	c    *node.Cluster
	node *node.Node
}

func (s *smoke) start(ctx context.Context) error {
	var err error
	// A leader ends when it cannot renew its lease for 10 s. A busy machine can need that to
	// start an API server, so no leader is elected before that restart is over.
	alone := []string{"--leader-elect=false"}
	manager := alone
	if s.fromLog() {
		manager = append(manager, "--v=3")
	}
	s.c, err = s.e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: s.e.Stock(s.base, "kube-apiserver"), Audit: true},
		ControllerManager: &kube.ControllerManagerConfig{Program: s.e.UnderTest(s.base, "kube-controller-manager"), ExtraArgs: manager},
		Scheduler:         &kube.SchedulerConfig{Program: s.e.Stock(s.base, "kube-scheduler"), ExtraArgs: alone},
		Nodes:             []node.Config{{Name: "node1", Kubelet: s.e.UnderTest(s.base, "kubelet")}},
	})
	if err == nil {
		s.node = s.c.Nodes[0]
	}
	return err
}

func (s *smoke) create(ctx context.Context) error {
	s.e.Step("create Deployment and Service")
	if _, err := s.c.Client.CreateYAML(ctx, ns, objects); err != nil {
		return err
	}
	return s.serves(ctx, "v1")
}

// fromLog: 1.12 has no metrics of reflectors any more.
func (s *smoke) fromLog() bool { return base.Minor(s.base) >= 12 }

func (s *smoke) namesOfMetrics(ctx context.Context) error {
	page, err := metrics.Get(ctx, s.c.ControllerManager.URL+"/metrics")
	if err != nil {
		return err
	}
	var r reflectors
	for _, m := range page["reflector_last_resource_version"].GetMetric() {
		r.Names = append(r.Names, metrics.Label(m, "name"))
	}
	s.e.Record(r)
	return nil
}

// startingReflector is the line of the log in which a reflector names itself, at --v=3.
var startingReflector = regexp.MustCompile(`] Starting reflector .* from (.+)`)

func (s *smoke) namesOfLog(context.Context) error {
	log, err := s.c.ControllerManager.LastRunLog()
	if err != nil {
		return err
	}
	r := reflectors{FromLog: true}
	for _, m := range startingReflector.FindAllStringSubmatch(log, -1) {
		r.Names = append(r.Names, strings.TrimSpace(m[1]))
	}
	s.e.Record(r)
	return nil
}

// bounded is for waits whose end is an observation, whatever they saw: the error is of
// the run and not of the cluster.
func bounded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return nil
}

// serves records what the cluster serves: once it should, or when the bound is over.
func (s *smoke) serves(ctx context.Context, version string) error {
	began := time.Now()
	o := served{Version: version}
	err := wait.Until(ctx, "the Deployment serves "+version, 150*time.Second, func(ctx context.Context) (bool, error) {
		if err := s.look(ctx, &o); err != nil {
			return false, err
		}
		fault := o.notYet()
		if fault != "" {
			return false, errors.New(fault)
		}
		return true, nil
	})
	if err := bounded(ctx, err); err != nil {
		return err
	}
	o.Answers = map[string]string{}
	for _, a := range o.Ready {
		body, err := load.Get(ctx, "http://"+a+"/")
		if err != nil {
			body = err.Error()
		}
		o.Answers[a] = strings.TrimSpace(body)
	}
	o.Seconds = time.Since(began).Seconds()
	s.e.Record(o)
	if fault := o.fault(); fault != "" {
		s.e.Step("%s", fault)
		return labkit.Enough
	}
	s.e.Step("3 addresses answer %s from 3 pods", version)
	return nil
}

// look reads the Deployment, its pods and its Endpoints.
func (s *smoke) look(ctx context.Context, o *served) error {
	d, err := s.c.Client.Get(ctx, kube.Deployments, ns, "web")
	if err != nil {
		return err
	}
	st := func(f string) int64 { return kube.Int(d, "status", f) }
	o.Observed = kube.Int(d, "metadata", "generation") == st("observedGeneration")
	o.Replicas, o.Updated, o.Available = st("replicas"), st("updatedReplicas"), st("availableReplicas")
	// Pods that are being deleted run on for their grace period.
	pods, err := s.c.Client.List(ctx, kube.Pods, ns, "app=web")
	if err != nil {
		return err
	}
	o.Images = nil
	for i := range pods {
		for _, c := range kube.Slice(&pods[i], "spec", "containers") {
			image, _ := c.(map[string]any)["image"].(string)
			o.Images = append(o.Images, image)
		}
	}
	ep, err := s.c.Client.Get(ctx, kube.Endpoints, ns, "web")
	if err != nil {
		return err
	}
	o.Ready, o.NotReady = kube.ReadyAddresses(ep), kube.NotReadyAddresses(ep)
	return nil
}

func (s *smoke) update(ctx context.Context) error {
	before, err := s.sized(ctx)
	if err != nil {
		return err
	}
	eps, err := s.c.Client.Record(ctx, kube.Endpoints, ns)
	if err != nil {
		return err
	}
	defer eps.Stop()
	steady := load.Start(ctx, load.Config{Targets: func() []string {
		if ep := eps.Latest(ns, "web"); ep != nil {
			return kube.ReadyAddresses(ep)
		}
		return nil
	}})
	defer steady.Stop()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":%q}]}}}}`, node.WebImage("v2"))
	if _, err := s.c.Client.PatchStrategic(ctx, kube.Deployments, ns, "web", patch); err != nil {
		return err
	}
	if err := s.serves(ctx, "v2"); err != nil {
		return err
	}
	r := steady.Stop()
	s.e.Step("load: %v", r)
	after, err := s.sized(ctx)
	if err != nil {
		return err
	}
	s.e.Record(updated{Load: r, Before: before, After: after})
	return nil
}

// sized are the names of the ReplicaSets with replicas.
func (s *smoke) sized(ctx context.Context) ([]string, error) {
	rss, err := s.c.Client.List(ctx, kube.ReplicaSets, ns, "app=web")
	var names []string
	for i := range rss {
		if kube.Int(&rss[i], "spec", "replicas") > 0 {
			names = append(names, rss[i].GetName())
		}
	}
	return names, err
}

func (s *smoke) rollback(ctx context.Context) error {
	body := `{"kind":"DeploymentRollback","apiVersion":"extensions/v1beta1","name":"web","rollbackTo":{"revision":0}}`
	path := "/apis/extensions/v1beta1/namespaces/" + ns + "/deployments/web/rollback"
	code, b, err := s.c.Client.Raw(ctx, http.MethodPost, path, "application/json", []byte(body))
	if err != nil {
		return err
	}
	o := rolledBack{Status: code, Body: string(b)}
	_, err = s.c.Client.WaitFor(ctx, kube.Deployments, ns, "web", 20*time.Second, "with the previous image", func(d *kube.Object) (bool, error) {
		cs := kube.Slice(d, "spec", "template", "spec", "containers")
		if len(cs) == 1 {
			o.Image, _ = cs[0].(map[string]any)["image"].(string)
		}
		return o.Image == node.WebImage("v1"), nil
	})
	if err := bounded(ctx, err); err != nil {
		return err
	}
	if err := s.serves(ctx, "v1"); err != nil {
		return err
	}
	rss, err := s.c.Client.List(ctx, kube.ReplicaSets, ns, "app=web")
	o.ReplicaSets = len(rss)
	s.e.Record(o)
	return err
}

// running are the IDs of the Deployment's containers that run.
func (s *smoke) running(ctx context.Context) ([]string, error) {
	cs, err := s.node.Docker.Containers(ctx, false)
	var ids []string
	for _, c := range cs {
		if c.Labels[node.LabelContainer] == "web" {
			ids = append(ids, c.ID)
		}
	}
	return ids, err
}

func (s *smoke) delete(ctx context.Context) error {
	for _, r := range []kube.GVR{kube.Deployments, kube.Services} {
		if err := s.c.Client.Delete(ctx, r, ns, "web"); err != nil {
			return err
		}
	}
	var left []string
	err := wait.Until(ctx, "everything is gone", 2*time.Minute, func(ctx context.Context) (bool, error) {
		left = nil
		for _, r := range []kube.GVR{kube.ReplicaSets, kube.Pods} {
			l, err := s.c.Client.List(ctx, r, ns, "app=web")
			if err != nil {
				return false, err
			}
			for i := range l {
				left = append(left, r.Resource+" "+l[i].GetName())
			}
		}
		eps, err := s.c.Client.List(ctx, kube.Endpoints, ns, "")
		if err != nil {
			return false, err
		}
		for i := range eps {
			if eps[i].GetName() == "web" {
				left = append(left, "endpoints web")
			}
		}
		ids, err := s.running(ctx)
		for _, id := range ids {
			left = append(left, "container "+id)
		}
		return err == nil && len(left) == 0, err
	})
	if err := bounded(ctx, err); err != nil {
		return err
	}
	s.e.Record(deleted{Left: left})
	return nil
}
