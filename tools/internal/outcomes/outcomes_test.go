// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package outcomes

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func outcome(variant, verdict string) Outcome {
	return Outcome{Lab: "a", Variant: variant, Profile: "short", Seed: 7, Commit: "c1", Expected: verdict, Verdict: verdict}
}

func record(t *testing.T, outs ...Outcome) *Record {
	t.Helper()
	r, err := Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var variants []string
	for _, o := range outs {
		variants = append(variants, o.Variant)
	}
	if err := r.Put("a", "v1+x", "short", variants, nil, outs); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestIsKept(t *testing.T) {
	root := t.TempDir()
	stock := outcome("stock", "reproduced")
	stock.Numbers = []Number{{"gap", 0.5, "s"}, {"lost", 3, ""}}
	r := record(t, stock, outcome("ours", "absent"))
	if err := r.Save(root); err != nil {
		t.Fatal(err)
	}
	back, err := Load(root)
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("read back %+v, %v, wrote %+v", back, err, r)
	}
	if got := []string{back.Verdict("a", "stock"), back.Verdict("a", "naive"), back.Verdict("b", "ours")}; !reflect.DeepEqual(got, []string{"reproduced", "", ""}) {
		t.Errorf("verdicts %q", got)
	}
	if want := (&Run{Release: "v1+x", Commit: "c1", Seed: 7, Answers: map[string]string{"stock": "reproduced", "ours": "absent"},
		Numbers: map[string][]Number{"stock": stock.Numbers}}); !reflect.DeepEqual(back.Labs["a"], want) {
		t.Errorf("run %+v, want %+v", back.Labs["a"], want)
	}
}

func TestRefusesARecord(t *testing.T) {
	for content, want := range map[string]string{
		"{":                         "unexpected EOF",
		`{"labs": {"a": {"x": 1}}}`: `unknown field "x"`,
		`{"labs": {"a": null}}`:     "lab a is null",
	} {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, File), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(root); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), File) {
			t.Errorf("%s: error %v, want one with %q", content, err, want)
		}
	}
}

func TestPutRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(ours *Outcome)
		want string
	}{
		"another profile": {func(o *Outcome) { o.Profile = "long" }, `no outcome for the variant "ours" in profile short: run make lab LAB=a`},
		"another lab":     {func(o *Outcome) { o.Lab = "b" }, `no outcome for the variant "ours"`},
		"wrong":           {func(o *Outcome) { o.Verdict = "reproduced" }, `answered reproduced in the variant "ours" and must answer absent`},
		"inconclusive":    {func(o *Outcome) { o.Verdict = "inconclusive" }, "answered inconclusive"},
		"another commit":  {func(o *Outcome) { o.Commit = "c2" }, "different commits or seeds"},
		"changed files":   {func(o *Outcome) { o.Commit = "c1-dirty" }, "on c1-dirty: the record is of clean checkouts"},
		"other binaries":  {func(o *Outcome) { o.Commit = "c1-mapped" }, "on c1-mapped: the record is of clean checkouts"},
		"another seed":    {func(o *Outcome) { o.Seed = 8 }, "different commits or seeds"},
	} {
		ours := outcome("ours", "absent")
		tc.edit(&ours)
		r := record(t, outcome("stock", "reproduced"))
		before := *r.Labs["a"]
		err := r.Put("a", "v2+x", "short", []string{"stock", "ours"}, nil, []Outcome{outcome("stock", "reproduced"), ours})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
		if !reflect.DeepEqual(*r.Labs["a"], before) {
			t.Errorf("%s: the record changed to %+v", name, *r.Labs["a"])
		}
	}
}

func TestFaults(t *testing.T) {
	stock, ours := outcome("stock", "reproduced"), outcome("ours", "absent")
	r := record(t, stock, ours)
	wrong := ours
	wrong.Verdict = "reproduced"
	other := stock
	other.Lab = "b"
	for name, tc := range map[string]struct {
		fresh []Outcome
		want  []string
	}{
		"the same":        {[]Outcome{stock, ours}, nil},
		"nothing was run": {nil, nil},
		"another verdict": {[]Outcome{stock, wrong}, []string{"lab a (ours) answered reproduced, and absent in outcomes.json"}},
		"a variant less":  {[]Outcome{ours}, []string{"lab a (stock) is in outcomes.json, and was not run"}},
		"a variant more":  {[]Outcome{stock, ours, outcome("naive", "absent")}, []string{"lab a (naive) answered absent, and is not in outcomes.json"}},
		"a lab more":      {[]Outcome{other, stock, ours}, []string{"lab b (stock) answered reproduced, and is not in"}},
	} {
		got := r.Faults(tc.fresh, nil)
		ok := len(got) == len(tc.want)
		for i := range tc.want {
			ok = ok && strings.Contains(got[i], tc.want[i])
		}
		if !ok {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		if err := Error(got); (err != nil) != (len(tc.want) > 0) || err != nil && !strings.Contains(err.Error(), Command) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if got := r.Faults([]Outcome{ours}, map[string][]string{"a": {"stock"}}); got != nil {
		t.Errorf("a variant that was left out this time: %q", got)
	}
	r.Labs["a"].LeftOut = []string{"stock"}
	if got := r.Faults([]Outcome{ours}, nil); got != nil {
		t.Errorf("a variant that make test leaves out: %q", got)
	}
}
