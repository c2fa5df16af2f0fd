// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package security knows the vulnerabilities of a base: what is closed stands in the fix.json of
// the fix that closes it, what stays open, or does not concern the product and why, in the base's
// vulnerabilities.json. docs/security.md (Page) and an OpenVEX document (package openvex) are made
// of both, and
// each of its reasons is checked against the stock tree (CheckLines) and the
// product's binaries (CheckSymbols).
package security

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/strictjson"
)

// File has what no fix of the base closes.
func File(base string) string { return "bases/" + base + "/vulnerabilities.json" }

// Status says what a vulnerability is to the product.
type Status string

// The statuses.
const (
	Closed      Status = "closed"              // by a fix
	Affected    Status = "affected"            // open in the product
	Documented  Status = "documented"          // open by intent: closing it would not be drop-in
	NotAffected Status = "not-affected"        // for a reason that is checked
	NotOurs     Status = "not-ours"            // of a component that the product does not have
	Unjudged    Status = "under-investigation" // nothing is known of it yet

	// OptIn is what Load makes of Closed where a gate of the fix is off by default:
	// Left says how to switch it on, and becomes Do.
	OptIn Status = "opt-in"
)

var statuses = []Status{Closed, Affected, Documented, NotAffected, NotOurs, Unjudged}

// Table has all vulnerabilities: those that fixes close, then those of File.
type Table struct {
	// Base is the release that it speaks of.
	Base string `json:"-"`
	// Updated is the date of the last examination, Version its number: they go into the OpenVEX
	// document.
	Updated time.Time `json:"updated"`
	Version int       `json:"version"`
	Entries []*Entry  `json:"entries"`
}

// Entry is one vulnerability, or several that have everything in common.
type Entry struct {
	// CVE are the numbers; Name stands for them where there is none.
	CVE  []string `json:"cve,omitempty"`
	Name string   `json:"name,omitempty"`
	// Module is the Go module that has it; empty: Kubernetes.
	Module string `json:"module,omitempty"`
	// Components that it is told of: programs of the product, but for NotOurs.
	Components []string `json:"components"`
	// What an attacker can do with it, in one line.
	What string `json:"what"`
	// Status is Closed in a fix.json, where it is not written.
	Status Status `json:"status,omitempty"`
	// Fix closes it in the bases of SinceOf, since +holdfast.N of each; in the table's own base
	// since +holdfast.Since, which may be the release to come. Left is what it leaves open.
	Fix     string         `json:"-"`
	SinceOf map[string]int `json:"since,omitempty"`
	Since   int            `json:"-"`
	Left    string         `json:"left,omitempty"`
	// Line of the stock tree that shows it.
	Line *Line `json:"line,omitempty"`
	// NotLinked are parts of symbols that no program of Components may have:
	// packages, types, functions.
	NotLinked []string `json:"notLinked,omitempty"`
	// Because is the reason of NotAffected in words.
	Because string `json:"because,omitempty"`
	// Do is what an operator does about it.
	Do string `json:"do,omitempty"`
}

// Line is a place in the stock tree: its line number Line (from 1) has Text, an
// identifier or a few words.
type Line struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

func (l Line) String() string { return fmt.Sprintf("%s:%d", l.File, l.Line) }

// ID names an entry in messages and pages.
func (e *Entry) ID() string {
	if len(e.CVE) > 0 {
		return strings.Join(e.CVE, ", ")
	}
	return e.Name
}

// findOptIn gives what is closed by a gate that is off by default the status OptIn.
func (t *Table) findOptIn(table *fixes.Table) {
	for _, e := range t.Entries {
		if e.Status == Closed && offGate(table.Find(e.Fix).Form(t.Base)) != "" {
			e.Status, e.Do, e.Left = OptIn, e.Left, ""
		}
	}
}

// offGate is a gate of the form that is off by default, "" for none.
func offGate(f *fixes.Form) string {
	for _, g := range slices.Sorted(maps.Keys(f.Gates)) {
		if !f.Gates[g].Default {
			return g
		}
	}
	return ""
}

