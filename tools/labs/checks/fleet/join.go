// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/registry"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// The registry that the nodes pull the images of the fleet from, and its images: goodImage has Holdfast's
// kubelet, endingImage one that ends at once.
const (
	registryHost = "registry.test"
	goodImage    = registryHost + "/fleet:good"
	endingImage  = registryHost + "/fleet:ends"
)

// serveImages starts the registry.
func (l *lab) serveImages() error {
	kubelet := l.e.Ours(base, "kubelet").Path
	ends, err := kubeletlab.Ending(l.e, kubelet)
	if err != nil {
		return err
	}
	r := registry.New()
	program := registry.NewLayer(registry.File{Path: "/kubectl-holdfast", From: l.holdfast})
	for ref, file := range map[string]string{goodImage: kubelet, endingImage: ends} {
		if err := r.Add(registry.Image{Refs: []string{ref}, Layers: []*registry.Layer{program, registry.NewLayer(registry.File{Path: "/kubelet", From: file})}}); err != nil {
			return err
		}
	}
	stop, err := r.Listen(machine.IP + ":80")
	if err != nil {
		return err
	}
	l.e.OnStop("registry", func(context.Context) error { return stop() })
	return nil
}

func (l *lab) nodeConfig(name string) node.Config {
	return node.Config{Name: name, Kubelet: l.e.Stock(old, "kubelet"), CgroupDriver: node.Systemd, Unit: kubeletlab.UnitFlags, DockerArgs: registry.DockerArgs(machine.IP, registryHost)}
}

// takeNode gives a node that runs what the agents need, and a unit for its kubelet.
func (l *lab) takeNode(ctx context.Context, n *node.Node) error {
	api, err := url.Parse(l.c.APIServer.URL)
	if err != nil {
		return err
	}
	if err := n.Run(ctx, "sh", "-c", "echo '"+registry.Hosts(machine.IP, registryHost)+"' >>/etc/hosts"); err != nil {
		return err
	}
	// What kube-proxy does for the Service kubernetes, for pods on the host's network.
	if err := n.Run(ctx, "iptables", "-w", "-t", "nat", "-A", "OUTPUT", "-d", kubernetesIP, "-p", "tcp", "--dport", "443", "-j", "DNAT", "--to-destination", api.Host); err != nil {
		return err
	}
	u, err := kubeletlab.StartUnit(ctx, l.e, n, l.e.Stock(old, "kubelet"), program)
	if err != nil {
		return err
	}
	l.units = append(l.units, u)
	return nil
}

// join adds a node to the cluster while a failed swap stops the rollout, and waits until its agent waits
// for the lock.
func (l *lab) join(ctx context.Context) error {
	n, err := l.e.StartNode(ctx, l.c.APIServer, l.nodeConfig(newNode))
	if err != nil {
		return err
	}
	if err := l.takeNode(ctx, n); err != nil {
		return err
	}
	l.c.Nodes = append(l.c.Nodes, n)
	return wait.Every(ctx, "the agent of "+newNode+" runs", time.Second, bound, func(ctx context.Context) (bool, error) {
		p, err := l.agent(ctx, newNode)
		return err == nil && p != nil && kube.String(p, "status", "phase") == "Running", err
	})
}

// agent is the pod of the fleet on a node, nil if there is none.
func (l *lab) agent(ctx context.Context, on string) (*kube.Object, error) {
	pods, err := l.c.Client.List(ctx, kube.Pods, fleetNS, "app="+fleetName)
	for i := range pods {
		if kube.String(&pods[i], "spec", "nodeName") == on {
			return &pods[i], nil
		}
	}
	return nil, err
}

// evict makes the agent's pod of a node in a swap one that the kubelet has evicted: what the kubelet
// does to the Pod is done, without what fills the node's disk.
func (l *lab) evict(ctx context.Context, attempt int) error {
	return wait.Every(ctx, "an agent to evict in a swap", 200*time.Millisecond, bound, func(ctx context.Context) (bool, error) {
		for _, n := range l.c.Nodes {
			j, err := l.job(ctx, n)
			if err != nil {
				return false, err
			}
			if j.Phase != running || j.Attempt != attempt {
				continue
			}
			p, err := l.agent(ctx, n.Name)
			if err != nil || p == nil {
				return false, err
			}
			if _, err := l.c.Client.PatchMerge(ctx, kube.Pods, fleetNS, p.GetName(), `{"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: [DiskPressure]. "}}`, "status"); err != nil {
				return false, err
			}
			l.hit("the pod " + p.GetName() + " of " + n.Name + " was evicted")
			return true, nil
		}
		return false, nil
	})
}

// leave has the node that has joined fail in its swap back, by a flag that only a kubelet from 1.8 on
// knows, and then takes it out of the cluster, as an autoscaler does. It has the lock then, which the
// command of docs/user/fleet.md frees.
func (l *lab) leave(ctx context.Context) error {
	u := l.unit(newNode)
	if err := u.Write(ctx, kubeletlab.ExtraFile, "KUBELET_EXTRA_ARGS=--fail-swap-on=false\n"); err != nil {
		return err
	}
	if err := l.kubectl(ctx, "-n", fleetNS, "rollout", "undo", "ds/"+fleetName, "--to-revision=5"); err != nil {
		return err
	}
	// A node without a pod gets one at once, so that it need not wait for the others.
	p, err := l.agent(ctx, newNode)
	if err != nil || p == nil {
		return fmt.Errorf("no agent on %s: %w", newNode, err)
	}
	if err := l.c.Client.Delete(ctx, kube.Pods, fleetNS, p.GetName()); err != nil {
		return err
	}
	if err := wait.Every(ctx, newNode+" has failed and has the lock", time.Second, bound, func(ctx context.Context) (bool, error) {
		holder, err := l.holder(ctx)
		if err != nil || holder != newNode {
			return false, err
		}
		j, err := l.job(ctx, u.Node)
		return j.Phase == failed && j.Target == original, err
	}); err != nil {
		return err
	}
	l.c.Nodes = slices.DeleteFunc(l.c.Nodes, func(n *node.Node) bool { return n == u.Node })
	l.units = slices.DeleteFunc(l.units, func(of *kubeletlab.Unit) bool { return of == u })
	if err := u.Node.Run(ctx, "systemctl", "stop", "kubelet"); err != nil {
		return err
	}
	if err := u.Node.StopDocker(); err != nil {
		return err
	}
	if err := l.c.Client.Delete(ctx, kube.Nodes, "", newNode); err != nil {
		return err
	}
	l.hit(newNode + " left the cluster")
	return l.kubectl(ctx, "-n", fleetNS, "patch", "configmap", lockName, "-p", `{"data":{"holder":null}}`)
}
