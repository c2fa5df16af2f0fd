// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpointcompat is the lab checkpoint-compat: what becomes of the
// host ports of pods when the kubelet that started them is replaced. See
// tools/labs/checkpoint-compat/README.md.
package checkpointcompat

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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
	// podNet is what the controller manager gives the one node a /24 of.
	podNet = "10.92.0.0/16"
)

func init() {
	labkit.Register(labkit.Lab{
		Name:    "checkpoint-compat",
		Summary: "host ports of pods that a 1.7 kubelet started are not given back by a 1.9 kubelet",
		Plan: func(labkit.Profile) []string {
			return []string{
				"start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet v1.7.0 and kubenet",
				"create pods with host ports; each port answers",
				"start the kubelet under test in place of v1.7.0",
				"delete pod first; put pod second on its host port, and create pod third",
				"remove the containers of pod gone behind the kubelet's back",
				"oracle: no rule of the node's NAT table leads to the address that pod first had, or that pod gone had before; the host ports answer; no checkpoint was refused",
				"go back to kubelet v1.7.0, delete pods second and third, which the kubelet under test started",
				"oracle for ours: v1.7.0 refuses no checkpoint",
			}
		},
		Needs: []labkit.Binary{
			labkit.StockBinary(base, "kube-apiserver"),
			labkit.StockBinary(base, "kube-controller-manager"),
			labkit.StockBinary(old, "kubelet"),
			labkit.BinaryUnderTest(base, "kubelet"),
		},
		Packages: []string{"containernetworking-plugins"},
		Run:      run,
	})
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	node *node.Node
	ips  map[string]string // the address that a pod has or had first
}

