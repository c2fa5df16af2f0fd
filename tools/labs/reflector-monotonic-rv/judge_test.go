// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reflectormonotonicrv

import (
	"slices"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/kube"
)

var (
	noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	past = auditResult{User: "system:kube-controller-manager", Resource: "services", Restarts: 4, Findings: []auditFinding{{Kind: "back", Time: noon}}}
)

func sameFor(phase string) lists {
	return lists{phase, []string{"kubernetes", "s01"}, map[string]int{"s01": 2}}
}

// good is what ours shows. The places of what the tests change are in the constants.
func good() []any {
	all := []any{
		incidentSeen{Phase: phaseIncident, Restarts: 3, Sent: 5, Last: 90},
		counted{Resource: "configmaps", Objects: 30, Restarts: 3, Events: 91, Watches: []string{"1", "2", "3"}},
		counted{Resource: "secrets", Objects: 30, Restarts: 3, Events: 91, Watches: []string{"1", "2", "3"}},
		audited{Phase: phaseIncident, Has: true, Restarts: 9, Want: 3},
		oursSays{Kept: 1, Warning: "watch of *v1.Service: …", Named: "v1.9.0", Server: "v1.9.0"},
		incidentSeen{Phase: phaseLiveCheck, Restarts: 3, Sent: 6, Last: 99},
		liveCheck{Kept: 2, Followed: 1},
		// The watches of the time without the gate went back, as they must.
		audited{Phase: phaseAll, Has: true, Restarts: 99, Want: 3, Found: []auditResult{past}, OffFrom: noon.Add(-time.Minute), OffTo: noon.Add(time.Minute)},
		churned{Made: 9, Removed: 4, Cuts: 3, Lives: map[string][]life{"churn-001": {{noon, noon.Add(time.Minute)}}}, Deleted: []deletion{{"churn-001", noon.Add(2 * time.Minute)}}},
	}
	for _, phase := range convergences {
		all = append(all, sameFor(phase))
	}
	return all
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "reflector-monotonic-rv")
	of := func(v labkit.Variant, o ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v), Profile: "short"}, o...)
	}
	with := func(v labkit.Variant, i int, o any) *history.History {
		all := good()
		all[i] = o
		return of(v, all...)
	}
	judgetest.Cut(t, l, of(labkit.Ours, good()...))
	outside := good()[7].(audited)
	outside.OffTo = noon.Add(-time.Second)
	wrong := good()[8].(churned)
	wrong.Deleted = []deletion{{"churn-001", noon.Add(time.Second)}}
	for i, bad := range map[int]any{
		1: counted{Resource: "configmaps", Objects: 30, Restarts: 3, Events: 91, Replays: 1, Watches: []string{"1", "2", "3"}},
		3: audited{Phase: phaseIncident, Has: true, Restarts: 9, Want: 3, Found: []auditResult{past}},
		4: oursSays{Kept: 1, Warning: "watch of *v1.Service: …", Named: "v1.8.0", Server: "v1.9.0"},
		5: incidentSeen{Phase: phaseLiveCheck, Restarts: 3, Sent: 6, Last: 99, Deleted: []string{"s01"}},
		7: outside, 8: wrong,
		10: lists{phaseGone, []string{"s01", "s02"}, map[string]int{"s01": 2, "s02": 1}},
		11: lists{phaseRestart, []string{"s01"}, map[string]int{"s01": 2, "gone": 2}},
	} {
		judgetest.Judge(t, l, with(labkit.Ours, i, bad), labkit.Reproduced)
	}
	for i, bad := range map[int]any{
		0: incidentSeen{Phase: phaseIncident, Restarts: 3, Sent: 91, Last: 90}, // a server without the fault
		2: counted{Resource: "secrets", Objects: 30, Restarts: 3, Events: 80, Watches: []string{"1", "2", "3"}},
		3: audited{Phase: phaseIncident, Has: true, Restarts: 1, Want: 3},
		6: liveCheck{},
		8: churned{Made: 9, Removed: 4, Deleted: []deletion{{"churn-001", noon}}},
	} {
		judgetest.Judge(t, l, with(labkit.Ours, i, bad), labkit.Inconclusive)
	}

	// What cannot be told of one phase hides no loss in another.
	for i, unsure := range map[int]any{
		0: incidentSeen{Phase: phaseIncident, Restarts: 3, Sent: 5, Last: 90, Gaps: 1},
		2: counted{Resource: "secrets", Objects: 30, Restarts: 3, Events: 80, Watches: []string{"1", "2", "3"}},
	} {
		all := good()
		all[i], all[5] = unsure, incidentSeen{Phase: phaseLiveCheck, Restarts: 3, Sent: 6, Last: 99, Deleted: []string{"s01"}}
		judgetest.Judge(t, l, of(labkit.Ours, all...), labkit.Reproduced)
	}
	unsure := good()
	unsure[6], unsure[8] = liveCheck{}, wrong
	judgetest.Judge(t, l, of(labkit.Ours, unsure...), labkit.Reproduced)

	// Stock ends with the audit log of the incident.
	incident := incidentSeen{Phase: phaseIncident, Restarts: 3, Sent: 5, Last: 90, Deleted: []string{"s01", "s02"}}
	flaps := func(resource string) counted {
		return counted{Resource: resource, Objects: 30, Restarts: 3, Events: 99, Replays: 4, Flaps: 2, Watches: []string{"9", "5", "9"}}
	}
	found := audited{Phase: phaseIncident, Has: true, Restarts: 9, Want: 3, Found: []auditResult{past}}
	judgetest.Judge(t, l, of(labkit.Stock, incident, flaps("configmaps"), flaps("secrets"), found), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Stock, incident, flaps("configmaps"), flaps("secrets"), audited{Phase: phaseIncident, Has: true, Restarts: 9, Want: 3}), labkit.Inconclusive)
	judgetest.Judge(t, l, of(labkit.Stock, incident, good()[1], good()[2], found), labkit.Inconclusive)
	judgetest.Judge(t, l, of(labkit.Stock, incident, flaps("configmaps"), found), labkit.Inconclusive)
	judgetest.Judge(t, l, of(labkit.GateOff, incident, found), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.GateOff, incident, audited{Phase: phaseIncident}), labkit.Reproduced) // 1.7 writes no such log

	// Without the live check only its own phase shows that it is missed.
	judgetest.Judge(t, l, with(withoutLiveCheck, 5, incidentSeen{Phase: phaseLiveCheck, Restarts: 3, Sent: 6, Last: 99, Deleted: []string{"s01"}}), labkit.Reproduced)
	judgetest.Judge(t, l, with(withoutLiveCheck, 3, found), labkit.Inconclusive)
	judgetest.Judge(t, l, with(withoutLiveCheck, 8, wrong), labkit.Inconclusive)
}

