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

func judgeFaults(h *history.History) labkit.Result {
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
		facts = append(facts, fmt.Sprintf("%d rules and %d certificates read again, %d rules rejected; %d connections, %d failed", r.Rules, r.Certificates, r.Rejected, r.Handshakes, r.Failed))
	}
	for _, o := range history.Of[fuzzed](h) {
		facts = append(facts, fmt.Sprintf("%d made-up reviews, %d allowed, the others refused as none; the slowest answer after %v", o.Reviews, o.Allowed, o.Slowest.Round(time.Millisecond)))
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

func controlVerdict(_ *history.History, rows []fault, leases []lease) labkit.Result {
	switch {
	case len(rows) != 1 || rows[0].Row != controlRow:
		return labkit.InconclusiveBecause("%d rows, want that of the control", len(rows))
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

func faultVerdict(h *history.History, rows []fault, leases []lease) labkit.Result {
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
		return labkit.ReproducedBecause("%d rules were read again and %d rejected, want %d and %d", r.Rules, r.Rejected, goodRules, badRules)
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
	return labkit.AbsentBecause("%d faults; with SIGSTOP the slowest Endpoints took %v; both leases were kept, and %d Services are as the model",
		len(rows)+1, max(s.Served[0].Slowest, s.Served[1].Slowest).Round(100*time.Millisecond), end.Services)
}

// wrong says what is, and what cannot be told.
func (f fault) wrong() (wrong, unsure string) {
	if f.Wrong != "" {
		return f.Wrong, ""
	}
	for _, c := range f.Calls {
		if c.Err != "" {
			return "a write was refused: " + c.String(), ""
		}
		if c.Placed != patched && c.Placed != unchanged {
			return "a write was altered: " + c.String(), ""
		}
	}
	if len(f.Served) != 2 {
		return "", fmt.Sprintf("changes of %d namespaces were counted, want 2", len(f.Served))
	}
	for _, s := range f.Served {
		switch {
		case s.Lost > 0:
			return fmt.Sprintf("%d changes in namespace %s are not in the Endpoints after %v", s.Lost, s.Namespace, givenUp), ""
		case s.Slowest > anyUpdate && !f.Row.slow():
			return fmt.Sprintf("Endpoints of namespace %s followed after %v, want %v", s.Namespace, s.Slowest.Round(100*time.Millisecond), anyUpdate), ""
		case s.Updates == 0:
			return "", "nothing changed in namespace " + s.Namespace
		}
	}
	switch f.Row {
	case stoppedRow, earlyRow:
		switch {
		case f.EndedAfter == 0:
			return "liveness did not end the program within a minute", ""
		case f.slowest().Took > anyUpdate:
			return fmt.Sprintf("%v, want %v", f.slowest(), anyUpdate), ""
		case f.slowest().Took < felt:
			return "", fmt.Sprintf("the first write took %v: the trigger is missing", f.slowest().Took)
		}
		return f.filled(), ""
	case droppedRow:
		switch slow := f.slowest(); {
		case slow.Took > serverGivesUp:
			return slow.String(), ""
		case slow.Took < felt:
			return "", fmt.Sprintf("the first write took %v: the trigger is missing", slow.Took)
		}
		return f.emptied(), ""
	case killedRow:
		if f.EndedAfter == 0 || len(f.Calls) == 0 {
			return "", "the program was not killed"
		}
		wrong, unsure = within(f.slowest(), quick)
		if wrong == "" {
			wrong = f.filled()
		}
		return wrong, unsure
	case deafRow:
		inside, outside := f.Served[0], f.Served[1]
		switch {
		case f.EndedAfter == 0:
			return fmt.Sprintf("the program did not end within %v", deafEnds), ""
		case outside.Slowest > anyUpdate:
			return fmt.Sprintf("Endpoints of namespace %s followed after %v, want %v", outside.Namespace, outside.Slowest.Round(100*time.Millisecond), anyUpdate), ""
		case inside.Slowest < felt:
			return "", fmt.Sprintf("the slowest Endpoints took %v: the trigger is missing", inside.Slowest)
		}
		return f.filled(), ""
	case certificateRow:
		for _, c := range f.Calls {
			if c.Placed != unchanged {
				return "", "the API server took the foreign certificate: " + c.String()
			}
		}
		if len(f.Calls) == 0 {
			return "", "nothing was written"
		}
		wrong, unsure = within(f.slowest(), quick)
		if wrong == "" {
			wrong = f.emptied()
		}
		return wrong, unsure
	case betweenRow:
		return f.wrongBetween()
	case ruleRow, reloadRow:
		n := 0
		for _, c := range f.Calls {
			if c.Placed == patched {
				n++
			}
		}
		if n == 0 {
			return fmt.Sprintf("of %d writes none was patched", len(f.Calls)), ""
		}
	case largeRow:
		got := map[int]int{}
		for _, c := range f.Calls {
			if c.RightAfter == 0 {
				return fmt.Sprintf("%v, %d addresses: not right after %v", c, c.Addresses, rightBound), ""
			}
			if c.Took > anyUpdate {
				return fmt.Sprintf("%v, %d addresses", c, c.Addresses), ""
			}
			got[c.Addresses]++
		}
		for _, n := range sizes {
			if got[n] == 0 {
				return "", fmt.Sprintf("no Endpoints of %d addresses were written", n)
			}
		}
	}
	return "", ""
}

// emptied is what is wrong with the breaker.
func (f fault) emptied() string {
	if f.EmptyAfter == 0 {
		return fmt.Sprintf("the webhook configuration is not empty after %v", tripped)
	}
	return f.filled()
}

func (f fault) filled() string {
	if f.FilledAfter == 0 {
		return fmt.Sprintf("the webhook is not in its configuration %v after the fault", back)
	}
	return ""
}

// within: a call that is somewhat late may be the machine's.
func within(c call, bound time.Duration) (wrong, unsure string) {
	switch {
	case c.Took > busyCall:
		return fmt.Sprintf("%v, want %v", c, bound), ""
	case c.Took > bound:
		return "", fmt.Sprintf("%v, want %v: the machine is too busy to tell", c, bound)
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
			return fmt.Sprintf("%v: not right after %v", c, rightBound), ""
		case c.RightAfter > rightSoon:
			late = fmt.Sprintf("%v, want right after %v", c, rightSoon)
		case c.Placed != m.want && m.want == unchanged:
			late = fmt.Sprintf("%v, want %s: the trigger is missing", c, m.want)
		case c.Placed != m.want:
			late = fmt.Sprintf("%v, want %s: the machine is too busy to tell", c, m.want)
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