func run(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	c, err := e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: e.Stock(base, "kube-controller-manager"),
			ExtraArgs: []string{"--allocate-node-cidrs=true", "--cluster-cidr=" + podNet, "--configure-cloud-routes=false"}},
		Nodes: []node.Config{{Name: "node1", Kubelet: e.Stock(old, "kubelet"),
			KubeletArgs: []string{"--network-plugin=kubenet", "--cni-bin-dir=/usr/lib/cni", "--hairpin-mode=none", "--non-masquerade-cidr=0.0.0.0/0", "--v=4"}}},
	})
	if err != nil {
		return labkit.Result{}, err
	}
	l := &lab{e: e, c: c, node: c.Nodes[0], ips: map[string]string{}}
	if out, err := exec.CommandContext(ctx, "ip", "route", "add", podNet, "via", l.node.IP).CombinedOutput(); err != nil {
		return labkit.Result{}, fmt.Errorf("route to the pods: %w: %s", err, out)
	}

	e.Step("create pods under kubelet %s", old)
	for name, port := range map[string]int{"first": 18080, "gone": 18081} {
		if err := l.create(ctx, name, port); err != nil {
			return labkit.Result{}, err
		}
	}
	if err := l.checkpoints(); err != nil {
		return labkit.Result{}, err
	}

	e.Step("replace the kubelet")
	if err := l.node.SwapKubelet(ctx, e.UnderTest(base, "kubelet")); err != nil {
		return labkit.Result{}, err
	}
	if err := kubeletlab.WaitSynced(ctx, l.node, 2, time.Minute); err != nil {
		return labkit.Result{}, err
	}
	// kubenet cannot take a pod down before the kubelet knows the node's PodCIDR.
	if err := wait.Until(ctx, "kubenet is ready", time.Minute, func(context.Context) (bool, error) {
		s, err := l.node.Kubelet.LastRunLog()
		return strings.Contains(s, "CIDR: "), err
	}); err != nil {
		return labkit.Result{}, err
	}
	var wrong []string

	e.Step("delete pod first, use its host port again")
	bad, err := l.delete(ctx, "first")
	if err != nil {
		return labkit.Result{}, err
	}
	wrong = append(wrong, bad...)
	if err := l.start(ctx, "second", 18080); err != nil {
		return labkit.Result{}, err
	}
	wrong = append(wrong, l.serves(ctx, "second", 18080)...)
	if err := l.start(ctx, "third", 18082); err != nil {
		return labkit.Result{}, err
	}

	e.Step("remove the containers of pod gone behind the kubelet's back")
	if err := l.removeContainers(ctx, "gone"); err != nil {
		return labkit.Result{}, err
	}
	if _, err := c.Client.WaitFor(ctx, kube.Pods, ns, "gone", 2*time.Minute, "runs again", func(o *kube.Object) (bool, error) {
		return kubeletlab.PodReady(o) && kube.String(o, "status", "podIP") != l.ips["gone"], nil
	}); err != nil {
		return labkit.Result{}, err
	}
	wrong = append(wrong, l.serves(ctx, "gone", 18081)...)
	// The garbage collector finds the sandbox by its checkpoint, once a minute.
	wrong = append(wrong, l.left(ctx, "gone", 90*time.Second)...)
	wrong = append(wrong, l.logged()...)

	e.Step("go back to kubelet %s and delete what the kubelet under test started", old)
	before, err := l.logSize()
	if err != nil {
		return labkit.Result{}, err
	}
	if err := l.node.SwapKubelet(ctx, e.Stock(old, "kubelet")); err != nil {
		return labkit.Result{}, err
	}
	if err := kubeletlab.WaitSynced(ctx, l.node, 3, time.Minute); err != nil {
		return labkit.Result{}, err
	}
	for _, name := range []string{"second", "third"} {
		// 1.9 names kubenet's chains otherwise than 1.7 does (kubernetes/kubernetes#55153),
		// so 1.7 cannot remove those rules, and they are no one's fault here.
		left, err := l.delete(ctx, name)
		if err != nil {
			return labkit.Result{}, err
		}
		for _, s := range left {
			e.Fact("back to %s: %s", old, s)
		}
	}
	var back []string
	n, err := l.refusedSince(before)
	if err != nil {
		return labkit.Result{}, err
	}
	if n > 0 {
		back = append(back, fmt.Sprintf("kubelet %s found %d times that a checkpoint is corrupt", old, n))
	}
	e.Fact("back to %s: %s", old, list(back))
	if e.Variant == labkit.Ours {
		wrong = append(wrong, back...)
		if kept, err := l.accepted(); err != nil {
			return labkit.Result{}, err
		} else if !kept {
			return labkit.Result{}, fmt.Errorf("the kubelet under test did not say that it accepted checkpoints")
		}
	}
	if len(wrong) > 0 {
		return labkit.ReproducedBecause("%s", list(wrong)), nil
	}
	return labkit.AbsentBecause("host ports are given back at once, and %s takes over what ours wrote", old), nil
}

func list(l []string) string {
	if len(l) == 0 {
		return "nothing is wrong"
	}
	return strings.Join(l, "; ")
}

// create is start, and the host port must answer: the lab's own precondition.
func (l *lab) create(ctx context.Context, name string, port int) error {
	if err := l.start(ctx, name, port); err != nil {
		return err
	}
	if wrong := l.serves(ctx, name, port); len(wrong) > 0 {
		return fmt.Errorf("%s", list(wrong))
	}
	return nil
}

