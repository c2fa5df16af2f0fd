// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/strictjson"
)

// Page is made of the fixes' differences.
const Page = "docs/design/differences.md"

// Base is the release whose kubelet is changed (see Mutants).
const Base = "v1.9.11"

// Bases are the releases that are compared, Base first.
var Bases = []string{Base, "v1.12.10"}

// The builds that are compared with stock.
const (
	Ours     = "ours"
	GatesOff = "ours-gates-off" // ours with every gate of GatesToSet at false
)

// Builds are both.
var Builds = []string{Ours, GatesOff}

// StaysOn is a gate whose stock behaviour is on: off takes a feature of upstream's away.
const StaysOn = "GitRepoVolumeDriver"

// Gates are the feature gates of a base's fixes that change one of Components, with their
// fixes. Those of a fix for another component are unknown to both.
func Gates(t *fixes.Table, base string) map[string]string {
	out := map[string]string{}
	for _, s := range t.Of(base) {
		for _, g := range gatesOf(s, base) {
			out[g] = s.Name
		}
	}
	return out
}

// GatesToSet are the feature gates that the build GatesOff has at false: all of Gates
// but StaysOn.
func GatesToSet(t *fixes.Table, base string) []string {
	gates := Gates(t, base)
	delete(gates, StaysOn)
	return slices.Sorted(maps.Keys(gates))
}

// Entry is a difference that a fix makes. It stands for each of Names in each of
// Kinds, Components and Builds, and all of these must be seen.
type Entry struct {
	Fix        string   `json:"fix,omitempty"`
	Kinds      []string `json:"kinds"`
	Components []string `json:"components"`
	// Names are those of facts; "*" stands for any text.
	Names []string `json:"names"`
	How   string   `json:"how"`
	// Builds have the difference. One that GatesOff has is not behind a gate.
	Builds []string `json:"builds"`
	Says   string   `json:"says"`
	// Bases have the difference; empty: all that have the fix.
	Bases []string `json:"bases,omitempty"`
	// Optional: it need not be seen. A metric with labels shows only when it was counted, and what
	// stock does in most starts is not a difference if one start was without it.
	Optional bool `json:"optional,omitempty"`
}

// Table has the differences of all fixes of a base.
type Table struct {
	Differences []Entry `json:"differences"`
}

// New makes the table of a base: a fix's gates and its metrics holdfast_<fix>_… follow from the fix,
// what else shows from outside stands in its fix.json.
func New(t *fixes.Table, base string) (*Table, error) {
	out := &Table{}
	for _, s := range t.Of(base) {
		names := slices.DeleteFunc(gatesOf(s, base), func(g string) bool { return s.Form(base).Gates[g].Stage == "GA" && !listsGA(base) })
		if len(names) > 0 {
			says := "the gate of this fix"
			if len(names) > 1 {
				says = "the gates of this fix"
			}
			out.Differences = append(out.Differences, Entry{Fix: s.Name, Kinds: []string{"gate"}, Components: Components, Names: names, How: Added, Builds: Builds, Says: says})
		}
		if s.Kind != fixes.Toolchain {
			out.Differences = append(out.Differences, Entry{Fix: s.Name, Kinds: []string{"metric"}, Components: Components, Optional: true,
				Names: []string{"holdfast_" + strings.ReplaceAll(s.Name, "-", "_") + "_*"}, How: Added, Builds: Builds, Says: "the metrics of this fix"})
		}
		for i, raw := range s.Differences {
			e := Entry{}
			err := strictjson.Decode(raw, &e)
			if err == nil {
				err = e.check(s)
			}
			if err != nil {
				return nil, exit.Preconditionf("%s: difference %d: %v", s.File(), i+1, err)
			}
			e.Fix = s.Name
			if len(e.Bases) == 0 || slices.Contains(e.Bases, base) {
				out.Differences = append(out.Differences, e)
			}
		}
	}
	return out, nil
}

// listsGA says whether a release's own list of its gates has those of the stage GA: from 1.12 on they
// can be set, and are not listed.
func listsGA(of string) bool { return base.Minor(of) < 12 }

// gatesOf are the gates in a base, sorted, of a fix that changes one of Components: those of another
// component are unknown to both.
func gatesOf(s *fixes.Fix, base string) []string {
	if !slices.ContainsFunc(s.Components, func(c string) bool { return slices.Contains(Components, c) }) {
		return nil
	}
	return slices.Sorted(maps.Keys(s.Form(base).Gates))
}

