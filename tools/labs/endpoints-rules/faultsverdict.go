// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"fmt"
	"slices"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

func judgeFaults(h *history.History) labkit.Outcome {
	rows := history.Of[fault](h)
	leases := history.Of[lease](h)
	var facts []string
	for _, f := range rows {
		facts = append(facts, f.String())
	}
	for _, l := range leases {
		facts = append(facts, l.String())
	}
	for _, r := range history.Of[reloads](h) {
		facts = append(facts, fmt.Sprintf("%d rules and %d certificates loaded again, %d rules rejected; %d connections, %d failed", r.Rules, r.Certificates, r.Rejected, r.Handshakes, r.Failed))
	}
	for _, o := range history.Of[fuzzed](h) {
		facts = append(facts, fmt.Sprintf("%d made-up reviews, %d allowed, the others refused because they are not reviews; the slowest answer after %v", o.Reviews, o.Allowed, o.Slowest.Round(time.Millisecond)))
	}
	verdict := faultVerdict
	if h.Variant == string(labkit.Stock) {
		verdict = controlVerdict
	}
	res := verdict(h, rows, leases)
	res.Facts = facts
	for _, f := range rows {
		res.Measure("slowest write, "+string(f.Row), f.slowest().Took.Seconds(), "s")
		for _, s := range f.Served {
			res.Measure(fmt.Sprintf("slowest Endpoints of namespace %s, %s", s.Namespace, f.Row), s.Slowest.Seconds(), "s")
		}
	}
	return res
}

// whole says what is missing of the leases.
func wholeLeases(leases []lease) string {
	for _, name := range leaseNames {
		n := 0
		for _, l := range leases {
			if l.Name == name && l.Renewals > 1 {
				n++
			}
		}
		if n != 1 {
			return fmt.Sprintf("lease %s was read %d times, want once, with renewals", name, n)
		}
	}
	return ""
}

func controlVerdict(_ *history.History, rows []fault, leases []lease) labkit.Outcome {
	switch {
	case len(rows) != 1 || rows[0].Row != controlRow:
		return labkit.InconclusiveBecause("%d rows, want only that of the control", len(rows))
	case rows[0].slowest().Took < felt:
		return labkit.InconclusiveBecause("the slowest write took %v: the trigger is missing", rows[0].slowest().Took)
	}
	if why := wholeLeases(leases); why != "" {
		return labkit.InconclusiveBecause("%s", why)
	}
	for _, l := range leases {
		if l.lost() {
			return labkit.ReproducedBecause("%v; the first write took %v", l, rows[0].slowest().Took.Round(100*time.Millisecond))
		}
	}
	return labkit.AbsentBecause("no lease was lost")
}

func faultVerdict(h *history.History, rows []fault, leases []lease) labkit.Outcome {
	for _, l := range leases {
		if l.lost() {
			return labkit.ReproducedBecause("%v", l)
		}
	}
	// Nor does what is missing hide what a row saw.
	for _, f := range rows {
		if wrong, _ := f.wrong(); wrong != "" {
			return labkit.ReproducedBecause("%s: %s", f.Row, wrong)
		}
	}
	if why := wholeLeases(leases); why != "" {
		return labkit.InconclusiveBecause("%s", why)
	}
	by := map[row]fault{}
	for _, f := range rows {
		by[f.Row] = f
	}
	busy := ""
	for _, name := range faultRows {
		f, ok := by[name]
		if !ok || len(rows) != len(faultRows) {
			return labkit.InconclusiveBecause("%d rows, %q among them: %v; want each of %d once", len(rows), name, ok, len(faultRows))
		}
		if _, unsure := f.wrong(); unsure != "" && busy == "" {
			busy = fmt.Sprintf("%s: %s", name, unsure)
		}
	}
	r, z, end := history.One[reloads](h), history.One[fuzzed](h), history.One[compared](h)
	switch {
	case r.Failed > 0:
		return labkit.ReproducedBecause("%d of %d connections failed while the certificate changed, first: %s", r.Failed, r.Handshakes, r.FirstError)
	case r.Rules != goodRules || r.Rejected != badRules:
		return labkit.ReproducedBecause("%d rules were loaded again and %d rejected, want %d and %d", r.Rules, r.Rejected, goodRules, badRules)
	case r.Certificates != certificates:
		return labkit.ReproducedBecause("%d certificates were seen, want %d", r.Certificates, certificates)
	case z.Wrong != "":
		return labkit.ReproducedBecause("a made-up review: %s", z.Wrong)
	case end.wrong() != "":
		return labkit.ReproducedBecause("%s", end.wrong())
	case busy != "":
		return labkit.InconclusiveBecause("%s", busy)
	case z.Reviews == 0 || z.Allowed == 0 || end.Services == 0 || r.Handshakes == 0:
		return labkit.InconclusiveBecause("%d made-up reviews, %d allowed, %d connections, %d Services compared", z.Reviews, z.Allowed, r.Handshakes, end.Services)
	}
	s := by[stoppedRow]
	return labkit.AbsentBecause("%d faults; with SIGSTOP the slowest Endpoints took %v; both leases were kept, and the Endpoints of %d Services match the model",
		len(rows)+1, max(s.Served[0].Slowest, s.Served[1].Slowest).Round(100*time.Millisecond), end.Services)
}

