// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/internal/slugs"
	"holdfast/tools/labkit"
)

var update = flag.Bool("update", false, "write README's track record anew")

const recordHead = "| incident | slug | base | stock | ours |\n|---|---|---|---|---|\n"

// TestTrackRecord: README's table is made of slugs.json and of what the labs
// must answer. That they do is shown by make test, which fails when one does not.
func TestTrackRecord(t *testing.T) {
	r := checkout(t)
	table, err := slugs.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	want := trackRecord(table, func(lab string, v labkit.Variant) string {
		l, err := labkit.Find(lab)
		if err != nil || !slices.Contains(l.Runs(), v) {
			return ""
		}
		return string(l.Expected(v))
	})
	page := string(r.files["README.md"])
	before, rest, ok := strings.Cut(page, recordHead)
	got, after, ok2 := strings.Cut(rest, "\n\n")
	if !ok || !ok2 {
		t.Fatalf("README.md has no table with the head\n%s", recordHead)
	}
	if got+"\n" == want {
		return
	}
	if *update {
		if err := os.WriteFile(filepath.Join(r.root, "README.md"), []byte(before+recordHead+want+"\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("README.md: the track record is not what slugs.json and the labs say; in tools/, go test ./internal/rules -run TrackRecord -update writes\n%s", want)
}

// trackRecord has a row for each base of each slug with an incident that a page
// tells of. expected is what a lab must answer in a variant, "" if it does not
// run in it.
func trackRecord(table *slugs.Table, expected func(lab string, v labkit.Variant) string) string {
	var b strings.Builder
	for _, s := range table.Slugs {
		if s.Kind == slugs.Planned {
			fmt.Fprintf(&b, "| %s | `%s` | | not yet | not yet |\n", s.Incident, s.Name)
			continue
		}
		for _, f := range s.Forms {
			incident := f.Incident
			if incident == "" {
				incident = s.Incident
			}
			if incident == "" || f.Page == "" {
				continue
			}
			answers := func(v labkit.Variant) string {
				seen := map[string]bool{}
				for lab := range f.Labs {
					if e := expected(lab, v); e != "" {
						seen[e] = true
					}
				}
				return strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
			}
			fmt.Fprintf(&b, "| %s | [%s](%s) | %s | %s | %s |\n", incident, strings.TrimSuffix(path.Base(f.Page), ".md"), f.Page, strings.Join(f.Bases, ", "), answers(labkit.Stock), answers(labkit.Ours))
		}
	}
	return b.String()
}

func TestMakesATrackRecord(t *testing.T) {
	table := &slugs.Table{Slugs: []*slugs.Slug{
		{Name: "a", Kind: slugs.Fix, Incident: "it breaks", Forms: []*slugs.Form{
			{Bases: []string{"v1", "v2"}, Page: "docs/patches/a.md", Labs: map[string][]string{"one": nil, "two": nil, "naive-only": nil}},
			{Bases: []string{"v3"}, Page: "docs/patches/a-v3.md", Incident: "it breaks otherwise", Labs: map[string][]string{"odd": nil}},
		}},
		{Name: "silent", Kind: slugs.Fix, Forms: []*slugs.Form{{Bases: []string{"v1"}, Page: "docs/patches/a.md"}}},
		{Name: "tools", Kind: slugs.Toolchain, Incident: "no page", Forms: []*slugs.Form{{Bases: []string{"v1"}}}},
		{Name: "b", Kind: slugs.Planned, Incident: "later"},
	}}
	got := trackRecord(table, func(lab string, v labkit.Variant) string {
		switch {
		case lab == "naive-only" && v == labkit.Stock:
			return ""
		case lab == "odd" || v == labkit.Ours:
			return "absent"
		}
		return "reproduced"
	})
	want := "| it breaks | [a](docs/patches/a.md) | v1, v2 | reproduced | absent |\n" +
		"| it breaks otherwise | [a-v3](docs/patches/a-v3.md) | v3 | absent | absent |\n" +
		"| later | `b` | | not yet | not yet |\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