func (e Entry) check(s *fixes.Fix) error {
	switch {
	case s.Kind == fixes.Toolchain:
		return fmt.Errorf("stock has the toolchain's patches too, so it makes no difference")
	case e.Fix != "":
		return fmt.Errorf("\"fix\" is not given in a %s", fixes.File)
	case slices.Contains(e.Kinds, "gate"), slices.Contains(e.Kinds, "metric"):
		return fmt.Errorf("gates and metrics follow from the fix")
	case !slices.Contains([]string{Added, Missing, Changed, Counts}, e.How):
		return fmt.Errorf("\"how\" is %q: it is %s, %s, %s or %s", e.How, Added, Missing, Changed, Counts)
	case strings.TrimSpace(e.Says) == "":
		return fmt.Errorf("\"says\" is empty")
	case slices.Contains(e.Names, "*"):
		return fmt.Errorf("the name \"*\" allows everything")
	}
	for _, b := range e.Bases {
		if !slices.Contains(Bases, b) || s.Form(b) == nil {
			return fmt.Errorf("\"bases\" has %q: it is a base that is compared, and has the fix", b)
		}
	}
	for _, l := range []struct {
		field string
		have  []string
		known []string
	}{{"kinds", e.Kinds, append(KindNames(false), KindNames(true)...)}, {"components", e.Components, Components},
		{"builds", e.Builds, Builds}, {"names", e.Names, nil}} {
		if len(l.have) == 0 {
			return fmt.Errorf("%q is empty", l.field)
		}
		for i, v := range l.have {
			if l.known != nil && !slices.Contains(l.known, v) {
				return fmt.Errorf("%q has %q: it is one of %s", l.field, v, strings.Join(l.known, ", "))
			}
			if slices.Contains(l.have[:i], v) {
				return fmt.Errorf("%q has %q twice", l.field, v)
			}
		}
	}
	return nil
}

// matches says whether a pattern of an entry is a name.
func matches(pattern, name string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == name
	}
	re := "^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
	return regexp.MustCompile(re).MatchString(name)
}

// Verdict is what the table says of the differences of a build.
type Verdict struct {
	// Allowed are differences by the fix that makes them.
	Allowed map[string][]Difference
	// Unknown are in no entry.
	Unknown []Difference
	// Gone are what entries allow and was not seen.
	Gone []string
}

// OK says whether the differences are exactly those of the table.
func (v Verdict) OK() bool { return len(v.Unknown)+len(v.Gone) == 0 }

// Judge holds the differences of a build against the entries that are about it and
// about these kinds.
func (t *Table) Judge(build string, kinds []string, found []Difference) Verdict {
	v := Verdict{Allowed: map[string][]Difference{}}
	used := map[string]bool{}
	for _, d := range found {
		fix := ""
		for i, e := range t.Differences {
			if e.How != d.How || !slices.Contains(e.Builds, build) || !slices.Contains(e.Kinds, d.Kind) || !slices.Contains(e.Components, d.Component) {
				continue
			}
			for _, n := range e.Names {
				if matches(n, d.Name) {
					fix = e.Fix
					used[fmt.Sprint(i, d.Kind, d.Component, n)] = true
				}
			}
		}
		if fix == "" {
			v.Unknown = append(v.Unknown, d)
			continue
		}
		v.Allowed[fix] = append(v.Allowed[fix], d)
	}
	for i, e := range t.Differences {
		if e.Optional || !slices.Contains(e.Builds, build) {
			continue
		}
		for _, k := range e.Kinds {
			for _, c := range e.Components {
				for _, n := range e.Names {
					if slices.Contains(kinds, k) && !used[fmt.Sprint(i, k, c, n)] {
						v.Gone = append(v.Gone, fmt.Sprintf("%s %s %q: %s, of fix %s", c, k, n, e.How, e.Fix))
					}
				}
			}
		}
	}
	return v
}

// Report writes a verdict for a person.
func (v Verdict) Report(build string) string {
	var b strings.Builder
	n := 0
	for _, fix := range slices.Sorted(maps.Keys(v.Allowed)) {
		for _, d := range v.Allowed[fix] {
			fmt.Fprintf(&b, "  %s: %v\n", fix, d)
			n++
		}
	}
	for _, d := range v.Unknown {
		fmt.Fprintf(&b, "  OF NO FIX: %v\n", d)
	}
	for _, g := range v.Gone {
		fmt.Fprintf(&b, "  NOT SEEN: %s\n", g)
	}
	return fmt.Sprintf("%s against stock: %d differences of fixes, %d unknown, %d not seen\n%s", build, n, len(v.Unknown), len(v.Gone), b.String())
}
