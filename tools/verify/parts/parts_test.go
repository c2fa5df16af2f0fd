// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/dropin"
	"holdfast/tools/build/testrepo"
)

func TestRun(t *testing.T) {
	var ran []string
	part := func(name string, n Count, err error, needs ...string) Part {
		return Part{Name: name, Needs: needs, Run: func(context.Context) (Count, error) { ran = append(ran, name); return n, err }}
	}
	for _, tc := range []struct {
		name  string
		parts []Part
		ok    bool
		ran   string
		lines []string // expressions, in the order of the closing table
	}{
		{"all pass", []Part{part("a", Count{Passed: 3, Failed: 0}, nil), part("b", Count{Passed: 0, Failed: 0}, nil, "a")}, true, "a b",
			[]string{`a +ok +3 passed +0 failed +0\.0 s`, `b +ok +0 passed +0 failed`, `^3 passed, 0 failed$`}},
		{"one has failed tests", []Part{part("a", Count{Passed: 2, Failed: 1}, nil), part("b", Count{Passed: 1, Failed: 0}, nil)}, false, "a b",
			[]string{`a +FAILED +2 passed +1 failed`, `b +ok +1 passed`, `^3 passed, 1 failed$`}},
		{"an error counts as a failure", []Part{part("a", Count{Passed: 2, Failed: 0}, errors.New("no network"))}, false, "a",
			[]string{`a +FAILED +2 passed +1 failed`, `^all parts took`, `^a failed: no network$`, `^2 passed, 1 failed$`}},
		{"a long error is told in short", []Part{part("a", Count{}, errors.New("k8s.io/a TestA fails in the patched tree:\n2\n3\n4\n5"))}, false, "a",
			[]string{`^a failed: k8s.io/a TestA fails`, `^4 … \(whole above\)$`, `^0 passed, 1 failed$`}},
		{"an error of counted failures is not counted twice", []Part{part("a", Count{Passed: 2, Failed: 4}, errors.New("exit status 1"))}, false, "a",
			[]string{`a +FAILED +2 passed +4 failed`, `^2 passed, 4 failed$`}},
		{"what needs a failed part is not run and fails, and so on", []Part{part("a", Count{Passed: 0, Failed: 1}, nil), part("b", Count{Passed: 1, Failed: 0}, nil, "a"), part("c", Count{Passed: 1, Failed: 0}, nil, "b"), part("d", Count{Passed: 1, Failed: 0}, nil)}, false, "a d",
			[]string{`a +FAILED`, `b +FAILED +0 passed +1 failed`, `c +FAILED +0 passed +1 failed`, `d +ok`, `^1 passed, 3 failed$`}},
		{"skipped tests are told", []Part{part("a", Count{Passed: 3, Skipped: 2}, nil), part("b", Count{Passed: 1}, nil)}, true, "a b",
			[]string{`a +ok +3 passed +0 failed +0\.0 s +0\.0 s CPU, 2 skipped$`, `b +ok .*s CPU$`, `^4 passed, 0 failed, 2 skipped$`}},
		{"a need that was not asked for", []Part{part("b", Count{Passed: 1, Failed: 0}, nil, "a")}, true, "b", []string{`b +ok`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ran = nil
			var out bytes.Buffer
			if ok := Run(t.Context(), &out, tc.parts); ok != tc.ok {
				t.Errorf("%v, want %v", ok, tc.ok)
			}
			if got := strings.Join(ran, " "); got != tc.ran {
				t.Errorf("ran %q, want %q", got, tc.ran)
			}
			_, table, ok := strings.Cut(out.String(), "\npart ")
			if !ok {
				t.Fatalf("no table: %s", &out)
			}
			lines := strings.Split(table, "\n")
			for _, want := range tc.lines {
				i := slices.IndexFunc(lines, regexp.MustCompile(want).MatchString)
				if i < 0 {
					t.Errorf("no line %q, in order, in:\n%s", want, table)
					continue
				}
				lines = lines[i+1:]
			}
			if !regexp.MustCompile(`took 0\.0 min, and 0\.0 min of the processors`).MatchString(table) {
				t.Errorf("no budget: %s", table)
			}
			for _, p := range tc.parts {
				if !strings.Contains(out.String(), "\n=== "+p.Name+"\n") {
					t.Errorf("no headline of %s", p.Name)
				}
			}
		})
	}
	var out bytes.Buffer
	Run(t.Context(), &out, []Part{part("a", Count{}, errors.New("no network")), part("b", Count{}, nil, "a")})
	for _, want := range []string{"a: no network\n", "b: not run: it needs the part \"a\", which failed\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said:\n%s", want, &out)
		}
	}
}

// TestSkippedTests: a test that was skipped counts as that, not as passed or failed.
func TestSkippedTests(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module x\n\ngo 1.26\n", "x_test.go": "package x\n\nimport \"testing\"\n\n" +
		"func TestA(t *testing.T) { t.Skip(\"no ip\") }\n\nfunc TestB(t *testing.T) {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	n, err := goTest(t.Context(), nil, dir, "./...")
	if n.Passed != 1 || n.Skipped != 1 || n.Failed != 0 || err != nil {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestDropinOfBases: make test compares the command lines of the default base, make test-all of each.
func TestDropinOfBases(t *testing.T) {
	b, err := base.LoadDefault("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, long := range []bool{false, true} {
		all, err := All(b, long)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range dropin.Bases {
			name, want := "dropin-"+of, long
			if of == b.Name {
				name, want = "dropin", true
			}
			if got := slices.ContainsFunc(all, func(p Part) bool { return p.Name == name }); got != want {
				t.Errorf("all parts: %v: there is %s: %v, want %v", long, name, got, want)
			}
		}
	}
}

// TestAllOfBases: the other bases with a product have parts, and a long one has in make test only its
// unit tests.
func TestAllOfBases(t *testing.T) {
	r := testrepo.New(t)
	for _, leftOut := range []bool{false, true} {
		r.EditBase(t, testrepo.GOPATHName, func(b *base.Base) { b.Long = leftOut })
		for _, long := range []bool{false, true} {
			all, err := All(r.Base(t, testrepo.Name), long)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"upstream-touched-" + testrepo.GOPATHName, "minus-one-" + testrepo.GOPATHName} {
				got := slices.ContainsFunc(all, func(p Part) bool { return p.Name == name })
				if want := long || !leftOut; got != want {
					t.Errorf("a long base: %v, all parts: %v: there is %s: %v, want %v", leftOut, long, name, got, want)
				}
			}
			unit := slices.ContainsFunc(all, func(p Part) bool { return p.Name == "unit-"+testrepo.GOPATHName })
			if want := leftOut && !long; unit != want {
				t.Errorf("a long base: %v, all parts: %v: unit tests alone: %v, want %v", leftOut, long, unit, want)
			}
		}
	}
}
