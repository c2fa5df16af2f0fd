// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestOriginal: the first revision changes nothing, neither on the node nor in the API.
func TestOriginal(t *testing.T) {
	s, w := newAPI(t), &fleetWatch{}
	m := newMachine(w)
	p := newPod(m, s.client(t, "n1"), original, 1).begin()
	defer p.end()
	p.wait(t, true, "original runs as process 100, verified")
	if m.swaps != 0 || s.puts != 0 {
		t.Errorf("%d swaps, %d writes", m.swaps, s.puts)
	}
}

// TestThereAndBack is a rollout of one node, and its undo.
func TestThereAndBack(t *testing.T) {
	s, w := newAPI(t), &fleetWatch{}
	m := newMachine(w)
	for i, c := range []struct{ target, runs string }{{original, oldSum}, {"holdfast-2", newSum}, {original, oldSum}, {"holdfast-2", newSum}} {
		p := newPod(m, s.client(t, "n1"), c.target, 1).begin()
		p.wait(t, true, "verified")
		p.end()
		if m.runs != c.runs || m.swaps != i || s.holder() != "" {
			t.Errorf("%d: %s runs after %d swaps, the lock is %q's", i, m.runs, m.swaps, s.holder())
		}
	}
}

// rollAll starts ten agents at once, as when the checks of all nodes fail and the template changes,
// and returns how many nodes swapped at once at most.
func rollAll(t *testing.T, lock func(*api) cluster) int {
	s, w := newAPI(t), &fleetWatch{}
	var pods []*pod
	var machines []*machine
	for i := range 10 {
		m := newMachine(w)
		machines = append(machines, m)
		pods = append(pods, newPod(m, lock(s.client(t, fmt.Sprintf("n%d", i))), "holdfast-2", 1).begin())
	}
	for i, p := range pods {
		p.wait(t, true, "verified")
		if m := machines[i]; m.swaps != 1 || m.runs != newSum {
			t.Errorf("n%d: %d swaps, %s runs", i, m.swaps, m.runs)
		}
		p.end()
	}
	if s.holder() != "" {
		t.Errorf("the lock stays with %s", s.holder())
	}
	return w.most
}

// TestNeverTwo: ten agents race for the lock, and never do two nodes swap at once.
func TestNeverTwo(t *testing.T) {
	for range 5 {
		if most := rollAll(t, func(a *api) cluster { return a }); most != 1 {
			t.Fatalf("%d nodes swapped at once", most)
		}
	}
}

// noLock is an agent without the lock.
type noLock struct{ *api }

func (n noLock) take(context.Context, target) (bool, string, error) { return true, "", nil }

// TestSeesTwo is the control: without the lock the same test sees more than one.
func TestSeesTwo(t *testing.T) {
	if most := rollAll(t, func(a *api) cluster { return noLock{a} }); most < 2 {
		t.Errorf("%d nodes swapped at once", most)
	}
}

// TestFailure: the lock of a node that failed stays, the next node waits for it, and the way back
// or a new attempt frees it.
func TestFailure(t *testing.T) {
	for _, next := range []struct {
		target  string
		attempt int
		swaps   int
	}{{original, 1, 1}, {"holdfast-2", 2, 2}} {
		s, w := newAPI(t), &fleetWatch{}
		bad, good := newMachine(w), newMachine(w)
		bad.bad = "STOP HF511 it exited at startup"
		p1 := newPod(bad, s.client(t, "n1"), "holdfast-2", 1).begin()
		p1.wait(t, false, "and the lock is kept: STOP HF511")
		p2 := newPod(good, s.client(t, "n2"), "holdfast-2", 1).begin()
		p2.wait(t, false, "waits for the lock: n1 has it since ")
		time.Sleep(30 * time.Millisecond)
		p1.end()
		// The pod is restarted: it does not try again by itself.
		p1 = newPod(bad, s.client(t, "n1"), "holdfast-2", 1).begin()
		p1.wait(t, false, "and the lock is kept")
		time.Sleep(30 * time.Millisecond)
		if s.holder() != "n1" || good.swaps != 0 || bad.swaps != 1 {
			t.Errorf("%s has the lock, %d and %d swaps", s.holder(), bad.swaps, good.swaps)
		}
		p1.end()
		bad.bad = ""
		p1 = newPod(bad, s.client(t, "n1"), next.target, next.attempt).begin()
		p1.wait(t, true, "verified")
		p2.wait(t, true, "verified")
		p1.end()
		p2.end()
		if bad.swaps != next.swaps || good.swaps != 1 || s.holder() != "" || w.most != 1 {
			t.Errorf("%+v: %d and %d swaps, lock %q, %d at once", next, bad.swaps, good.swaps, s.holder(), w.most)
		}
	}
}