// check is a line of the table by which a fault is judged.
type check struct {
	rows  []row // the faults that it is for, nil: all
	wrong bool  // what it finds is wrong; else it means that nothing can be told
	// finds gives the reason if its condition holds, else "".
	finds func(f fault) string
}

const (
	isWrong  = true
	isUnsure = false
)

// when is the reason if the condition holds, else "".
func when(condition bool, reason string, a ...any) string {
	if !condition {
		return ""
	}
	return fmt.Sprintf(reason, a...)
}

var (
	stopRows        = []row{stoppedRow, earlyRow}
	dropRows        = []row{droppedRow}
	killRows        = []row{killedRow}
	deafRows        = []row{deafRow}
	certificateRows = []row{certificateRow}
	betweenRows     = []row{betweenRow}
	readRows        = []row{ruleRow, reloadRow}
	largeRows       = []row{largeRow}
)

// faultChecks are asked in their order; the first reason is the answer. Those behind twoNamespaces
// may use both of f.Served.
var faultChecks = []check{
	{nil, isWrong, func(f fault) string { return f.Wrong }},
	{nil, isWrong, eachCall(refusedOrAltered)},
	{nil, isUnsure, twoNamespaces},
	{nil, isWrong, func(f fault) string { return f.Served[0].lost() }},
	{nil, isWrong, func(f fault) string { return when(!f.Row.slow(), "%s", f.Served[0].late()) }},
	{nil, isUnsure, func(f fault) string { return f.Served[0].idle() }},
	{nil, isWrong, func(f fault) string { return f.Served[1].lost() }},
	{nil, isWrong, func(f fault) string { return when(!f.Row.slow(), "%s", f.Served[1].late()) }},
	{nil, isUnsure, func(f fault) string { return f.Served[1].idle() }},

	{stopRows, isWrong, func(f fault) string {
		return when(f.EndedAfter == 0, "the liveness probe did not end the program within a minute")
	}},
	{stopRows, isWrong, func(f fault) string {
		return when(f.slowest().Took > anyUpdate, "%v, want %v", f.slowest(), anyUpdate)
	}},
	{stopRows, isUnsure, notFelt},
	{stopRows, isWrong, fault.filled},

	{dropRows, isWrong, func(f fault) string { return when(f.slowest().Took > serverGivesUp, "%v", f.slowest()) }},
	{dropRows, isUnsure, notFelt},
	{dropRows, isWrong, fault.emptied},
	{dropRows, isWrong, fault.filled},

	{killRows, isUnsure, func(f fault) string {
		return when(f.EndedAfter == 0 || len(f.Calls) == 0, "the program was not killed")
	}},
	{killRows, isWrong, tooSlow},
	{killRows, isWrong, fault.filled},
	{killRows, isUnsure, slowOrBusy},

	{deafRows, isWrong, func(f fault) string {
		return when(f.EndedAfter == 0, "the program did not end within %v", deafEnds)
	}},
	{deafRows, isWrong, func(f fault) string { return f.Served[1].late() }}, // of its pods the program hears
	{deafRows, isUnsure, func(f fault) string {
		return when(f.Served[0].Slowest < felt, "the slowest Endpoints took %v: the trigger is missing", f.Served[0].Slowest)
	}},
	{deafRows, isWrong, fault.filled},

	{certificateRows, isUnsure, eachCall(func(c call) string {
		return when(c.Placed != unchanged, "the API server accepted the foreign certificate: %v", c)
	})},
	{certificateRows, isUnsure, func(f fault) string { return when(len(f.Calls) == 0, "nothing was written") }},
	{certificateRows, isWrong, tooSlow},
	{certificateRows, isWrong, fault.emptied},
	{certificateRows, isWrong, fault.filled},
	{certificateRows, isUnsure, slowOrBusy},

	{betweenRows, isWrong, func(f fault) string { wrong, _ := f.wrongBetween(); return wrong }},
	{betweenRows, isUnsure, func(f fault) string { _, unsure := f.wrongBetween(); return unsure }},

	{readRows, isWrong, func(f fault) string {
		return when(!slices.ContainsFunc(f.Calls, func(c call) bool { return c.Placed == patched }), "none of %d writes was patched", len(f.Calls))
	}},

	{largeRows, isWrong, eachCall(notRightOrSlow)},
	{largeRows, isUnsure, sizeMissing},
}

