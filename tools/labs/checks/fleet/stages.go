// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// job is what the agent's unit wrote on a node.
type job struct {
	Target, Phase string
	Attempt       int
}

func (l *lab) job(ctx context.Context, n *node.Node) (job, error) {
	var j job
	out, err := n.Output(ctx, "sh", "-c", "cat "+keepIn+"/fleet/job.json 2>/dev/null || echo '{}'")
	if err != nil {
		return j, err
	}
	return j, json.Unmarshal([]byte(out), &j)
}

// holder is who has the lock, "" if there is no lock.
func (l *lab) holder(ctx context.Context) (string, error) {
	o, err := l.c.Client.Get(ctx, kube.ConfigMaps, fleetNS, lockName)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return kube.String(o, "data", "holder"), nil
}

// stopped waits until a node has failed in an attempt, and then for what the next one would take to begin.
func (l *lab) stopped(ctx context.Context, attempt int) error {
	if err := wait.Every(ctx, "a node that has failed", time.Second, bound, func(ctx context.Context) (bool, error) {
		holder, err := l.holder(ctx)
		if err != nil {
			return false, err
		}
		for _, n := range l.c.Nodes {
			if n.Name == holder {
				j, err := l.job(ctx, n)
				return j.Phase == failed && j.Attempt == attempt, err
			}
		}
		return false, fmt.Errorf("the lock is %q's", holder)
	}); err != nil {
		return err
	}
	return wait.Pause(ctx, 30*time.Second)
}

// unready gives the unit of a node flags that both kubelets accept, and with which the Node is not
// Ready: no network is configured where they look for it.
func (l *lab) unready(ctx context.Context) error {
	u := l.unit(illNode)
	if err := u.Write(ctx, kubeletlab.ExtraFile, "KUBELET_EXTRA_ARGS=--network-plugin=cni --cni-conf-dir=/var/lib/lab/none\n"); err != nil {
		return err
	}
	if err := l.apply(ctx, goodImage, l.target, 2); err != nil {
		return err
	}
	if err := wait.Every(ctx, illNode+" is swapped and not Ready", time.Second, bound, func(ctx context.Context) (bool, error) {
		j, err := l.job(ctx, u.Node)
		if err != nil || j.Attempt != 2 || j.Phase != done {
			return false, err
		}
		status, err := l.c.Client.Get(ctx, kube.Nodes, "", illNode)
		return err == nil && kube.Condition(status, "Ready") != "True", err
	}); err != nil {
		return err
	}
	// For what the next node would take to begin. After 5 minutes the node's pods would be deleted.
	return wait.Pause(ctx, 40*time.Second)
}

// readied takes the flags out and goes back.
func (l *lab) readied(ctx context.Context) error {
	for _, u := range l.units {
		if err := u.Node.Run(ctx, "rm", "-f", kubeletlab.ExtraFile); err != nil {
			return err
		}
	}
	return l.undo(ctx)
}

// back has all nodes go back, one of them cordoned. One leaves. While the next one is in its swap, the API server
// is away, and the controller manager is replaced: stock's by Holdfast's, or the reverse.
func (l *lab) back(ctx context.Context) error {
	cordon := func(is string) error {
		_, err := l.c.Client.PatchMerge(ctx, kube.Nodes, "", illNode, `{"spec":{"unschedulable":`+is+`}}`)
		return err
	}
	if err := cordon("true"); err != nil {
		return err
	}
	if err := l.leave(ctx); err != nil {
		return err
	}
	if err := wait.Every(ctx, "a swap has begun", 200*time.Millisecond, bound, func(ctx context.Context) (bool, error) {
		for _, n := range l.c.Nodes {
			if j, err := l.job(ctx, n); err != nil || j.Phase == running && j.Target == original {
				return err == nil, err
			}
		}
		return false, nil
	}); err != nil {
		return err
	}
	if err := l.c.APIServer.Kill(); err != nil {
		return err
	}
	if err := wait.Pause(ctx, 15*time.Second); err != nil {
		return err
	}
	if err := l.e.RestartAPIServer(ctx, l.c.APIServer); err != nil {
		return err
	}
	if err := l.c.ControllerManager.Stop(); err != nil {
		return err
	}
	other := l.e.Stock(base, "kube-controller-manager")
	if l.e.Variant == labkit.Stock {
		other = l.e.Ours(base, "kube-controller-manager")
	}
	var err error
	if l.c.ControllerManager, err = l.e.StartControllerManager(ctx, l.c.APIServer, kube.ControllerManagerConfig{Program: other}); err != nil {
		return err
	}
	if err := l.rolled(ctx); err != nil {
		return err
	}
	return cordon("false")
}