// TestKilled kills the agent before each request to the API server and each step on the node, and
// starts it again: the node gets to its target by one swap, and the lock is free.
func TestKilled(t *testing.T) {
	for _, bad := range []string{"", "it does not run well"} {
		steps := 0
		for at := int64(1); ; at++ {
			s, w := newAPI(t), &fleetWatch{}
			m := newMachine(w)
			m.bad = bad
			var n atomic.Int64
			step := func(string) {
				if n.Add(1) == at {
					panic(killed{})
				}
			}
			m.step = step
			c := &killing{s.client(t, "n1"), step}
			p := newPod(m, c, "holdfast-2", 1).begin()
			end := func(p *pod) {
				if bad == "" {
					p.wait(t, true, "verified")
				} else {
					p.wait(t, false, "the lock is kept")
				}
			}
			ended := false
			for limit := time.Now().Add(20 * time.Second); !ended; time.Sleep(time.Millisecond) {
				ready, why := p.state()
				select {
				case <-p.done:
					ended = true
				default:
					ended = ready || bad != "" && strings.Contains(why, "the lock is kept")
				}
				if time.Now().After(limit) {
					t.Fatalf("step %d: %t %s", at, ready, why)
				}
			}
			if n.Load() < at { // no such step
				p.end()
				break
			}
			steps++
			<-p.done
			m.step = nil
			p = newPod(m, s.client(t, "n1"), "holdfast-2", 1).begin()
			end(p)
			p.end()
			wantRuns, wantHolder := newSum, ""
			if bad != "" {
				wantRuns, wantHolder = oldSum, "n1"
			}
			if m.swaps != 1 || m.runs != wantRuns || s.holder() != wantHolder || w.most != 1 {
				t.Errorf("killed at step %d: %d swaps, %s runs, lock %q", at, m.swaps, m.runs, s.holder())
			}
		}
		if steps < 5 {
			t.Errorf("only %d steps", steps)
		}
	}
}

// killing is a cluster whose requests may be an agent's last, before or after they are made.
type killing struct {
	*api
	step func(string)
}

func (k *killing) take(ctx context.Context, t target) (bool, string, error) {
	k.step("before take")
	mine, holder, err := k.api.take(ctx, t)
	k.step("after take")
	return mine, holder, err
}

func (k *killing) ready(ctx context.Context, started int64) (string, error) {
	k.step("before ready")
	return k.api.ready(ctx, started)
}

func (k *killing) release(ctx context.Context) error {
	k.step("before release")
	err := k.api.release(ctx)
	k.step("after release")
	return err
}

// TestInterrupted: a swap whose unit is gone, as after a reboot, is begun again, with the lock.
func TestInterrupted(t *testing.T) {
	s, w := newAPI(t), &fleetWatch{}
	m := newMachine(w)
	m.job = job{Version: 1, Target: "holdfast-2", Attempt: 1, Phase: jobRunning}
	m.pid = 0
	s.data = map[string]string{keyHolder: "n2"}
	p := newPod(m, s.client(t, "n1"), "holdfast-2", 1).begin()
	defer p.end()
	p.wait(t, false, "waits for the lock: n2 has it")
	if m.swaps != 0 {
		t.Error("it swapped without the lock")
	}
	s.mu.Lock()
	s.data, s.version = map[string]string{keyHolder: "n1"}, s.version+1
	s.mu.Unlock()
	p.wait(t, true, "verified")
	if m.swaps != 1 || s.holder() != "" {
		t.Errorf("%d swaps, lock %q", m.swaps, s.holder())
	}
}

