// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package costlab has what the checks of cost share: what a process takes, the turns of
// stock and ours, and how their readings are compared.
package costlab

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"holdfast/tools/labkit"
)

// Whose build runs.
const (
	Stock = "stock"
	Ours  = "ours"
)

// Turns are those of n pairs. Each build goes first in half of them, by chance in which; if n
// is odd, chance says who does once more. So what grows from turn to turn favours neither.
func Turns(rng *rand.Rand, n int) []string {
	pairs := [][]string{{Stock, Ours}, {Ours, Stock}}
	other := rng.IntN(2)
	var out []string
	for _, i := range rng.Perm(n) {
		out = append(out, pairs[(i+other)%2]...)
	}
	return out
}

// Quantity is something that a build takes.
type Quantity string

const (
	Start      Quantity = "time to healthy"
	StartCPU   Quantity = "CPU of the start"
	CPU        Quantity = "CPU"
	RSS        Quantity = "resident memory"
	FilePages  Quantity = "mapped pages of files" // not compared
	Heap       Quantity = "heap after a collection"
	Goroutines Quantity = "goroutines"
	Files      Quantity = "open files"
	Requests   Quantity = "requests"
	Rollout    Quantity = "time until all is rolled out"
	Settled    Quantity = "time until no pod is left over"
)

// text is a value of the quantity.
func (q Quantity) text(v float64) string {
	switch q {
	case Start, StartCPU, CPU, Rollout, Settled:
		return fmt.Sprintf("%.2f s", v)
	case RSS, FilePages, Heap:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	}
	return fmt.Sprintf("%.0f", v)
}

// Reading is what one component of one build took in its turn of a pair.
type Reading struct {
	Component, Who string
	Pair           int
	Took           map[Quantity]float64
	// Asked are its requests, by kind.
	Asked Counts
}

func (r Reading) String() string {
	var parts []string
	for _, q := range []Quantity{Start, StartCPU, CPU, RSS, FilePages, Heap, Goroutines, Files, Requests, Rollout, Settled} {
		if v, ok := r.Took[q]; ok {
			parts = append(parts, fmt.Sprintf("%s %s", q, q.text(v)))
		}
	}
	return fmt.Sprintf("pair %d, %s %s: %s", r.Pair+1, r.Component, r.Who, strings.Join(parts, ", "))
}

// Ratio is ours divided by stock, of one quantity, over all pairs.
type Ratio struct {
	Component string
	Quantity  Quantity
	// Low to High is the interval of the median, Mid the median, Level the confidence.
	Low, Mid, High, Level float64
	// Stock and Ours are the median values.
	Stock, Ours float64
}

func (r Ratio) String() string {
	return fmt.Sprintf("%s, %s: %.3f (%.3f to %.3f); %s stock, %s ours",
		r.Component, r.Quantity, r.Mid, r.Low, r.High, r.Quantity.text(r.Stock), r.Quantity.text(r.Ours))
}

// Component is a program, and what of it is compared.
type Component struct {
	Name       string
	Quantities []Quantity
}

// Compare has the ratio of each quantity of each component. Each pair must have one
// reading of both builds, of all quantities, and none may be zero.
func Compare(readings []Reading, pairs int, components []Component) ([]Ratio, error) {
	type key struct {
		component, who string
		pair           int
	}
	of := map[key]Reading{}
	for _, r := range readings {
		k := key{r.Component, r.Who, r.Pair}
		if _, twice := of[k]; twice {
			return nil, fmt.Errorf("pair %d has two readings of %s %s", r.Pair+1, r.Component, r.Who)
		}
		of[k] = r
	}
	var out []Ratio
	for _, c := range components {
		for _, q := range c.Quantities {
			var ratios []float64
			all := map[string][]float64{}
			for i := range pairs {
				for _, who := range []string{Stock, Ours} {
					r, ok := of[key{c.Name, who, i}]
					if !ok {
						return nil, fmt.Errorf("pair %d has no reading of %s %s", i+1, c.Name, who)
					}
					v := r.Took[q]
					if !(v > 0) || math.IsInf(v, 0) {
						return nil, fmt.Errorf("pair %d: the %s of %s %s is %v", i+1, q, c.Name, who, v)
					}
					all[who] = append(all[who], v)
				}
				ratios = append(ratios, all[Ours][i]/all[Stock][i])
			}
			r := Ratio{Component: c.Name, Quantity: q}
			r.Low, r.Mid, r.High, r.Level = Interval(ratios)
			_, r.Stock, _, _ = Interval(all[Stock])
			_, r.Ours, _, _ = Interval(all[Ours])
			out = append(out, r)
		}
	}
	return out, nil
}

const (
	// Goal is the ratio that ours may have.
	Goal = 1.02
	// TooWide is what no interval of the long profile may reach above.
	TooWide = 1.10
	// Sane is the goal of the short profile, whose turns are too short to tell more.
	Sane = 1.3
)

// Oracle is the text of Judge, after a line that says what is compared.
func Oracle(what string) []string {
	return []string{what,
		fmt.Sprintf("long profile: failed if the interval of a ratio lies completely above %.2f; inconclusive if an interval reaches above %.2f", Goal, TooWide),
		fmt.Sprintf("short profile: failed if an interval lies completely above %.1f", Sane),
	}
}

// Judge is the verdict on ratios.
func Judge(profile string, ratios []Ratio, err error) labkit.Outcome {
	if err != nil {
		return labkit.InconclusiveBecause("%v", err)
	}
	long := profile == string(labkit.Long)
	goal := Sane
	if long {
		goal = Goal
	}
	var above, wide, over []string
	for _, r := range ratios {
		switch {
		case r.Low > goal:
			above = append(above, r.String())
		case long && r.High > TooWide:
			wide = append(wide, r.String())
		case r.Mid > Goal:
			over = append(over, r.String())
		}
	}
	var res labkit.Outcome
	switch {
	case len(above) > 0:
		res = labkit.FailedBecause("%d of %d ratios are above %.2f: %s", len(above), len(ratios), goal, strings.Join(above, "; "))
	case len(ratios) == 0:
		return labkit.InconclusiveBecause("there is no ratio")
	case len(wide) > 0:
		res = labkit.InconclusiveBecause("%d of %d ratios may be above %.2f: %s", len(wide), len(ratios), TooWide, strings.Join(wide, "; "))
	default:
		res = labkit.PassedBecause("none of %d intervals lies completely above %.2f, but %d medians are above %.2f", len(ratios), goal, len(over), Goal)
		if len(over) == 0 {
			res = labkit.PassedBecause("none of %d intervals lies completely above %.2f, and no median is above %.2f", len(ratios), goal, Goal)
		}
	}
	for _, r := range ratios {
		res.Facts = append(res.Facts, r.String())
		res.Measure(r.Component+", "+string(r.Quantity)+", ours/stock", math.Round(r.Mid*1000)/1000, "")
	}
	if len(ratios) > 0 {
		res.Facts = append(res.Facts, fmt.Sprintf("ratios are ours/stock: the median of the pairs, and its interval of %.0f %% confidence", 100*ratios[0].Level))
	}
	return res
}
