// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeswap

import (
	"maps"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/kubeletlab"
)

func snapshot(a, b string) kubeletlab.Snapshot {
	return kubeletlab.Snapshot{
		"default/a/main": {ID: a, StartedAt: a, Pod: "a"}, "default/b/main": {ID: b, StartedAt: b, Pod: "b"},
		"default/a/POD": {ID: "s1", StartedAt: "s1", Pod: "a", Sandbox: true}, "default/b/POD": {ID: "s2", StartedAt: "s2", Pod: "b", Sandbox: true},
	}
}

func plan(a, isA, b, isB string) []kubeletlab.Told {
	return []kubeletlab.Told{{Pod: "default/a", Container: "main", ID: a, Answer: isA}, {Pod: "default/b", Container: "main", ID: b, Answer: isB}}
}

func there() swapped {
	return swapped{To: "holdfast", Forecast: plan("1", "kept", "2", "new"), Status: maps.Clone(wantStatus["holdfast"]),
		Before: snapshot("1", "2"), After: snapshot("1", "3"), Kubelet: "v1.9.11+holdfast.2"}
}

func back() swapped {
	return swapped{To: "back", Forecast: plan("1", "kept", "3", "new"), Status: maps.Clone(wantStatus["back"]),
		Before: snapshot("1", "3"), After: snapshot("1", "4"), Kubelet: old}
}

func made(c judgetest.Change) *history.History {
	return history.Make(history.Begin{Lab: "node-swap", Variant: "ours", Profile: "short"}, c.Of([]any{
		stopped{refusedFlag, 3, []string{"HF101"}, [2]int{7, 7}, old, snapshot("1", "2"), snapshot("1", "2")},
		stopped{endsAtOnce, 3, []string{"HF511"}, [2]int{7, 8}, old, snapshot("1", "2"), snapshot("1", "2")},
		there(), back(),
	})...)
}

// swap changes the first swap, stop the first or the second swap that must be stopped.
func swap(f func(*swapped)) judgetest.Change {
	return judgetest.Where(func(s swapped) bool { return s.To == "holdfast" }, f)
}

func stop(what string, f func(*stopped)) judgetest.Change {
	return judgetest.Where(func(s stopped) bool { return s.What == what }, f)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "node-swap")
	judgetest.Cut(t, l, made(nil))
	for name, c := range map[string]judgetest.Change{
		"always kept":           swap(func(s *swapped) { s.Forecast = plan("1", "kept", "2", "kept") }),
		"always new":            swap(func(s *swapped) { s.Forecast = plan("1", "new", "2", "new") }),
		"always kept, and so":   swap(func(s *swapped) { s.Forecast, s.After = plan("1", "kept", "2", "kept"), s.Before }),
		"always new, and so":    swap(func(s *swapped) { s.Forecast, s.After = plan("1", "new", "2", "new"), snapshot("8", "9") }),
		"unknown":               swap(func(s *swapped) { s.Forecast = plan("1", "kept", "2", "?") }),
		"recreated, not told":   swap(func(s *swapped) { s.After = snapshot("8", "3") }),
		"not recreated":         swap(func(s *swapped) { s.After = s.Before }),
		"not named":             swap(func(s *swapped) { s.Forecast = s.Forecast[1:] }),
		"another container":     swap(func(s *swapped) { s.Forecast = plan("5", "kept", "2", "new") }),
		"gone":                  swap(func(s *swapped) { delete(s.After, "default/b/main") }),
		"another sandbox":       swap(func(s *swapped) { s.After["default/a/POD"] = kubeletlab.Container{ID: "s3", Sandbox: true} }),
		"verify finds":          swap(func(s *swapped) { s.Verify = []string{"HF601"} }),
		"another status":        swap(func(s *swapped) { s.Status["swap"] = 1 }),
		"not asked":             swap(func(s *swapped) { delete(s.Status, "verify") }),
		"another kubelet":       swap(func(s *swapped) { s.Kubelet = "v1.9.11" }),
		"touched":               stop(refusedFlag, func(s *stopped) { s.PID[1] = 9 }),
		"another reason":        stop(refusedFlag, func(s *stopped) { s.Codes = []string{"HF501"} }),
		"not told":              stop(endsAtOnce, func(s *stopped) { s.Status = 0 }),
		"not undone":            stop(endsAtOnce, func(s *stopped) { s.Kubelet = "v1.9.11+holdfast.2" }),
		"no kubelet":            stop(endsAtOnce, func(s *stopped) { s.PID[1] = 0 }),
		"recreated by the undo": stop(endsAtOnce, func(s *stopped) { s.After = snapshot("1", "9") }),
		"never stopped":         stop(endsAtOnce, func(s *stopped) { s.PID[1] = s.PID[0] }),
	} {
		t.Run(name, func(t *testing.T) { judgetest.Judge(t, l, made(c), labkit.Failed) })
	}
	for name, c := range map[string]judgetest.Change{
		"no containers":   swap(func(s *swapped) { s.Before, s.Forecast = nil, nil }),
		"nothing ran":     stop(refusedFlag, func(s *stopped) { s.Before = nil }),
		"without a swap":  judgetest.Without(func(s swapped) bool { return s.To == "back" }),
		"without the way": judgetest.Without(func(s swapped) bool { return s.To == "holdfast" }),
	} {
		t.Run(name, func(t *testing.T) { judgetest.Judge(t, l, made(c), labkit.Inconclusive) })
	}
}
