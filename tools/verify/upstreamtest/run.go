// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstreamtest runs upstream's own unit tests in the stock and in the
// patched tree and compares what fails, so that "no regression" is a result.
package upstreamtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/builder"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/progress"
	"holdfast/tools/verify/gotest"
)

// retries is how often a test that failed is run again, alone, before its
// failure counts: some of upstream's tests starve on two cores.
const retries = 4

// sideBySide is how many packages are compiled and tested at a time. Many tests wait.
const sideBySide = 4

// pkgFailure stands for a package that failed outside of any test (it does not
// compile, its TestMain failed) or whose process died before all tests ran.
const pkgFailure = "(package)"

// Outcome is what one variant's run gave. Tests are named "package Test".
type Outcome struct {
	Packages int
	Passed   int
	Failed   []string          // after the retries, sorted
	Flaky    []string          // passed when run again, sorted
	Fails    map[string]int    // flaky test -> how often it failed before
	Output   map[string]string // failed test -> what it printed, its end only
	Ran      map[string]bool   // tests that passed or failed; skipped ones are not among them
	Skipped  map[string]bool
}

// Options say how tests are run.
type Options struct {
	// Integration: they need an etcd and are run package by package, never from
	// the test cache.
	Integration bool
	// Doubtful: of the packages that both trees have, stock tests only those where what ours
	// answered leaves a doubt of what stock does (see doubtful). Packages are the touched ones.
	Doubtful bool
	// OursAlone: stock tests nothing, and what fails in ours must be a known failure.
	OursAlone bool
}

// Run tests the packages of variant.
func Run(ctx context.Context, b *base.Base, variant base.Variant, packages []string, logDir string, opts Options) (*Outcome, error) {
	if len(packages) == 0 { // the go command would take the current folder
		return &Outcome{}, nil
	}
	modfile, err := builder.Source(ctx, b, variant)
	if err != nil {
		return nil, err
	}
	log := "upstream-tests-"
	if opts.Integration {
		log = "integration-"
	}
	r := &runner{b: b, variant: variant, modfile: modfile, name: log + variant.Dir(), args: []string{fmt.Sprintf("-p=%d", sideBySide)}}
	if opts.Integration {
		url, stop, err := startEtcd(ctx)
		if err != nil {
			return nil, err
		}
		defer stop()
		flags, err := builder.AssetsFlags(ctx, b, variant, modfile)
		if err != nil {
			return nil, err
		}
		r.env, r.args = []string{etcdURLVariable + "=" + url}, append(flags, "-p=1", "-count=1")
	}
	s := progress.Start("upstream's tests, %s %s, %d packages", b.Name, variant, len(packages))
	o, err := outcome(packages, func(packages, tests []string) (*results, error) {
		if len(tests) > 0 {
			s.Now("again: " + packages[0] + " " + strings.Join(tests, " "))
		}
		return r.goTest(ctx, packages, tests, s)
	})
	if err != nil {
		s.Fail()
		return nil, err
	}
	s.Done(fmt.Sprintf("%d tests passed, %d failed, %d passed only when run again", o.Passed, len(o.Failed), len(o.Flaky)))
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return nil, err
	}
	return o, os.WriteFile(filepath.Join(logDir, r.name+".log"), o.log(), 0o644)
}

// outcome runs all packages once and what failed again, package by package: the
// failed tests alone or, where the process died and left tests out, all. run
// runs packages, or the named tests of one.
func outcome(packages []string, run func(packages, tests []string) (*results, error)) (*Outcome, error) {
	res, err := run(packages, nil)
	if err != nil {
		return nil, err
	}
	o := &Outcome{Packages: len(packages), Output: map[string]string{}, Ran: map[string]bool{}, Skipped: map[string]bool{}, Fails: map[string]int{}}
	for round := range retries {
		failed := map[string][]string{} // package -> tests
		for name, how := range res.result {
			if how == "fail" {
				pkg, test, _ := strings.Cut(name, " ")
				failed[pkg] = append(failed[pkg], test)
			}
		}
		for pkg, tests := range failed {
			sort.Strings(tests)
			again, err := run([]string{pkg}, tests)
			if err != nil {
				return nil, err
			}
			for _, name := range res.merge(again, pkg) {
				o.Fails[name] = round + 1
			}
		}
	}
	for name, how := range res.result {
		switch {
		case how == "fail":
			o.Failed = append(o.Failed, name)
			o.Output[name] = res.output[name]
		case how == "pass" && o.Fails[name] > 0:
			o.Flaky = append(o.Flaky, name)
		}
		switch {
		case strings.HasSuffix(name, " "+pkgFailure):
		case how == "skip":
			o.Skipped[name] = true
		default:
			o.Ran[name] = true
			if how == "pass" {
				o.Passed++
			}
		}
	}
	sort.Strings(o.Failed)
	sort.Strings(o.Flaky)
	return o, nil
}

func (o *Outcome) log() []byte {
	var b bytes.Buffer
	for _, f := range o.Failed {
		fmt.Fprintf(&b, "=== %s\n%s\n", f, o.Output[f])
	}
	for _, f := range o.Flaky {
		fmt.Fprintf(&b, "=== flaky: %s, failed %d of %d times\n", f, o.Fails[f], o.Fails[f]+1)
	}
	return b.Bytes()
}

type runner struct {
	b       *base.Base
	variant base.Variant
	modfile string
	name    string // of the set and the variant: make test runs two sets of one tree at a time
	env     []string
	args    []string // of go test
}