func (l *lab) start(ctx context.Context, name string, port int) error {
	_, err := l.c.Client.CreateYAML(ctx, ns, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: %s
    imagePullPolicy: IfNotPresent
    ports: [{containerPort: 8080, hostPort: %d}]
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
`, name, node.WebImage("v1"), port))
	if err != nil {
		return err
	}
	o, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, name, 2*time.Minute, "is ready", func(o *kube.Object) (bool, error) {
		return kubeletlab.PodReady(o), nil
	})
	if err != nil {
		return err
	}
	l.ips[name] = kube.String(o, "status", "podIP")
	return nil
}

// serves says what is wrong if the pod does not answer at its host port.
func (l *lab) serves(ctx context.Context, name string, port int) []string {
	url := fmt.Sprintf("http://%s:%d/", l.node.IP, port)
	var last error
	for range 3 { // a rule of another pod may take some of the connections
		body, err := load.Get(ctx, url)
		if err == nil && !strings.HasSuffix(strings.TrimSpace(body), " "+name) {
			err = fmt.Errorf("answered by %q", strings.TrimSpace(body))
		}
		if err != nil {
			last = err
		}
	}
	if last != nil {
		return []string{fmt.Sprintf("host port %d of pod %s: %v", port, name, last)}
	}
	return nil
}

// delete deletes a pod, waits until it is gone and its containers have ended,
// and says what of it is left after that.
func (l *lab) delete(ctx context.Context, name string) ([]string, error) {
	if err := l.c.Client.Delete(ctx, kube.Pods, ns, name); err != nil {
		return nil, err
	}
	if err := l.c.Client.WaitGone(ctx, kube.Pods, ns, name, time.Minute); err != nil {
		return nil, err
	}
	if err := wait.Until(ctx, "no container of pod "+name+" runs", time.Minute, func(ctx context.Context) (bool, error) {
		s, err := kubeletlab.Take(ctx, l.node)
		for _, c := range s {
			if c.Pod == name {
				return false, err
			}
		}
		return err == nil, err
	}); err != nil {
		return nil, err
	}
	return l.left(ctx, name, 10*time.Second), nil
}

// left gives the kubelet some time to remove the rules that lead to the address
// that the pod had, and says which are left.
func (l *lab) left(ctx context.Context, name string, bound time.Duration) []string {
	var rules []string
	if err := wait.Until(ctx, "no rule for pod "+name, bound, func(ctx context.Context) (bool, error) {
		out, err := l.node.Output(ctx, "iptables-save", "-t", "nat")
		if err != nil {
			return false, err
		}
		rules = nil
		for _, line := range strings.Split(out, "\n") {
			if strings.HasSuffix(line, " "+l.ips[name]+":8080") {
				rules = append(rules, line)
			}
		}
		return len(rules) == 0, nil
	}); err == nil {
		return nil
	} else if len(rules) == 0 {
		return []string{err.Error()}
	}
	return []string{fmt.Sprintf("%d NAT rule(s) still lead to %s, the address that pod %s had: %s", len(rules), l.ips[name], name, strings.Join(rules, " | "))}
}

// removeContainers removes a pod's containers and sandbox, as a person does who
// cleans up, or docker after a crash.
func (l *lab) removeContainers(ctx context.Context, name string) error {
	cs, err := l.node.Docker.Containers(ctx, true)
	if err != nil {
		return err
	}
	for _, c := range cs {
		if c.Labels[node.LabelPod] == name {
			if err := l.node.Docker.Call(ctx, http.MethodDelete, "/containers/"+c.ID+"?force=1", "", nil, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkpoints proves that the old kubelet wrote some.
func (l *lab) checkpoints() error {
	files, err := filepath.Glob(filepath.Join(l.node.Dir, "dockershim", "sandbox", "*"))
	if err == nil && len(files) < 2 {
		err = fmt.Errorf("kubelet %s wrote %d checkpoints, want 2", old, len(files))
	}
	return err
}

func (l *lab) log() (string, error) {
	b, err := os.ReadFile(l.node.Kubelet.LogPath)
	return string(b), err
}

func (l *lab) logSize() (int, error) {
	s, err := l.log()
	return len(s), err
}

func (l *lab) refusedSince(offset int) (int, error) {
	s, err := l.log()
	if err != nil {
		return 0, err
	}
	return strings.Count(s[offset:], "Checksum of checkpoint"), nil
}

// logged says what the kubelet under test complained about.
func (l *lab) logged() []string {
	s, err := l.log()
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	if n := strings.Count(s, "Checksum of checkpoint"); n > 0 {
		out = append(out, fmt.Sprintf("%d checkpoints refused", n))
	}
	for _, line := range strings.Split(s, "\n") {
		if strings.Contains(line, "StopPodSandbox \"") && strings.Contains(line, "checkpoint") {
			_, why, _ := strings.Cut(line, "] ")
			out = append(out, why)
		}
	}
	return out
}

func (l *lab) accepted() (bool, error) {
	s, err := l.log()
	return strings.Contains(s, "Sandbox checkpoints: accepted 2 "), err
}