// TestNotVerified: each thing that keeps a node from being verified, and the lock from being free.
func TestNotVerified(t *testing.T) {
	for name, c := range map[string]struct {
		do, undo func(*machine, *apiServer)
		why      string
	}{
		"ill":       {func(m *machine, _ *apiServer) { m.ill = "connection refused" }, func(m *machine, _ *apiServer) { m.ill = "" }, "the kubelet is ill"},
		"not Ready": {func(_ *machine, s *apiServer) { s.notReady["n1"] = "container manager" }, func(_ *machine, s *apiServer) { delete(s.notReady, "n1") }, "the Node is not Ready: KubeletNotReady container manager"},
		"API":       {func(_ *machine, s *apiServer) { s.down = true }, func(_ *machine, s *apiServer) { s.down = false }, "could not be asked"},
		"ended":     {func(m *machine, _ *apiServer) { m.pid = 0 }, func(m *machine, _ *apiServer) { m.pid = 7 }, "no kubelet runs"},
	} {
		t.Run(name, func(t *testing.T) {
			s, w := newAPI(t), &fleetWatch{}
			m := newMachine(w)
			m.runs, m.kept = newSum, oldSum
			s.data = map[string]string{keyHolder: "n1"} // of an agent that was killed
			change := func(f func(*machine, *apiServer)) {
				m.mu.Lock()
				defer m.mu.Unlock()
				s.mu.Lock()
				defer s.mu.Unlock()
				f(m, s)
			}
			change(c.do)
			p := newPod(m, s.client(t, "n1"), "holdfast-2", 1).begin()
			defer p.end()
			p.wait(t, false, c.why)
			time.Sleep(20 * time.Millisecond)
			if s.holder() != "n1" {
				t.Error("the lock was given back")
			}
			change(c.undo)
			p.wait(t, true, "verified")
			if s.holder() != "" || m.swaps != 0 {
				t.Errorf("lock %q, %d swaps", s.holder(), m.swaps)
			}
		})
	}
}

// TestHeartbeat: a heartbeat from before the kubelet's start says nothing of the kubelet.
func TestHeartbeat(t *testing.T) {
	s := newAPI(t)
	a := s.client(t, "n1")
	if why, err := a.ready(t.Context(), time.Now().Unix()); why != "" || err != nil {
		t.Errorf("%q %v", why, err)
	}
	if why, err := a.ready(t.Context(), time.Now().Add(2*time.Minute).Unix()); !strings.Contains(why, "no heartbeat") || err != nil {
		t.Errorf("%q %v", why, err)
	}
}

// TestAsBefore: what cannot be asked leaves a verified node ready; five looks in a row that are bad
// do not; and a kubelet that somebody else put in place stays.
func TestAsBefore(t *testing.T) {
	s, w := newAPI(t), &fleetWatch{}
	m := newMachine(w)
	p := newPod(m, s.client(t, "n1"), original, 1).begin()
	defer p.end()
	p.wait(t, true, "verified")
	set := func(f func()) {
		m.mu.Lock()
		defer m.mu.Unlock()
		f()
	}
	set(func() { m.lookErr = errors.New("systemctl show did not end in time") })
	p.wait(t, true, "could not be asked")
	time.Sleep(100 * time.Millisecond)
	p.wait(t, true, "could not be asked")
	set(func() { m.lookErr = nil; m.pid++ }) // restarted by hand
	p.wait(t, true, "verified")
	set(func() { m.runs = newSum })
	p.wait(t, true, "it stays")
	p.wait(t, false, "it stays")
	if m.swaps != 0 {
		t.Error("it swapped")
	}
	set(func() { m.runs = oldSum })
	p.wait(t, true, "verified")
}

// TestOtherImage: an image with another kubelet than the target names touches nothing.
func TestOtherImage(t *testing.T) {
	s, w := newAPI(t), &fleetWatch{}
	m := newMachine(w)
	p := newPod(m, s.client(t, "n1"), "holdfast-3", 1).begin()
	defer p.end()
	p.wait(t, false, "the image's /kubelet is v1.9.11+holdfast.2, and the target is holdfast-3")
	if m.swaps != 0 || s.puts != 0 {
		t.Errorf("%d swaps, %d writes", m.swaps, s.puts)
	}
}

// TestNothingKept: the way back from a Holdfast that was not swapped in by these programs.
func TestNothingKept(t *testing.T) {
	s, w := newAPI(t), &fleetWatch{}
	m := newMachine(w)
	m.runs = newSum
	p := newPod(m, s.client(t, "n1"), original, 1).begin()
	defer p.end()
	p.wait(t, false, "no kubelet from before it is kept on this node")
	if m.swaps != 0 || s.puts != 0 {
		t.Errorf("%d swaps, %d writes", m.swaps, s.puts)
	}
}

func TestProbe(t *testing.T) {
	dir := t.TempDir() + "/x"
	if err := probe(dir); err == nil {
		t.Error("ready before the agent has begun")
	}
	tell := tellProbe(dir)
	tell(false, "waits\nfor the lock")
	if err := probe(dir); err == nil || err.Error() != "waits?for the lock" {
		t.Error(err)
	}
	tell(true, "verified")
	if err := probe(dir); err != nil {
		t.Error(err)
	}
	tell(false, "no kubelet runs")
	if err := probe(dir); err == nil || err.Error() != "no kubelet runs" {
		t.Error(err)
	}
}
