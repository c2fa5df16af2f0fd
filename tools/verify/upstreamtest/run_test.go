// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upstreamtest

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/testrepo"
)

var update = flag.Bool("update", false, "run go test on testdata/packages.txtar and write testdata/go-test.json anew")

const recorded = "testdata/go-test.json"

func record(t *testing.T) {
	t.Helper()
	ar, err := txtar.ParseFile("testdata/packages.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range ar.Files {
		file := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "-vet=off", "-trimpath", "-timeout=3s", "./...")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
	out, _ := cmd.Output() // packages fail: that is what they are for
	out = regexp.MustCompile(`"Time":"[^"]*",`).ReplaceAll(out, nil)
	if err := os.WriteFile(recorded, out, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestParse reads what the real go test said of packages that pass, fail and
// die in every way there is.
func TestParse(t *testing.T) {
	if *update {
		record(t)
	}
	raw, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	res, err := parse(bytes.NewReader(raw), nil)
	if err != nil {
		t.Fatal(err)
	}
	const p, f, s = "pass", "fail", "skip"
	for pkg, want := range map[string]struct {
		ended  string
		tests  map[string]string
		output string // of the package's failure
	}{
		"ok":         {p, map[string]string{"TestA": p, "TestB": s, "ExampleC": p}, ""},
		"notests":    {s, nil, ""},
		"fails":      {f, map[string]string{"TestA": p, "TestB": f, "TestC": p}, ""},
		"noise":      {f, map[string]string{"TestA": p, "TestB": p, "TestC": f}, ""},
		"buildfail":  {f, map[string]string{pkgFailure: f}, "undefined: undefined"},
		"broken":     {f, map[string]string{pkgFailure: f}, "undefined: undefined"},
		"depfail":    {f, map[string]string{pkgFailure: f}, "undefined: undefined"},
		"linkfail":   {f, map[string]string{pkgFailure: f}, "relocation target example.com/rec/linkfail.A not defined"},
		"setup":      {f, map[string]string{pkgFailure: f}, "no required module provides package example.com/rec/gone"},
		"initpanics": {f, map[string]string{pkgFailure: f}, "panic: codec"},
		"mainfails":  {f, map[string]string{"TestA": p, pkgFailure: f}, "FAIL"},
		// The process died: some tests have no result, and that must not pass
		// for success when the test that failed passes alone.
		"panics":   {f, map[string]string{"TestA": p, "TestB": f, pkgFailure: f}, ""},
		"panicsub": {f, map[string]string{"TestA": f, pkgFailure: f}, ""},
		"panicgo":  {f, map[string]string{pkgFailure: f}, "panic: elsewhere"},
		"exits":    {f, map[string]string{pkgFailure: f}, "F1121 fatal"},
		"exits0":   {f, map[string]string{"TestA": f, pkgFailure: f}, ""},
		"exits1":   {f, map[string]string{"TestA": f, pkgFailure: f}, "=== RUN   TestB"},
		"hangs":    {f, map[string]string{"TestA": p, pkgFailure: f}, "panic: test timed out after 3s"},
	} {
		pkg = "example.com/rec/" + pkg
		got := map[string]string{}
		for name, how := range res.result {
			if q, test, _ := strings.Cut(name, " "); q == pkg {
				got[test] = how
				delete(res.result, name)
			}
		}
		if res.ended[pkg] != want.ended || !maps.Equal(got, want.tests) {
			t.Errorf("%s: ended %q with %v, want %q with %v", pkg, res.ended[pkg], got, want.ended, want.tests)
		}
		if out := res.output[pkg+" "+pkgFailure]; want.output != "" && !strings.Contains(out, want.output) {
			t.Errorf("%s: the package's output lacks %q: %q", pkg, want.output, out)
		}
		delete(res.ended, pkg)
	}
	// What go test did not test (a package that is only imported, a program that is only linked)
	// has no result: it could not be run again and would stay a failure.
	if len(res.ended) > 0 || len(res.result) > 0 {
		t.Errorf("no expectation for %v, %v", res.ended, res.result)
	}
	if out := res.output["example.com/rec/panics TestB"]; !strings.Contains(out, "panic: oh") {
		t.Errorf("output of a test that panicked: %q", out)
	}
}

func TestParseKeepsTheEndOfLongOutput(t *testing.T) {
	line := `{"Action":"output","Package":"p","Test":"TestA","Output":"` + strings.Repeat("x", 1000) + `\n"}` + "\n"
	raw := strings.Repeat(line, 50) + `{"Action":"output","Package":"p","Test":"TestA","Output":"the end\n"}` + "\nnot JSON\n"
	res, err := parse(strings.NewReader(raw), nil)
	if err != nil {
		t.Fatal(err)
	}
	if out := res.output["p TestA"]; len(out) > 8<<10 || !strings.HasSuffix(out, "the end\n") {
		t.Errorf("%d bytes, %q", len(out), out[max(0, len(out)-20):])
	}
}

func TestComplete(t *testing.T) {
	r := &results{ended: map[string]string{"a": "pass", "b": "fail"}}
	if err := r.complete([]string{"a", "b"}); err != nil {
		t.Error(err)
	}
	if err := r.complete([]string{"a", "c"}); err == nil || !strings.Contains(err.Error(), " c") {
		t.Error(err)
	}
}

// TestOutcome plays runs of go test: the first of all packages, then the
// repetitions.
func TestOutcome(t *testing.T) {
	const p, f, s = "pass", "fail", "skip"
	type call struct {
		tests  []string // that are run again
		result map[string]string
		ended  string
	}
	for _, tc := range []struct {
		name          string
		calls         []call // of package "a"
		passed        int
		failed, flaky []string
		ran           []string
	}{
		{"all well", []call{{nil, map[string]string{"T1": p, "T2": s}, p}}, 1, nil, nil, []string{"a T1"}},
		{"fails each time", []call{
			{nil, map[string]string{"T1": p, "T2": f}, f},
			{[]string{"T2"}, map[string]string{"T2": f}, f},
			{[]string{"T2"}, map[string]string{"T2": f}, f},
			{[]string{"T2"}, map[string]string{"T2": f}, f},
			{[]string{"T2"}, map[string]string{"T2": f}, f},
		}, 1, []string{"a T2"}, nil, []string{"a T1", "a T2"}},
		{"passes the second time", []call{
			{nil, map[string]string{"T1": p, "T2": f}, f},
			{[]string{"T2"}, map[string]string{"T2": p}, p},
		}, 2, nil, []string{"a T2"}, []string{"a T1", "a T2"}},
		{"passes the third time", []call{
			{nil, map[string]string{"T1": f, "T2": f}, f},
			{[]string{"T1", "T2"}, map[string]string{"T1": f, "T2": p}, f},
			{[]string{"T1"}, map[string]string{"T1": p}, p},
		}, 2, nil, []string{"a T1", "a T2"}, []string{"a T1", "a T2"}},
		{"passes the last time", []call{
			{nil, map[string]string{"T1": f}, f},
			{[]string{"T1"}, map[string]string{"T1": f}, f},
			{[]string{"T1"}, map[string]string{"T1": f}, f},
			{[]string{"T1"}, map[string]string{"T1": f}, f},
			{[]string{"T1"}, map[string]string{"T1": p}, p},
		}, 1, nil, []string{"a T1"}, []string{"a T1"}},
		{"does not run the second time", []call{
			{nil, map[string]string{"T1": f}, f},
			{[]string{"T1"}, nil, p},
			{[]string{"T1"}, map[string]string{"T1": s}, p},
			{[]string{"T1"}, nil, p},
			{[]string{"T1"}, nil, p},
		}, 0, []string{"a T1"}, nil, []string{"a T1"}},
		{"died once: the tests that it left out are run", []call{
			{nil, map[string]string{"T1": p, "T2": f, pkgFailure: f}, f},
			{[]string{pkgFailure, "T2"}, map[string]string{"T1": p, "T2": p, "T3": p}, p},
		}, 3, nil, []string{"a " + pkgFailure, "a T2"}, []string{"a T1", "a T2", "a T3"}},
		{"died once, and a test that it left out fails", []call{
			{nil, map[string]string{"T1": p, "T2": f, pkgFailure: f}, f},
			{[]string{pkgFailure, "T2"}, map[string]string{"T1": p, "T2": p, "T3": f}, f},
			{[]string{pkgFailure, "T3"}, map[string]string{"T1": p, "T2": p, "T3": f}, f},
			{[]string{pkgFailure, "T3"}, map[string]string{"T1": p, "T2": p, "T3": f}, f},
			{[]string{pkgFailure, "T3"}, map[string]string{"T1": p, "T2": p, "T3": f}, f},
		}, 2, []string{"a " + pkgFailure, "a T3"}, []string{"a T2"}, []string{"a T1", "a T2", "a T3"}},
		{"does not compile", []call{
			{nil, map[string]string{pkgFailure: f}, f},
			{[]string{pkgFailure}, map[string]string{pkgFailure: f}, f},
			{[]string{pkgFailure}, map[string]string{pkgFailure: f}, f},
			{[]string{pkgFailure}, map[string]string{pkgFailure: f}, f},
			{[]string{pkgFailure}, map[string]string{pkgFailure: f}, f},
		}, 0, []string{"a " + pkgFailure}, nil, nil},
		{"a test that passed and fails in the repetition has passed", []call{
			{nil, map[string]string{"T1": p, pkgFailure: f}, f},
			{[]string{pkgFailure}, map[string]string{"T1": f}, f},
			{[]string{pkgFailure}, map[string]string{"T1": p}, p},
		}, 1, nil, []string{"a " + pkgFailure}, []string{"a T1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := 0
			o, err := outcome([]string{"a"}, func(packages, tests []string) (*results, error) {
				if n == len(tc.calls) {
					t.Fatalf("run %d: of %q", n+1, tests)
				}
				c := tc.calls[n]
				n++
				if !slices.Equal(packages, []string{"a"}) || !slices.Equal(tests, c.tests) {
					t.Errorf("run %d: packages %q, tests %q, want %q", n, packages, tests, c.tests)
				}
				r := &results{map[string]string{}, map[string]string{"a": c.ended}, map[string]string{}}
				for test, how := range c.result {
					r.result["a "+test] = how
					r.output["a "+test] = "output"
				}
				return r, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if n != len(tc.calls) {
				t.Errorf("%d runs, want %d", n, len(tc.calls))
			}
			if o.Passed != tc.passed || !slices.Equal(o.Failed, tc.failed) || !slices.Equal(o.Flaky, tc.flaky) || !slices.Equal(sortedKeys(o.Ran), tc.ran) {
				t.Errorf("%+v", o)
			}
			for _, f := range o.Failed {
				if o.Output[f] == "" {
					t.Errorf("no output of %s", f)
				}
			}
		})
	}
	if _, err := outcome([]string{"a"}, func([]string, []string) (*results, error) { return nil, errors.New("go is gone") }); err == nil {
		t.Error("the error of a run is lost")
	}
}

// TestRun runs the go command for real, on the invented upstream.
func TestRun(t *testing.T) {
	r := testrepo.New(t)
	b := r.Base(t, testrepo.Name)
	// Its first run leaves a mark and fails; the second passes.
	mark := filepath.Join(t.TempDir(), "mark")
	r.Write(t, "pkg/greet/holdfast_test.go", `package greet

import ("os"; "testing")

func TestFlaky(t *testing.T) {
	if _, err := os.Stat("`+mark+`"); err != nil {
		os.WriteFile("`+mark+`", nil, 0o644)
		t.Fatal("first time")
	}
}

func TestBroken(t *testing.T) { t.Fatal("always") }
`)
	logs := filepath.Join(r.Root, "_output/logs")
	ours, err := Run(t.Context(), b, base.Ours, []string{"example.com/up/pkg/greet", "example.com/up/pkg/plain"}, logs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	const pkg = "example.com/up/pkg/greet "
	if ours.Packages != 2 || ours.Passed != 2 || !slices.Equal(ours.Failed, []string{pkg + "TestBroken"}) || !slices.Equal(ours.Flaky, []string{pkg + "TestFlaky"}) {
		t.Errorf("%+v", ours)
	}
	if log := r.Read(t, "_output/logs/upstream-tests-ours.log"); !strings.Contains(log, "always") || !strings.Contains(log, "flaky: "+pkg+"TestFlaky") {
		t.Error(log)
	}
	stock, err := Run(t.Context(), b, base.Stock, []string{"example.com/up/pkg/greet"}, logs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if bad := Compare(stock, ours, nil); len(bad) != 1 || !strings.Contains(bad[0], "TestBroken fails in the patched tree") {
		t.Errorf("%q", bad)
	}
	none, err := Run(t.Context(), b, base.Ours, []string{"example.com/up/pkg/none"}, logs, Options{})
	if err != nil || !slices.Equal(none.Failed, []string{"example.com/up/pkg/none (package)"}) {
		t.Errorf("a package that does not exist: %+v, %v", none, err)
	}
}

func TestCompare(t *testing.T) {
	out := func(failed, ran string) *Outcome {
		o := &Outcome{Output: map[string]string{}, Ran: map[string]bool{}}
		for _, f := range strings.Split(failed, ",") {
			if f != "" {
				o.Failed = append(o.Failed, f)
				o.Output[f] = "line 1\nline 2\n"
			}
		}
		for _, f := range strings.Split(ran, ",") {
			if f != "" {
				o.Ran[f] = true
			}
		}
		return o
	}
	known := Known{"a T1": "a reason"}
	for _, tc := range []struct {
		name        string
		stock, ours *Outcome
		bad         []string
	}{
		{"nothing fails", out("", "a T1,a T2"), out("", "a T1,a T2,b T9"), nil},
		{"the same known failure", out("a T1", "a T1"), out("a T1", "a T1"), nil},
		{"the same unknown failure", out("a T2", "a T2"), out("a T2", "a T2"), []string{"a T2 fails in the stock tree and is not in known-failures.txt:\n    line 1\n    line 2"}},
		{"unknown failure of stock alone", out("a T2", "a T2"), out("", "a T2"), []string{"a T2 fails in the stock tree and is not in known-failures.txt"}},
		{"failure of ours alone", out("", "a T2"), out("a T2", "a T2"), []string{"a T2 fails in the patched tree and passes in stock"}},
		{"known failure, but of ours alone", out("", "a T1"), out("a T1", "a T1"), []string{"a T1 fails in the patched tree"}},
		{"known failure of stock alone", out("a T1", "a T1"), out("", "a T1"), []string{"a T1 fails in the stock tree and not in the patched one: the lists must be equal"}},
		{"a package of ours fails", out("", ""), out("b T1", "b T1"), []string{"b T1 fails in the patched tree and passes in stock (or is ours)"}},
		{"a test does not run in ours", out("", "a T1,a T2"), out("", "a T1"), []string{"a T2 passes in the stock tree and does not run in the patched one"}},
		{"our package died: its failure stands for the rest", out("", "a T1,a T2"), out("a (package)", "a T1"), []string{"a (package) fails in the patched tree"}},
	} {
		bad := Compare(tc.stock, tc.ours, known)
		if len(bad) != len(tc.bad) {
			t.Errorf("%s: %q, want %q", tc.name, bad, tc.bad)
			continue
		}
		for i := range bad {
			if !strings.HasPrefix(bad[i], tc.bad[i]) {
				t.Errorf("%s: %q, want %q", tc.name, bad[i], tc.bad[i])
			}
		}
	}
}

func TestLoadKnown(t *testing.T) {
	r := testrepo.New(t)
	b := r.Base(t, testrepo.Name)
	const file = "bases/v1.9.11/known-failures.txt"
	r.Write(t, file, "# comment\n\n  k8s.io/a TestA needs IPv6\nk8s.io/b (package) does not compile: no cgo\n")
	k, err := LoadKnown(b)
	if err != nil || !maps.Equal(k, Known{"k8s.io/a TestA": "needs IPv6", "k8s.io/b (package)": "does not compile: no cgo"}) {
		t.Errorf("%v, %v", k, err)
	}
	for content, says := range map[string]string{
		"# c\nk8s.io/a TestA\n":                        file + ":2",
		"k8s.io/a TestA one\nk8s.io/a TestA another\n": file + ":2",
	} {
		r.Write(t, file, content)
		if _, err := LoadKnown(b); exit.Code(err) != 1 || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", content, err)
		}
	}
	if _, err := LoadKnown(r.Base(t, testrepo.GOPATHName)); err == nil || !strings.Contains(err.Error(), "bases/v1.2.0/known-failures.txt") {
		t.Error(err)
	}
}

func TestTouched(t *testing.T) {
	r := testrepo.New(t)
	b := r.Base(t, testrepo.Name)
	r.Write(t, "staging/src/k8s.io/api/core/holdfast.go", "package core\n")
	r.Write(t, "pkg/ours/testdata/x.go", "package x\n")
	r.Write(t, "pkg/notes/README.md", "text\n")
	for _, v := range b.VariantNames() {
		if _, err := Run(t.Context(), b, v, []string{"example.com/up/pkg/plain"}, t.TempDir(), Options{}); err != nil {
			t.Fatal(err)
		}
	}
	both, oursOnly, err := Touched(b)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"example.com/up/pkg/greet", "example.com/up/pkg/version", "k8s.io/api/core"}; !slices.Equal(both, want) {
		t.Errorf("in both: %q, want %q", both, want)
	}
	if want := []string{"example.com/up/pkg/ours"}; !slices.Equal(oursOnly, want) {
		t.Errorf("ours: %q, want %q", oursOnly, want)
	}
	delete(b.Variants, "ours")
	if _, _, err := Touched(b); exit.Code(err) != 2 {
		t.Error(err)
	}
}
