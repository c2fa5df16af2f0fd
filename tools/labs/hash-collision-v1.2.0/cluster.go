// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollisionv120

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

const (
	base    = "v1.2.0"
	kcm     = "kube-controller-manager"
	gate    = "HashCollision"
	gateEnv = "HOLDFAST_FEATURE_GATES" // 1.2 has no --feature-gates

	hashLabel = "pod-template-hash"
	countKey  = "deployment.kubernetes.io/collision-count"
)

// cluster is a v1.2.0 control plane without nodes: a stock apiserver, one
// controller manager at a time, and a loop that reports pods as running and
// ready, as their kubelets would.
type cluster struct {
	e      *labkit.Env
	api    *kube.APIServer
	client *kube.Client
	cm     *kube.ControllerManager
	starts int

	nodes *kube.FakeNodes
}

// start starts the control plane with the controller manager p.
func start(ctx context.Context, e *labkit.Env, p kube.Program) (*cluster, error) {
	c := &cluster{e: e}
	e.Step("start etcd with its v2 API, and kube-apiserver %s", base)
	et, err := e.StartEtcd(ctx, kube.EtcdConfig{V2: true})
	if err != nil {
		return nil, err
	}
	if c.api, err = e.StartAPIServer(ctx, et, kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")}); err != nil {
		return nil, err
	}
	if c.client, err = kube.NewClient(c.api); err != nil {
		return nil, err
	}
	e.OnDump(c.client.DumpAll)
	if err := c.startCM(ctx, p); err != nil {
		return nil, err
	}
	if err := c.namespace(ctx, "default"); err != nil {
		return nil, err
	}
	c.nodes = kube.StartFakeNodes(ctx, c.client)
	e.OnStop("the loop that replaces the kubelets", func(context.Context) error { c.nodes.Stop(); return nil })
	return c, nil
}

// namespace creates ns if need be and waits until pods can be made in it.
func (c *cluster) namespace(ctx context.Context, ns string) error {
	if ns != "default" {
		if _, err := c.client.CreateYAML(ctx, "", "{apiVersion: v1, kind: Namespace, metadata: {name: "+ns+"}}"); err != nil {
			return err
		}
	}
	// The service account's token may be there and the admission plug-in not
	// know it yet; a ReplicaSet whose pods are refused waits for the resync.
	probe := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"probe"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	err := wait.Until(ctx, "a pod in namespace "+ns, 60*time.Second, func(ctx context.Context) (bool, error) {
		_, err := c.client.CreateYAML(ctx, ns, probe)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if err := c.client.DeleteNow(ctx, kube.Pods, ns, "probe"); err != nil {
		return err
	}
	return c.client.WaitGone(ctx, kube.Pods, ns, "probe", 10*time.Second)
}

// startCM starts a controller manager. There must be none, or args have an
// election.
func (c *cluster) startCM(ctx context.Context, p kube.Program, args ...string) error {
	c.starts++
	var env, gates []string
	for g, on := range p.Gates {
		gates = append(gates, fmt.Sprintf("%s=%t", g, on))
	}
	if len(gates) > 0 {
		sort.Strings(gates)
		env = append(env, gateEnv+"="+strings.Join(gates, ","))
	}
	p.Gates = nil
	c.e.Step("start %s %s (%s) %s", kcm, p.Base, p.Variant, strings.Join(env, " "))
	var err error
	c.cm, err = c.e.StartControllerManager(ctx, c.api, kube.ControllerManagerConfig{
		Program: p,
		Name:    fmt.Sprintf("%s-%d", kcm, c.starts),
		Env:     env,
		// One process at a time needs no election, and one that was killed
		// would leave its lease behind for 15 s.
		ExtraArgs: append([]string{"--leader-elect=false", "--kube-api-qps=200", "--kube-api-burst=400"}, args...),
	})
	return err
}

// swapCM stops the controller manager and starts p in its place.
func (c *cluster) swapCM(ctx context.Context, p kube.Program) error {
	if err := c.cm.Stop(); err != nil {
		return err
	}
	return c.startCM(ctx, p)
}

// killCM kills the controller manager and starts p in its place.
func (c *cluster) killCM(ctx context.Context, p kube.Program) error {
	if err := c.cm.Kill(); err != nil {
		return err
	}
	return c.startCM(ctx, p)
}

// manifest reads a Deployment from the lab's folder.
func manifest(e *labkit.Env, name string) (*kube.Object, error) {
	raw, err := os.ReadFile(filepath.Join(e.Root, "tools", "labs", "hash-collision-v1.2.0", name))
	if err != nil {
		return nil, err
	}
	o := &kube.Object{}
	return o, json.Unmarshal(raw, &o.Object)
}

// image is that of the first container of an object's template.
func image(o *kube.Object) string {
	for _, c := range kube.Slice(o, "spec", "template", "spec", "containers") {
		if m, ok := c.(map[string]any); ok {
			s, _ := m["image"].(string)
			return s
		}
	}
	return ""
}

// replicaSets lists a Deployment's, by its name as the prefix of theirs.
func (c *cluster) replicaSets(ctx context.Context, ns, deployment string) ([]kube.Object, error) {
	all, err := c.client.List(ctx, kube.ReplicaSets, ns, "")
	var out []kube.Object
	for _, rs := range all {
		if suffix, ok := strings.CutPrefix(rs.GetName(), deployment+"-"); ok && strings.Trim(suffix, "0123456789") == "" {
			out = append(out, rs)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].GetName() < out[j].GetName() })
	return out, err
}

// setImage releases an image by a merge of containers by name, as kubectl set
// image does, and returns the generation.
func (c *cluster) setImage(ctx context.Context, ns, deployment, container, img string) error {
	_, err := c.client.PatchStrategic(ctx, kube.Deployments, ns, deployment,
		fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, container, img))
	return err
}

