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
	if err := l.anew(ctx, l.target, 5); err != nil {
		return err
	}
	killed := l.killing(ctx, l.target, func(ctx context.Context, i int, n *node.Node) error { return l.kill(ctx, n, i != 1, i != 0) })
	if err := killed(); err != nil {
		return err
	}
	return l.rolled(ctx)
}

// killing has f kill something of each node, at a random time of its swap to a target. The function
// that it returns waits until that is done.
func (l *lab) killing(ctx context.Context, target string, f func(ctx context.Context, i int, n *node.Node) error) func() error {
	var wg sync.WaitGroup
	errs := make([]error, nodes)
	for i, n := range l.c.Nodes {
		after := time.Duration(l.e.Rand.IntN(4000)) * time.Millisecond
		wg.Go(func() {
			errs[i] = wait.Every(ctx, "the swap of "+n.Name+" has begun", 200*time.Millisecond, bound, func(ctx context.Context) (bool, error) {
				j, err := l.job(ctx, n)
				return j.Phase == running && j.Target == target, err
			})
			if errs[i] == nil {
				errs[i] = wait.Pause(ctx, after)
			}
			if errs[i] == nil {
				errs[i] = f(ctx, i, n)
			}
		})
	}
	return func() error {
		wg.Wait()
		return errors.Join(errs...)
	}
}

// hit notes what was killed.
func (l *lab) hit(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = append(l.killed, fmt.Sprintf("%s, %.1f s after the stage began", what, time.Since(l.begun).Seconds()))
}

// kill kills the agent's unit of a node, its agent or both.
func (l *lab) kill(ctx context.Context, n *node.Node, unit, agent bool) error {
	if unit {
		pid, err := kubeletlab.MainPID(ctx, n, "holdfast-fleet.service")
		if err != nil {
			return err
		}
		if pid > 0 {
			// The PID is of the node's own namespace.
			if err := n.Run(ctx, "sh", "-c", "kill -9 "+strconv.Itoa(pid)); err == nil {
				l.hit("the unit of " + n.Name)
			}
		}
	}
	if agent {
		p, err := l.agent(ctx, n.Name)
		if err != nil || p == nil {
			return err
		}
		cs, err := n.Docker.PodContainers(ctx, fleetNS, p.GetName(), false)
		if err != nil {
			return err
		}
		for _, c := range cs {
			if err := n.Docker.Call(ctx, http.MethodPost, "/containers/"+c.ID+"/kill", "", nil, nil); err == nil {
				l.hit("the agent of " + n.Name)
			}
		}
	}
	return nil
}

// crashes has all nodes go back, and kills on each the kubelet that runs at a random time of the
// swap, its dockerd or both. dockerd is started again after some seconds, as systemd would do it. A
// swap may fail by that: then a new attempt must bring the node to its target.
func (l *lab) crashes(ctx context.Context) error {
	const begin, attempts = 6, 4
	if err := l.anew(ctx, original, begin); err != nil {
		return err
	}
	killed := l.killing(ctx, original, func(ctx context.Context, i int, n *node.Node) error {
		return l.crash(ctx, n, i != 1, i != 0)
	})
	for attempt := begin; ; attempt++ {
		bad := ""
		if err := wait.Every(ctx, "all nodes are back, or a failed one", time.Second, bound, func(ctx context.Context) (bool, error) {
			reached := 0
			for _, n := range l.c.Nodes {
				switch j, err := l.job(ctx, n); {
				case err != nil:
					return false, err
				case j.Phase == failed && j.Attempt == attempt:
					bad = n.Name
					return true, nil
				case j.Phase == done && j.Target == original:
					reached++
				}
			}
			return wait.AtLeast(reached, nodes)
		}); err != nil {
			return err
		}
		if bad == "" {
			break
		}
		l.repeated++
		if attempt == begin+attempts {
			return fmt.Errorf("%s failed in attempt %d too", bad, attempt)
		}
		if err := l.apply(ctx, goodImage, original, attempt+1); err != nil {
			return err
		}
	}
	if err := killed(); err != nil {
		return err
	}
	return l.rolled(ctx)
}

func (l *lab) crash(ctx context.Context, n *node.Node, kubelet, docker bool) error {
	if kubelet {
		pid := 0
		if err := wait.Until(ctx, n.Name+" has a kubelet", time.Minute, func(ctx context.Context) (bool, error) {
			var err error
			pid, err = kubeletlab.MainPID(ctx, n, "kubelet")
			return pid > 0, err
		}); err != nil {
			return err
		}
		if err := n.Run(ctx, "sh", "-c", "kill -9 "+strconv.Itoa(pid)); err == nil {
			l.hit("the kubelet of " + n.Name)
		}
	}
	if !docker {
		return nil
	}
	if err := n.KillDocker(); err != nil {
		return err
	}
	l.hit("dockerd of " + n.Name)
	if err := wait.Pause(ctx, 3*time.Second); err != nil {
		return err
	}
	return n.StartDocker(ctx)
}

// control has all nodes go to Holdfast at once, and takes the lock from whoever has it: what the oracle
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
			_ = wait.Pause(open, 50*time.Millisecond)
		}
	})
	if err := l.anew(ctx, l.target, 20); err != nil {
		return err
	}
	// On a busy machine one may fail, as by a kubelet that takes too long to tell its version.
	return wait.Every(ctx, "the swaps of the control have ended", time.Second, bound, func(ctx context.Context) (bool, error) {
		for _, n := range l.c.Nodes {
			if j, err := l.job(ctx, n); err != nil || j.Attempt != 20 || j.Phase == running {
				return false, err
			}
		}
		return true, nil
	})
}
