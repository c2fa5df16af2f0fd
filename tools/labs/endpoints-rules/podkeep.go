// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// supervisor starts again what of the control plane has ended, as a kubelet does with static
// pods, and says what did.
type supervisor struct {
	e *labkit.Env

	mu    sync.Mutex
	procs map[string]*process.Proc
	ended map[string]int // so far
	fresh []string       // since the last time that somebody asked
	err   error
}

func newSupervisor(e *labkit.Env, procs map[string]*process.Proc) *supervisor {
	return &supervisor{e: e, procs: procs, ended: map[string]int{}}
}

func (s *supervisor) start(ctx context.Context) {
	for name := range s.procs {
		go s.watch(ctx, name)
	}
}

func (s *supervisor) watch(ctx context.Context, name string) {
	for {
		p := s.proc(name)
		select {
		case <-p.Done():
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		s.ended[name]++
		s.fresh = append(s.fresh, name)
		s.mu.Unlock()
		next, err := s.again(ctx, p.Spec)
		s.mu.Lock()
		if err == nil {
			s.procs[name] = next
		} else if ctx.Err() == nil {
			s.err = errors.Join(s.err, fmt.Errorf("%s does not start again: %w", name, err))
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// again starts what has ended. The API server may be away.
func (s *supervisor) again(ctx context.Context, spec process.Process) (p *process.Proc, err error) {
	for range starts {
		if err := wait.Pause(ctx, time.Second); err != nil {
			return nil, err
		}
		if p, err = s.e.Start(ctx, spec); err == nil {
			return p, nil
		}
	}
	return nil, err
}

// starts is how often one is tried.
const starts = 10

func (s *supervisor) proc(name string) *process.Proc {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.procs[name]
}

// state says whether the process lives, and how many of that name have ended.
func (s *supervisor) state(name string) (alive bool, ended int) {
	p := s.proc(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.Alive(), s.ended[name]
}

// since are those that have ended since this was asked the last time, but for these.
func (s *supervisor) since(but ...string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.DeleteFunc(s.fresh, func(name string) bool { return slices.Contains(but, name) })
	s.fresh = nil
	return out
}

func (s *supervisor) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
