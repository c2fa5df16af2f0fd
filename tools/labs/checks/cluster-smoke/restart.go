// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package clustersmoke

import (
	"context"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/process"
)

// heartbeat says whether the kubelet posts that the node is ready, from now on and within a
// minute.
func (s *smoke) heartbeat(ctx context.Context) (bool, error) {
	began, seen := time.Now(), false
	_, err := s.c.Client.WaitFor(ctx, kube.Nodes, "", "node1", 60*time.Second, "has a new heartbeat of the kubelet", func(n *kube.Object) (bool, error) {
		for _, c := range kube.Slice(n, "status", "conditions") {
			m := c.(map[string]any)
			hb, _ := m["lastHeartbeatTime"].(string)
			at, err := time.Parse(time.RFC3339, hb)
			seen = seen || err == nil && m["type"] == "Ready" && m["status"] == "True" && at.After(began)
		}
		return seen, nil
	})
	return seen, bounded(ctx, err)
}

// reconnect restarts the API server. That the others work again is what the next step shows:
// it needs controller manager, scheduler and kubelet.
func (s *smoke) reconnect(ctx context.Context) error {
	var o reconnected
	var err error
	if o.Before, err = s.running(ctx); err != nil {
		return err
	}
	s.e.Step("restart the API server")
	if err := s.c.APIServer.Kill(); err != nil {
		return err
	}
	if err := s.e.RestartAPIServer(ctx, s.c.APIServer); err != nil {
		return err
	}
	if o.Heartbeat, err = s.heartbeat(ctx); err != nil {
		return err
	}
	if o.After, err = s.running(ctx); err != nil {
		return err
	}
	if err := process.AllAlive(s.c.ControllerManager.Proc, s.node.Kubelet); err != nil {
		o.Died = err.Error()
	}
	s.e.Record(o)
	if !o.Heartbeat || o.Died != "" {
		return labkit.Enough
	}
	return nil
}

func (s *smoke) restart(ctx context.Context) error {
	for i := range restarts(s.e.Profile) {
		o := restarted{Round: i + 1}
		var err error
		if o.Before, err = s.running(ctx); err != nil {
			return err
		}
		s.e.Step("restart %d", i+1)
		if err := s.c.ControllerManager.Stop(); err != nil {
			return err
		}
		cm, err := s.e.StartControllerManager(ctx, s.c.APIServer, kube.ControllerManagerConfig{Program: s.e.UnderTest(s.base, "kube-controller-manager")})
		if err != nil {
			return err
		}
		s.c.ControllerManager = cm
		if err := s.node.SwapKubelet(ctx, s.e.UnderTest(s.base, "kubelet")); err != nil {
			return err
		}
		if o.Heartbeat, err = s.heartbeat(ctx); err != nil {
			return err
		}
		if err := s.serves(ctx, "v1"); err != nil {
			return err
		}
		if o.After, err = s.running(ctx); err != nil {
			return err
		}
		s.e.Record(o)
	}
	return nil
}
