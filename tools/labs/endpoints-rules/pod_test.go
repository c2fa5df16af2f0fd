// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// goodPods are the observations of a run as they must be.
func goodPods(p labkit.Profile) []any {
	var out []any
	for i, rows := range podPlan(p, labkit.NewRand("pods", 1)) {
		for _, name := range rows {
			f := podFault{Round: i, Age: at(20), BackAfter: at(12), RightAfter: at(0.4), Replaced: !name.keeps(),
				fault: fault{Row: name, EndedAfter: at(0.2), FilledAfter: at(13), Served: []served{{Namespace: ns, Updates: 40, Slowest: at(0.2)}, {Namespace: other, Updates: 20, Slowest: at(0.2)}},
					Calls: []call{{Name: probe, Addresses: 2, Took: at(0.1), Placed: unchanged}, {Name: probe, Addresses: 2, Took: at(0.1), Placed: patched}}}}
			switch {
			case name == stoppedRow || name == earlyRow:
				f.EndedAfter, f.Calls[0].Took, f.Served = at(11), at(11), goodServed()
			case name == awayRow:
				f.APIServerAway, f.BackAfter = at(30), at(32)
			case name.slow():
				f.Served[0].Slowest, f.Served[1].Slowest = at(25), at(25)
			}
			out = append(out, f)
		}
	}
	out = append(out, compared{Services: 14, After: at(0.4), Asked: true})
	return append(out, goodLeases()...)
}

func TestJudgePods(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-rules-pod")
	made := func(p labkit.Profile) func(judgetest.Change) *history.History {
		return func(c judgetest.Change) *history.History {
			return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours), Profile: string(p)}, c.Of(goodPods(p))...)
		}
	}
	judgetest.Cut(t, l, made(labkit.Short)(nil))
	judgetest.Judge(t, l, made(labkit.Long)(nil), labkit.Absent)
	in := func(name row, f func(*podFault)) judgetest.Change {
		return judgetest.Where(func(f podFault) bool { return f.Row == name && f.Round == 0 }, f)
	}
	took := func(name row, seconds float64) judgetest.Change {
		return in(name, func(f *podFault) { f.Calls[0].Took = at(seconds) })
	}
	follows := func(name row, seconds float64) judgetest.Change {
		return in(name, func(f *podFault) { f.Served = slices.Clone(f.Served); f.Served[1].Slowest = at(seconds) })
	}
	kcm := func(l lease) bool { return l.Name == leaseNames[0] }
	judgetest.Judged(t, l, labkit.Reproduced, made(labkit.Long), map[string]judgetest.Change{
		"SIGSTOP: Endpoints of namespace other followed after 16s":                 follows(stoppedRow, 16),
		"SIGSTOP of a new pod as soon as it is called: Endpoints of":               follows(earlyRow, 16),
		"SIGSTOP: probe unchanged after 16s":                                       took(stoppedRow, 16),
		"the liveness probe did not end the program":                               in(stoppedRow, func(f *podFault) { f.EndedAfter = 0 }),
		"kill -9: probe unchanged after 6s":                                        took(killedRow, 6),
		"pod deleted: probe unchanged after 6s":                                    took(deletedRow, 6),
		"kill -9 of the breaker: probe unchanged after 6s":                         took(breakerRow, 6),
		"kill -9 of kube-apiserver: probe unchanged after 16s":                     took(apiserverRow, 16),
		"kill -9 of dockerd: Endpoints of namespace other":                         follows(dockerdRow, 16),
		"a write was refused":                                                      in(killedRow, func(f *podFault) { f.Calls[0].Err = "500" }),
		"1 changes in namespace default are not in the Endpoints":                  in(managerRow, func(f *podFault) { f.Served[0].Lost = 1 }),
		"kill -9: the program does not serve":                                      in(killedRow, func(f *podFault) { f.BackAfter = 0 }),
		"kill -9 of kube-apiserver and of the program: the program does not serve": in(awayRow, func(f *podFault) { f.BackAfter = 0 }),
		"the program serves 11s after the API server":                              in(awayRow, func(f *podFault) { f.BackAfter = at(41) }),
		"the webhook is not in its configuration":                                  in(killedRow, func(f *podFault) { f.FilledAfter = 0 }),
		"the breaker was not started again":                                        in(breakerRow, func(f *podFault) { f.Wrong = "the breaker was not started again" }),
		"1 Services differ from the model, first: default/in-1":                    in(kubeletRow, func(f *podFault) { f.Differ = []string{"default/in-1"} }),
		"kill -9 of the kubelet: the kubelet started another container":            in(kubeletRow, func(f *podFault) { f.Replaced = true }),
		"kube-scheduler ended by itself":                                           in(stoppedRow, func(f *podFault) { f.Ended = []string{"kube-scheduler"} }),
		"lease kube-controller-manager":                                            judgetest.Where(kcm, func(l *lease) { l.Holders = []string{"a", "b"} }),
		"1 of 14 Services differ from the model at the end":                        judgetest.Where(all[compared], func(c *compared) { c.Wrong = []string{"x"} }),
		"2 addresses are misplaced":                                                judgetest.Where(all[compared], func(c *compared) { c.Misplaced = 2 }),
		"does not report how many":                                                 judgetest.Where(all[compared], func(c *compared) { c.Asked = false }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, made(labkit.Long), map[string]judgetest.Change{
		"SIGSTOP: the first write took 100ms: the trigger is missing": in(stoppedRow, func(f *podFault) { f.Calls = f.Calls[1:] }),
		"kill -9: probe unchanged after 2s":                           took(killedRow, 2),
		"kill -9 of dockerd: no process has ended":                    in(dockerdRow, func(f *podFault) { f.EndedAfter = 0 }),
		"the API server never ended":                                  in(awayRow, func(f *podFault) { f.APIServerAway, f.BackAfter = 0, at(5) }),
		"pod deleted: the program's container is the same":            in(deletedRow, func(f *podFault) { f.Replaced = false }),
		"kill -9 of the kubelet: nothing was written":                 in(kubeletRow, func(f *podFault) { f.Calls = nil }),
		"nothing changed in namespace default":                        in(breakerRow, func(f *podFault) { f.Served[0].Updates = 0 }),
		`round 1 has 0 faults "kill -9 of dockerd", want one`:         judgetest.Without(func(f podFault) bool { return f.Row == dockerdRow && f.Round == 0 }),
		`round 2 has 0 faults "kill -9", want one`:                    judgetest.Where(func(f podFault) bool { return f.Row == killedRow && f.Round == 1 }, func(f *podFault) { f.Round = 7 }),
		"lease kube-controller-manager was read 0 times":              judgetest.Where(kcm, func(l *lease) { l.Renewals = 1 }),
		"no Services were compared":                                   judgetest.Where(all[compared], func(c *compared) { c.Services = 0 }),
	})
	// The controller manager that was killed has a successor.
	judgetest.Judge(t, l, made(labkit.Long)(judgetest.Where(kcm, func(l *lease) { l.Holders, l.Ended = []string{"a", "b"}, 1 })), labkit.Absent)
	// What a fault saw stays where leases and other faults are missing.
	bad := in(killedRow, func(f *podFault) { f.Wrong = "altered" })
	only := slices.DeleteFunc(bad.Of(goodPods(labkit.Long)), func(o any) bool { f, ok := o.(podFault); return !ok || f.Row != killedRow })
	judgetest.Judge(t, l, history.Make(made(labkit.Long)(nil).Begin, only...), labkit.Reproduced)
}

func TestJudgePodControl(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-rules-pod")
	made := func(c judgetest.Change) *history.History {
		list := append([]any{podFault{fault: fault{Row: controlRow, Served: goodServed(), Calls: []call{{Name: probe, Addresses: 2, Took: at(30), Placed: unchanged}}}}}, goodLeases()...)
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Stock), Profile: string(labkit.Short)}, c.Of(list)...)
	}
	change := func(f func(*podFault)) judgetest.Change { return judgetest.Where(all[podFault], f) }
	judgetest.Judge(t, l, made(nil), labkit.Reproduced)
	judgetest.Judge(t, l, made(change(func(f *podFault) { f.Calls[0].Took, f.Served[0].Slowest = at(10), at(20) })), labkit.Reproduced)
	judgetest.Judge(t, l, made(change(func(f *podFault) { f.Calls[0].Took, f.Served[1].Lost = at(10), 1 })), labkit.Reproduced)
	judgetest.Judge(t, l, made(change(func(f *podFault) { f.Calls[0].Took = at(10) })), labkit.Absent)
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"the trigger is missing": change(func(f *podFault) { f.Calls = nil }),
		"0 faults":               judgetest.Without(all[podFault]),
		"was read 0 times": func(o any) any {
			return judgetest.Without(func(l lease) bool { return l.Name == leaseNames[0] })(change(func(f *podFault) { f.Calls[0].Took = at(10) })(o))
		},
	})
}