// results are what go test said, by "package Test".
type results struct {
	result map[string]string // "pass", "fail" or "skip"; a package's pkgFailure is there only if it failed
	ended  map[string]string // package -> "pass", "fail" or "skip" (no tests)
	output map[string]string
}

// merge takes over what a second run of pkg gave and returns the tests that
// passed now and had failed. A test that did not run in the second run, or
// that was skipped, has not passed.
func (r *results) merge(again *results, pkg string) (passed []string) {
	for name, how := range again.result {
		if p, _, _ := strings.Cut(name, " "); p != pkg {
			continue
		}
		switch {
		case r.result[name] == "":
			r.result[name], r.output[name] = how, again.output[name]
		case r.result[name] == "fail" && how == "pass":
			r.result[name] = how
			passed = append(passed, name)
		}
	}
	if name := pkg + " " + pkgFailure; r.result[name] == "fail" && again.ended[pkg] == "pass" {
		r.result[name] = "pass"
		passed = append(passed, name)
	}
	return passed
}

// goTest runs the packages, or the named tests of one package (all of it, where
// pkgFailure is among them), with the flags of the kubelet's build, and without
// vet, which 2018's tests do not pass today.
func (r *runner) goTest(ctx context.Context, packages, tests []string, s *progress.Step) (*results, error) {
	// Linked without debug information, which takes a third less.
	args := []string{"test", "-json", "-vet=off", "-trimpath", "-ldflags=-w", "-buildvcs=false", "-timeout=15m"}
	args = append(args, builder.ModFlags(r.b, r.modfile)...)
	args = append(append(args, builder.LangFlags(r.b)...), r.args...)
	if len(tests) > 0 {
		args = append(args, "-count=1")
		if !slices.Contains(tests, pkgFailure) {
			args = append(args, "-run=^("+strings.Join(tests, "|")+")$")
		}
	}
	cmd := builder.Command(ctx, "go", append(args, packages...)...)
	cmd.Dir = r.b.Root
	env, end, err := builder.TempDir(r.b.Root, r.b.Name+" "+r.name, builder.TestEnv(r.b, r.variant))
	if err != nil {
		return nil, err
	}
	defer end()
	cmd.Env = append(env, r.env...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	start := cmd.Start
	if len(tests) > 0 {
		start = func() error { return atUsualPriority(cmd.Start) }
	}
	if err := start(); err != nil {
		return nil, err
	}
	res, err := parse(stdout, s)
	if err == nil {
		err = res.complete(packages)
	}
	werr := cmd.Wait()
	if err == nil && werr != nil && !res.failed() {
		err = werr
	}
	if err != nil {
		return nil, exit.Preconditionf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return res, nil
}

// complete says which packages the go command did not speak of: it died itself.
func (r *results) complete(packages []string) error {
	for _, p := range packages {
		if r.ended[p] == "" {
			return fmt.Errorf("it ended without a result for %s", p)
		}
	}
	return nil
}

func (r *results) failed() bool {
	for _, how := range r.ended {
		if how == "fail" {
			return true
		}
	}
	return false
}

// parse reads go test -json. Subtests count as part of their test.
func parse(in io.Reader, s *progress.Step) (*results, error) {
	res := &results{map[string]string{}, map[string]string{}, map[string]string{}}
	failedOf := map[string]int{}            // package -> failed tests
	finished := map[string]bool{}           // package -> all its tests ran
	running := map[string]map[string]bool{} // package -> tests that did not end yet
	built := map[string]string{}            // what was to be built -> what the compiler or the linker said
	err := gotest.Read(in, func(e gotest.Event) {
		if e.ImportPath != "" {
			// It need not be a package with tests: it can be one that those import, or the program
			// that is linked of them (its name ends in ".test"). Their own event follows.
			if e.Action == "build-output" {
				built[e.ImportPath] = theEnd(built[e.ImportPath] + e.Output)
			}
			return
		}
		test, _, sub := strings.Cut(e.Test, "/")
		name := e.Package + " " + test
		if test == "" {
			name = e.Package + " " + pkgFailure
			// The test framework's own last word.
			if e.Output == "PASS\n" || e.Output == "FAIL\n" {
				finished[e.Package] = true
			}
		}
		if e.Action == "output" {
			res.output[name] = theEnd(res.output[name] + e.Output)
			return
		}
		if sub {
			return
		}
		switch e.Action {
		case "run":
			if running[e.Package] == nil {
				running[e.Package] = map[string]bool{}
			}
			running[e.Package][name] = true
		case "pass", "fail", "skip":
			if test != "" {
				delete(running[e.Package], name)
				res.result[name] = e.Action
				if e.Action == "fail" {
					failedOf[e.Package]++
				}
				return
			}
			res.ended[e.Package] = e.Action
			if s != nil {
				s.Now(e.Package)
			}
			if e.Action == "fail" && (failedOf[e.Package] == 0 || !finished[e.Package]) {
				res.result[name] = "fail"
				res.output[name] = built[e.FailedBuild] + res.output[name]
				for _, t := range sortedKeys(running[e.Package]) {
					res.output[name] = res.output[t] + res.output[name]
				}
			}
		}
	}, func(string) {})
	return res, err
}

// theEnd is the end of what a test printed: enough to see why it failed.
func theEnd(out string) string {
	const keep = 8 << 10
	return out[max(0, len(out)-keep):]
}

func sortedKeys(m map[string]bool) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