func TestSeries(t *testing.T) {
	from := time.Now()
	event := func(seconds int, kind, name string) kube.RecordedEvent {
		ep := &kube.Object{Object: map[string]any{"subsets": []any{map[string]any{"addresses": []any{map[string]any{"ip": "10.91.1.1"}}, "ports": []any{map[string]any{"port": int64(8080)}}}}}}
		ep.SetName(name)
		return kube.RecordedEvent{Time: from.Add(time.Duration(seconds) * time.Second), Type: kind, Object: ep}
	}
	events := []kube.RecordedEvent{event(1, "DELETED", "old"), {Type: "GAP"}, event(4, "DELETED", "s01"), event(4, "DELETED", "s02"), event(5, "ADDED", "s01"), event(6, "MODIFIED", "s03"), event(7, "ADDED", "s02")}
	want := []Point{{0, 3}, {4, 2}, {4, 1}, {5, 2}, {7, 3}, {9, 3}}
	if got := seriesOf(events, 3, from, from.Add(9*time.Second)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	begin := history.Begin{Lab: "reflector-monotonic-rv", Variant: "stock"}
	if got, err := Series(history.Make(begin, incidentSeen{Phase: phaseLiveCheck, Series: want[:1]}, incidentSeen{Phase: phaseIncident, Series: want})); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	if got, err := Series(history.Make(begin, incidentSeen{Phase: phaseLiveCheck, Series: want})); err == nil {
		t.Errorf("no first incident gives %v", got)
	}
}
