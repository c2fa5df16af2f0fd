// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package slugs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/internal/exit"
)

const table = `{
  "slugs": [
    {"slug": "a", "kind": "fix", "forms": [
      {"bases": ["v1", "v2"], "gates": {"A": true}, "patches": ["1.patch"], "overlay": ["pkg/a/**", "pkg/*/holdfast_a*.go"],
       "labs": {"one": ["A"], "both": ["A"]}, "page": "a.md"},
      {"bases": ["v3"], "patches": ["3.patch"]}
    ]},
    {"slug": "b", "kind": "security", "forms": [{"bases": ["v1"], "gates": {"B": false}, "needs": ["a"], "labs": {"both": ["B"]}}]},
    {"slug": "c", "kind": "toolchain", "forms": [{"bases": ["v1"], "needs": ["b"]}]},
    {"slug": "d", "kind": "planned"}
  ],
  "checks": ["smoke"]
}`

func parse(t *testing.T) *Table {
	t.Helper()
	s, err := Parse([]byte(table))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTable(t *testing.T) {
	s := parse(t)
	for base, want := range map[string][]string{"v1": {"a", "b", "c"}, "v2": {"a"}, "v3": {"a"}, "v4": nil} {
		if got := Names(s.Of(base)); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", base, got, want)
		}
	}
	if got := s.OfPatch("v2", "1.patch"); got == nil || got.Name != "a" || s.OfPatch("v3", "1.patch") != nil {
		t.Error(got)
	}
	for file, want := range map[string]bool{"pkg/a/x.go": true, "pkg/a/b/x.go": true, "pkg/a": false, "pkg/ab/x.go": false,
		"pkg/x/holdfast_a.go": true, "pkg/x/holdfast_a_test.go": true, "pkg/x/y/holdfast_a.go": false, "pkg/x/a.go": false} {
		if got := s.OfFile("v1", file) != nil; got != want {
			t.Errorf("%s: %v", file, got)
		}
		if got := len(s.Claims(file)) == 1; got != want {
			t.Errorf("claims of %s: %v", file, got)
		}
	}
	if s.OfFile("v3", "pkg/a/x.go") != nil {
		t.Error("a file of one form belongs to another")
	}
	if got := fmt.Sprint(s.Labs()); got != "map[both:[A B] one:[A] smoke:[]]" {
		t.Error(got)
	}
	if got := s.LabSlugs("both"); !slices.Equal(got, []string{"a", "b"}) {
		t.Error(got)
	}
	for k, want := range map[Kind]string{Fix: "carry", Backport: "carry", Version: "carry", Security: "security", Toolchain: "toolchain", Planned: ""} {
		if k.Series() != want {
			t.Errorf("%s: %q", k, k.Series())
		}
	}
}

func TestMinus(t *testing.T) {
	s := parse(t)
	for _, tc := range []struct{ base, names, want string }{
		{"v1", "", ""}, {"v1", "c", "c"}, {"v1", "b", "b c"}, {"v1", "a", "a b c"}, {"v2", "a", "a"}, {"v1", "c b c", "b c"},
	} {
		got, err := s.Minus(tc.base, strings.Fields(tc.names))
		if err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("%s minus %q: %q, %v", tc.base, tc.names, got, err)
		}
	}
	for _, name := range []string{"b", "d", "e"} {
		if _, err := s.Minus("v2", []string{name}); exit.Code(err) != 2 || !strings.Contains(err.Error(), "it has a") {
			t.Errorf("v2 minus %s: %v", name, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ old, new, says string }{
		{`"kind": "security"`, `"kind": "hope"`, `slug b: "kind" is "hope"`},
		{`"slug": "b"`, `"slug": "a"`, "slug a is listed twice"},
		{`"slug": "b"`, `"slug": "B b"`, "lower-case words"},
		{`"planned"`, `"fix"`, `slug d has no "forms"`},
		{`"kind": "security"`, `"kind": "planned"`, `still of kind "planned"`},
		{`["v3"]`, `["v2"]`, "slug a: base v2 has two forms"},
		{`["v3"]`, `[]`, `names no "bases"`},
		{`"needs": ["b"]`, `"needs": ["x"]`, "slug c: it needs x, which is not a slug of base v1"},
		{`["v1"], "needs"`, `["v2"], "needs"`, "which is not a slug of base v2"},
		{`"one": ["A"]`, `"one": ["B"]`, "lab one switches off B"},
		{`"pkg/a/**"`, `"/pkg/a/**"`, "not a pattern of paths"},
		{`"pkg/a/**"`, `"pkg/../a"`, "not a pattern of paths"},
		{`"pkg/a/**"`, `"pkg/[a"`, "not a pattern of paths"},
		{`["smoke"]`, `["one"]`, `lab one is one of "checks" and of slug a too`},
		{`"checks"`, `"cheques"`, "unknown field"},
	} {
		if !strings.Contains(table, tc.old) {
			t.Fatalf("the table has no %s", tc.old)
		}
		_, err := Parse([]byte(strings.Replace(table, tc.old, tc.new, 1)))
		if exit.Code(err) != 1 || err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), File) {
			t.Errorf("%s: %v, want %q", tc.new, err, tc.says)
		}
	}
	if _, err := Parse([]byte(table + "{}")); err == nil {
		t.Error("two values are taken")
	}
	if _, err := Load(t.TempDir()); exit.Code(err) != 1 || !strings.Contains(err.Error(), File) {
		t.Error(err)
	}
}

func TestAsleep(t *testing.T) {
	for _, c := range []struct {
		form Form
		want string
	}{
		{Form{}, ""},
		{Form{Gates: map[string]bool{"A": true, "B": false}}, ""},
		{Form{Gates: map[string]bool{"B": false, "A": false}}, "`A`, `B`"},
		{Form{TurnOn: "`--a-flag`"}, "`--a-flag`"},
	} {
		if got := c.form.Asleep(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.form, got, c.want)
		}
	}
}
