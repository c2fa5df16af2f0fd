// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costlab

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/metrics"
)

func TestInterval(t *testing.T) {
	for _, tc := range []struct {
		sample                []float64
		low, mid, high, level float64
	}{
		{[]float64{3}, 3, 3, 3, 0},
		{[]float64{2, 1}, 1, 1.5, 2, 0.5},
		{[]float64{5, 1, 3}, 1, 3, 5, 0.75},
		{[]float64{5, 4, 3, 2, 1}, 1, 3, 5, 0.9375},
		{[]float64{6, 5, 4, 3, 2, 1}, 1, 3.5, 6, 0.96875},
		{[]float64{8, 7, 6, 5, 4, 3, 2, 1}, 1, 4.5, 8, 0.9921875},
		// 9: the second is left of the median but for 1 + 9 of 512 throws.
		{[]float64{9, 8, 7, 6, 5, 4, 3, 2, 1}, 2, 5, 8, 1 - 2*10.0/512},
		// 20: the sixth, as tables of the sign test have it.
		{[]float64{20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 6, 10.5, 15, 0.95861},
	} {
		low, mid, high, level := Interval(tc.sample)
		if low != tc.low || mid != tc.mid || high != tc.high || math.Abs(level-tc.level) > 1e-5 {
			t.Errorf("%v: %v %v %v %v, want %v", tc.sample, low, mid, high, level, tc)
		}
	}
	if low, _, _, level := Interval(nil); !math.IsNaN(low) || level != 0 {
		t.Errorf("of nothing: %v, %v", low, level)
	}
}

// The interval has the median of a population as often as it says.
func TestIntervalCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const rounds = 20000
	for _, n := range []int{3, 5, 6, 9, 15} {
		has, level := 0, 0.0
		for range rounds {
			var sample []float64
			for range n {
				sample = append(sample, math.Exp(rng.NormFloat64())) // its median is 1
			}
			low, _, high, l := Interval(sample)
			level = l
			if low <= 1 && 1 <= high {
				has++
			}
		}
		if got := float64(has) / rounds; math.Abs(got-level) > 0.01 {
			t.Errorf("%d values: in %.3f of the intervals, they say %.3f", n, got, level)
		}
	}
}

func TestTurns(t *testing.T) {
	for _, n := range []int{3, 6} {
		first := map[string]int{}
		orders := map[string]bool{}
		for seed := range uint64(200) {
			turns := Turns(rand.New(rand.NewPCG(seed, 1)), n)
			if len(turns) != 2*n {
				t.Fatal(turns)
			}
			here := 0
			for i := 0; i < 2*n; i += 2 {
				if turns[i] == turns[i+1] {
					t.Fatalf("pair %d is of one build: %v", i/2, turns)
				}
				if first[turns[i]]++; turns[i] == Ours {
					here++
				}
			}
			if here != n/2 && here != n-n/2 {
				t.Fatalf("ours is first in %d of %d pairs: %v", here, n, turns)
			}
			orders[strings.Join(turns, " ")] = true
		}
		// Of 3 there are 6 orders (1 or 2 times ours first), of 6 there are 20.
		if want := map[int]int{3: 6, 6: 20}[n]; len(orders) != want {
			t.Errorf("%d pairs: %d orders in 200 seeds, want %d", n, len(orders), want)
		}
		if first[Stock] < 85*n || first[Ours] < 85*n {
			t.Errorf("%d pairs: who is first: %v", n, first)
		}
	}
}