// look reads a Deployment and its ReplicaSets, for the question whether it has rolled
// out img. current is the ReplicaSet that has, nil if none has.
func (c *cluster) look(ctx context.Context, ns, deployment, img string) (r rollout, current *kube.Object, err error) {
	r = rollout{Namespace: ns, Deployment: deployment, Image: img}
	d, err := c.client.Get(ctx, kube.Deployments, ns, deployment)
	if err != nil {
		return r, nil, err
	}
	rss, err := c.replicaSets(ctx, ns, deployment)
	if err != nil {
		return r, nil, err
	}
	const revision = "deployment.kubernetes.io/revision"
	r.Template, r.Revision, r.Generation = image(d), d.GetAnnotations()[revision], d.GetGeneration()
	r.Want, r.Observed = kube.Int(d, "spec", "replicas"), kube.Int(d, "status", "observedGeneration")
	r.Updated, r.Available = kube.Int(d, "status", "updatedReplicas"), kube.Int(d, "status", "availableReplicas")
	for i := range rss {
		rs := &rss[i]
		r.Sets = append(r.Sets, replicaSet{Name: rs.GetName(), UID: string(rs.GetUID()), Image: image(rs), Revision: rs.GetAnnotations()[revision],
			Spec: kube.Int(rs, "spec", "replicas"), Status: kube.Int(rs, "status", "replicas")})
	}
	if at, why := r.done(); why == "" {
		current = &rss[at]
	}
	return r, current, nil
}

// watchRollout looks until the Deployment has rolled out img. It returns what it saw
// last; the error says what the API has instead.
func (c *cluster) watchRollout(ctx context.Context, ns, deployment, img string, bound time.Duration) (r rollout, rs *kube.Object, err error) {
	err = wait.Until(ctx, deployment+" rolled out "+img, bound, func(ctx context.Context) (bool, error) {
		now, current, err := c.look(ctx, ns, deployment, img)
		if err != nil {
			return false, err
		}
		r, rs = now, current
		if _, why := r.done(); why != "" {
			return false, fmt.Errorf("%s", why)
		}
		return true, nil
	})
	if nodes := c.nodes.Err(); err != nil && nodes != nil {
		err = fmt.Errorf("%w (the loop that replaces the kubelets: %v)", err, nodes)
	}
	return r, rs, err
}

// waitRollout is watchRollout for a rollout that the lab stands on.
func (c *cluster) waitRollout(ctx context.Context, ns, deployment, img string, bound time.Duration) (*kube.Object, error) {
	_, rs, err := c.watchRollout(ctx, ns, deployment, img, bound)
	return rs, err
}

// mustRollOut is watchRollout for one that is judged: it is recorded. One that does not
// happen is enough.
func (c *cluster) mustRollOut(ctx context.Context, ns, deployment, img string) (*kube.Object, error) {
	r, rs, err := c.watchRollout(ctx, ns, deployment, img, bound)
	if ctx.Err() != nil || r.Want == 0 {
		return nil, err // nothing was seen
	}
	c.e.Record(r)
	if err != nil {
		c.e.Step("%v", err)
		return nil, labkit.Enough
	}
	return rs, nil
}

// census lists name, UID and size of all ReplicaSets and pods.
func (c *cluster) census(ctx context.Context) (string, error) {
	var lines []string
	for _, r := range []kube.GVR{kube.ReplicaSets, kube.Pods} {
		list, err := c.client.List(ctx, r, "", "")
		if err != nil {
			return "", err
		}
		for i := range list {
			o := &list[i]
			lines = append(lines, fmt.Sprintf("%s %s/%s %s %d", r.Resource, o.GetNamespace(), o.GetName(), o.GetUID(), kube.Int(o, "spec", "replicas")))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n"), nil
}

// kubectl runs the stock kubectl of the base.
func (c *cluster) kubectl(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--server=" + c.api.URL}, args...)
	cmd := exec.CommandContext(ctx, c.e.Stock(base, "kubectl").Path, args...)
	cmd.Env = append(os.Environ(), "HOME="+c.e.Path())
	out, err := cmd.CombinedOutput()
	c.e.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// events counts a Deployment's events by reason.
func (c *cluster) events(ctx context.Context, ns, deployment string) (map[string]int, error) {
	list, err := c.client.List(ctx, kube.Events, ns, "")
	out := map[string]int{}
	for i := range list {
		ev := &list[i]
		if kube.String(ev, "involvedObject", "kind") == "Deployment" && kube.String(ev, "involvedObject", "name") == deployment {
			out[kube.String(ev, "reason")] += int(max(kube.Int(ev, "count"), 1))
		}
	}
	return out, err
}
