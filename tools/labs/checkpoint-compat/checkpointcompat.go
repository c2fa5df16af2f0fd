// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpointcompat is the lab checkpoint-compat: what becomes of the
// host ports of pods when the kubelet that started them is replaced. See
// tools/labs/checkpoint-compat/README.md.
package checkpointcompat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/machine"
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

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:     "checkpoint-compat",
		Summary:  "a 1.9 kubelet does not release the host ports of pods that a 1.7 kubelet started",
		Test:     []labkit.Variant{labkit.Ours},
		Steps:    steps,
		Oracle:   oracle,
		Needs:    labkit.KubeletNeeds(base, labkit.StockBinary(old, "kubelet")),
		Packages: []string{"containernetworking-plugins"},
	}}
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	node *node.Node
	ips  map[string]string // the address that a pod has or had first
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e, ips: map[string]string{}}
	return []labkit.Step{
		{Text: "start etcd, apiserver and controller manager v1.9.11, and a node with the stock kubelet v1.7.0 and kubenet", Do: l.startCluster},
		{Text: "create pod first and pod gone with host ports; each port answers", Do: l.createPods},
		{Text: "start the kubelet under test in place of v1.7.0", Do: l.replace},
		{Text: "delete pod first; create pod second with the same host port, and pod third", Do: l.useAgain},
		{Text: "stop the kubelet with SIGSTOP, remove the containers of pod gone, and continue the kubelet", Do: l.loseContainers},
		{Text: "go back to kubelet v1.7.0, delete pod second and pod third, which the kubelet under test started", Do: l.goBack},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

func (l *lab) startCluster(ctx context.Context) error {
	c, err := l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer: &kube.APIServerConfig{Program: l.e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: l.e.Stock(base, "kube-controller-manager"),
			ExtraArgs: []string{"--allocate-node-cidrs=true", "--cluster-cidr=" + podNet, "--configure-cloud-routes=false"}},
		Nodes: []node.Config{{Name: "node1", Kubelet: l.e.Stock(old, "kubelet"),
			KubeletArgs: []string{"--network-plugin=kubenet", "--cni-bin-dir=/usr/lib/cni", "--hairpin-mode=none", "--non-masquerade-cidr=0.0.0.0/0", "--v=4"}}},
	})
	if err != nil {
		return err
	}
	l.c, l.node = c, c.Nodes[0]
	if err := machine.Run(ctx, "ip", "route", "add", podNet, "via", l.node.IP); err != nil {
		return fmt.Errorf("route to the pods: %w", err)
	}
	return nil
}

func (l *lab) createPods(ctx context.Context) error {
	for name, port := range map[string]int{"first": 18080, "gone": 18081} {
		if err := l.create(ctx, name, port); err != nil {
			return err
		}
	}
	return l.checkpoints()
}

func (l *lab) replace(ctx context.Context) error {
	if err := l.node.SwapKubelet(ctx, l.e.UnderTest(base, "kubelet")); err != nil {
		return err
	}
	if err := kubeletlab.WaitSynced(ctx, l.node, 2, time.Minute); err != nil {
		return err
	}
	// kubenet cannot take a pod down before the kubelet knows the node's PodCIDR.
	return wait.Until(ctx, "kubenet is ready", time.Minute, func(context.Context) (bool, error) {
		s, err := l.node.Kubelet.LastRunLog()
		return strings.Contains(s, "CIDR: "), err
	})
}

func (l *lab) useAgain(ctx context.Context) error {
	if err := l.delete(ctx, "first"); err != nil {
		return err
	}
	if err := l.start(ctx, "second", 18080); err != nil {
		return err
	}
	l.e.Record(l.ask(ctx, "second", 18080))
	return l.start(ctx, "third", 18082)
}

