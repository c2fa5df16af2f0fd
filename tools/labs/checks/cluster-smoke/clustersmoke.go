// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustersmoke is the lab cluster-smoke: a cluster of the binaries
// under test does what a cluster is for. There is no incident, so every
// variant must answer absent; "reproduced" means that the cluster did
// something wrong.
package clustersmoke

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

const base = "v1.9.11"

func init() {
	labkit.Register(labkit.Lab{
		Name:    "cluster-smoke",
		Folder:  "checks/cluster-smoke",
		Summary: "a Deployment with a Service is created, updated, rolled back and deleted, with real containers",
		Plan: func(p labkit.Profile) []string {
			return []string{
				"start etcd, kube-apiserver (TLS, RBAC), kube-scheduler, and the kube-controller-manager and kubelet under test with docker",
				"create a Deployment of 3 replicas with a readiness probe, image web:v1, and a Service",
				"oracle: 3 ready addresses in Endpoints, each answers HTTP from another pod with v1",
				"oracle: the reflectors of the controller manager have the names that upstream's build gives them, in its metrics",
				"roll out web:v2 by a strategic merge patch, under HTTP load on the Endpoints' addresses",
				"oracle: 3 addresses answer v2, nothing of v1 is left, no request failed",
				"roll back through the rollback subresource",
				"oracle: 3 addresses answer v1, the old ReplicaSet is used again",
				fmt.Sprintf("restart the controller manager and the kubelet, %d time(s); no container may be recreated", restarts(p)),
				"delete Deployment and Service; oracle: Endpoints, ReplicaSets, pods and containers are gone",
			}
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-scheduler"),
			labkit.BinaryUnderTest(base, "kube-controller-manager"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Expect: map[labkit.Variant]labkit.Verdict{labkit.Stock: labkit.Absent, labkit.Ours: labkit.Absent},
		Run:    run,
	})
}

func restarts(p labkit.Profile) int {
	if p == labkit.Long {
		return 5
	}
	return 1
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
	c    *node.Cluster
	node *node.Node
}

// wrong is something that a working cluster does not do, as opposed to an
// error of the lab itself.
type wrong struct{ error }

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	c, err := e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver"), Audit: true},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.UnderTest(base, "kube-controller-manager")},
		Scheduler:         &kube.SchedulerConfig{Program: e.Stock(base, "kube-scheduler")},
		Nodes:             []node.Config{{Name: "node1", Kubelet: e.UnderTest(base, "kubelet")}},
	})
	if err != nil {
		return labkit.Result{}, err
	}
	s := &smoke{e, c, c.Nodes[0]}
	for _, step := range []func(context.Context) error{s.create, s.names, s.update, s.rollback, s.restart, s.delete} {
		if err := step(ctx); err != nil {
			if _, ok := err.(wrong); ok && ctx.Err() == nil && s.allAlive() == nil {
				return labkit.ReproducedBecause("the cluster misbehaved: %v", err), nil
			}
			return labkit.Result{}, s.blame(err)
		}
	}
	return labkit.AbsentBecause("created, updated, rolled back, restarted and deleted as it should be"), s.allAlive()
}

// allAlive is nil if every component still runs; a lab on top of a dead one
// proves nothing.
func (s *smoke) allAlive() error {
	for _, p := range []*process.Proc{s.c.Etcd.Proc, s.c.APIServer.Proc, s.c.ControllerManager.Proc, s.c.Scheduler, s.node.Dockerd, s.node.Kubelet} {
		if !p.Alive() {
			return fmt.Errorf("%s ended: %v; log %s", p.Spec.Name, p.Err(), p.LogPath)
		}
	}
	return nil
}

