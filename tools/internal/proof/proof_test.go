// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holdfast/tools/internal/slugs"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/journal"
	"holdfast/tools/labkit/run"
)

const tableText = `{"slugs": [
	{"slug": "alpha", "kind": "fix", "components": ["kubelet"], "forms": [{"bases": ["v1.9.11"], "gates": {"A": true},
		"labs": {"alpha": ["A"], "both": ["A"]}, "page": "a.md"}]},
	{"slug": "beta", "kind": "security", "forms": [{"bases": ["v1.9.11"], "labs": {"both": []}, "page": "b.md"}]},
	{"slug": "bare", "kind": "fix", "forms": [{"bases": ["v1.9.11"]}]},
	{"slug": "old", "kind": "toolchain", "forms": [{"bases": ["v1.2.0"], "labs": {"old": []}}]}
]}`

func table(t *testing.T) *slugs.Table {
	t.Helper()
	tab, err := slugs.Parse([]byte(tableText))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alpha", "both", "old"} {
		if _, err := labkit.Find(name); err != nil {
			labkit.Register(labkit.Lab{Name: name, Summary: name, Steps: func(*labkit.Env) []labkit.Step { return nil },
				Oracle: labkit.Oracle{Text: []string{"x"}, Judge: func(*history.History) labkit.Result { return labkit.Result{} }}})
		}
	}
	if err := labkit.UseTable(tab); err != nil {
		t.Fatal(err)
	}
	return tab
}

