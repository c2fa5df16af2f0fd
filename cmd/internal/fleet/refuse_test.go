// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"testing"
	"time"
)

// TestOldControlPlane: no node gets a kubelet that is newer than the API server, and the lock stays
// free. The way back is not asked for that.
func TestOldControlPlane(t *testing.T) {
	s, w := newAPI(t), &fleetWatch{}
	says := func(release string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.release = release
	}
	m := newMachine(w)
	says("v1.8.15")
	p := newPod(m, s.client(t, "n1"), "holdfast-2", 1).begin()
	p.wait(t, false, "a kubelet of 1.9 is newer than the API server, 1.8: upgrade the control plane first")
	says("<html>")
	p.wait(t, false, `/version names no release of Kubernetes: "<html>"`)
	time.Sleep(20 * time.Millisecond)
	if m.swaps != 0 || s.puts != 0 {
		t.Errorf("%d swaps, %d writes", m.swaps, s.puts)
	}
	says("v1.10.0-alpha.1")
	p.wait(t, true, "verified")
	p.end()
	says("v1.7.0")
	p = newPod(m, s.client(t, "n1"), original, 1).begin()
	defer p.end()
	p.wait(t, true, "verified")
	if m.runs != oldSum {
		t.Errorf("%s runs", m.runs)
	}
}

// ofFleet is the machine for the agent of the fleet in a namespace.
type ofFleet struct {
	*machine
	namespace string
}

func (o ofFleet) start(ctx context.Context, t target) error {
	err := o.machine.start(ctx, t)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.job.Namespace, o.job.Began = o.namespace, time.Now()
	return err
}

// TestTwoFleets: two fleets, each with its lock, want two kubelets on one node. The node is swapped once
// at most; the fleet that does not get what it wants says why, whether it was verified before or not.
func TestTwoFleets(t *testing.T) {
	for name, c := range map[string]struct {
		first bool // the fleet of Holdfast begins alone, and is verified
		why   string
	}{
		"one after the other": {true, "another kubelet than holdfast-2 was put in place: it stays"},
		"at once":             {false, "the fleet in the namespace two swapped this node to original meanwhile: delete one of the two fleets"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &fleetWatch{}
			m := newMachine(w)
			m.runs, m.kept = newSum, oldSum
			fleet := func(namespace, target string) *pod {
				p := newPod(m, newAPI(t).client(t, "n1"), target, 1)
				p.agent.namespace, p.agent.host = namespace, ofFleet{m, namespace}
				return p
			}
			one, two := fleet("one", "holdfast-2"), fleet("two", original)
			if !c.first {
				one.agent.settle = time.Second
			}
			one.begin()
			defer one.end()
			if c.first {
				one.wait(t, true, "verified")
			} else {
				one.wait(t, false, "has to run for")
			}
			two.begin()
			defer two.end()
			two.wait(t, true, "verified")
			one.wait(t, false, c.why)
			time.Sleep(50 * time.Millisecond)
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.swaps != 1 || m.runs != oldSum || w.most != 1 {
				t.Errorf("%d swaps, %s runs, %d at once", m.swaps, m.runs, w.most)
			}
		})
	}
}