func (s *smoke) blame(err error) error {
	if dead := s.allAlive(); dead != nil {
		return fmt.Errorf("%w (and %v)", err, dead)
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

// reflectorRE is a sample of the metrics of a reflector with its name, which
// client-go makes of the source file that started it (see the toolchain patch
// reflector-names).
var reflectorRE = regexp.MustCompile(`(?m)^reflector_last_resource_version\{name="([^"]*)"\}`)

func (s *smoke) names(ctx context.Context) error {
	body, err := load.Get(ctx, s.c.ControllerManager.URL+"/metrics")
	if err != nil {
		return err
	}
	const informers = "reflector_k8s_io_kubernetes_vendor_k8s_io_client_go_informers_factory_go_"
	found := false
	for _, m := range reflectorRE.FindAllStringSubmatch(body, -1) {
		found = found || strings.HasPrefix(m[1], informers)
		if !strings.HasPrefix(m[1], "reflector_k8s_io_kubernetes_") {
			return wrong{fmt.Errorf("a reflector has the name %s", m[1])}
		}
	}
	if !found {
		return wrong{fmt.Errorf("no reflector has a name that begins with %s", informers)}
	}
	return nil
}

// serves waits for three ready addresses that answer with version from three
// different pods, and for nothing else being left of the Deployment.
func (s *smoke) serves(ctx context.Context, version string) error {
	began := time.Now()
	image := node.WebImage(version)
	_, err := s.c.Client.WaitFor(ctx, kube.Deployments, ns, "web", 90*time.Second, "rolled out to "+image, func(d *kube.Object) (bool, error) {
		st := func(f string) int64 { return kube.Int(d, "status", f) }
		if kube.Int(d, "metadata", "generation") == st("observedGeneration") && st("replicas") == replicas && st("updatedReplicas") == replicas && st("availableReplicas") == replicas {
			return true, nil
		}
		return false, fmt.Errorf("status %v", d.Object["status"])
	})
	if err != nil {
		return wrong{err}
	}
	// Pods that are being deleted run on for their grace period.
	if _, err := s.c.Client.WaitList(ctx, kube.Pods, ns, "app=web", 40*time.Second, "only "+image, func(pods []kube.Object) (bool, error) {
		for i := range pods {
			for _, c := range kube.Slice(&pods[i], "spec", "containers") {
				if got := c.(map[string]any)["image"]; got != image {
					return false, fmt.Errorf("%s has %v", pods[i].GetName(), got)
				}
			}
		}
		if len(pods) != replicas {
			return false, fmt.Errorf("%d pods", len(pods))
		}
		return true, nil
	}); err != nil {
		return wrong{err}
	}
	var addrs []string
	if _, err := s.c.Client.WaitFor(ctx, kube.Endpoints, ns, "web", 20*time.Second, "with 3 ready addresses", func(ep *kube.Object) (bool, error) {
		addrs = kube.ReadyAddresses(ep)
		if not := kube.NotReadyAddresses(ep); len(not) > 0 || len(addrs) != replicas {
			return false, fmt.Errorf("ready %v, not ready %v", addrs, not)
		}
		return true, nil
	}); err != nil {
		return wrong{err}
	}
	hosts := map[string]bool{}
	for _, a := range addrs {
		body, err := load.Get(ctx, "http://"+a+"/")
		if err != nil {
			return wrong{fmt.Errorf("address %s of Endpoints: %w", a, err)}
		}
		got, host, _ := strings.Cut(strings.TrimSpace(body), " ")
		if got != version {
			return wrong{fmt.Errorf("address %s answers version %q, want %q", a, got, version)}
		}
		hosts[host] = true
	}
	if len(hosts) != replicas {
		return wrong{fmt.Errorf("%d addresses answer from %d pods", len(addrs), len(hosts))}
	}
	s.e.Step("3 addresses answer %s from 3 pods", version)
	s.e.Fact("%s served by 3 pods after %.1f s", version, time.Since(began).Seconds())
	return nil
}

func (s *smoke) update(ctx context.Context) error {
	before, err := s.newest(ctx)
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
	s.e.Step("roll out %s under load", node.WebImage("v2"))
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":%q}]}}}}`, node.WebImage("v2"))
	if _, err := s.c.Client.PatchStrategic(ctx, kube.Deployments, ns, "web", patch); err != nil {
		return err
	}
	if err := s.serves(ctx, "v2"); err != nil {
		return err
	}
	r := steady.Stop()
	s.e.Step("load: %v", r)
	s.e.Fact("rolling update: %v", r)
	if r.OK == 0 {
		return fmt.Errorf("the load sent nothing")
	}
	if r.Failed > 0 {
		return wrong{fmt.Errorf("rolling update lost requests: %v", r)}
	}
	after, err := s.newest(ctx)
	if err != nil {
		return err
	}
	if before == after {
		return wrong{fmt.Errorf("the update used ReplicaSet %s again", after)}
	}
	return nil
}

// newest is the name of the one ReplicaSet with pods.
func (s *smoke) newest(ctx context.Context) (string, error) {
	rss, err := s.c.Client.List(ctx, kube.ReplicaSets, ns, "app=web")
	if err != nil {
		return "", err
	}
	var names []string
	for i := range rss {
		if kube.Int(&rss[i], "spec", "replicas") > 0 {
			names = append(names, rss[i].GetName())
		}
	}
	if len(names) != 1 {
		return "", wrong{fmt.Errorf("ReplicaSets with replicas: %v, want one", names)}
	}
	return names[0], nil
}

func (s *smoke) rollback(ctx context.Context) error {
	s.e.Step("roll back")
	body := `{"kind":"DeploymentRollback","apiVersion":"extensions/v1beta1","name":"web","rollbackTo":{"revision":0}}`
	path := "/apis/extensions/v1beta1/namespaces/" + ns + "/deployments/web/rollback"
	code, b, err := s.c.Client.Raw(ctx, http.MethodPost, path, "application/json", []byte(body))
	if err != nil {
		return err
	}
	if code/100 != 2 {
		return wrong{fmt.Errorf("rollback answers %d: %s", code, b)}
	}
	if _, err := s.c.Client.WaitFor(ctx, kube.Deployments, ns, "web", 20*time.Second, "with the image of before", func(d *kube.Object) (bool, error) {
		cs := kube.Slice(d, "spec", "template", "spec", "containers")
		return len(cs) == 1 && cs[0].(map[string]any)["image"] == node.WebImage("v1"), nil
	}); err != nil {
		return wrong{err}
	}
	if err := s.serves(ctx, "v1"); err != nil {
		return err
	}
	rss, err := s.c.Client.List(ctx, kube.ReplicaSets, ns, "app=web")
	if err != nil {
		return err
	}
	if len(rss) != 2 {
		return wrong{fmt.Errorf("%d ReplicaSets after the roll-back, want 2", len(rss))}
	}
	return nil
}

// running are the IDs of the Deployment's containers that run.
func (s *smoke) running(ctx context.Context) (map[string]bool, error) {
	cs, err := s.node.Docker.Containers(ctx, false)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, c := range cs {
		if c.Labels[node.LabelContainer] == "web" {
			ids[c.ID] = true
		}
	}
	return ids, nil
}

func (s *smoke) restart(ctx context.Context) error {
	for i := range restarts(s.e.Profile) {
		before, err := s.running(ctx)
		if err != nil {
			return err
		}
		if len(before) != replicas {
			return wrong{fmt.Errorf("%d containers of the Deployment run, want %d", len(before), replicas)}
		}
		s.e.Step("restart controller manager and kubelet (%d)", i+1)
		if err := s.c.ControllerManager.Stop(); err != nil {
			return err
		}
		cm, err := s.e.StartControllerManager(ctx, s.c.APIServer, kube.ControllerManagerConfig{Program: s.e.UnderTest(base, "kube-controller-manager")})
		if err != nil {
			return err
		}
		s.c.ControllerManager = cm
		if err := s.node.SwapKubelet(ctx, s.e.UnderTest(base, "kubelet")); err != nil {
			return err
		}
		began := time.Now()
		if _, err := s.c.Client.WaitFor(ctx, kube.Nodes, "", "node1", 60*time.Second, "has a heartbeat of the new kubelet", func(n *kube.Object) (bool, error) {
			for _, c := range kube.Slice(n, "status", "conditions") {
				m := c.(map[string]any)
				hb, _ := m["lastHeartbeatTime"].(string)
				at, err := time.Parse(time.RFC3339, hb)
				if err == nil && m["type"] == "Ready" && m["status"] == "True" && at.After(began) {
					return true, nil
				}
			}
			return false, nil
		}); err != nil {
			return wrong{err}
		}
		if err := s.serves(ctx, "v1"); err != nil {
			return err
		}
		after, err := s.running(ctx)
		if err != nil {
			return err
		}
		for id := range before {
			if !after[id] {
				return wrong{fmt.Errorf("container %.12s did not live through the kubelet's restart", id)}
			}
		}
	}
	return nil
}

func (s *smoke) delete(ctx context.Context) error {
	s.e.Step("delete Deployment and Service")
	for _, r := range []kube.GVR{kube.Deployments, kube.Services} {
		if err := s.c.Client.Delete(ctx, r, ns, "web"); err != nil {
			return err
		}
	}
	if err := s.c.Client.WaitGone(ctx, kube.Endpoints, ns, "web", 60*time.Second); err != nil {
		return wrong{err}
	}
	for _, r := range []kube.GVR{kube.ReplicaSets, kube.Pods} {
		if _, err := s.c.Client.WaitList(ctx, r, ns, "app=web", 60*time.Second, "gone", func(l []kube.Object) (bool, error) { return len(l) == 0, nil }); err != nil {
			return wrong{err}
		}
	}
	if err := wait.Until(ctx, "no container of the Deployment runs", 60*time.Second, func(ctx context.Context) (bool, error) {
		ids, err := s.running(ctx)
		return len(ids) == 0, err
	}); err != nil {
		return wrong{err}
	}
	s.e.Step("everything is gone")
	return nil
}
