// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// randomCluster has n nodes with unready pods, one a node and Service, and Services on some of them.
func randomCluster(r *rand.Rand, n int) (forecasts []*forecast, all []endpoints, together []uint) {
	for i := range n {
		forecasts = append(forecasts, &forecast{node: fmt.Sprintf("node%d", i), unready: map[string]time.Duration{}})
	}
	for s := range 1 + r.IntN(8) {
		var e endpoints
		var set uint
		var addresses []struct {
			IP        string
			TargetRef *struct{ Kind, UID string }
		}
		for range 1 + r.IntN(4) {
			i := r.IntN(n)
			uid := fmt.Sprintf("%d-%d", s, i)
			forecasts[i].unready[uid] = time.Second
			set |= 1 << i
			addresses = append(addresses, struct {
				IP        string
				TargetRef *struct{ Kind, UID string }
			}{"", &struct{ Kind, UID string }{"Pod", uid}})
		}
		if r.IntN(4) == 0 { // one that stays ready
			set = 0
			addresses = append(addresses, struct {
				IP        string
				TargetRef *struct{ Kind, UID string }
			}{"", &struct{ Kind, UID string }{"Pod", "other"}})
		}
		e.Subsets = append(e.Subsets, struct {
			Addresses []struct {
				IP        string
				TargetRef *struct{ Kind, UID string }
			}
		}{addresses})
		all = append(all, e)
		if bits.OnesCount(set) > 1 {
			together = append(together, set)
		}
	}
	return forecasts, all, together
}

func allowed(batch uint, together []uint) bool {
	return !slices.ContainsFunc(together, func(t uint) bool { return batch&t == t })
}

// fewest is how many batches are needed, by trying all sets of nodes.
func fewest(n int, together []uint) int {
	best := make([]int, 1<<n)
	for left := uint(1); left < 1<<n; left++ {
		best[left] = n
		for b := left; b > 0; b = (b - 1) & left {
			if allowed(b, together) {
				best[left] = min(best[left], 1+best[left&^b])
			}
		}
	}
	return best[1<<n-1]
}

// On small clusters the batches hold what they promise, and are as few as can be, or one more.
func TestBatches(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	more, several := 0, 0
	for range 500 {
		n := 2 + r.IntN(6)
		forecasts, all, together := randomCluster(r, n)
		var seen uint
		got := batches(forecasts, all)
		for _, b := range got {
			var set uint
			for _, name := range b {
				var i int
				fmt.Sscanf(name, "node%d", &i)
				set |= 1 << i
			}
			if seen&set != 0 || !allowed(set, together) {
				t.Fatalf("batch %v of %v: a Service of %b has no address", b, got, together)
			}
			seen |= set
		}
		if seen != 1<<n-1 {
			t.Fatalf("not all nodes are in %v", got)
		}
		want := fewest(n, together)
		if len(got) > want+1 {
			t.Errorf("%d batches, %d would do: %v of %b", len(got), want, got, together)
		}
		if len(got) > want {
			more++
		}
		if want > 1 {
			several++
		}
	}
	if more > 25 || several < 100 {
		t.Errorf("%d of 500 clusters get one batch more than is needed, %d need several", more, several)
	}
}

// A node that must be put right first is in no batch.
func TestBatchesWithoutStopped(t *testing.T) {
	f := &forecast{node: "node1"}
	f.add("HF103", "node1", "x", "")
	if got := batches([]*forecast{f, {node: "node2"}, {node: "node3"}}, nil); len(got) != 1 || fmt.Sprint(got) != "[[node2 node3]]" {
		t.Errorf("%v", got)
	}
}
