// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package securityuse

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// worked is a part that works on both nodes, broken one that does not work on ours.
type (
	worked struct{ Part string }
	broken struct{ Part, Why string }
)

// files is which files the gitRepo volumes of a node have, by volume and path.
type files struct {
	Node  string
	There map[string]bool
}

// timed is how long something took on each node.
type timed struct {
	What        string
	Stock, Ours []time.Duration
}

func (t *timed) add(node string, d time.Duration) {
	if node == ours {
		t.Ours = append(t.Ours, d)
	} else {
		t.Stock = append(t.Stock, d)
	}
}

// counted is a counter of ours at the end.
type counted struct {
	Metric string
	Value  float64
}

const (
	partGit     = "gitRepo"
	partProbes  = "probes"
	partStreams = "streams"

	gitMount  = "mount of a gitRepo volume"
	copyOf    = "cp of 100 MB both ways"
	attachOf  = "attach of 1 MB both ways"
	forwardOf = "port-forward of 100 MB"

	// tooMuch is how many times what stock takes counts as a cost: far above what two
	// rounds of one kubelet differ by on a busy machine, far below a limit that stalls
	// a stream.
	tooMuch = 2.0
	// fewest measurements of each that a median is judged by, and the shortest that is
	// judged: a busy machine makes more of a few milliseconds than any limit.
	fewest   = 5
	shortest = 100 * time.Millisecond
)

var (
	parts = []string{partGit, partProbes, partStreams}
	// repositories are the ways to the repository.
	repositories = []string{"http", "https", "git", "ssh", "scp"}
	// gitFiles are those that must be there or not: the second commit takes "one" away
	// and brings "two".
	gitFiles = map[string]bool{"revision/src/one": true, "revision/src/two": false, "dot/two": true, "dot/one": false}
	execOf   = fmt.Sprintf("exec of %d MiB", execSize>>20)
	refusals = []string{"holdfast_gitrepo_hardening_refused_total", "holdfast_mount_error_secrets_masked_total"}
)

func probeOf(answer string) string { return "probe that gets " + answer }

// whats are all that is timed.
func whats() []string {
	all := []string{gitMount}
	for _, a := range answers {
		if a.size >= mib {
			all = append(all, probeOf(a.name))
		}
	}
	return append(all, execOf, copyOf, attachOf, forwardOf)
}

var oracle = labkit.Oracle{
	Text: []string{
		fmt.Sprintf("everything works on both kubelets, and nothing that takes %v or more and is timed at least %d times takes %.0f times as long on Holdfast as on stock", shortest, fewest, tooMuch),
		"Holdfast has refused nothing",
	},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	var facts, costs, over []string
	var res labkit.Outcome
	seen := map[string]int{}
	for _, t := range history.Of[timed](h) {
		if len(t.Stock) == 0 || len(t.Ours) == 0 {
			return labkit.InconclusiveBecause("%s: %d measurements of stock and %d of ours", t.What, len(t.Stock), len(t.Ours))
		}
		s, o := median(t.Stock), median(t.Ours)
		seen[t.What]++
		facts = append(facts, fmt.Sprintf("%s: stock %v, ours %v (medians of %d and %d)", t.What, s, o, len(t.Stock), len(t.Ours)))
		res.Measure(t.What+", stock/ours", s.Seconds()/o.Seconds(), "")
		costs = append(costs, fmt.Sprintf("%s %.2f", t.What, s.Seconds()/o.Seconds()))
		if len(t.Stock) >= fewest && len(t.Ours) >= fewest && s >= shortest && o.Seconds() > tooMuch*s.Seconds() {
			over = append(over, fmt.Sprintf("%s %v, stock %v", t.What, o, s))
		}
	}
	answer := verdict(h, seen)
	switch {
	case answer.Verdict != labkit.Passed:
	case len(over) > 0:
		answer = labkit.FailedBecause("everything works, but Holdfast takes too long: %s", strings.Join(over, "; "))
	default:
		answer = labkit.PassedBecause("everything works on both kubelets; stock/ours: %s", strings.Join(costs, ", "))
	}
	res.Verdict, res.Why, res.Facts = answer.Verdict, answer.Why, facts
	return res
}

// verdict is that of all but the times; seen are the things that were timed.
func verdict(h *history.History, seen map[string]int) labkit.Outcome {
	nodes := map[string]int{}
	for _, f := range history.Of[files](h) {
		nodes[f.Node]++
		for _, r := range repositories {
			for _, file := range slices.Sorted(maps.Keys(gitFiles)) {
				is, known := f.There[r+"-"+file]
				switch {
				case known && is == gitFiles[file]:
				case known && f.Node == ours:
					return labkit.FailedBecause("gitRepo: on ours: %s: %s exists: %v, want %v", r, file, is, gitFiles[file])
				default:
					return labkit.InconclusiveBecause("gitRepo: on %s: %s: %s exists: %v, want %v", f.Node, r, file, is, gitFiles[file])
				}
			}
		}
	}
	for _, b := range history.Of[broken](h) {
		return labkit.FailedBecause("%s: it works on stock but not on Holdfast: %s", b.Part, b.Why)
	}
	refused := map[string]int{}
	for _, c := range history.Of[counted](h) {
		refused[c.Metric]++
		if c.Value != 0 {
			return labkit.FailedBecause("nothing had to be refused, but %s is %v", c.Metric, c.Value)
		}
	}
	works := map[string]int{}
	for _, w := range history.Of[worked](h) {
		works[w.Part]++
	}
	for _, c := range []struct {
		what string
		of   map[string]int
		want []string
	}{
		{"parts that work", works, parts},
		{"nodes with files", nodes, []string{stock, ours}},
		{"counters", refused, refusals},
		{"things that were timed", seen, whats()},
	} {
		if got, want := slices.Sorted(maps.Keys(c.of)), slices.Sorted(slices.Values(c.want)); !slices.Equal(got, want) {
			return labkit.InconclusiveBecause("%s: %q, want %q", c.what, got, want)
		}
	}
	return labkit.Outcome{Verdict: labkit.Passed}
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}
