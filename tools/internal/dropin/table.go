// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/slugs"
	"holdfast/tools/internal/strictjson"
)

// File is the table of allowed differences, at the repository's root; Page is made of it.
const (
	File = "differences.json"
	Page = "docs/design/differences.md"
)

// Base is the release that is compared.
const Base = "v1.9.11"

// The builds that are compared with stock.
const (
	Ours     = "ours"
	GatesOff = "ours-gates-off" // ours with every gate of GatesToSet at false
)

// Builds are both.
var Builds = []string{Ours, GatesOff}

// StaysOn is a gate whose stock behaviour is on: off takes a feature of upstream's away.
const StaysOn = "GitRepoVolumeDriver"

// Gates are the feature gates of the slugs that change one of Components, with their
// slugs. Those of a slug for another component are unknown to both.
func Gates(t *slugs.Table) map[string]string {
	out := map[string]string{}
	for _, s := range t.Of(Base) {
		if !slices.ContainsFunc(s.Components, func(c string) bool { return slices.Contains(Components, c) }) {
			continue
		}
		for g := range s.Form(Base).Gates {
			out[g] = s.Name
		}
	}
	return out
}

// GatesToSet are the feature gates that the build GatesOff has at false: all of Gates
// but StaysOn.
func GatesToSet(t *slugs.Table) []string {
	gates := Gates(t)
	delete(gates, StaysOn)
	return slices.Sorted(maps.Keys(gates))
}

// Entry is a difference that a slug makes. It stands for each of Names in each of
// Kinds, Components and Builds, and all of these must be seen.
type Entry struct {
	Slug       string   `json:"slug"`
	Kinds      []string `json:"kinds"`
	Components []string `json:"components"`
	// Names are those of facts; "*" stands for any text.
	Names []string `json:"names"`
	How   string   `json:"how"`
	// Builds have the difference. One that GatesOff has is not behind a gate.
	Builds []string `json:"builds"`
	Says   string   `json:"says"`
}

// Table is differences.json.
type Table struct {
	Differences []Entry `json:"differences"`
}

// Load reads the table below root.
func Load(root string) (*Table, error) {
	raw, err := os.ReadFile(filepath.Join(root, File))
	if err != nil {
		return nil, exit.Preconditionf("the table of differences: %v", err)
	}
	s, err := slugs.Load(root)
	if err != nil {
		return nil, err
	}
	return Parse(raw, s)
}

// Parse reads a table, whose entries name slugs of s.
func Parse(raw []byte, s *slugs.Table) (*Table, error) {
	t := &Table{}
	if err := strictjson.Decode(raw, t); err != nil {
		return nil, exit.Preconditionf("%s: %v", File, err)
	}
	for i, e := range t.Differences {
		if err := e.check(s); err != nil {
			return nil, exit.Preconditionf("%s: difference %d (slug %q): %v", File, i+1, e.Slug, err)
		}
	}
	return t, nil
}

func (e Entry) check(t *slugs.Table) error {
	s := t.Find(e.Slug)
	switch {
	case s == nil || s.Form(Base) == nil:
		return fmt.Errorf("it is no slug of base %s", Base)
	case s.Kind == slugs.Toolchain:
		return fmt.Errorf("stock has the toolchain series too, so it makes no difference")
	case !slices.Contains([]string{Added, Missing, Changed, Counts}, e.How):
		return fmt.Errorf("\"how\" is %q: it is %s, %s, %s or %s", e.How, Added, Missing, Changed, Counts)
	case strings.TrimSpace(e.Says) == "":
		return fmt.Errorf("\"says\" is empty")
	case slices.Contains(e.Names, "*"):
		return fmt.Errorf("the name \"*\" allows everything")
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
	// Allowed are differences by the slug that makes them.
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
		slug := ""
		for i, e := range t.Differences {
			if e.How != d.How || !slices.Contains(e.Builds, build) || !slices.Contains(e.Kinds, d.Kind) || !slices.Contains(e.Components, d.Component) {
				continue
			}
			for _, n := range e.Names {
				if matches(n, d.Name) {
					slug = e.Slug
					used[fmt.Sprint(i, d.Kind, d.Component, n)] = true
				}
			}
		}
		if slug == "" {
			v.Unknown = append(v.Unknown, d)
			continue
		}
		v.Allowed[slug] = append(v.Allowed[slug], d)
	}
	for i, e := range t.Differences {
		if !slices.Contains(e.Builds, build) {
			continue
		}
		for _, k := range e.Kinds {
			for _, c := range e.Components {
				for _, n := range e.Names {
					if slices.Contains(kinds, k) && !used[fmt.Sprint(i, k, c, n)] {
						v.Gone = append(v.Gone, fmt.Sprintf("%s %s %q: %s, of slug %s", c, k, n, e.How, e.Slug))
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
	for _, slug := range slices.Sorted(maps.Keys(v.Allowed)) {
		for _, d := range v.Allowed[slug] {
			fmt.Fprintf(&b, "  %s: %v\n", slug, d)
			n++
		}
	}
	for _, d := range v.Unknown {
		fmt.Fprintf(&b, "  NOT IN %s: %v\n", File, d)
	}
	for _, g := range v.Gone {
		fmt.Fprintf(&b, "  NOT SEEN: %s\n", g)
	}
	return fmt.Sprintf("%s against stock: %d differences of slugs, %d unknown, %d not seen\n%s", build, n, len(v.Unknown), len(v.Gone), b.String())
}
