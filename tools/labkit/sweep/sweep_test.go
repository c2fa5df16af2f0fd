// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/journal"
	"holdfast/tools/labkit/process"
)

const sleeperEnv = "LABKIT_TEST_SLEEP"

func TestMain(m *testing.M) {
	if os.Getenv(sleeperEnv) != "" {
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

var seen = []Seen{{Etcd, "etcd", 0}, {APIServer, "kube-apiserver", 0}, {Kubelet, "node1-kubelet", 2}, {Kubelet, "node2-kubelet", 5}, {Webhook, "late", 60}}

// TestPlan: it is a function of its arguments, takes each kind of component in turn, and a point
// at which that was there.
func TestPlan(t *testing.T) {
	of, points, names := map[string]int{}, map[float64]bool{}, map[string]bool{}
	for seed := uint64(1); seed <= 300; seed++ {
		c := Chance{Of: "lab (ours)", Seed: seed}
		plan := Plan(c, 1, "", seen, 20)
		if len(plan) != 1 || !reflect.DeepEqual(plan, Plan(c, 1, "", seen, 20)) {
			t.Fatal(plan)
		}
		k := plan[0]
		of[k.Component]++
		points[k.At], names[k.Process] = true, true
		from := map[string]float64{"node1-kubelet": 2, "node2-kubelet": 5}[k.Process]
		if k.At < from || k.At >= 20 || k.Pause < 0.2 || k.Pause > 1 {
			t.Errorf("seed %d: %+v", seed, k)
		}
		c.Attempt = 1
		if again := Plan(c, 1, "", seen, 20)[0]; again.Component != k.Component || again.At == k.At {
			t.Errorf("seed %d: again %+v, was %+v", seed, again, k)
		}
	}
	// The component that comes after the window is never killed; the others equally often.
	if want := map[string]int{Etcd: 100, APIServer: 100, Kubelet: 100}; !reflect.DeepEqual(of, want) {
		t.Errorf("%v, want %v", of, want)
	}
	if len(points) < 250 || len(names) != 4 {
		t.Errorf("%d points, %v", len(points), names)
	}
	for seed := uint64(1); seed <= 30; seed += 3 { // three seeds meet all three
		kinds := map[string]bool{}
		for s := seed; s < seed+3; s++ {
			kinds[Plan(Chance{Of: "x", Seed: s}, 1, "", seen, 20)[0].Component] = true
		}
		if len(kinds) != 3 {
			t.Errorf("seeds from %d: %v", seed, kinds)
		}
	}
}

func TestPlanAsked(t *testing.T) {
	c := Chance{Of: "x", Seed: 4}
	for only, want := range map[string]string{Etcd: "etcd", "node2-kubelet": "node2-kubelet", "nothing": "", Webhook: ""} {
		got := ""
		for _, k := range Plan(c, 1, only, seen, 20) {
			got += k.Process
		}
		if got != want {
			t.Errorf("%s: %q", only, got)
		}
	}
	plan := Plan(c, 3, "", seen, 20)
	if len(plan) != 3 || plan[0].At > plan[1].At || plan[1].At > plan[2].At {
		t.Errorf("%v", plan)
	}
}

type rig struct {
	*process.Supervisor
	*journal.Journal
}

func newRig(t *testing.T) *rig {
	s, err := process.NewSupervisor(t.TempDir(), fmt.Sprintf("sweep-test-%d-%s", os.Getpid(), t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.New(s.Dir, history.Begin{Lab: "x"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Stop(context.Background())
		j.Close()
	})
	return &rig{s, j}
}

func (r *rig) start(t *testing.T, name, kind string) *process.Proc {
	p, err := r.Start(context.Background(), process.Process{Name: name, Component: kind, Path: process.Self(), Env: []string{sleeperEnv + "=1"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSweep: the kill is done once its process runs, is in history and report, and the process
// is back when End returns. A helper of the lab's is not seen.
func TestSweep(t *testing.T) {
	r := newRig(t)
	first, helper := r.start(t, "etcd", Etcd), r.start(t, "git-daemon", "")
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	s := New([]Kill{{Etcd, "etcd", 0.05, 0.2}, {Kubelet, "never", 0.3, 0.2}}, r.Supervisor, r.Journal)
	s.Begin(context.Background())
	time.Sleep(200 * time.Millisecond) // the lab has it stopped at that point
	p := r.start(t, "etcd", Etcd)
	was := p.Pid
	for began := time.Now(); p.PID() == was; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 5*time.Second {
			t.Fatal("not killed")
		}
	}
	rep := s.End(context.Background())
	if rep != s.End(context.Background()) {
		t.Error("another report")
	}
	if p.PID() == 0 || !p.Alive() || helper.PID() != helper.Pid {
		t.Error("not back, or the helper is another")
	}
	if len(rep.Done) != 1 || rep.Done[0].Process != "etcd" || rep.Done[0].Killed < 0.2 || rep.Done[0].Back < rep.Done[0].Killed+0.2 || rep.Window < rep.Done[0].Killed {
		t.Errorf("%+v", rep)
	}
	if len(rep.Seen) != 1 || rep.Seen[0] != (Seen{Etcd, "etcd", 0}) {
		t.Errorf("%+v", rep.Seen)
	}
	if err := r.History().End(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(r.Dir + "/" + history.File)
	if err != nil || !strings.Contains(string(text), `"kind":"sweepKilled","data":{"Component":"etcd"`) || !strings.Contains(string(text), `"kind":"sweepBack"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestUndisturbed: what a kill fell into is measured again, what none did only once.
func TestUndisturbed(t *testing.T) {
	r := newRig(t)
	p := r.start(t, "etcd", Etcd)
	s := New([]Kill{{Etcd, "etcd", 0.1, 0.2}, {Etcd, "etcd", 5, 0.2}}, r.Supervisor, r.Journal)
	s.Begin(context.Background())
	spoiled, times := errors.New("spoiled"), 0
	measure := func() error {
		times++
		was := p.PID()
		time.Sleep(300 * time.Millisecond)
		if p.PID() != was {
			return spoiled
		}
		return nil
	}
	if err := s.Undisturbed(context.Background(), measure); err != nil || times != 2 {
		t.Errorf("%d times, %v", times, err)
	}
	if err := s.Undisturbed(context.Background(), measure); err != nil || times != 3 {
		t.Errorf("without a kill %d times, %v", times-2, err)
	}
	if err := s.Undisturbed(context.Background(), func() error { return spoiled }); err != spoiled {
		t.Errorf("an error of its own: %v", err)
	}
	times = 0
	for asked := 1; s.killed(nil) == 1; asked++ { // until the second kill
		if err := s.Undisturbed(context.Background(), measure, Kubelet, Webhook); err != nil && err != spoiled {
			t.Fatal(err)
		}
		if times != asked || asked > 60 {
			t.Fatalf("asked %d times about components that are not killed, measured %d times", asked, times)
		}
	}
	if n := s.killed([]string{Etcd}); n != 2 || s.killed([]string{Kubelet}) != 0 {
		t.Errorf("%d kills of etcd", n)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	times = 0
	if err := s.Undisturbed(ended, func() error { times++; return spoiled }); err == nil || times > 1 {
		t.Errorf("when the run has ended: %d times, %v", times, err)
	}
	s.End(context.Background())
}

// TestNoSweep: a run without one is as it was.
func TestNoSweep(t *testing.T) {
	var s *Sweep
	s.Begin(context.Background())
	if s.End(context.Background()) != nil {
		t.Error("a report of nothing")
	}
	if err := s.Undisturbed(context.Background(), func() error { return io.EOF }); err != io.EOF {
		t.Error(err)
	}
	if rep := New(nil, nil, nil).End(context.Background()); rep == nil || len(rep.Done) != 0 || rep.Window != 0 {
		t.Errorf("%+v", rep)
	}
}
