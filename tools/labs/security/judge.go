// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"fmt"
	"strings"

	"holdfast/tools/build/outcome"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// notSeen is why nothing could be seen of a row.
type notSeen struct{ Fix, Why string }

// finding is what a row's observations say: whether the vulnerability is there, and what
// was seen; or, if that cannot be told, why.
type finding struct {
	happened bool
	saw      string
	untold   string
	numbers  []outcome.Number
}

// cannotTell is a finding of none.
func cannotTell(format string, a ...any) finding { return finding{untold: fmt.Sprintf(format, a...)} }

// answer is what the row alone would answer.
func (f finding) answer() labkit.Verdict {
	if f.happened {
		return labkit.Reproduced
	}
	return labkit.Absent
}

// measure adds a number.
func (f finding) measure(name string, value float64, unit string) finding {
	f.numbers = append(f.numbers, outcome.Number{Name: name, Value: value, Unit: unit})
	return f
}

// counting: ours must have counted what it did, the others cannot. What happened needs no
// counter.
func (f finding) counting(h *history.History, metric string, n, least float64) finding {
	if h.Variant == string(labkit.Ours) && n < least && f.untold == "" && !f.happened {
		f.untold = fmt.Sprintf("%s is %v, want at least %v", metric, n, least)
	}
	return f
}

// judge holds the findings of the rows against what each variant must show: on stock, and
// with the gates off, every row has to show what its patch is for.
func judge(h *history.History, rows []row) labkit.Outcome {
	untold := map[string]string{}
	for _, o := range history.Of[notSeen](h) {
		untold[o.Fix] = o.Why
	}
	var res labkit.Outcome
	var there, gone, why []string
	for _, r := range rows {
		f := cannotTell("%s", untold[r.fix])
		if f.untold == "" {
			f = r.judge(h)
		}
		if f.untold == "" && r.gate == "" && h.Variant == string(labkit.GateOff) && f.happened {
			f.untold = "the fix has no gate, but the incident happened with the gates off: " + f.saw
		}
		if f.untold != "" {
			why = append(why, r.fix+": "+f.untold)
			continue
		}
		res.Facts = append(res.Facts, fmt.Sprintf("%s: %s: %s", r.fix, f.answer(), f.saw))
		for _, n := range f.numbers {
			res.Measure(r.fix+": "+n.Name, n.Value, n.Unit)
		}
		switch {
		case r.gate == "" && h.Variant == string(labkit.GateOff):
		case f.happened:
			there = append(there, r.fix)
		default:
			gone = append(gone, r.fix)
		}
	}
	answer := labkit.ReproducedBecause("%s", strings.Join(there, ", "))
	switch {
	case len(there) > 0 && h.Variant == string(labkit.Ours):
		// A row that cannot tell hides nothing that another one saw on ours.
		res.Facts = append(res.Facts, why...)
	case len(why) > 0:
		answer = labkit.InconclusiveBecause("%s", strings.Join(why, "\n"))
	case len(there) == 0:
		answer = labkit.AbsentBecause("none of %s", strings.Join(gone, ", "))
	case len(gone) > 0 && (h.Variant == string(labkit.Stock) || h.Variant == string(labkit.GateOff)):
		answer = labkit.InconclusiveBecause("%s happened, %s did not", strings.Join(there, ", "), strings.Join(gone, ", "))
	}
	res.Verdict, res.Why = answer.Verdict, answer.Why
	return res
}