// stage does a step and records what is then.
func (l *lab) stage(ctx context.Context, name string, f func(ctx context.Context) error) error {
	l.begun, l.before, l.killed, l.repeated, l.status = time.Now(), nil, nil, 0, 0
	for _, n := range l.c.Nodes {
		s, err := kubeletlab.Take(ctx, n)
		if err != nil {
			return err
		}
		l.before = append(l.before, s)
	}
	if err := f(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	o := stage{Name: name, Seconds: time.Since(l.begun).Seconds(), Killed: l.killed, Repeated: l.repeated, Status: l.status}
	var err error
	if o.Holder, err = l.holder(ctx); err != nil {
		return err
	}
	for i, u := range l.units {
		n, err := l.onNode(ctx, u)
		if err != nil {
			return err
		}
		o.Nodes = append(o.Nodes, n)
		journal, err := u.Node.Output(ctx, "sh", "-c", "cat "+keepIn+"/journal 2>/dev/null || true")
		if err != nil {
			return err
		}
		o.Swaps = append(o.Swaps, swapsOf(u.Node.Name, journal, l.begun)...)
		if i >= len(l.before) { // it has joined
			continue
		}
		after, err := kubeletlab.Take(ctx, u.Node)
		if err != nil {
			return err
		}
		d := kubeletlab.Compare(l.before[i], after, func(key string, _ kubeletlab.Container) bool { return strings.HasPrefix(key, ns+"/") })
		o.Kept += len(d.Kept)
		o.Lost = append(append(o.Lost, d.Recreated...), d.Gone...)
	}
	l.e.Record(o)
	return nil
}

func (l *lab) onNode(ctx context.Context, u *kubeletlab.Unit) (onNode, error) {
	o := onNode{Name: u.Node.Name}
	var err error
	if o.Kubelet, err = u.Release(ctx); err != nil {
		return o, err
	}
	if o.PID, err = u.PID(ctx); err != nil {
		return o, err
	}
	_, err = kubeletlab.Metric(ctx, u.Node, "kubelet_running_pod_count")
	o.Healthy = err == nil
	j, err := l.job(ctx, u.Node)
	if err != nil {
		return o, err
	}
	o.Target, o.Phase = j.Target, j.Phase
	status, err := l.c.Client.Get(ctx, kube.Nodes, "", u.Node.Name)
	if err != nil {
		return o, err
	}
	o.NodeReady = kube.Condition(status, "Ready") == "True"
	p, err := l.agent(ctx, u.Node.Name)
	if p != nil {
		o.Ready = kubeletlab.PodReady(p)
		l.e.Logf("%s: pod %s ready=%t", u.Node.Name, p.GetName(), o.Ready)
	}
	return o, err
}

// swapsOf reads the swaps since a time from the journal of node swap: from the stop to the end.
func swapsOf(name, journal string, since time.Time) []swap {
	var out []swap
	open := false
	for line := range strings.Lines(journal) {
		stamp, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, says, _ := strings.Cut(rest, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil || at.Before(since) {
			continue
		}
		switch phase, _ := strings.CutPrefix(says, "phase "); phase {
		case "stopping":
			if !open {
				out, open = append(out, swap{Node: name, From: at, To: at}), true
			}
		case done, restored:
			if open {
				out[len(out)-1].To, out[len(out)-1].End = at, phase
			}
			open = false
		}
	}
	return out
}
