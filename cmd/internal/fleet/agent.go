// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/node"
)

// cluster is api; tests have another one.
type cluster interface {
	take(ctx context.Context, t target) (mine bool, holder string, err error)
	release(ctx context.Context) error
	ready(ctx context.Context, started int64) (why string, err error)
	tooOld(ctx context.Context, kubelet string) (why string, err error)
}

// agent brings one node to its target and says whether it is there. It does one thing at a time.
type agent struct {
	target    target
	namespace string // of the fleet
	host      host
	cluster   cluster
	// settle is how long the kubelet must run as one process before it is verified.
	settle time.Duration
	poll   time.Duration
	log    io.Writer
	// tell says whether the pod is ready, and why.
	tell func(ready bool, why string)

	began    time.Time
	want     string // the sum of the kubelet that is wanted, "" if that is the one that runs
	checked  bool
	verified bool // once: from then on nothing is swapped, whatever somebody does to the node
	bad      int  // looks one after another that were not good, of a verified node
	last     node.Running
	since    time.Time // when last was first seen to be well
	said     string
}

// answer is what a look at the node says.
type answer int

const (
	no answer = iota
	yes
	asBefore // it could not be asked: a time-out of systemctl or of the API server says nothing
)

// maxBad is how many looks in a row make a verified node unready: an unready pod is deleted by the
// DaemonSet's controller at the next change of the template, whatever maxUnavailable says.
const maxBad = 5

// restFactor is how many times seldomer a verified node is looked at.
const restFactor = 5