func TestPodPlan(t *testing.T) {
	if got := podPlan(labkit.Short, labkit.NewRand("x", 1)); len(got) != 1 || !slices.Equal(got[0], []row{stoppedRow, killedRow}) {
		t.Errorf("short: %v", got)
	}
	long := podPlan(labkit.Long, labkit.NewRand("x", 1))
	if len(long) != podRounds || slices.Equal(long[0], long[1]) {
		t.Errorf("long: %v", long)
	}
	for _, rows := range long {
		slices.Sort(rows)
		if want := slices.Sorted(slices.Values(podRows)); !slices.Equal(rows, want) {
			t.Errorf("%v, want %v", rows, want)
		}
	}
}

func TestUnguarded(t *testing.T) {
	const text = `{"kind":"DaemonSet","spec":{"template":{"spec":{"containers":[{"name":"endpoints-rules","livenessProbe":{"periodSeconds":3},"readinessProbe":{"periodSeconds":2}},{"name":"breaker"}]}}}}`
	got, err := unguarded([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want, err := yaml.JSONToYAML([]byte(`{"kind":"DaemonSet","spec":{"template":{"spec":{"containers":[{"name":"endpoints-rules","readinessProbe":{"periodSeconds":2}}]}}}}`))
	if err != nil || string(got) != string(want) {
		t.Errorf("%s, want %s, %v", got, want, err)
	}
	for _, less := range []string{strings.ReplaceAll(text, "livenessProbe", "x"), strings.ReplaceAll(text, `"breaker"`, `"x"`), `{}`} {
		if _, err := unguarded([]byte(less)); err == nil {
			t.Errorf("%s: no error", less)
		}
	}
}

func TestSupervisor(t *testing.T) {
	s := newSupervisor(nil, nil)
	s.fresh = []string{leaseNames[0], leaseNames[1]}
	if got := s.since(leaseNames[0]); !slices.Equal(got, leaseNames[1:]) {
		t.Errorf("%v", got)
	}
	if got := s.since(); len(got) > 0 {
		t.Errorf("a second time: %v", got)
	}
}
