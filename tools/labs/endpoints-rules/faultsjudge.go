// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
)

// row is a fault.
type row string

const (
	stoppedRow     row = "SIGSTOP"
	droppedRow     row = "packets dropped"
	killedRow      row = "kill -9"
	deafRow        row = "no news"
	certificateRow row = "foreign certificate"
	betweenRow     row = "slow bodies, late answers, no answers"
	ruleRow        row = "a rule that fails"
	largeRow       row = "large Endpoints"
	reloadRow      row = "rules and certificate changed"
	controlRow     row = "hangs, unguarded"
)

// faultRows are those of ours.
var faultRows = []row{stoppedRow, droppedRow, killedRow, deafRow, certificateRow, betweenRow, ruleRow, largeRow, reloadRow}

// placed is what the API server made of Endpoints that were written with all addresses
// ready, one of which the rules do not let be ready.
type placed string

const (
	patched   placed = "patched"
	unchanged placed = "unchanged"
)

// call is one such write.
type call struct {
	Name      string
	Addresses int
	Took      time.Duration
	Placed    placed
	Err       string
	// RightAfter is when the stored Endpoints were right after it; 0: not in time, or not
	// looked for.
	RightAfter time.Duration
}

// served is what became of the readiness that changed meanwhile: how many times the
// Endpoints followed, and the longest time that took.
type served struct {
	Namespace     string
	Updates, Lost int
	Slowest       time.Duration
}

// fault is one row. What did not happen, or not in time, is 0.
type fault struct {
	Row    row
	Calls  []call
	Served []served
	// EndedAfter is when the program's process was gone, EmptyAfter when the webhook
	// configuration was empty, after the fault began; FilledAfter when the API server could
	// call again, after it ended.
	EndedAfter, EmptyAfter, FilledAfter time.Duration
	Modes                               int    // of the server in between that were used
	Wrong                               string // what else was
}

// reloads are what was read again. Handshakes are connections that were opened meanwhile.
type reloads struct {
	Rules, Rejected, Certificates int
	Handshakes, Failed            int
	FirstError                    string
}

// fuzzed are made-up reviews.
type fuzzed struct {
	Reviews, Allowed int
	Slowest          time.Duration
	Wrong            string
}

// compared are the Endpoints of all Services at the end.
type compared struct {
	Services  int
	Wrong     []string
	After     time.Duration
	Asked     bool // the program says how many addresses are misplaced
	Misplaced float64
}

// wrong says what is not as the model has it.
func (c compared) wrong() string {
	switch {
	case len(c.Wrong) > 0:
		return fmt.Sprintf("%d of %d Services differ from the model at the end, first: %s", len(c.Wrong), c.Services, c.Wrong[0])
	case !c.Asked:
		return "endpoints-rules does not report how many addresses are misplaced"
	case c.Misplaced > 0:
		return fmt.Sprintf("%v addresses are misplaced at the end", c.Misplaced)
	}
	return ""
}

// lease is what was seen of a lease from the start of the cluster on, and whether its holder
// lives at the end.
type lease struct {
	Name string
	// Ended are the holders that the lab ended, and those that could not renew their lease
	// because the lab kept the API server away.
	Ended      int
	Holders    []string
	Renewals   int
	LongestGap time.Duration
	Alive      bool
}

var leaseNames = []string{"kube-controller-manager", "kube-scheduler"}

const (
	// anyUpdate is the longest that Endpoints may follow a pod in any namespace while the
	// program hangs, or fails otherwise but by packets that are dropped.
	anyUpdate = 15 * time.Second
	// serverGivesUp is when 1.9.11 stops to wait for a webhook, and a little.
	serverGivesUp = 32 * time.Second
	// quick is the longest call while the program is away; soon that of one that it may
	// take a second for. Up to busyCall the machine may be to blame.
	quick, soon = time.Second, 3 * time.Second
	busyCall    = 5 * time.Second
	// felt is the least that the first call must take where the program hangs.
	felt = 2 * time.Second
	// rightBound is when stored Endpoints are given up, rightSoon when they must be right.
	rightBound, rightSoon = 20 * time.Second, 5 * time.Second
)

var faultOracle = labkit.Oracle{
	Text: []string{
		"stock: a controller manager loses its lease when a webhook that reviews kube-system hangs and has no protection",
		fmt.Sprintf("ours: both leases keep their holder; Endpoints follow each pod, within %v in any namespace, in all rows except packets dropped and no news", anyUpdate),
		fmt.Sprintf("ours: with packets dropped a write takes %v at most, and the webhook configuration is empty after %v", serverGivesUp, tripped),
		fmt.Sprintf("ours: a program that receives no more pod events ends within %v; Endpoints of its namespaces follow within %v, others within %v", deafEnds, givenUp, anyUpdate),
		fmt.Sprintf("ours: without the program, or with a foreign certificate, a write takes %v at most, and the foreign certificate empties the configuration within %v", quick, tripped),
		"ours: a body that arrives in time is reviewed; with a late body, a late answer or no answer the write stays unchanged, and the program corrects it later",
		"ours: a made-up review is allowed, or is refused because it is not a review; a rule that fails is disabled, and the other rules still apply",
		fmt.Sprintf("ours: %d rules and %d certificates are loaded again, %d invalid rules are rejected, no connection fails", goodRules, certificates, badRules),
		"ours: at the end all Endpoints match the model, and no address is misplaced",
	},
	Judge: judgeFaults,
}

func (c call) String() string {
	if c.Err != "" {
		return fmt.Sprintf("%s refused after %v: %s", c.Name, c.Took.Round(time.Millisecond), c.Err)
	}
	s := fmt.Sprintf("%s %s after %v", c.Name, c.Placed, c.Took.Round(time.Millisecond))
	if c.RightAfter > 0 {
		s += fmt.Sprintf(", corrected %v later", c.RightAfter.Round(time.Millisecond))
	}
	return s
}

// slowest is the longest call.
func (f fault) slowest() call {
	return slices.MaxFunc(append(slices.Clone(f.Calls), call{}), func(a, b call) int { return int(a.Took - b.Took) })
}

func (f fault) String() string {
	n := 0
	for _, c := range f.Calls {
		if c.Placed == patched {
			n++
		}
	}
	out := []string{fmt.Sprintf("%d writes, %d patched, the slowest: %v", len(f.Calls), n, f.slowest())}
	for _, s := range f.Served {
		out = append(out, fmt.Sprintf("namespace %s: %d changes, the slowest %v, %d lost", s.Namespace, s.Updates, s.Slowest.Round(time.Millisecond), s.Lost))
	}
	for what, d := range map[string]time.Duration{"1 process gone": f.EndedAfter, "2 configuration empty": f.EmptyAfter, "3 called again": f.FilledAfter} {
		if d > 0 {
			out = append(out, fmt.Sprintf("%s after %v", what[2:], d.Round(100*time.Millisecond)))
		}
	}
	slices.Sort(out[1+len(f.Served):])
	return fmt.Sprintf("%s: %s", f.Row, strings.Join(out, "; "))
}

func (l lease) String() string {
	return fmt.Sprintf("lease %s: %d renewals, %d holders, longest gap %v, alive at the end: %v", l.Name, l.Renewals, len(l.Holders), l.LongestGap.Round(100*time.Millisecond), l.Alive)
}

// lost: its holder ended by itself, or another one came.
func (l lease) lost() bool { return !l.Alive || len(l.Holders) > 1+l.Ended }
