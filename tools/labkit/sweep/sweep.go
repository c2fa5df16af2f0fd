// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"slices"
	"sync"
	"time"

	"holdfast/tools/labkit/journal"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// Kinds are the components that a lab has without the kit's help, too: names for
// process.Process.Component.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Dockerd           = "dockerd"
	KubeProxy         = "kube-proxy"
	Webhook           = "endpoints-rules"
	Breaker           = "breaker"
)

// sweepKilled and sweepBack are lines of the history. No oracle asks for them.
type sweepKilled struct {
	Component, Process string
	At                 float64 // seconds since the kill test began
}

type sweepBack struct {
	Process string
	After   float64 // seconds since the kill
	Error   string  `json:",omitempty"`
}

// Marks are such lines, for tests that an oracle does not heed them.
func Marks() []any {
	return []any{sweepKilled{Component: Etcd, Process: Etcd}, sweepBack{Process: Etcd}}
}

// Done is a kill of a plan that was done.
type Done struct {
	Kill
	// Killed is when, Back when it was healthy again, in seconds since the kill test began; 0
	// if it was not.
	Killed float64 `json:"killed"`
	Back   float64 `json:"back,omitempty"`
}

// Report is what a kill test saw and did.
type Report struct {
	Seen []Seen `json:"seen"`
	// Window is how many seconds the steps took in which it may kill.
	Window float64 `json:"window"`
	Done   []Done  `json:"done,omitempty"`
}

// Sweep does a plan in a run. A nil one does nothing.
type Sweep struct {
	plan []Kill
	sup  *process.Supervisor
	j    *journal.Journal

	mu     sync.Mutex
	began  time.Time // zero before Begin
	cancel context.CancelFunc
	ended  chan struct{}
	kills  map[string]int // begun so far, by component
	report *Report        // after End
	done   []Done
}

// New is a kill test of what s starts.
func New(plan []Kill, s *process.Supervisor, j *journal.Journal) *Sweep {
	return &Sweep{plan: plan, sup: s, j: j}
}

// Begin is the time from which on the plan counts. A second one does nothing.
func (s *Sweep) Begin(ctx context.Context) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.began.IsZero() {
		return
	}
	s.began, s.ended = time.Now(), make(chan struct{})
	ctx, s.cancel = context.WithCancel(ctx)
	go func() {
		defer close(s.ended)
		for _, k := range s.plan {
			s.kill(ctx, k)
		}
	}()
}

// now is in seconds since the kill test began.
func (s *Sweep) now() float64 { return round(time.Since(s.began).Seconds()) }

// kill waits for the time and, if the lab has the component stopped then, until it runs.
func (s *Sweep) kill(ctx context.Context, k Kill) {
	select {
	case <-time.After(time.Until(s.began.Add(seconds(k.At)))):
	case <-ctx.Done():
		return
	}
	var victim *process.Proc
	for {
		for _, p := range s.sup.Components() {
			if p.Spec.Name == k.Process {
				victim = p // the last of that name
			}
		}
		if victim != nil {
			hit, err := victim.Interrupt(seconds(k.Pause))
			if err != nil {
				s.j.Step("sweep: %v", err)
				return
			}
			if hit {
				break
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
	s.mu.Lock()
	if s.kills == nil {
		s.kills = map[string]int{}
	}
	s.kills[k.Component]++
	s.mu.Unlock()
	d := Done{Kill: k, Killed: s.now()}
	s.j.Step("sweep: kill -9 of %s", k.Process)
	s.j.Record(sweepKilled{Component: k.Component, Process: k.Process, At: d.Killed})
	// It has bounds of its own, and comes back also if the steps are over.
	err := victim.Back(context.WithoutCancel(ctx))
	back := sweepBack{Process: k.Process, After: round(s.now() - d.Killed)}
	if err != nil {
		back.Error = err.Error()
		s.j.Step("sweep: %s is not back: %v", k.Process, err)
	} else {
		d.Back = s.now()
		s.j.Step("sweep: %s is back after %.1f s", k.Process, back.After)
	}
	s.j.Record(back)
	s.mu.Lock()
	s.done = append(s.done, d)
	s.mu.Unlock()
}

// measurements is how often Undisturbed measures at most.
const measurements = 4

// Undisturbed runs a measurement that the end of one of these components spoils, of any if none is
// named: the difference of two counts of a process, say. It begins when all are there. If one was
// killed meanwhile, it is run again, four times in all. f must record nothing. Without a kill test
// it is f.
func (s *Sweep) Undisturbed(ctx context.Context, f func() error, components ...string) error {
	if s == nil {
		return f()
	}
	for try := 1; ; try++ {
		if err := wait.Until(ctx, "no component is down", time.Minute, func(context.Context) (bool, error) { return !s.sup.Disturbed(), nil }); err != nil {
			return err
		}
		kills := s.killed(components)
		err := f()
		if s.killed(components) == kills || try == measurements || ctx.Err() != nil {
			return err
		}
		s.j.Step("sweep: a component was killed meanwhile: measure again")
	}
}

// killed is how many of these components were so far, of all if none is named.
func (s *Sweep) killed(components []string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c, k := range s.kills {
		if len(components) == 0 || slices.Contains(components, c) {
			n += k
		}
	}
	return n
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// End waits until what was killed is back, kills nothing more, and says what was. It may be
// called again.
func (s *Sweep) End(ctx context.Context) *Report {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	began, report := s.began, s.report
	s.mu.Unlock()
	if report != nil {
		return report
	}
	r := &Report{}
	if !began.IsZero() {
		r.Window = s.now()
		s.cancel()
		select {
		case <-s.ended:
		case <-ctx.Done():
		}
		names := map[string]bool{}
		for _, p := range s.sup.Components() {
			if name := p.Spec.Name; !names[name] {
				names[name] = true
				r.Seen = append(r.Seen, Seen{Component: p.Spec.Component, Process: name, From: max(0, round(p.Started.Sub(began).Seconds()))})
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Done = s.done
	s.report = r
	return r
}