// wrong says what is, and what cannot be told: one of them, or neither.
func (f fault) wrong() (wrong, unsure string) {
	for _, c := range faultChecks {
		if c.rows != nil && !slices.Contains(c.rows, f.Row) {
			continue
		}
		switch why := c.finds(f); {
		case why == "":
		case c.wrong:
			return why, ""
		default:
			return "", why
		}
	}
	return "", ""
}

// eachCall is what is found first of the calls.
func eachCall(finds func(c call) string) func(f fault) string {
	return func(f fault) string {
		for _, c := range f.Calls {
			if why := finds(c); why != "" {
				return why
			}
		}
		return ""
	}
}

func refusedOrAltered(c call) string {
	if c.Err != "" {
		return "a write was refused: " + c.String()
	}
	return when(c.Placed != patched && c.Placed != unchanged, "a write was altered: %v", c)
}

func twoNamespaces(f fault) string {
	return when(len(f.Served) != 2, "changes of %d namespaces were counted, want 2", len(f.Served))
}

func (s served) lost() string {
	return when(s.Lost > 0, "%d changes in namespace %s are not in the Endpoints after %v", s.Lost, s.Namespace, givenUp)
}

func (s served) late() string {
	return when(s.Slowest > anyUpdate, "Endpoints of namespace %s followed after %v, want %v", s.Namespace, s.Slowest.Round(100*time.Millisecond), anyUpdate)
}

func (s served) idle() string {
	return when(s.Updates == 0, "nothing changed in namespace %s", s.Namespace)
}

func notFelt(f fault) string {
	return when(f.slowest().Took < felt, "the first write took %v: the trigger is missing", f.slowest().Took)
}

func tooSlow(f fault) string {
	wrong, _ := within(f.slowest(), quick)
	return wrong
}

func slowOrBusy(f fault) string {
	_, unsure := within(f.slowest(), quick)
	return unsure
}

func notRightOrSlow(c call) string {
	if c.RightAfter == 0 {
		return fmt.Sprintf("%v, %d addresses: not correct after %v", c, c.Addresses, rightBound)
	}
	return when(c.Took > anyUpdate, "%v, %d addresses", c, c.Addresses)
}

func sizeMissing(f fault) string {
	for _, n := range sizes {
		if !slices.ContainsFunc(f.Calls, func(c call) bool { return c.Addresses == n }) {
			return fmt.Sprintf("no Endpoints of %d addresses were written", n)
		}
	}
	return ""
}

// emptied is what is wrong with the breaker.
func (f fault) emptied() string {
	return when(f.EmptyAfter == 0, "the webhook configuration is not empty after %v", tripped)
}

func (f fault) filled() string {
	return when(f.FilledAfter == 0, "the webhook is not in its configuration %v after the fault", back)
}

// within: a call that is somewhat late may be the machine's.
func within(c call, bound time.Duration) (wrong, unsure string) {
	switch {
	case c.Took > busyCall:
		return fmt.Sprintf("%v, want %v", c, bound), ""
	case c.Took > bound:
		return "", fmt.Sprintf("%v, want %v: the machine is too busy for a verdict", c, bound)
	}
	return "", ""
}

// wrongBetween compares each call with what its mode is to come to.
func (f fault) wrongBetween() (wrong, unsure string) {
	for _, m := range modes {
		i := slices.IndexFunc(f.Calls, func(c call) bool { return c.Name == m.name })
		if i < 0 {
			return "", "nothing was written with " + m.name
		}
		c := f.Calls[i]
		late := ""
		if m.bound == serverGivesUp {
			if c.Took > m.bound {
				return c.String(), ""
			}
		} else if wrong, late = within(c, m.bound); wrong != "" {
			return wrong, ""
		}
		switch {
		case c.RightAfter == 0:
			return fmt.Sprintf("%v: not correct after %v", c, rightBound), ""
		case c.RightAfter > rightSoon:
			late = fmt.Sprintf("%v, want it corrected after %v", c, rightSoon)
		case c.Placed != m.want && m.want == unchanged:
			late = fmt.Sprintf("%v, want %s: the trigger is missing", c, m.want)
		case c.Placed != m.want:
			late = fmt.Sprintf("%v, want %s: the machine is too busy for a verdict", c, m.want)
		}
		if late != "" && unsure == "" {
			unsure = late
		}
	}
	if unsure == "" && f.Modes != len(modes) {
		unsure = fmt.Sprintf("%d of %d modes were used", f.Modes, len(modes))
	}
	return f.filled(), unsure
}