func rows(t *testing.T) []Row {
	t.Helper()
	r, err := Rows(table(t), nil, labkit.Short, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRows(t *testing.T) {
	var got []string
	for _, r := range rows(t) {
		line := r.Slug + " " + r.Base + " " + r.Lab + ":"
		for _, c := range r.Cells() {
			line += " [" + string(c.Variant) + "]"
		}
		got = append(got, line)
	}
	want := []string{
		"alpha v1.9.11 alpha: [stock] [ours] [ours -alpha] [ours-gate-off]",
		"alpha v1.9.11 both: [stock] [ours] [ours-gate-off]", // lab alpha shows it alone
		"beta v1.9.11 both: [stock] [ours] [ours -beta]",     // it has no gate
		"bare v1.9.11 :",
		"old v1.2.0 old: [stock] [ours]", // stock has it too
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("rows:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := len(Cells(rows(t))); n != 10 {
		t.Errorf("%d cells, want 10: lab both's stock and ours are in two rows", n)
	}
	only, err := Rows(table(t), []string{"beta"}, labkit.Short, 1)
	if err != nil || len(only) != 1 {
		t.Errorf("%v, %v", only, err)
	}
}

func TestDue(t *testing.T) {
	r := func(v labkit.Verdict) *Result {
		return &Result{Key: "k", Outcome: run.Outcome{Verdict: v, Expected: labkit.Absent}}
	}
	for _, c := range []struct {
		what string
		r    *Result
		key  string
		want bool
	}{
		{"never run", nil, "k", true},
		{"changed", r(labkit.Absent), "other", true},
		{"could not tell", r(labkit.Inconclusive), "k", true},
		{"right", r(labkit.Absent), "k", false},
		{"wrong", r(labkit.Reproduced), "k", false},
	} {
		if got := Due(c.r, c.key); got != c.want {
			t.Errorf("%s: due is %v", c.what, got)
		}
	}
}

// Answers of a suite count as runs of the matrix only if their code is that of the commit.
func TestNote(t *testing.T) {
	store := Store{Root: t.TempDir()}
	key := func(c Cell) (string, error) { return "key of " + c.Lab, nil }
	out := func(lab, commit string, v labkit.Verdict) run.Outcome {
		return run.Outcome{Lab: lab, Variant: labkit.Ours, Profile: labkit.Short, Seed: 1, Commit: commit, Verdict: v, Expected: labkit.Absent}
	}
	all := []run.Outcome{out("right", "c", labkit.Absent), out("wrong", "c", labkit.Reproduced), out("open", "c", labkit.Inconclusive),
		out("older", "b", labkit.Absent), out("changed", "c-dirty", labkit.Absent), out("nowhere", "", labkit.Absent)}
	for commit, want := range map[string][]string{"c": {"right", "wrong"}, "c-dirty": nil, "": nil} {
		n, err := Note(store, key, all, commit)
		if err != nil || n != len(want) {
			t.Errorf("%q: %d, %v", commit, n, err)
		}
	}
	for _, o := range all {
		r, err := store.Load(Cell{o.Lab, o.Variant, o.Profile, o.Seed})
		if stored := r != nil; err != nil || stored != (o.Lab == "right" || o.Lab == "wrong") || stored && (r.Key != "key of "+o.Lab || r.Outcome.Verdict != o.Verdict) {
			t.Errorf("%s: %+v, %v", o.Lab, r, err)
		}
	}
	if _, err := Note(store, func(Cell) (string, error) { return "", errors.New("no key") }, all, "c"); err == nil {
		t.Error("a cell without a key was stored")
	}
}

func TestStoreAndPage(t *testing.T) {
	store := Store{Root: t.TempDir()}
	all := rows(t)
	keys := map[Cell]string{}
	put := func(c *Cell, key string, verdict, expected labkit.Verdict) {
		t.Helper()
		out := run.Outcome{Lab: c.Lab, Variant: c.Variant, Profile: c.Profile, Seed: c.Seed, Commit: strings.Repeat("c", 40), Verdict: verdict, Expected: expected,
			Why: "seen <b>&\nmore", Numbers: []journal.Number{{Name: "pods lost", Value: 3}}}
		if err := store.Save(*c, &Result{Key: key, Outcome: out}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range Cells(all) {
		keys[c] = "now"
	}
	alpha := all[0]
	put(alpha.Stock, "now", labkit.Reproduced, labkit.Reproduced)
	put(alpha.Ours, "before", labkit.Absent, labkit.Absent)
	put(alpha.Minus, "now", labkit.Absent, labkit.Reproduced)
	put(alpha.GateOff, "now", labkit.Inconclusive, labkit.Reproduced)
	m, err := Show(all, keys, store)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.Counts(), map[string]int{"right": 1, "stale": 1, "wrong": 1, "inconclusive": 1, "not run": 6}; !reflect.DeepEqual(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
	faults := m.Faults()
	if len(faults) != 10 || faults[7] != "slug bare (v1.9.11): no lab shows it" || faults[1] != "alpha (ours -alpha): wrong, answered absent and must answer reproduced: seen <b>&" {
		t.Errorf("faults:\n%s", strings.Join(faults, "\n"))
	}
	var html, raw, md bytes.Buffer
	if err := m.WriteMarkdown(&md); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| alpha | alpha | reproduced a | absent (stale) a | absent (wrong) a | inconclusive a |", "* a is cccccccccccc\n",
		"Of 10 runs: 1 inconclusive, 6 not run, 1 right, 1 stale, 1 wrong.", "| bare |  |  |  |  |  |"} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("no %q in\n%s", want, &md)
		}
	}
	if err := (&Matrix{Rows: m.Rows[1:]}).WriteMarkdown(&md); err == nil {
		t.Error("a page of nothing")
	}
	if err := m.WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<td data-column="stock"><span class="v right">reproduced</span>`, `<span class="v stale">absent (stale)</span>`,
		`<td data-column="ours without it"><span class="v wrong">absent (wrong)</span>`, `<span class="v not-run">not run</span>`, "seen &lt;b&gt;&amp;</dd>",
		"<dt>pods lost</dt><dd>3 </dd>", "commit cccccccccccc"} {
		if !strings.Contains(html.String(), want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if strings.Contains(html.String(), "<script") {
		t.Error("the page has a script")
	}
	if err := m.WriteJSON(&raw); err != nil {
		t.Fatal(err)
	}
	back := &Matrix{}
	if err := json.Unmarshal(raw.Bytes(), back); err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("%+v\n%+v\n%v", back, m, err)
	}
	// A file that was cut off is named.
	file := store.file(*alpha.Ours)
	if err := os.WriteFile(file, []byte(`{"key": "no`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Load(*alpha.Ours); err == nil || !strings.Contains(err.Error(), filepath.Base(file)) {
		t.Errorf("half a file: %v", err)
	}
}