// New makes the table of a base of the content of its File and of the fixes that it has, and checks
// what can be seen in it alone.
func New(raw []byte, table *fixes.Table, base string) (*Table, error) {
	t, seen := &Table{}, map[string]bool{}
	if err := strictjson.Decode(raw, t); err != nil {
		return nil, exit.Preconditionf("%s: %v", File(base), err)
	}
	if t.Version < 1 || t.Updated.IsZero() || len(t.Entries) == 0 {
		return nil, exit.Preconditionf("%s: \"version\", \"updated\" and \"entries\" must be there", File(base))
	}
	t.Base = base
	open := t.Entries
	t.Entries = nil
	add := func(file string, i int, e *Entry) error {
		if e.ID() == "" {
			return exit.Preconditionf("%s: entry %d has neither \"cve\" nor \"name\"", file, i+1)
		}
		if fault := e.fault(seen); fault != "" {
			return exit.Preconditionf("%s: %s: %s", file, e.ID(), fault)
		}
		t.Entries = append(t.Entries, e)
		return nil
	}
	for _, s := range table.Of(base) {
		for i, raw := range s.Vulnerabilities {
			e := &Entry{}
			if err := strictjson.Decode(raw, e); err != nil {
				return nil, exit.Preconditionf("%s: vulnerability %d: %v", s.File(), i+1, err)
			}
			if e.Status != "" {
				return nil, exit.Preconditionf("%s: %s: it has a \"status\": a fix closes what it names", s.File(), e.ID())
			}
			e.Status, e.Fix = Closed, s.Name
			for b := range e.SinceOf {
				if s.Form(b) == nil {
					return nil, exit.Preconditionf("%s: %s: \"since\" names base %s, which does not have the fix", s.File(), e.ID(), b)
				}
			}
			// A base that "since" does not name has no such fault: its File says why.
			var here bool
			if e.Since, here = e.SinceOf[base]; !here && len(e.SinceOf) > 0 {
				continue
			}
			if err := add(s.File(), i, e); err != nil {
				return nil, err
			}
		}
	}
	for i, e := range open {
		if e.Status == Closed {
			return nil, exit.Preconditionf("%s: %s: what a fix closes stands in its %s", File(base), e.ID(), fixes.File)
		}
		if err := add(File(base), i, e); err != nil {
			return nil, err
		}
	}
	return t, nil
}

var (
	cveRE  = regexp.MustCompile(`^CVE-\d{4}-\d{4,}$`)
	nameRE = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
)

// Ours are the product's programs that entries speak of.
var Ours = []string{"kubelet", "kube-controller-manager"}

