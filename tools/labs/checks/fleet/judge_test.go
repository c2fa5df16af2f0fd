// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/load"
)

const holdfast = "v1.9.11+holdfast.2"

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// swapAt is a swap of 10 s from a second on.
func swapAt(n, second int, end string) swap {
	from := t0.Add(time.Duration(second) * time.Second)
	return swap{fmt.Sprintf("node%d", n), from, from.Add(10 * time.Second), end}
}

// at is a stage in which all nodes have a kubelet and all pods are ready, but for some.
func at(name, kubelet string, notReady int, holder string, swaps ...swap) stage {
	s := stage{Name: name, Seconds: 60, Holder: holder, Swaps: swaps, Kept: 12}
	for i := range nodes {
		s.Nodes = append(s.Nodes, onNode{Name: fmt.Sprintf("node%d", i+1), Kubelet: kubelet, PID: 100 + i, Healthy: true, Ready: i >= notReady})
	}
	return s
}

func made(c judgetest.Change) *history.History {
	all := at(atOnce, holdfast, 0, "", swapAt(1, 0, restored), swapAt(1, 10, done), swapAt(2, 20, done), swapAt(3, 30, done))
	all.Killed = []string{"a", "b", "c"}
	ill := at(unready, old, 1, illNode, swapAt(1, 0, done), swapAt(3, 20, done))
	ill.Nodes[0], ill.Nodes[2] = onNode{Name: "node1", Kubelet: holdfast, PID: 7, Healthy: true, Ready: true, NodeReady: true}, onNode{Name: illNode, Kubelet: holdfast, PID: 8, Healthy: true}
	crashed := at(crashes, old, 0, "", swapAt(1, 0, restored), swapAt(1, 40, done), swapAt(2, 60, done), swapAt(3, 80, done))
	crashed.Killed, crashed.Repeated = []string{"a", "b", "c", "d"}, 1
	four := at(again, holdfast, 0, "", swapAt(2, 0, done), swapAt(4, 20, done), swapAt(3, 40, done))
	four.Nodes = append(four.Nodes, onNode{Name: newNode, Kubelet: holdfast, PID: 9, Healthy: true, Ready: true})
	four.Killed = []string{"evicted"}
	home := at(back, old, 0, "", swapAt(1, 0, done), swapAt(2, 20, done), swapAt(3, 40, done))
	home.Killed = []string{"left"}
	return history.Make(history.Begin{Lab: "fleet", Variant: "ours", Profile: "short"}, c.Of([]any{
		at(first, old, 0, ""), at(ends, old, 1, "node3", swapAt(3, 0, restored)), at(undone, old, 0, ""),
		ill, at(readied, old, 0, "", swapAt(1, 0, done), swapAt(3, 20, done)), at(refused, old, 1, badNode, swapAt(1, 0, done)),
		four, home, all, crashed, at(control, holdfast, 0, "", swapAt(1, 0, done), swapAt(2, 5, done), swapAt(3, 5, done)),
		loaded{load.Report{OK: 1000}},
	})...)
}

