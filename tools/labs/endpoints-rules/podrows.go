// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

// provoke has a fault in force at some point of time, waits until all is back, and records what
// was seen meanwhile.
func (l *inPods) provoke(ctx context.Context, round int, name row) error {
	do := map[row]func(context.Context, *podFault) error{
		stoppedRow: l.stopped, earlyRow: l.stoppedEarly, killedRow: l.killed, deletedRow: l.deleted, breakerRow: l.breaker,
		kubeletRow: l.kubelet, dockerdRow: l.dockerd, apiserverRow: l.apiserver, managerRow: l.manager, awayRow: l.meanwhile,
	}[name]
	if err := l.rested(ctx); err != nil {
		return err
	}
	o := podFault{Round: round, fault: fault{Row: name}}
	was, err := l.running(ctx, serving)
	if err != nil {
		return err
	}
	l.began = time.Time{}
	if err := do(ctx, &o); err != nil {
		return err
	}
	if l.began.IsZero() {
		return fmt.Errorf("%s: no fault began", name)
	}
	if err := l.returned(ctx, &o); err != nil {
		return err
	}
	if o.BackAfter > 0 {
		now, err := l.running(ctx, serving)
		if err != nil {
			return err
		}
		o.Replaced = now.id != was.id
	}
	if err := l.observed(ctx, &o); err != nil {
		return err
	}
	l.e.Record(o)
	l.e.Logf("%s", o)
	if wrong, _ := o.wrong(); wrong != "" {
		return labkit.Enough
	}
	return nil
}

// observed ends the changes that were begun, and reads what became of them.
func (l *inPods) observed(ctx context.Context, o *podFault) error {
	// A fault that is over soon waits for a change of each namespace.
	if err := wait.Until(ctx, "changes in both namespaces", givenUp+time.Minute, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(l.load.since(l.began), func(s served) bool { return s.Updates+s.Lost == 0 }), nil
	}); err != nil {
		return err
	}
	if err := l.load.pause(ctx); err != nil {
		return err
	}
	o.Served = l.load.since(l.began)
	end, err := l.compared(ctx)
	if err != nil {
		return err
	}
	o.Differ, o.RightAfter = end.Wrong, end.After
	for _, ev := range l.conf.Events() {
		if ev.Time.After(l.began) && ev.Object != nil && len(kube.Slice(ev.Object, "webhooks")) == 0 && o.EmptyAfter == 0 {
			o.EmptyAfter = ev.Time.Sub(l.began)
		}
	}
	o.Ended = l.keep.since(o.Row.ends()...)
	l.load.resume()
	return nil
}

// rested gives the program a new pod when the kubelet's pause from restart to restart has become
// long: it doubles with each.
func (l *inPods) rested(ctx context.Context) error {
	most := 0
	if err := wait.Until(ctx, "both containers of the program run", backBound, func(ctx context.Context) (bool, error) {
		one, err := l.running(ctx, serving)
		if err != nil {
			return false, err
		}
		other, err := l.running(ctx, guarding)
		most = max(one.restarts, other.restarts)
		return err == nil, err
	}); err != nil {
		return err
	}
	if most < 3 {
		return nil
	}
	return l.newPod(ctx)
}

// newPod deletes the program's pod and waits until another one serves. It must be ready before: a
// stock kubelet that is told to delete a pod while its containers start kills them a minute later.
func (l *inPods) newPod(ctx context.Context) error {
	if err := l.podsReady(ctx, backBound); err != nil {
		return err
	}
	was, err := l.running(ctx, serving)
	if err != nil {
		return err
	}
	if err := l.c.Client.Delete(ctx, kube.Pods, programPods, was.pod); err != nil {
		return err
	}
	if _, err := l.another(ctx, was, serving, backBound); err != nil {
		return err
	}
	return l.healthy(ctx)
}

// begin is the point of time of the fault, up to d from now.
func (l *inPods) begin(ctx context.Context, d time.Duration) error {
	if d > 0 {
		if err := wait.Pause(ctx, time.Duration(l.e.Rand.Int64N(int64(d)))); err != nil {
			return err
		}
	}
	l.began = time.Now()
	return nil
}

// pause is how long a component is away.
func (l *inPods) pause(ctx context.Context, least, most time.Duration) error {
	return wait.Pause(ctx, least+time.Duration(l.e.Rand.Int64N(int64(most-least))))
}

