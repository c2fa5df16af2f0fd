// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/process"
)

// ClusterConfig says what StartCluster starts; nil parts are left out.
type ClusterConfig struct {
	Etcd              kube.EtcdConfig
	APIServer         *kube.APIServerConfig // required
	ControllerManager *kube.ControllerManagerConfig
	Scheduler         *kube.SchedulerConfig
	Nodes             []Config
}

// Cluster is what StartCluster started.
type Cluster struct {
	Etcd              *kube.Etcd
	APIServer         *kube.APIServer
	ControllerManager *kube.ControllerManager
	Scheduler         *process.Proc
	Nodes             []*Node
	// Client is the admin's.
	Client *kube.Client
}

// StartCluster starts the parts in order, each healthy before the next, and
// waits until the nodes are Ready and the default service account exists (if
// there is a controller manager to make it).
func (s *Starter) StartCluster(ctx context.Context, cc ClusterConfig) (*Cluster, error) {
	if cc.APIServer == nil {
		return nil, fmt.Errorf("ClusterConfig.APIServer is missing")
	}
	c := &Cluster{}
	var err error
	s.Step("start etcd")
	if c.Etcd, err = s.StartEtcd(ctx, cc.Etcd); err != nil {
		return nil, err
	}
	s.Step("start kube-apiserver %s (%s)", cc.APIServer.Program.Base, cc.APIServer.Program.Variant)
	if c.APIServer, err = s.StartAPIServer(ctx, c.Etcd, *cc.APIServer); err != nil {
		return nil, err
	}
	if c.Client, err = kube.NewClient(c.APIServer); err != nil {
		return nil, err
	}
	s.OnDump(c.Client.DumpAll)
	if cc.ControllerManager != nil {
		s.Step("start kube-controller-manager %s (%s)", cc.ControllerManager.Program.Base, cc.ControllerManager.Program.Variant)
		if c.ControllerManager, err = s.StartControllerManager(ctx, c.APIServer, *cc.ControllerManager); err != nil {
			return nil, err
		}
	}
	if cc.Scheduler != nil {
		s.Step("start kube-scheduler %s (%s)", cc.Scheduler.Program.Base, cc.Scheduler.Program.Variant)
		if c.Scheduler, err = s.StartScheduler(ctx, c.APIServer, *cc.Scheduler); err != nil {
			return nil, err
		}
	}
	for _, nc := range cc.Nodes {
		s.Step("start node %s: dockerd and kubelet %s (%s)", nc.Name, nc.Kubelet.Base, nc.Kubelet.Variant)
		n, err := s.StartNode(ctx, c.APIServer, nc)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, n := range c.Nodes {
		if n.Kubelet == nil {
			continue
		}
		if err := c.WaitNodeReady(ctx, n.Name, 60*time.Second); err != nil {
			return nil, err
		}
	}
	if c.ControllerManager != nil {
		if err := c.Client.WaitPodsAdmitted(ctx, "default", 60*time.Second); err != nil {
			return nil, err
		}
	}
	s.Step("the cluster is up")
	return c, nil
}

// Alive is process.AllAlive of what runs the cluster, nodes included. It can be the last
// step of a lab.
func (c *Cluster) Alive(context.Context) error {
	procs := []*process.Proc{c.Scheduler}
	if c.Etcd != nil {
		procs = append(procs, c.Etcd.Proc)
	}
	if c.APIServer != nil {
		procs = append(procs, c.APIServer.Proc)
	}
	if c.ControllerManager != nil {
		procs = append(procs, c.ControllerManager.Proc)
	}
	for _, n := range c.Nodes {
		procs = append(procs, n.Dockerd, n.Kubelet)
	}
	return process.AllAlive(procs...)
}

// WaitNodeReady waits for the node's Ready condition.
func (c *Cluster) WaitNodeReady(ctx context.Context, name string, bound time.Duration) error {
	_, err := c.Client.WaitFor(ctx, kube.Nodes, "", name, bound, "Ready", func(o *kube.Object) (bool, error) {
		return kube.Condition(o, "Ready") == "True", nil
	})
	return err
}
