// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstreamtest runs upstream's own unit tests in the stock and in the
// patched tree and compares what fails, so that "no regression" is a result.
package upstreamtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/build"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/progress"
)

// retries is how often a test that failed is run again, alone, before its
// failure counts: some of upstream's tests starve on two cores.
const retries = 2

// pkgFailure stands for a package that failed outside of any test (it does not
// compile, or its process died).
const pkgFailure = "(package)"

// Outcome is what one variant's run gave. Tests are named "package Test".
type Outcome struct {
	Packages int
	Passed   int
	Failed   []string          // after the retries, sorted
	Flaky    []string          // passed when run again, sorted
	Output   map[string]string // failed test -> what it printed, its end only
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of build-output events
}

// Run tests the packages of variant.
func Run(b *base.Base, variant string, packages []string, logDir string) (*Outcome, error) {
	modfile, err := build.Source(b, variant)
	if err != nil {
		return nil, err
	}
	r := &runner{b: b, variant: variant, modfile: modfile}
	s := progress.Start("upstream's tests, %s %s, %d packages", b.Name, variant, len(packages))
	res, err := r.goTest(packages, "", s)
	if err != nil {
		s.Fail()
		return nil, err
	}
	o := &Outcome{Packages: len(packages), Output: map[string]string{}}
	for name, pass := range res.result {
		if pass {
			o.Passed++
			continue
		}
		pkg, test, _ := strings.Cut(name, " ")
		again := false
		for i := 0; i < retries && !again; i++ {
			s.Now(fmt.Sprintf("again: %s", name))
			one, err := r.goTest([]string{pkg}, test, s)
			if err != nil {
				s.Fail()
				return nil, err
			}
			again = one.ok(name)
		}
		if again {
			o.Flaky = append(o.Flaky, name)
			o.Passed++
			continue
		}
		o.Failed = append(o.Failed, name)
		o.Output[name] = res.output[name]
	}
	sort.Strings(o.Failed)
	sort.Strings(o.Flaky)
	s.Done(fmt.Sprintf("%d tests passed, %d failed, %d passed only when run again", o.Passed, len(o.Failed), len(o.Flaky)))
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return nil, err
	}
	return o, os.WriteFile(filepath.Join(logDir, "upstream-tests-"+variant+".log"), o.log(), 0o644)
}

func (o *Outcome) log() []byte {
	var b bytes.Buffer
	for _, f := range o.Failed {
		fmt.Fprintf(&b, "=== %s\n%s\n", f, o.Output[f])
	}
	for _, f := range o.Flaky {
		fmt.Fprintf(&b, "=== flaky: %s\n", f)
	}
	return b.Bytes()
}

type runner struct {
	b                *base.Base
	variant, modfile string
}

type results struct {
	result map[string]bool // "package Test" -> passed
	output map[string]string
}

func (r *results) ok(name string) bool {
	pkg, _, _ := strings.Cut(name, " ")
	failed := false
	for n, pass := range r.result {
		if strings.HasPrefix(n, pkg+" ") && !pass {
			failed = true
		}
	}
	return !failed
}

// goTest runs the packages, or one test of one package, with the flags of the
// kubelet's build, and without vet, which 2018's tests do not pass today.
func (r *runner) goTest(packages []string, test string, s *progress.Step) (*results, error) {
	args := []string{"test", "-json", "-vet=off", "-trimpath", "-buildvcs=false", "-timeout=15m"}
	args = append(args, build.ModFlags(r.b, r.modfile)...)
	if test != "" && test != pkgFailure {
		args = append(args, "-count=1", "-run=^"+regexp.QuoteMeta(test)+"$")
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Dir = r.b.Root
	env, end, err := build.TempDir(r.b.Root, build.TestEnv(r.b, r.variant))
	if err != nil {
		return nil, err
	}
	defer end()
	cmd.Env = env
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	res, perr := parse(stdout, s)
	werr := cmd.Wait()
	if perr != nil {
		return nil, perr
	}
	if len(res.result) == 0 && werr != nil {
		return nil, exit.Preconditionf("go %s: %v\n%s", strings.Join(args, " "), werr, stderr.Bytes())
	}
	return res, nil
}

// parse reads go test -json. Subtests count as part of their test.
func parse(in io.Reader, s *progress.Step) (*results, error) {
	res := &results{map[string]bool{}, map[string]string{}}
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 16<<20)
	testsOf := map[string]int{} // package -> failed tests
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			continue // what a test process wrote past the test framework
		}
		if e.Package == "" {
			e.Package, _, _ = strings.Cut(e.ImportPath, " ")
		}
		top, _, sub := strings.Cut(e.Test, "/")
		name := e.Package + " " + top
		if top == "" {
			name = e.Package + " " + pkgFailure
		}
		switch e.Action {
		case "output", "build-output":
			const keep = 8 << 10
			out := res.output[name] + e.Output
			if len(out) > keep {
				out = out[len(out)-keep:]
			}
			res.output[name] = out
		case "pass":
			if top != "" && !sub {
				res.result[name] = true
			} else if top == "" && s != nil {
				s.Now(e.Package)
			}
		case "fail", "build-fail":
			if sub {
				continue
			}
			if top != "" {
				testsOf[e.Package]++
				res.result[name] = false
			} else if testsOf[e.Package] == 0 {
				res.result[name] = false
			}
		}
	}
	return res, sc.Err()
}
