// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// replacement is what became of one change of all images. Its times count from the first
// change.
type replacement struct {
	Round   int // from 0 on
	Pods    []replaced
	Updates []update // of the Endpoints
	// Late is when all addresses were ready, after the last pod was; 0 if they were not
	// in time. Addresses is how many were, then or when the time was over.
	Late      time.Duration
	Addresses int
}

// round is a replacement with pods that the lab plays.
type round struct {
	replacement
	Killed bool // endpoints-rules was killed in the middle
}

// replaced is a pod, with the end of its old container.
type replaced struct {
	Name string
	Gone time.Duration
}

// settled is what endpoints-rules says after a round: how many addresses are misplaced,
// as soon as that is none, or when the time is over.
type settled struct {
	Round     int
	Misplaced float64
	Unread    string // why that could not be read, if it could not
}

// hung is what the breaker did when endpoints-rules hung and went on again. What did not
// happen in time is 0.
type hung struct{ EmptyAfter, FilledAfter time.Duration }

const (
	// stuck is the longest that a ready pod may be missing from the ready addresses.
	stuck = 5 * time.Second
	// tripped is the longest until the breaker has taken the webhook out, back until it
	// has put it in again.
	tripped, back = 20 * time.Second, time.Minute
)

var oracle = labkit.Oracle{
	Text: []string{
		"L: the report's client, which gathers updates for 2 s (fixed and trailing windows), enables no pod before its old container is gone",
		fmt.Sprintf("all addresses are ready at most %v after the last pod", stuck),
		"ours: by then the metric of misplaced addresses is 0; after the kill no address is stuck, but L may break",
		fmt.Sprintf("ours: the breaker empties the webhook configuration within %v, and fills it again after SIGCONT", tripped),
	},
	Judge: judge,
}

// broken are the pods that the client switches on too early.
func (r replacement) broken(w window) []string {
	gone := map[string]time.Duration{}
	for _, p := range r.Pods {
		gone[p.Name] = p.Gone
	}
	return broken(r.Updates, w, gone)
}

// changed is how many pods have lost their old container.
func (r replacement) changed() int {
	names := map[string]bool{}
	for _, p := range r.Pods {
		if p.Gone > 0 {
			names[p.Name] = true
		}
	}
	return len(names)
}

// enough says whether the rounds after it would not change the verdict.
func (r round) enough() bool {
	return r.Late == 0 || !r.Killed && len(r.broken(fixed))+len(r.broken(trailing)) > 0
}

func (r round) String() string {
	what := fmt.Sprintf("round %d", r.Round+1)
	if r.Killed {
		what = "killed in the middle"
	}
	return fmt.Sprintf("%s: L broken for %d of %d pods (fixed), %d (trailing); %d updates of the Endpoints; all ready %v after the last pod was",
		what, len(r.broken(fixed)), len(r.Pods), len(r.broken(trailing)), len(r.Updates), r.Late.Round(10*time.Millisecond))
}

func judge(h *history.History) labkit.Outcome {
	var facts []string
	var plain, killed []round
	for _, r := range history.Of[round](h) {
		facts = append(facts, r.String())
		if r.Killed {
			killed = append(killed, r)
		} else {
			plain = append(plain, r)
		}
	}
	res := verdict(h, plain, killed)
	if n := len(plain); n > 0 {
		last := plain[n-1]
		res.Measure("updates of the Endpoints", float64(len(last.Updates)), "")
		for _, w := range []window{fixed, trailing} {
			res.Measure(fmt.Sprintf("pods switched on too early, %s windows", w), float64(len(last.broken(w))), "")
		}
		res.Measure("all addresses ready after the last pod", last.Late.Seconds(), "s")
	}
	for _, o := range history.Of[hung](h) {
		facts = append(facts, fmt.Sprintf("SIGSTOP: the configuration was empty after %v", o.EmptyAfter.Round(100*time.Millisecond)))
		res.Measure("webhook configuration empty after SIGSTOP", o.EmptyAfter.Seconds(), "s")
	}
	res.Facts = facts
	return res
}

func verdict(h *history.History, plain, killed []round) labkit.Outcome {
	updates, unsure := 0, "" // what a round could not tell hides no loss in another
	for _, r := range append(plain[:len(plain):len(plain)], killed...) {
		switch {
		case len(r.Pods) != pods || r.changed() != pods:
			unsure = fmt.Sprintf("the old containers of %d of %d pods ended, want %d", r.changed(), len(r.Pods), pods)
		case r.Late == 0:
			return labkit.ReproducedBecause("%v after the last pod became ready, %d of %d addresses are ready", stuck, r.Addresses, pods)
		case len(r.Updates) == 0:
			unsure = "the Endpoints never changed: the trigger is missing"
		case r.Killed:
		case r.enough():
			return labkit.ReproducedBecause("the client enabled pods whose old container still ran: %v (fixed windows), %v (trailing)", r.broken(fixed), r.broken(trailing))
		default:
			updates += len(r.Updates)
		}
	}
	if why := wrongElse(h); why != "" {
		return labkit.ReproducedBecause("%s", why)
	}
	if unsure != "" {
		return labkit.InconclusiveBecause("%s", unsure)
	}
	n := rounds(labkit.Profile(h.Profile))
	if len(plain) != n {
		return labkit.InconclusiveBecause("%d rounds, want %d", len(plain), n)
	}
	if h.Variant != string(labkit.Ours) {
		return labkit.AbsentBecause("none of %d pods was enabled too early", pods)
	}
	if len(killed) != 1 {
		return labkit.InconclusiveBecause("%d rounds with a kill, want 1", len(killed))
	}
	if got := len(history.Of[settled](h)); got != n+1 {
		return labkit.InconclusiveBecause("the metric of misplaced addresses was read after %d rounds, want %d", got, n+1)
	}
	history.One[hung](h)
	return labkit.AbsentBecause("none of %d pods was enabled before its old container was gone, in %d updates of the Endpoints, and no address was stuck", pods, updates)
}

// wrongElse says what is wrong with all that is no round.
func wrongElse(h *history.History) string {
	for _, o := range history.Of[settled](h) {
		switch {
		case o.Unread != "":
			return "endpoints-rules does not report how many addresses are misplaced: " + o.Unread
		case o.Misplaced > 0:
			return fmt.Sprintf("%v addresses are misplaced %v after all pods were ready", o.Misplaced, stuck)
		}
	}
	for _, o := range history.Of[hung](h) {
		switch {
		case o.EmptyAfter == 0:
			return fmt.Sprintf("the hanging webhook is still in the configuration after %v", tripped)
		case o.FilledAfter == 0:
			return fmt.Sprintf("the webhook answers again, but is not in the configuration after %v", back)
		}
	}
	return ""
}
