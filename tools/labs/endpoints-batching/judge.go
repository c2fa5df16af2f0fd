// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsbatching

import (
	"fmt"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// program is what the program's own help says.
type program struct{ HasFlag bool }

// batch is what became of one batch of changes. Its times count from the first change.
type batch struct {
	Period string // "" without the flag
	Round  int
	Took   time.Duration // to the last change
	// Updates are when watchers saw the Endpoints updated.
	Updates []time.Duration
	// Adds and Retries are how the metrics of the controller's queue grew.
	Adds, Retries float64
}

// configz is the text of /configz with a period.
type configz struct{ Text string }

// serviceChanged is how long a change of the Service took while a pod's change waited.
type serviceChanged struct{ After time.Duration }

// podDeleted is when the address of a deleted pod left.
type podDeleted struct{ LeftAfter time.Duration }

// killed has the ready addresses before the kill and after the next start. Half of the
// pods were not ready by then.
type killed struct{ Round, Before, After int }

// negative is how the program ended that was given a negative period. Usual is the status with
// which it refuses another flag's value: 2 in 1.9, 1 in 1.12.
type negative struct {
	Status int
	Usual  int
	Said   string
}

const (
	// slow is how long the changes of a batch may take. What takes longer shows nothing
	// of batches.
	slow = 4 * time.Second
	// tolerance is for a busy machine: from a due time to the event that the lab sees.
	tolerance = 1500 * time.Millisecond
	// waits is when a change of the Service has waited for the period of 5 s, which the
	// pod's change began a moment before.
	waits = 3 * time.Second
)

var oracle = labkit.Oracle{
	Text: []string{
		"more than half as many updates of the Endpoints as pods is the incident, if the program has no flag; fewer updates without the flag: the trigger is missing",
		"with the flag: period 0 gives the same as no flag, also in the queue's metrics; 1s gives at most one update a second, plus one; 5s gives one update, 5 s after the first change",
		"with 5s: /configz has no new field; a change of the Service does not wait; the address of a deleted pod is removed after 5 s",
		"a change that was waiting when the program was killed is not lost; a negative period ends the program with the same status as a malformed value of another flag",
	},
	Judge: judge,
}

func (b batch) first() time.Duration {
	if len(b.Updates) == 0 {
		return 0
	}
	return b.Updates[0]
}

func (b batch) last() time.Duration {
	if len(b.Updates) == 0 {
		return 0
	}
	return b.Updates[len(b.Updates)-1]
}

func (b batch) String() string {
	return fmt.Sprintf("%d updates for %d pods in %v, the first after %v, the last after %v; the queue's metrics: %v adds, %v retries",
		len(b.Updates), pods, b.Took.Round(10*time.Millisecond), b.first().Round(10*time.Millisecond), b.last().Round(10*time.Millisecond), b.Adds, b.Retries)
}

// periods are those of batches, in their order.
var periods = []string{"", "0", "1s", "5s"}

func judge(h *history.History) labkit.Outcome {
	n := rounds(labkit.Profile(h.Profile))
	worst, seen := map[string]batch{}, map[string]int{}
	var facts []string
	for _, b := range history.Of[batch](h) {
		facts = append(facts, fmt.Sprintf("period %q: %v", b.Period, b))
		if b.Took > slow {
			return labkit.InconclusiveBecause("%d changes took %v: too slow to judge", pods, b.Took)
		}
		if seen[b.Period] == 0 || len(b.Updates) > len(worst[b.Period].Updates) {
			worst[b.Period] = b
		}
		seen[b.Period]++
	}
	without, has := worst[""], history.One[program](h).HasFlag
	facts = append(facts, fmt.Sprintf("the program has %s: %v", flag, has))
	res := func() labkit.Outcome {
		switch {
		case seen[""] != n:
			return labkit.InconclusiveBecause("%d batches without the flag, want %d", seen[""], n)
		case len(without.Updates) <= pods/2:
			return labkit.InconclusiveBecause("only %d updates for %d pods without the flag: the trigger is missing", len(without.Updates), pods)
		case !has:
			return labkit.ReproducedBecause("%d pods that became not ready within %v: %d updates of their Endpoints, and the program has no flag", pods, without.Took, len(without.Updates))
		}
		for _, b := range history.Of[batch](h) {
			if why := wrongBatch(b); why != "" {
				return labkit.ReproducedBecause("%s", why)
			}
		}
		if why := wrongElse(h); why != "" {
			return labkit.ReproducedBecause("%s", why)
		}
		if why := late(h); why != "" {
			return labkit.InconclusiveBecause("%s: a fault, or the machine is too busy", why)
		}
		if why := missing(h, seen, n); why != "" {
			return labkit.InconclusiveBecause("%s", why)
		}
		return labkit.AbsentBecause("%d pods that became not ready within %v: %d updates without the flag, %d with 5s", pods, without.Took, len(without.Updates), len(worst["5s"].Updates))
	}()
	res.Measure("updates without the flag", float64(len(without.Updates)), "")
	for _, p := range periods[1:] {
		if seen[p] > 0 {
			res.Measure("updates with period "+p, float64(len(worst[p].Updates)), "")
		}
	}
	for _, o := range history.Of[serviceChanged](h) {
		facts = append(facts, fmt.Sprintf("period 5s: a change of the Service took %v", o.After.Round(10*time.Millisecond)))
		res.Measure("a change of the Service while a pod's change waits", o.After.Seconds(), "s")
	}
	for _, o := range history.Of[podDeleted](h) {
		facts = append(facts, fmt.Sprintf("period 5s: the address of a deleted pod left after %v", o.LeftAfter.Round(10*time.Millisecond)))
		res.Measure("the address of a deleted pod leaves after", o.LeftAfter.Seconds(), "s")
	}
	res.Facts = facts
	return res
}

// wrongBatch says what is wrong with a batch, "" if nothing is.
func wrongBatch(b batch) string {
	switch b.Period {
	case "", "0":
		// A conflict is a retry too; a queue that is asked to wait 0 would have one a pod.
		if b.Retries > pods/4 || b.Adds < pods/2 {
			return fmt.Sprintf("the queue's metrics without a period: %v", b)
		}
		if len(b.Updates) <= pods/2 {
			return fmt.Sprintf("period 0 batches: %v", b)
		}
	case "1s":
		// One window follows the other while changes come.
		if most := int(b.Took/time.Second) + 2; len(b.Updates) > most {
			return fmt.Sprintf("period 1s: %v, expected at most %d updates", b, most)
		}
		if b.first() < time.Second {
			return fmt.Sprintf("period 1s: %v", b)
		}
	case "5s":
		if len(b.Updates) != 1 || b.first() < 5*time.Second {
			return fmt.Sprintf("period 5s: %v, expected one update 5 s after the first change", b)
		}
		if b.Retries < 1 {
			return fmt.Sprintf("period 5s: according to the fix's page each wait counts as a retry: %v", b)
		}
	}
	return ""
}

// wrongElse says what is wrong with all that is no batch.
func wrongElse(h *history.History) string {
	for _, o := range history.Of[configz](h) {
		if strings.Contains(strings.ToLower(o.Text), "endpointupdates") {
			return "/configz has a field that stock does not have"
		}
	}
	for _, o := range history.Of[serviceChanged](h) {
		if o.After > waits {
			return fmt.Sprintf("a change of the Service took %v while a pod's change waited", o.After)
		}
	}
	for _, o := range history.Of[podDeleted](h) {
		if o.LeftAfter < 5*time.Second-100*time.Millisecond {
			return fmt.Sprintf("the address of a deleted pod left after %v", o.LeftAfter)
		}
	}
	for _, o := range history.Of[killed](h) {
		if o.Before == pods && o.After != pods/2 {
			return fmt.Sprintf("a change that waited is lost: %d addresses are ready, want %d", o.After, pods/2)
		}
	}
	for _, o := range history.Of[negative](h) {
		if o.Status == 0 || o.Status != o.Usual || !strings.Contains(o.Said, "is negative") {
			return fmt.Sprintf("%s=-1s ends with status %d: %s", flag, o.Status, o.Said)
		}
	}
	return ""
}

// late says what came after its time, by more than a tolerance: a busy machine does that too.
func late(h *history.History) string {
	due := map[string]time.Duration{"1s": time.Second, "5s": 5 * time.Second}
	for _, b := range history.Of[batch](h) {
		at, timed := due[b.Period]
		if b.Period == "1s" {
			at += b.Took
		}
		if timed && b.last() > at+tolerance {
			return fmt.Sprintf("period %s: %v", b.Period, b)
		}
	}
	for _, o := range history.Of[serviceChanged](h) {
		if o.After > time.Second {
			return fmt.Sprintf("a change of the Service took %v while a pod's change waited", o.After)
		}
	}
	for _, o := range history.Of[podDeleted](h) {
		if o.LeftAfter > 5*time.Second+tolerance {
			return fmt.Sprintf("the address of a deleted pod left after %v", o.LeftAfter)
		}
	}
	return ""
}

// missing says what was not seen that absent needs.
func missing(h *history.History, seen map[string]int, n int) string {
	for _, p := range periods {
		if seen[p] != n {
			return fmt.Sprintf("%d batches with period %q, want %d", seen[p], p, n)
		}
	}
	if !strings.Contains(strings.ToLower(history.One[configz](h).Text), "concurrentendpointsyncs") {
		return "/configz does not show the controller manager's configuration"
	}
	history.One[serviceChanged](h)
	history.One[podDeleted](h)
	history.One[negative](h)
	kills := history.Of[killed](h)
	if len(kills) != n {
		return fmt.Sprintf("%d kills, want %d", len(kills), n)
	}
	for _, o := range kills {
		if o.Before != pods {
			return fmt.Sprintf("%d addresses were ready before the controller manager was killed: no change waited", o.Before)
		}
	}
	return ""
}