func TestCompare(t *testing.T) {
	of := func(who string, pair int, cpu float64) Reading {
		return Reading{Component: "x", Who: who, Pair: pair, Took: map[Quantity]float64{CPU: cpu}}
	}
	x := []Component{{"x", []Quantity{CPU}}}
	// In pair 2 the computer was slower, for both.
	got, err := Compare([]Reading{of(Ours, 0, 11), of(Stock, 0, 10), of(Stock, 1, 20), of(Ours, 1, 22), of(Ours, 2, 9), of(Stock, 2, 10)}, 3, x)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if want := "x, CPU: 1.100 (0.900 to 1.100); 10.00 s stock, 11.00 s ours"; got[0].String() != want {
		t.Errorf("%s, want %s", got[0], want)
	}
	for want, list := range map[string][]Reading{
		"pair 1 has no reading of x ours":       {of(Stock, 0, 1)},
		"pair 1 has two readings of x stock":    {of(Stock, 0, 1), of(Stock, 0, 1), of(Ours, 0, 1)},
		"pair 1: the CPU of x ours is 0":        {of(Stock, 0, 1), of(Ours, 0, 0)},
		"pair 1: the CPU of x stock is NaN":     {of(Stock, 0, math.NaN()), of(Ours, 0, 1)},
		"pair 1: the CPU of x stock is +Inf":    {of(Stock, 0, math.Inf(1)), of(Ours, 0, 1)},
		"pair 1: the CPU of x stock is -1":      {of(Stock, 0, -1), of(Ours, 0, 1)},
		"pair 1 has no reading of x stock":      nil,
		"pair 1: the open files of x stock is ": {of(Stock, 0, 1), of(Ours, 0, 1)},
	} {
		c := x
		if strings.Contains(want, "files") {
			c = []Component{{"x", []Quantity{Files}}}
		}
		if _, err := Compare(list, 1, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestJudge(t *testing.T) {
	r := func(low, mid, high float64) Ratio {
		return Ratio{Component: "x", Quantity: CPU, Low: low, Mid: mid, High: high}
	}
	for _, tc := range []struct {
		profile labkit.Profile
		ratios  []Ratio
		want    labkit.Verdict
	}{
		{labkit.Long, []Ratio{r(0.98, 1, 1.02)}, labkit.Passed},
		{labkit.Long, []Ratio{r(1.02, 1.05, 1.10)}, labkit.Passed},
		{labkit.Long, []Ratio{r(1.021, 1.05, 1.10)}, labkit.Failed},
		{labkit.Long, []Ratio{r(0.9, 1, 1.11)}, labkit.Inconclusive},
		{labkit.Long, []Ratio{r(0.9, 1, 1.11), r(1.03, 1.04, 1.05)}, labkit.Failed},
		{labkit.Long, nil, labkit.Inconclusive},
		{labkit.Short, nil, labkit.Inconclusive},
		{labkit.Short, []Ratio{r(1.2, 1.3, 1.4)}, labkit.Passed},
		{labkit.Short, []Ratio{r(1.31, 1.4, 2)}, labkit.Failed},
	} {
		if res := Judge(string(tc.profile), tc.ratios, nil); res.Verdict != tc.want {
			t.Errorf("%s, %v: %s because %s", tc.profile, tc.ratios, res.Verdict, res.Why)
		}
	}
}

func TestNumberAfter(t *testing.T) {
	if n, err := numberAfter(strings.NewReader("goroutine profile: total 970\n334 @ 0x48fe2e\n"), "goroutine profile: total "); err != nil || n != 970 {
		t.Errorf("%v goroutines, %v", n, err)
	}
	if n, err := numberAfter(strings.NewReader("heap profile: 1\n\n# runtime.MemStats\n# Alloc = 5\n# HeapAlloc = 123456\n# HeapSys = 7\n"), "# HeapAlloc = "); err != nil || n != 123456 {
		t.Error(n, err)
	}
	for _, text := range []string{"", "# Alloc = 5\n", "# HeapAlloc = x\n"} {
		if n, err := numberAfter(strings.NewReader(text), "# HeapAlloc = "); err == nil {
			t.Errorf("%q: %v", text, n)
		}
	}
}

func TestCounts(t *testing.T) {
	page := func(n string) metrics.Page {
		p, err := metrics.Parse(strings.NewReader(`# TYPE apiserver_request_count counter
apiserver_request_count{client="kubelet/v1.9.11 (linux/amd64) kubernetes/1bfeeb6",code="200",resource="nodes",subresource="",verb="GET"} 3
apiserver_request_count{client="kubelet/v1.9.11 (linux/amd64) kubernetes/1bfeeb6",code="200",resource="nodes",subresource="",verb="WATCH"} 3
apiserver_request_count{client="kube-controller-manager/v1.9.11+holdfast.2 (linux/amd64) kubernetes/1bfeeb6/leader-election",code="200",resource="endpoints",subresource="",verb="PUT"} 9
apiserver_request_count{client="kube-controller-manager/v1.9.11 (linux/amd64) kubernetes/1bfeeb6/system:serviceaccount:kube-system:x",code="200",resource="pods",subresource="",verb="LIST"} 1
apiserver_request_count{client="kube-controller-manager/v1.9.11 (linux/amd64) kubernetes/1bfeeb6/system:serviceaccount:kube-system:x",code="200",resource="pods",subresource="status",verb="PUT"} ` + n + `
apiserver_request_count{client="kube-controller-manager/v1.9.11+holdfast.2 (linux/amd64) kubernetes/1bfeeb6/system:serviceaccount:kube-system:x",code="409",resource="pods",subresource="status",verb="PUT"} 2
`))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if got := counts(page("5"), "kubelet"); got.All() != 3 || got["GET nodes"] != 3 {
		t.Error(got)
	}
	before, after := counts(page("5"), "kube-controller-manager"), counts(page("8"), "kube-controller-manager")
	if got := after.String(); got != "PUT pods/status 10, leader-election 9, LIST pods 1" || after.All() != 20 || after.Work() != 11 {
		t.Error(got)
	}
	if got := after.Since(before); got.String() != "PUT pods/status 3" {
		t.Error(got)
	}
}

func TestKinds(t *testing.T) {
	list := []Reading{
		{Component: "x", Who: Stock, Asked: Counts{"GET pods": 3, "PUT pods": 1}},
		{Component: "x", Who: Ours, Asked: Counts{"GET pods": 4, "LIST pods": 2}},
		{Component: "x", Who: Ours, Pair: 1, Asked: Counts{"GET pods": 1}},
		{Component: "y", Who: Ours, Asked: Counts{"GET nodes": 9}},
	}
	if got, want := Kinds(list, "x"), "requests of x in all turns, stock and ours: GET pods 3 and 5, LIST pods 0 and 2, PUT pods 1 and 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
