// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// anew deletes the DaemonSet with its pods and applies a target, so that all pods are made at once.
func (l *lab) anew(ctx context.Context, target string, attempt int) error {
	if err := l.kubectl(ctx, "-n", fleetNS, "delete", "ds/"+fleetName); err != nil {
		return err
	}
	if _, err := l.c.Client.WaitList(ctx, kube.Pods, fleetNS, "", 2*time.Minute, "gone", func(pods []kube.Object) (bool, error) {
		return len(pods) == 0, nil
	}); err != nil {
		return err
	}
	return l.apply(ctx, goodImage, target, attempt)
}

// kills has all nodes swap at once as far as the lock lets them, and kills on each something else at
// a random time of its swap.
func (l *lab) kills(ctx context.Context) error {
	if err := l.anew(ctx, l.target, 4); err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, nodes)
	var mu sync.Mutex
	for i, n := range l.c.Nodes {
		after := time.Duration(l.e.Rand.IntN(4000)) * time.Millisecond
		wg.Go(func() {
			errs[i] = l.kill(ctx, n, after, i != 1, i != 0, func(what string) {
				mu.Lock()
				defer mu.Unlock()
				l.killed = append(l.killed, what)
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return l.rolled(ctx)
}

// kill waits until the swap of a node has begun, and kills its unit, its agent or both.
func (l *lab) kill(ctx context.Context, n *node.Node, after time.Duration, unit, agent bool, killed func(string)) error {
	if err := wait.Every(ctx, "the swap of "+n.Name+" has begun", 200*time.Millisecond, bound, func(ctx context.Context) (bool, error) {
		j, err := l.job(ctx, n)
		return j.Phase == "running" && j.Target == l.target, err
	}); err != nil {
		return err
	}
	if err := sleep(ctx, after); err != nil {
		return err
	}
	if unit {
		pid, err := kubeletlab.MainPID(ctx, n, "holdfast-fleet.service")
		if err != nil {
			return err
		}
		if pid > 0 {
			// The PID is of the node's own namespace.
			if err := n.Run(ctx, "sh", "-c", "kill -9 "+strconv.Itoa(pid)); err == nil {
				killed(fmt.Sprintf("the unit of %s, %s after its start", n.Name, after))
			}
		}
	}
	if agent {
		pods, err := l.c.Client.List(ctx, kube.Pods, fleetNS, "app="+fleetName)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if kube.String(&p, "spec", "nodeName") != n.Name {
				continue
			}
			cs, err := n.Docker.PodContainers(ctx, fleetNS, p.GetName(), false)
			if err != nil {
				return err
			}
			for _, c := range cs {
				if err := n.Docker.Call(ctx, http.MethodPost, "/containers/"+c.ID+"/kill", "", nil, nil); err == nil {
					killed(fmt.Sprintf("the agent of %s, %s after its start", n.Name, after))
				}
			}
		}
	}
	return nil
}

// control has all nodes go back at once, and takes the lock from whoever has it: what the oracle
// then sees is what it must see of a fleet without a lock.
func (l *lab) control(ctx context.Context) error {
	open, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop() // before the wait
	wg.Go(func() {
		for open.Err() == nil {
			if holder, err := l.holder(open); err == nil && holder != "" {
				_, _ = l.c.Client.PatchMerge(open, kube.ConfigMaps, fleetNS, lockName, `{"data":{"holder":null}}`)
			}
			_ = sleep(open, 50*time.Millisecond)
		}
	})
	if err := l.anew(ctx, "original", 5); err != nil {
		return err
	}
	// On a busy machine one may fail, as by a kubelet that takes too long to tell its version.
	return wait.Every(ctx, "the swaps of the control have ended", time.Second, bound, func(ctx context.Context) (bool, error) {
		for _, n := range l.c.Nodes {
			if j, err := l.job(ctx, n); err != nil || j.Attempt != 5 || j.Phase == "running" {
				return false, err
			}
		}
		return true, nil
	})
}