// fault is what is wrong with the entry, "" if nothing is. seen has what the
// entries before it spoke of.
func (e *Entry) fault(seen map[string]bool) string {
	for _, id := range append(slices.Clone(e.CVE), e.Name) {
		if id == "" {
			continue
		}
		if id != e.Name && !cveRE.MatchString(id) || id == e.Name && !nameRE.MatchString(id) {
			return fmt.Sprintf("%q is no CVE number, and no name of lower-case words joined by dashes", id)
		}
		for _, c := range e.Components {
			if seen[id+" "+c] {
				return fmt.Sprintf("%s has two entries for %s", id, c)
			}
			seen[id+" "+c] = true
		}
	}
	ours := func(c string) bool { return slices.Contains(Ours, c) }
	has := map[string]bool{"fix": e.Fix != "", "since": e.Since != 0 || len(e.SinceOf) > 0, "left": e.Left != "", "line": e.Line != nil,
		"notLinked": len(e.NotLinked) > 0, "because": e.Because != "", "do": e.Do != ""}
	needs, may, known := fields(e.Status)
	switch {
	case e.What == "" || len(e.Components) == 0:
		return "\"what\" and \"components\" must be there"
	case !known:
		return fmt.Sprintf("\"status\" is %q: it is one of %q", e.Status, statuses)
	case e.Status == NotOurs && slices.ContainsFunc(e.Components, ours):
		return fmt.Sprintf("it is %q, and \"components\" has one of %q", NotOurs, Ours)
	case e.Status != NotOurs && slices.ContainsFunc(e.Components, func(c string) bool { return !ours(c) }):
		return fmt.Sprintf("\"components\" has another than %q, which only one that is %q may have", Ours, NotOurs)
	case e.Status == NotAffected && e.Line == nil && len(e.NotLinked) == 0:
		return "a reason that can be checked is missing: \"line\" or \"notLinked\""
	case e.Line != nil && (e.Line.Line < 1 || len(e.Line.Text) < 4 || len(e.Line.Text) > 40 || path.Clean(e.Line.File) != e.Line.File || path.IsAbs(e.Line.File)):
		return "\"line\" wants a file of the tree, a line from 1, and a text of 4 to 40 bytes of it"
	case slices.ContainsFunc(e.NotLinked, func(s string) bool { return len(s) < 8 }):
		return "\"notLinked\" has a name that is too short to be one symbol's or package's"
	}
	for _, f := range slices.Sorted(maps.Keys(has)) {
		if slices.Contains(needs, f) && !has[f] {
			return fmt.Sprintf("it is %q and has no %q", e.Status, f)
		}
		if has[f] && !slices.Contains(needs, f) && !slices.Contains(may, f) {
			return fmt.Sprintf("it is %q and has a %q", e.Status, f)
		}
	}
	return ""
}

// fields are those that an entry of the status needs and may have.
func fields(s Status) (needs, may []string, known bool) {
	switch s {
	case Closed:
		return []string{"fix", "since"}, []string{"left", "line"}, true
	case Affected, Documented, Unjudged:
		return []string{"do"}, []string{"line"}, true
	case NotAffected:
		return []string{"because"}, []string{"line", "notLinked"}, true
	case NotOurs:
		return []string{"do"}, nil, true
	}
	return nil, nil, false
}

// releaseNumber is the N of a release that ends with +holdfast.N.
func releaseNumber(release string) (int, error) {
	_, n, _ := strings.Cut(release, "+holdfast.")
	out, err := strconv.Atoi(n)
	if err != nil {
		return 0, fmt.Errorf("release %q does not end with +holdfast.N", release)
	}
	return out, nil
}

// FixFaults compares the table with the base's fixes: one of kind security closes something, in
// components that it changes, since a release that there is or the next one.
func (t *Table) FixFaults(b *base.Base) []string {
	var bad []string
	table := b.Fixes
	now, err := releaseNumber(b.Release)
	if err != nil {
		return []string{fmt.Sprintf("base %s: %v", t.Base, err)}
	}
	next := now + 1
	if b.Unreleased {
		next = now
	}
	closes := map[string]bool{}
	for _, e := range t.Entries {
		if e.Status != Closed {
			continue
		}
		closes[e.Fix] = true
		s := table.Find(e.Fix)
		if e.Since < 1 || e.Since > next {
			bad = append(bad, fmt.Sprintf("%s: %s is closed since +holdfast.%d of base %s, whose next release is +holdfast.%d", s.File(), e.ID(), e.Since, t.Base, next))
		}
		if g := offGate(s.Form(t.Base)); g != "" && !strings.Contains(e.Left, g) {
			bad = append(bad, fmt.Sprintf("%s: %s is closed by a fix whose gate %s is off by default: \"left\" must say how to switch it on", s.File(), e.ID(), g))
		}
		for _, c := range e.Components {
			if !slices.Contains(s.Components, c) {
				bad = append(bad, fmt.Sprintf("%s: %s is closed in %s, and \"components\" are %q", s.File(), e.ID(), c, s.Components))
			}
		}
	}
	for _, s := range table.Of(t.Base) {
		if s.Kind == fixes.Security && !closes[s.Name] {
			bad = append(bad, fmt.Sprintf("%s: it closes nothing: enter in \"vulnerabilities\" what it closes, with \"since\": {%q: %d}; then make security", s.File(), t.Base, next))
		}
	}
	return bad
}
