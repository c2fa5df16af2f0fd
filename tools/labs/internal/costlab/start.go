// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costlab

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// SwapManager ends the cluster's controller manager and starts p in its place, at the same
// address, as often as starts says. It says how many seconds the fastest start took to be
// healthy.
func SwapManager(ctx context.Context, e *labkit.Env, c *node.Cluster, p kube.Program, starts int) (float64, error) {
	m := c.ControllerManager
	return fastest(starts, func() (time.Duration, error) {
		if err := m.Stop(); err != nil {
			return 0, err
		}
		// The next one need not wait until the lease has run out.
		if err := c.Client.Delete(ctx, kube.Endpoints, "kube-system", "kube-controller-manager"); err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
		spec := m.Spec
		spec.Path = p.Path
		answered := healthy(ctx, m.URL+"/healthz", time.Minute)
		next, err := e.Start(ctx, spec)
		if err != nil {
			return 0, err
		}
		m.Proc = next
		return since(next, answered)
	})
}

// SwapKubelet is SwapManager for the kubelet of a node.
func SwapKubelet(ctx context.Context, n *node.Node, p kube.Program, starts int) (float64, error) {
	return fastest(starts, func() (time.Duration, error) {
		if err := n.StopKubelet(); err != nil {
			return 0, err
		}
		answered := healthy(ctx, "http://"+n.IP+":10248/healthz", time.Minute)
		if err := n.StartKubelet(ctx, p); err != nil {
			return 0, err
		}
		return since(n.Kubelet, answered)
	})
}

// fastest is that of n starts, in seconds: it is the one that the rest of the computer
// disturbed least.
func fastest(n int, once func() (time.Duration, error)) (float64, error) {
	best := math.Inf(1)
	for range n {
		took, err := once()
		if err != nil {
			return 0, err
		}
		best = min(best, took.Seconds())
	}
	return best, nil
}

// since is how long p took to be healthy.
func since(p *process.Proc, answered <-chan time.Time) (time.Duration, error) {
	at, ok := <-answered
	if !ok {
		return 0, fmt.Errorf("%s did not answer %s", p.Spec.Name, p.Spec.HealthURL)
	}
	return at.Sub(p.Started), nil
}

// healthy polls url from now on, faster than the kit, and says when it first answered 200.
// The channel is closed without a time after bound.
func healthy(ctx context.Context, url string, bound time.Duration) <-chan time.Time {
	out := make(chan time.Time, 1)
	go func() {
		defer close(out)
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		c := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		for ctx.Err() == nil {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return
			}
			if resp, err := c.Do(req); err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					out <- time.Now()
					return
				}
			}
			_ = wait.Pause(ctx, time.Millisecond)
		}
	}()
	return out
}

// DeleteEvents deletes all events of a namespace, so that no turn begins with those of the turns
// before it: the controller manager's garbage collector and its quota controller keep what
// they know of each, as the group events.k8s.io, new in 1.9, is not among those that they leave out.
func DeleteEvents(ctx context.Context, c *kube.Client, ns string) error {
	const tries = 20
	left := 0
	for range tries {
		// A request that deletes more than it can in the kube-apiserver's minute is answered with
		// an error, but has deleted some.
		status, body, err := c.Raw(ctx, http.MethodDelete, "/api/v1/namespaces/"+ns+"/events", "", nil)
		if err != nil {
			return err
		}
		if status != http.StatusOK && status != http.StatusGatewayTimeout {
			return fmt.Errorf("delete the events of %s: %d: %s", ns, status, body)
		}
		list, err := c.List(ctx, kube.Events, ns, "")
		if err != nil {
			return err
		}
		if left = len(list); status == http.StatusOK && left < 100 {
			return nil // what came in between
		}
	}
	return fmt.Errorf("delete the events of %s: %d are left after %d requests", ns, left, tries)
}