func (l *lab) loseContainers(ctx context.Context) error {
	if err := l.removeContainers(ctx, "gone"); err != nil {
		return err
	}
	if _, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, "gone", 2*time.Minute, "runs again", func(o *kube.Object) (bool, error) {
		return kubeletlab.PodReady(o) && kube.String(o, "status", "podIP") != l.ips["gone"], nil
	}); err != nil {
		return err
	}
	l.e.Record(l.ask(ctx, "gone", 18081))
	// The garbage collector finds the sandbox by its checkpoint, once a minute.
	if err := l.left(ctx, "gone", 90*time.Second); err != nil {
		return err
	}
	s, err := l.node.Kubelet.LastRunLog()
	if err != nil {
		return err
	}
	l.e.Record(readLog(s))
	return nil
}

func (l *lab) goBack(ctx context.Context) error {
	if err := l.node.SwapKubelet(ctx, l.e.Stock(old, "kubelet")); err != nil {
		return err
	}
	if err := kubeletlab.WaitSynced(ctx, l.node, 3, time.Minute); err != nil {
		return err
	}
	for _, name := range []string{"second", "third"} {
		if err := l.delete(ctx, name); err != nil {
			return err
		}
	}
	s, err := l.node.Kubelet.LastRunLog()
	if err != nil {
		return err
	}
	l.e.Record(wentBack{Refused: readLog(s).Refused})
	return nil
}

// create is start, and the host port must answer: the lab's own precondition.
func (l *lab) create(ctx context.Context, name string, port int) error {
	if err := l.start(ctx, name, port); err != nil {
		return err
	}
	if a := l.ask(ctx, name, port); a.fault() != "" {
		return fmt.Errorf("%s", a.fault())
	}
	return nil
}

func (l *lab) start(ctx context.Context, name string, port int) error {
	web := node.Web("web")
	web.Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: int32(port)}}
	web.ReadinessProbe = &corev1.Probe{ProbeHandler: kube.HTTPGet("/ready", 8080), PeriodSeconds: 1}
	if err := l.c.Client.Make(ctx, ns, node.Pod(name, "node1", web)); err != nil {
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

// ask asks a host port.
func (l *lab) ask(ctx context.Context, name string, port int) answered {
	a := answered{Pod: name, Port: port}
	for range 3 { // a rule of another pod may take some of the connections
		body, err := load.Get(ctx, fmt.Sprintf("http://%s:%d/", l.node.IP, port))
		if err != nil {
			body = err.Error()
		}
		a.Bodies = append(a.Bodies, strings.TrimSpace(body))
	}
	return a
}

// delete deletes a pod, waits until it is gone and its containers have ended,
// and records what of it is left after that.
func (l *lab) delete(ctx context.Context, name string) error {
	if err := l.c.Client.Delete(ctx, kube.Pods, ns, name); err != nil {
		return err
	}
	if err := l.c.Client.WaitGone(ctx, kube.Pods, ns, name, time.Minute); err != nil {
		return err
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
		return err
	}
	return l.left(ctx, name, 10*time.Second)
}

// left gives the kubelet some time to remove the rules that lead to the address
// that the pod had, and records which are left.
func (l *lab) left(ctx context.Context, name string, bound time.Duration) error {
	o, looked := rulesLeft{Pod: name, Kubelet: l.node.KubeletProgram().Base, Address: l.ips[name]}, false
	if o.Address == "" {
		return fmt.Errorf("pod %s had no address", name)
	}
	err := wait.Until(ctx, "no rule for pod "+name, bound, func(ctx context.Context) (bool, error) {
		out, err := l.node.Output(ctx, "iptables-save", "-t", "nat")
		if err != nil {
			return false, err
		}
		looked, o.Rules = true, nil
		for _, line := range strings.Split(out, "\n") {
			if strings.HasSuffix(line, " "+o.Address+":8080") {
				o.Rules = append(o.Rules, line)
			}
		}
		return len(o.Rules) == 0, nil
	})
	if ctx.Err() != nil || !looked {
		return err
	}
	l.e.Record(o)
	return nil
}

// removeContainers removes a pod's containers and sandbox, as a person does who
// cleans up, or docker after a crash. The kubelet stands still meanwhile: else it may create a
// container in the sandbox that is about to go, and that keeps the sandbox for two more minutes.
func (l *lab) removeContainers(ctx context.Context, name string) (err error) {
	if err := l.node.Kubelet.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.node.Kubelet.Signal(syscall.SIGCONT)) }()
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