// returned waits until the program answers and the API server asks it. What does not come
// back is for the oracle.
func (l *inPods) returned(ctx context.Context, o *podFault) error {
	err := wait.Until(ctx, "endpoints-rules is ready", backBound, func(ctx context.Context) (bool, error) {
		page, err := l.program.metrics(ctx)
		if err != nil {
			return false, err
		}
		synced, n := page.Sum("endpoints_rules_synced")
		return n == l.replicas() && int(synced) == n, nil
	})
	if err != nil {
		l.e.Logf("%v", err)
		return context.Cause(ctx)
	}
	o.BackAfter = max(time.Since(l.began), time.Millisecond)
	if _, err := l.program.webhooks(ctx, 1, back); err != nil {
		l.e.Logf("%v", err)
		return context.Cause(ctx) // FilledAfter stays 0
	}
	o.FilledAfter = max(time.Since(l.began), time.Millisecond)
	if err := l.program.called(ctx, probe); err != nil {
		return err
	}
	return l.settled(ctx)
}

// writes are so many, one after the other.
func (l *inPods) writes(ctx context.Context, o *podFault, n int) error {
	for range n {
		o.Calls = append(o.Calls, l.call(ctx, probe))
		if err := wait.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// writesUntilEnded are so many writes, while the process ends.
func (l *inPods) writesUntilEnded(ctx context.Context, o *podFault, was instance, n int) error {
	done := make(chan error, 1)
	go func() { done <- l.ended(ctx, o, was) }()
	return errors.Join(l.writes(ctx, o, n), <-done)
}

// stop stops the process of the program until somebody has ended it.
func (l *inPods) stop(ctx context.Context, o *podFault, within time.Duration) error {
	was, err := l.running(ctx, serving)
	if err != nil {
		return err
	}
	if err := l.begin(ctx, within); err != nil {
		return err
	}
	if err := was.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := was.stopped(ctx); err != nil {
		return err
	}
	o.Age = l.began.Sub(was.started)
	calls := make(chan call, 2)
	for _, name := range []string{probe, probe2} {
		go func() { calls <- l.call(ctx, name) }()
	}
	err = l.ended(ctx, o, was)
	o.Calls = append(o.Calls, <-calls, <-calls)
	if err != nil || o.EndedAfter > 0 {
		return err
	}
	return was.signal(syscall.SIGKILL) // so that the faults after it can be told
}

// ended waits until the process is gone.
func (l *inPods) ended(ctx context.Context, o *podFault, was instance) error {
	err := wait.Until(ctx, "the process has ended", time.Minute, func(context.Context) (bool, error) { return was.gone(), nil })
	if err == nil {
		o.EndedAfter = max(time.Since(l.began), time.Millisecond)
	}
	return context.Cause(ctx)
}

func (l *inPods) stopped(ctx context.Context, o *podFault) error {
	if err := wait.Until(ctx, "the liveness probe has run once", time.Minute, func(ctx context.Context) (bool, error) {
		now, err := l.running(ctx, serving)
		return time.Since(now.started) > l.probes.delay+2*l.probes.period, err
	}); err != nil {
		return err
	}
	return l.stop(ctx, o, spread)
}

// stoppedEarly: liveness has not asked yet.
func (l *inPods) stoppedEarly(ctx context.Context, o *podFault) error {
	if err := l.newPod(ctx); err != nil {
		return err
	}
	if err := l.program.called(ctx, probe); err != nil {
		return err
	}
	return l.stop(ctx, o, 0)
}

func (l *inPods) killed(ctx context.Context, o *podFault) error {
	was, err := l.running(ctx, serving)
	if err != nil {
		return err
	}
	if err := l.begin(ctx, spread); err != nil {
		return err
	}
	o.Age = l.began.Sub(was.started)
	if err := was.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if err := l.writesUntilEnded(ctx, o, was, 10); err != nil {
		return err
	}
	return l.startedAgain(ctx, o, was, serving)
}

func (l *inPods) deleted(ctx context.Context, o *podFault) error {
	if err := l.podsReady(ctx, backBound); err != nil { // see newPod
		return err
	}
	was, err := l.running(ctx, serving)
	if err != nil {
		return err
	}
	if err := l.begin(ctx, spread); err != nil {
		return err
	}
	if err := l.c.Client.Delete(ctx, kube.Pods, programPods, was.pod); err != nil {
		return err
	}
	if err := l.writesUntilEnded(ctx, o, was, 20); err != nil {
		return err
	}
	return l.startedAgain(ctx, o, was, serving)
}

func (l *inPods) breaker(ctx context.Context, o *podFault) error {
	was, err := l.running(ctx, guarding)
	if err != nil {
		return err
	}
	if err := l.begin(ctx, spread); err != nil {
		return err
	}
	if err := was.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if err := l.writesUntilEnded(ctx, o, was, 10); err != nil {
		return err
	}
	return l.startedAgain(ctx, o, was, guarding)
}

// startedAgain waits until the kubelet has; that it has not is for the oracle.
func (l *inPods) startedAgain(ctx context.Context, o *podFault, was instance, name string) error {
	if _, err := l.another(ctx, was, name, backBound); err != nil {
		o.Wrong = err.Error()
	}
	return context.Cause(ctx)
}

func (l *inPods) kubelet(ctx context.Context, o *podFault) error {
	return l.component(ctx, o, l.master.KillKubelet, func(ctx context.Context) error {
		return l.master.StartKubelet(ctx, l.master.KubeletProgram())
	})
}

func (l *inPods) dockerd(ctx context.Context, o *podFault) error {
	return l.component(ctx, o, l.master.KillDocker, l.master.StartDocker)
}

// component kills one that is no pod, writes, and starts it again.
func (l *inPods) component(ctx context.Context, o *podFault, kill func() error, start func(context.Context) error) error {
	if err := l.begin(ctx, spread); err != nil {
		return err
	}
	if err := kill(); err != nil {
		return err
	}
	o.EndedAfter = max(time.Since(l.began), time.Millisecond)
	if err := l.writes(ctx, o, 10); err != nil {
		return err
	}
	if err := l.pause(ctx, time.Second, 5*time.Second); err != nil {
		return err
	}
	return start(ctx)
}

// apiserver: nothing can be written meanwhile.
func (l *inPods) apiserver(ctx context.Context, o *podFault) error {
	if err := l.begin(ctx, spread); err != nil {
		return err
	}
	if err := l.killAPIServer(o); err != nil {
		return err
	}
	if err := l.pause(ctx, time.Second, 4*time.Second); err != nil {
		return err
	}
	return l.backAPIServer(ctx, o)
}

func (l *inPods) killAPIServer(o *podFault) error {
	l.away++
	if err := l.c.APIServer.Kill(); err != nil {
		return err
	}
	o.EndedAfter = max(time.Since(l.began), time.Millisecond)
	return nil
}

func (l *inPods) backAPIServer(ctx context.Context, o *podFault) error {
	if err := l.e.RestartAPIServer(ctx, l.c.APIServer); err != nil {
		return err
	}
	o.APIServerAway = time.Since(l.began)
	return l.writes(ctx, o, 10)
}

func (l *inPods) manager(ctx context.Context, o *podFault) error {
	if err := l.begin(ctx, spread); err != nil {
		return err
	}
	if err := l.keep.proc(leaseNames[0]).Kill(); err != nil {
		return err
	}
	o.EndedAfter = max(time.Since(l.began), time.Millisecond)
	return l.writes(ctx, o, 10)
}

// meanwhile: the program's containers start while there is no API server.
func (l *inPods) meanwhile(ctx context.Context, o *podFault) error {
	was, err := l.running(ctx, serving)
	if err != nil {
		return err
	}
	if err := l.begin(ctx, spread); err != nil {
		return err
	}
	if err := l.killAPIServer(o); err != nil {
		return err
	}
	if err := was.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if err := l.pause(ctx, 20*time.Second, 30*time.Second); err != nil {
		return err
	}
	return l.backAPIServer(ctx, o)
}

// unguarded: nobody ends the program.
func (l *inPods) unguarded(ctx context.Context) error {
	was, err := l.running(ctx, serving)
	if err != nil {
		return err
	}
	o := podFault{fault: fault{Row: controlRow}}
	if err := l.begin(ctx, spread); err != nil {
		return err
	}
	if err := was.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	calls := make(chan call, 2)
	for _, name := range []string{probe, probe2} {
		go func() { calls <- l.call(ctx, name) }()
	}
	if err := wait.Pause(ctx, unguardedFor); err != nil {
		return err
	}
	if err := was.signal(syscall.SIGCONT); err != nil {
		return err
	}
	o.Calls = append(o.Calls, <-calls, <-calls)
	if err := l.observed(ctx, &o); err != nil {
		return err
	}
	l.e.Record(o)
	l.e.Logf("%s", o)
	return nil
}
