// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeupgrade

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// fill leaves free of the node's disk.
func (l *kindsLab) fill() error {
	st, err := l.statfs()
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(l.n.Dir, "filler"))
	if err != nil {
		return err
	}
	defer f.Close()
	n := (int64(st.Bavail) - int64(float64(st.Blocks)*free)) * st.Bsize
	if err := unix.Fallocate(int(f.Fd()), 0, 0, n); err != nil {
		return fmt.Errorf("fill the node's disk with %d bytes: %w", n, err)
	}
	return nil
}

func (l *kindsLab) statfs() (st unix.Statfs_t, err error) {
	if err = unix.Statfs(l.n.Dir, &st); err != nil {
		err = fmt.Errorf("%s: %w", l.n.Dir, err)
	}
	return st, err
}

// swap swaps the kubelet, and records what that did to the pods.
func (l *kindsLab) swap(ctx context.Context, to string, kill bool) error {
	o := kindsSwapped{To: to}
	var err error
	if o.Before, err = kubeletlab.Take(ctx, l.n); err != nil {
		return err
	}
	all, err := l.c.Client.List(ctx, kube.Pods, ns, "")
	if err != nil {
		return err
	}
	var pods []string
	for i := range all {
		if kubeletlab.PodReady(&all[i]) {
			pods = append(pods, all[i].GetName())
		}
	}
	o.Pods = len(pods)
	program := l.e.Stock(old, "kubelet")
	if to == underTest {
		program = l.e.UnderTest(base, "kubelet")
	}
	if o.Forecast, err = kubeletlab.Forecast(ctx, l.e, l.c.APIServer.URL, l.n.Name, program); err != nil {
		return err
	}
	requests, failed := counts(l.loads)
	since := time.Now()
	if o.By, err = l.replace(ctx, program, kill); err != nil {
		return err
	}
	started := time.Now()
	if err := l.lookedAt(ctx, len(pods)); err != nil {
		return err
	}
	if o.After, err = kubeletlab.WaitStable(ctx, l.n, 10*time.Second, 5*time.Minute); err != nil {
		return err
	}
	// A status that comes too late, and what follows from it, has half a minute.
	if err := wait.Until(ctx, "each pod that has not failed is ready, half a minute after the start", 5*time.Minute, func(ctx context.Context) (bool, error) {
		all, err := l.c.Client.List(ctx, kube.Pods, ns, "")
		if err != nil {
			return false, err
		}
		for i := range all {
			if kube.String(&all[i], "status", "phase") != "Failed" && !kubeletlab.PodReady(&all[i]) {
				return false, fmt.Errorf("%s is not", all[i].GetName())
			}
		}
		return time.Since(started) > 30*time.Second, nil
	}); err != nil {
		return err
	}
	if o.After, err = kubeletlab.Take(ctx, l.n); err != nil {
		return err
	}
	if gaps := l.pods.Gaps() + l.eps.Gaps() + l.nodes.Gaps(); gaps > 0 {
		return fmt.Errorf("watches were lost %d times: events may be missing", gaps)
	}
	until := time.Now()
	for _, p := range pods {
		o.PodSeconds += notReady(l.pods.Of(ns, p), since, until)
	}
	o.NodeSeconds = notReady(l.nodes.Of("", l.n.Name), since, until)
	for _, k := range allKinds {
		p, err := kubeletlab.Seen(l.pods, l.eps, ns, k.name, since, func(string) bool { return true })
		if err != nil {
			return err
		}
		o.Removed += p.Removed
	}
	q, f := counts(l.loads)
	o.Requests, o.Failed = q-requests, f-failed
	st, err := l.statfs()
	if err != nil {
		return err
	}
	o.Free = float64(st.Bavail) / float64(st.Blocks)
	n, err := l.c.Client.Get(ctx, kube.Nodes, "", l.n.Name)
	if err != nil {
		return err
	}
	o.Zone = n.GetLabels()[zoneLabel]
	log, err := l.n.Kubelet.LastRunLog()
	if err != nil {
		return err
	}
	o.Slow = strings.Contains(log, "its first status is published without")
	l.e.Record(o)
	return nil
}

// replace replaces the kubelet.
func (l *kindsLab) replace(ctx context.Context, program kube.Program, kill bool) (*kubeletlab.Swapped, error) {
	if byProgram(l.e) {
		return l.swaps.Swap(ctx, program, 30*time.Second, nil)
	}
	end := l.n.StopKubelet
	if kill {
		end = l.n.KillKubelet
	}
	if err := end(); err != nil {
		return nil, err
	}
	return nil, l.n.StartKubelet(ctx, program)
}

// lookedAt waits until the new kubelet has rejected or begun to sync as many pods.
func (l *kindsLab) lookedAt(ctx context.Context, pods int) error {
	return wait.Until(ctx, "the new kubelet has synced or rejected each pod", 5*time.Minute, func(ctx context.Context) (bool, error) {
		synced, err := kubeletlab.Metric(ctx, l.n, "kubelet_pod_start_latency_microseconds_count")
		if err != nil {
			return false, err
		}
		all, err := l.c.Client.List(ctx, kube.Pods, ns, "")
		if err != nil {
			return false, err
		}
		n := int(synced)
		for i := range all {
			if kube.String(&all[i], "status", "phase") == "Failed" {
				n++
			}
		}
		if n < pods {
			return false, fmt.Errorf("%d of %d", n, pods)
		}
		return true, nil
	})
}

// notReady is for how many seconds between since and until the events of one object say that it
// is not Ready, or that it is gone.
func notReady(evs []kube.RecordedEvent, since, until time.Time) (seconds float64) {
	from := time.Time{} // since when it is not ready
	end := func(at time.Time) {
		if from.IsZero() {
			return
		}
		if from.Before(since) {
			from = since
		}
		if at.After(from) {
			seconds += at.Sub(from).Seconds()
		}
		from = time.Time{}
	}
	for _, ev := range evs {
		if ev.Time.After(until) {
			break
		}
		switch ready := ev.Type != "DELETED" && kube.Condition(ev.Object, "Ready") == "True"; {
		case ready:
			end(ev.Time)
		case from.IsZero():
			from = ev.Time
		}
	}
	end(until)
	return seconds
}
