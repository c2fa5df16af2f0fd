// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/registry"
)

type lab struct {
	e       *labkit.Env
	suite   *suite
	swap    bool
	in      process.Place // where the suite runs; nil: in the machine
	images  *registry.Registry
	c       *node.Cluster
	proxies []*process.Proc
	planned planned
	runs    []ran
}

func (s *lab) registry(ctx context.Context) error {
	if err := images(ctx, s.e, s.images); err != nil {
		return err
	}
	stop, err := s.images.Listen(machine.IP + ":80")
	if err != nil {
		return err
	}
	s.e.OnStop("registry", func(context.Context) error { return stop() })
	s.e.Step("the registry has %d images", s.images.Names())
	return nil
}

// program is name of the build with which the cluster starts.
func (s *lab) program(name string) kube.Program {
	if s.swap {
		return s.e.Stock(base, name)
	}
	return s.e.UnderTest(base, name)
}

func (s *lab) start(ctx context.Context) (err error) {
	cc := node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: s.e.Stock(base, "kube-apiserver")},
		ControllerManager: &kube.ControllerManagerConfig{Program: s.program("kube-controller-manager")},
		Scheduler:         &kube.SchedulerConfig{Program: s.e.Stock(base, "kube-scheduler")},
	}
	for i := range 2 {
		cc.Nodes = append(cc.Nodes, node.Config{Name: fmt.Sprintf("node%d", i+1), Kubelet: s.program("kubelet"),
			DockerArgs: registry.DockerArgs(machine.IP, imageHosts...)})
	}
	if s.c, err = s.e.StartCluster(ctx, cc); err != nil {
		return err
	}
	for _, n := range s.c.Nodes {
		if err := n.Run(ctx, "sh", "-c", "echo '"+registry.Hosts(machine.IP, imageHosts...)+"' >>/etc/hosts"); err != nil {
			return err
		}
	}
	return nil
}

// dnsObjects give the cluster's DNS its address: a Service without a selector, as
// the server is in the machine and not in a pod.
const dnsObjects = `
apiVersion: v1
kind: Service
metadata: {name: kube-dns}
spec:
  clusterIP: %s
  ports: [{name: dns, protocol: UDP, port: 53}, {name: dns-tcp, protocol: TCP, port: 53}]
---
apiVersion: v1
kind: Endpoints
metadata: {name: kube-dns}
subsets:
- addresses: [{ip: %s}]
  ports: [{name: dns, protocol: UDP, port: 53}, {name: dns-tcp, protocol: TCP, port: 53}]
`

func (s *lab) network(ctx context.Context) error {
	stop, err := serveDNS(ctx, apiNames{s.c.Client}, machine.IP, s.e.Logf)
	if err != nil {
		return err
	}
	s.e.OnStop("DNS", func(context.Context) error { return stop() })
	if _, err := s.c.Client.CreateYAML(ctx, "kube-system", fmt.Sprintf(dnsObjects, kube.DNSIP, machine.IP)); err != nil {
		return err
	}
	for _, n := range s.c.Nodes {
		p, err := n.StartProxy(ctx, s.e.Stock(base, "kube-proxy"))
		if err != nil {
			return err
		}
		s.proxies = append(s.proxies, p)
	}
	return nil
}

func (s *lab) allAlive(ctx context.Context) error {
	if err := s.c.Alive(ctx); err != nil {
		return err
	}
	return process.AllAlive(s.proxies...)
}

// become makes the controller manager and the kubelets those of another build, as an
// operator swaps them: stop, start.
func (s *lab) become(ctx context.Context, which func(base, name string) kube.Program) error {
	if err := s.c.ControllerManager.Stop(); err != nil {
		return err
	}
	m, err := s.e.StartControllerManager(ctx, s.c.APIServer, kube.ControllerManagerConfig{Program: which(base, "kube-controller-manager")})
	if err != nil {
		return err
	}
	s.c.ControllerManager = m
	for _, n := range s.c.Nodes {
		if err := n.SwapKubelet(ctx, which(base, "kubelet")); err != nil {
			return err
		}
	}
	return nil
}