// run looks at the node until ctx ends.
func (a *agent) run(ctx context.Context) {
	a.tell(false, "it has not looked yet")
	a.began = time.Now()
	ready := false
	for ctx.Err() == nil {
		is, why := a.step(ctx)
		switch {
		case is == yes:
			a.bad = 0
		case is == no && a.verified:
			if a.bad++; a.bad < maxBad {
				is = asBefore
			}
		}
		if is != asBefore {
			ready = is == yes
		}
		a.tell(ready, why)
		if says := fmt.Sprintf("ready=%t: %s", ready, why); says != a.said {
			a.say("%s", says)
			a.said = says
		}
		pause := a.poll
		if a.verified {
			pause *= restFactor
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (a *agent) say(format string, args ...any) {
	fmt.Fprintf(a.log, "%s %s\n", time.Now().UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
}

// check asks once what the node is, and prints what node check finds.
func (a *agent) check(ctx context.Context) (is answer, why string) {
	c, err := a.host.check(ctx)
	if err != nil {
		return asBefore, "the node could not be checked: " + err.Error()
	}
	for _, f := range c.Findings {
		a.say("check: %s", one(f))
	}
	if len(c.Findings) == 0 {
		a.say("check: nothing found")
	}
	switch {
	case !a.target.back() && c.New == nil:
		return no, "the image's /" + kubelet + " could not be asked: see the lines with \"check:\""
	case !a.target.back() && !a.target.is(c.New):
		return no, fmt.Sprintf("the image's /%s is %s, and the target is %s", kubelet, c.New.Release, a.target.name)
	case !a.target.back():
		// A kubelet may not be newer than the API server, and the node cannot tell.
		why, err := a.cluster.tooOld(ctx, c.New.Release)
		if err != nil {
			return asBefore, "the API server could not be asked for its version: " + err.Error()
		}
		if why != "" {
			return no, why
		}
		a.want = c.New.Sum
	case c.Kept != "":
		a.want = c.Kept
	case c.Now == nil:
		return no, "the kubelet could not be asked: see the lines with \"check:\""
	case c.Now.Holdfast:
		return no, c.Now.Release + " runs, and no kubelet from before it is kept on this node"
	}
	a.checked = true
	return yes, ""
}

// step looks once and does the next thing that is to be done.
func (a *agent) step(ctx context.Context) (is answer, why string) {
	l, err := a.host.look(ctx, a.last)
	if err != nil {
		return asBefore, "the node could not be asked: " + err.Error()
	}
	if l.PID != a.last.PID || l.Started != a.last.Started || l.Restarts != a.last.Restarts || l.Ill != "" {
		a.since = time.Now()
	}
	a.last = l.Running
	j := &l.Job
	switch {
	case j.Phase == jobRunning && l.UnitActive:
		return no, fmt.Sprintf("the swap to %s, attempt %d, is under way", j.Target, j.Attempt)
	case j.Phase == jobFailed && j.of(a.target):
		return no, fmt.Sprintf("the swap to %s failed, and the lock is kept: %s", a.target, j.Why)
	}
	if !a.checked {
		if is, why := a.check(ctx); is != yes {
			return is, why
		}
	}
	if a.want == "" && j.Phase != jobRunning {
		a.want = l.Sum
	}
	switch {
	case j.Phase == jobRunning:
		return a.swap(ctx, "a swap to "+j.Target+" was interrupted")
	case l.PID == 0:
		return no, "no kubelet runs"
	case l.Sum != a.want && a.verified:
		return no, "another kubelet than " + a.target.name + " was put in place: it stays"
	case l.Sum != a.want && j.Namespace != "" && j.Namespace != a.namespace && j.Began.After(a.began):
		// Without this, two fleets with different targets would swap a node for ever, in turn.
		return no, finding.Clean(fmt.Sprintf("the fleet in the namespace %s swapped this node to %s meanwhile: delete one of the two fleets", j.Namespace, j.Target))
	case l.Sum != a.want:
		return a.swap(ctx, "another kubelet runs")
	}
	return a.verify(ctx, l)
}

// swap starts the swap if this node has the lock.
func (a *agent) swap(ctx context.Context, because string) (is answer, why string) {
	mine, holder, err := a.cluster.take(ctx, a.target)
	switch {
	case err != nil:
		return no, "the lock could not be taken, so nothing is done: " + err.Error()
	case !mine:
		return no, "waits for the lock: " + holder
	}
	a.say("%s, and this node has the lock: swap to %s", because, a.target)
	if err := a.host.start(ctx, a.target); err != nil {
		return no, "the swap could not be started: " + err.Error()
	}
	a.since = time.Now()
	return no, "the swap to " + a.target.String() + " was started"
}

// verify tells whether the kubelet that is wanted runs well, and then frees the lock.
func (a *agent) verify(ctx context.Context, l looked) (is answer, why string) {
	if l.Ill != "" {
		return no, "the kubelet is ill: " + l.Ill
	}
	if time.Since(a.since) < a.settle {
		why = fmt.Sprintf("process %d has to run for %s", l.PID, a.settle)
		if a.verified { // somebody restarted it
			return asBefore, why
		}
		return no, why
	}
	if !a.verified {
		why, err := a.cluster.ready(ctx, l.Started)
		if err != nil {
			return asBefore, "the API server could not be asked: " + err.Error()
		}
		if why != "" {
			return no, why
		}
		if err := a.cluster.release(ctx); err != nil {
			return asBefore, "the lock could not be given back: " + err.Error()
		}
		a.verified = true
	}
	why = fmt.Sprintf("%s runs as process %d, verified", a.target.name, l.PID)
	if l.Job.of(a.target) && l.Job.Containers != "" {
		why += "; " + l.Job.Containers
	}
	return yes, why
}

// stateDir is where the agent tells the probe, in the container.
const stateDir = "/run/holdfast-fleet"

// tellProbe is agent.tell for the probe of the pod.
func tellProbe(dir string) func(bool, string) {
	return func(ready bool, why string) {
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "why"), []byte(finding.Clean(why)), 0o644)
		}
		file := filepath.Join(dir, "ready")
		switch {
		case err == nil && ready:
			err = os.WriteFile(file, nil, 0o644)
		case !ready:
			if e := os.Remove(file); e != nil && !os.IsNotExist(e) {
				err = e
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// probe is the readiness probe: an error with the reason if the agent has not said that it is ready.
func probe(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
		return nil
	}
	why, err := os.ReadFile(filepath.Join(dir, "why"))
	if err != nil {
		return fmt.Errorf("the agent has not started")
	}
	return fmt.Errorf("%s", finding.Clean(string(why)))
}
