// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finding is what forecast and node check say about a cluster: findings with stable codes,
// one table of all codes, one way to print them and one rule for the status.
package finding

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/cmd/internal/exit"
)

// Level is how bad a finding is. It is printed as it is written here.
type Level string

// The levels, worst first.
const (
	// Stop: do not go on. Pods would die, or the node would be without a kubelet.
	Stop Level = "STOP"
	// New: a container is recreated that would otherwise be kept.
	New Level = "new"
	// Warn: something changes that someone may notice.
	Warn Level = "warn"
	// Unknown: it could not be asked, or cannot be told.
	Unknown Level = "?"
	// OK: asked, and nothing is wrong.
	OK Level = "ok"
)

var levels = []Level{Stop, New, Warn, Unknown, OK}

// rank is smaller for a worse level.
func (l Level) rank() int { return slices.Index(levels, l) }

// Worse tells whether a is a worse level than b.
func Worse(a, b Level) bool { return a.rank() < b.rank() }

// Finding is one thing that was found.
type Finding struct {
	// Code is "HF101". What it means is in the table (Codes) and never changes.
	Code  string `json:"code"`
	Level Level  `json:"level"`
	// Object is what it is about: "node1", "node1: default/web-0 app". It is never a secret.
	Object string `json:"object"`
	// Text says what is so, in one sentence without an end.
	Text string `json:"text"`
	// Remedy says what to do, or is empty.
	Remedy string `json:"remedy,omitempty"`
	// Page is where the code is explained, from the root of the repository.
	Page string `json:"page"`
}

// Of returns a finding of a code, at the level that the table has for it. A code that the table
// does not have is a mistake in this program: it panics.
func Of(code, object, text, remedy string) Finding {
	c := Lookup(code)
	if c == nil {
		panic("finding: no code " + code)
	}
	return Finding{Code: code, Level: c.Level, Object: object, Text: text, Remedy: remedy, Page: c.Page()}
}

// At returns the finding at another level. The table must name it for the code (Code.Also).
func (f Finding) At(l Level) Finding {
	if c := Lookup(f.Code); c == nil || l != c.Level && !slices.Contains(c.Also, l) {
		panic(fmt.Sprintf("finding: %s is never %s", f.Code, l))
	}
	f.Level = l
	return f
}

// FailOn is the flag --fail-on: the least level that makes the status 3. The zero value is STOP.
type FailOn struct{ level Level }

// FailOnHelp is the help of the flag.
const FailOnHelp = "status 3 from this level on: STOP, new or warn"

// ParseFailOn reads a level: STOP, new or warn, in any case.
func ParseFailOn(s string) (FailOn, error) {
	for _, l := range []Level{Stop, New, Warn} {
		if strings.EqualFold(s, string(l)) {
			return FailOn{l}, nil
		}
	}
	return FailOn{}, exit.Usagef("--fail-on is %q: use STOP, new or warn", s)
}

// String, Set and Type make FailOn a flag.
func (f *FailOn) String() string { return string(f.least()) }

// Set reads a level.
func (f *FailOn) Set(s string) (err error) {
	*f, err = ParseFailOn(s)
	return err
}

// Type is what help shows for the value.
func (f *FailOn) Type() string { return "level" }

func (f FailOn) least() Level {
	if f.level == "" {
		return Stop
	}
	return f.level
}

// Status is the exit status for findings: 3 if one is at or above failOn, else 1 if something could
// not be asked or told, else 0. Usage errors (2) never get as far.
func Status(findings []Finding, failOn FailOn) int {
	status := exit.OK
	for _, f := range findings {
		switch {
		case f.Level == Unknown:
			status = exit.Failed
		case f.Level.rank() <= failOn.least().rank():
			return exit.Found
		}
	}
	return status
}

// Err is Status as an error for a command to return: nil for 0.
func Err(findings []Finding, failOn FailOn) error {
	n, unknown := 0, 0
	for _, f := range findings {
		if f.Level == Unknown {
			unknown++
		} else if f.Level.rank() <= failOn.least().rank() {
			n++
		}
	}
	switch Status(findings, failOn) {
	case exit.OK:
		return nil
	case exit.Found:
		return exit.Foundf("findings at level %s or above: %d", failOn.least(), n)
	}
	return exit.Failedf("not everything could be found out: see the rows with ? (%d)", unknown)
}

// Sort puts findings in order: worst first, then by code and object.
func Sort(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		if d := a.Level.rank() - b.Level.rank(); d != 0 {
			return d
		}
		if d := strings.Compare(a.Code, b.Code); d != 0 {
			return d
		}
		return strings.Compare(a.Object, b.Object)
	})
}

// Group returns findings in order, with those that say the same of several objects as one: its
// Object is "node1 and 41 more". STOP and ? stay one by one.
func Group(findings []Finding) []Finding {
	var out []Finding
	at, more := map[Finding]int{}, map[int]int{}
	sorted := slices.Clone(findings)
	Sort(sorted)
	for _, f := range sorted {
		key := f
		key.Object = ""
		i, ok := at[key]
		if !ok || f.Level == Stop || f.Level == Unknown {
			at[key] = len(out)
			out = append(out, f)
			continue
		}
		more[i]++
	}
	for i, n := range more {
		out[i].Object = fmt.Sprintf("%s and %d more", out[i].Object, n)
	}
	return out
}

// Sum is one line: "2 STOP, 1 new, 3 warn, 1 ?", or "nothing found".
func Sum(findings []Finding) string {
	var parts []string
	for _, l := range levels[:4] {
		n := 0
		for _, f := range findings {
			if f.Level == l {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, l))
		}
	}
	if len(parts) == 0 {
		return "nothing found"
	}
	return strings.Join(parts, ", ")
}