// in changes one stage.
func in(name string, f func(*stage)) judgetest.Change {
	return judgetest.Where(func(s stage) bool { return s.Name == name }, f)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "fleet")
	judgetest.Cut(t, l, made(nil))
	judgetest.Judged(t, l, labkit.Failed, made, map[string]judgetest.Change{
		"node2 and node3 were in a swap at once":      in(atOnce, func(s *stage) { s.Swaps = append(s.Swaps[:2:2], swapAt(2, 20, done), swapAt(3, 29, done)) }),
		"node1 and node2 were in a swap at once":      in(back, func(s *stage) { s.Swaps = []swap{swapAt(1, 0, done), swapAt(2, 9, done), swapAt(3, 40, done)} }),
		"two nodes were never in a swap at once":      in(control, func(s *stage) { s.Swaps = s.Swaps[:1] }),
		"node1 has no kubelet that answers":           in(atOnce, func(s *stage) { s.Nodes[0].PID = 0 }),
		"node3 has no kubelet that answers":           in(control, func(s *stage) { s.Nodes[2].Healthy = false }),
		"node2 has kubelet v1.9.11":                   in(again, func(s *stage) { s.Nodes[1].Kubelet = "v1.9.11" }),
		"the swap of node1 did not end":               in(atOnce, func(s *stage) { s.Swaps[0].End = "" }),
		"1 containers were replaced":                  in(back, func(s *stage) { s.Lost = []string{"default/web/web"} }),
		first + ": 1 swaps":                           in(first, func(s *stage) { s.Swaps = []swap{swapAt(1, 0, done)} }),
		first + ": 3 pods are ready":                  in(first, func(s *stage) { s.Holder = "node1" }),
		undone + ": 2 pods are ready":                 in(undone, func(s *stage) { s.Nodes[0].Ready = false }),
		ends + ": 2 swaps":                            in(ends, func(s *stage) { s.Swaps = append(s.Swaps, swapAt(1, 30, restored)) }),
		ends + ": 0 swaps":                            in(ends, func(s *stage) { s.Swaps = nil }),
		`"" has the lock`:                             in(ends, func(s *stage) { s.Holder = "" }),
		refused + `: "" has the lock`:                 in(refused, func(s *stage) { s.Holder = "" }),
		refused + `: "node2" has the lock`:            in(refused, func(s *stage) { s.Swaps = []swap{swapAt(2, 0, done)} }),
		again + ": 4 pods are ready and 3 nodes have": in(again, func(s *stage) { s.Nodes[1].Kubelet = old }),
		newNode + " was not swapped":                  in(again, func(s *stage) { s.Swaps = s.Swaps[:1] }),
		back + `: swapped to the end: ["node1"]`:      in(back, func(s *stage) { s.Swaps = s.Swaps[:1] }),
		unready + `: "" has the lock`:                 in(unready, func(s *stage) { s.Holder = "" }),
		"its Node is ready: true":                     in(unready, func(s *stage) { s.Nodes[2].NodeReady = true }),
		"its pod: true":                               in(unready, func(s *stage) { s.Nodes[2].Ready = true }),
		"node3 has kubelet v1.7.0":                    in(unready, func(s *stage) { s.Nodes[2].Kubelet = old }),
		readied + ": 3 pods are ready and 1 nodes":    in(readied, func(s *stage) { s.Nodes[2].Kubelet = holdfast }),
		crashes + ": 3 pods are ready and 1 nodes":    in(crashes, func(s *stage) { s.Nodes[0].Kubelet = holdfast }),
		crashes + ": node2 has no kubelet":            in(crashes, func(s *stage) { s.Nodes[1].Healthy = false }),
		crashes + ": 1 containers were repl":          in(crashes, func(s *stage) { s.Lost = []string{"default/web/web"} }),
		"1001 requests, 1 failed":                     judgetest.As(loaded{load.Report{OK: 1000, Failed: 1}}),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"only [] were killed": in(atOnce, func(s *stage) { s.Killed = []string{} }),
		again + ": only []":   in(again, func(s *stage) { s.Killed = nil }),
		back + ": only []":    in(back, func(s *stage) { s.Killed = nil }),
		crashes + ": only":    in(crashes, func(s *stage) { s.Killed = s.Killed[:1] }),
		"0 containers":        in(first, func(s *stage) { s.Kept = 0 }),
		"with 3 nodes":        in(again, func(s *stage) { s.Nodes = s.Nodes[:3] }),
		"1 loads":             judgetest.As(loaded{load.Report{OK: 5}}),
	})
}

// TestSwapsOf reads a journal with a swap before, one that was killed and put back, and one that
// has not ended.
func TestSwapsOf(t *testing.T) {
	var b strings.Builder
	for i, says := range []string{"phase prepared", "phase stopping", "phase done", "stop v1.7.0", "phase stopping", "an earlier run ended in the phase \"stopping\": put v1.7.0 back",
		"phase restoring", "phase restored", "phase prepared", "phase stopping", "phase renaming", "phase healthy"} {
		fmt.Fprintf(&b, "%s 4711 %s\n", t0.Add(time.Duration(i)*time.Second).Format(time.RFC3339Nano), says)
	}
	got := swapsOf("node1", b.String(), t0.Add(3*time.Second))
	s := func(i int) time.Time { return t0.Add(time.Duration(i) * time.Second) }
	want := []swap{{"node1", s(4), s(7), restored}, {"node1", s(9), s(9), ""}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
