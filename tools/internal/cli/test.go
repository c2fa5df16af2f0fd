// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/build"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/hashoracle"
	"holdfast/tools/internal/labbuild"
	"holdfast/tools/internal/parts"
	"holdfast/tools/internal/upstreamtest"
	"holdfast/tools/labkit"
)

func testCommand(c *common) *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Run what CI runs: rules, unit tests, upstream's tests of touched packages, labs",
		Args:  exit.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			all := testParts(b)
			var names []string
			for _, p := range all {
				names = append(names, p.Name)
			}
			var run []parts.Part
			for _, p := range all {
				if len(only) == 0 || slices.Contains(only, p.Name) {
					run = append(run, p)
				}
			}
			for _, n := range only {
				if !slices.Contains(names, n) {
					return exit.Usagef("no part %q: they are %s", n, strings.Join(names, ", "))
				}
			}
			if !parts.Run(os.Stdout, run) {
				return exit.Preconditionf("tests failed")
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&only, "part", nil, "run these parts only (comma separated)")
	return cmd
}

func testParts(b *base.Base) []parts.Part {
	return []parts.Part{
		{Name: "rules", Run: func() (parts.Count, error) { return goTest(filepath.Join(b.Root, "tools"), "./...") }},
		{Name: "source", Run: func() (parts.Count, error) {
			if err := writeTrees(b); err != nil {
				return parts.Count{}, err
			}
			return parts.Count{Passed: len(b.Variants)}, nil
		}},
		{Name: "binaries", Needs: []string{"source"}, Run: func() (parts.Count, error) { return buildForLabs(b) }},
		{Name: "proofs", Needs: []string{"binaries"}, Run: func() (parts.Count, error) {
			return goTestEnv([]string{"HOLDFAST_PROOFS=short"}, filepath.Join(b.Root, "tools"), "-count=1", "./internal/proofs")
		}},
		{Name: "unit", Needs: []string{"binaries"}, Run: func() (parts.Count, error) {
			for _, verb := range []string{"build", "vet"} {
				if err := goRun(b.Root, verb, "./..."); err != nil {
					return parts.Count{}, err
				}
			}
			own, err := ownPackages(b)
			if err != nil {
				return parts.Count{}, err
			}
			return goTest(b.Root, append([]string{"./..."}, own...)...)
		}},
		{Name: "operators", Run: func() (parts.Count, error) { return goTest(filepath.Join(b.Root, "cmd"), "./...") }},
		{Name: "hash-oracle", Needs: []string{"source"}, Run: func() (parts.Count, error) {
			r, err := hashoracle.Run(hashoracle.Options{Root: b.Root, Containers: 100000, Seed: 1, Workers: 2, SchemaEvery: 10, Log: os.Stdout})
			if err != nil {
				return parts.Count{}, err
			}
			if r.Differ > 0 {
				return parts.Count{Failed: 1}, exit.Preconditionf("%d of %d containers have another hash than the releases' own code gives:\n%s", r.Differ, r.Containers, strings.Join(r.Mismatches, "\n"))
			}
			fmt.Printf("%d random containers, %v: %d hashes as the releases' own code gives them, %d rightly withheld, %d differ\n", r.Containers, r.Asked, r.Hashes, r.Withheld, r.Differ)
			return parts.Count{Passed: 1}, nil
		}},
		{Name: "upstream-touched", Needs: []string{"source"}, Run: func() (parts.Count, error) { return upstreamTests(b, false) }},
		{Name: "upstream-touched-1.2", Run: func() (parts.Count, error) {
			b, err := base.Load(b.Root, "v1.2.0")
			if err != nil {
				return parts.Count{}, err
			}
			if err := writeTrees(b); err != nil {
				return parts.Count{}, err
			}
			return upstreamTests(b, false)
		}},
		{Name: "labs", Needs: []string{"binaries"}, Run: func() (parts.Count, error) { return runLabs(b) }},
	}
}

func binariesCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "binaries",
		Short: "Build the product and every binary that the labs run",
		Args:  exit.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			_, err = buildForLabs(b)
			return err
		},
	}
}

// ownPackages lists, as folders of the root module, the overlay's packages that
// stand alone. Some lie below a folder that go.mod ignores for the sake of
// overlay files that do not, so that "./..." misses them.
func ownPackages(b *base.Base) ([]string, error) {
	_, oursOnly, err := upstreamtest.Touched(b)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range oursOnly {
		dir, ok := strings.CutPrefix(p, b.Module+"/")
		if !ok {
			dir = "staging/src/" + p
		}
		out = append(out, "./"+dir)
	}
	return out, nil
}

// writeTrees writes all source trees of b.
func writeTrees(b *base.Base) error {
	for _, v := range b.Variants {
		if _, err := build.Source(b, v); err != nil {
			return err
		}
	}
	return nil
}

// upstreamTests runs upstream's tests in both trees of b, of the packages that
// overlay or series touch or of all that the binaries link as well, and compares
// what fails. The trees are there.
func upstreamTests(b *base.Base, all bool) (parts.Count, error) {
	both, oursOnly, err := upstreamtest.Touched(b)
	if err != nil {
		return parts.Count{}, err
	}
	if all {
		linked, err := upstreamtest.All(b)
		if err != nil {
			return parts.Count{}, err
		}
		both = append(both, linked...)
		slices.Sort(both)
		both = slices.Compact(both)
	}
	stock, ours, bad, err := upstreamtest.Check(b, both, oursOnly)
	if err != nil {
		return parts.Count{}, err
	}
	fmt.Printf("upstream's tests, stock: %d packages, %d passed, %d failed (known), %d flaky\n", stock.Packages, stock.Passed, len(stock.Failed), len(stock.Flaky))
	fmt.Printf("upstream's tests, ours:  %d packages, %d passed, %d failed (the same), %d flaky\n", ours.Packages, ours.Passed, len(ours.Failed), len(ours.Flaky))
	for _, f := range append(slices.Clone(stock.Flaky), ours.Flaky...) {
		fmt.Println("flaky:", f)
	}
	n := parts.Count{Passed: stock.Passed + ours.Passed, Failed: len(bad)}
	if len(bad) > 0 {
		return n, exit.Preconditionf("%s", strings.Join(bad, "\n"))
	}
	return n, nil
}

func upstreamTestsCommand(c *common) *cobra.Command {
	var set string
	cmd := &cobra.Command{
		Use:   "upstream-tests",
		Short: "Run upstream's own tests in both trees and compare what fails",
		Args:  exit.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, err := c.load()
			if err != nil {
				return err
			}
			if set != "touched" && set != "all" {
				return exit.Usagef("--set %q: it is touched or all", set)
			}
			if err := b.HasVariant(base.Ours); err != nil {
				return err
			}
			if err := writeTrees(b); err != nil {
				return err
			}
			_, err = upstreamTests(b, set == "all")
			return err
		},
	}
	cmd.Flags().StringVar(&set, "set", "touched", "touched (by overlay or series) or all (that the binaries link)")
	return cmd
}

// goRun runs one go command in dir and shows what it says when it fails.
func goRun(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, build.GoEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		return exit.Preconditionf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// goTest runs our own tests in dir and counts them; what failed tests print is
// shown.
func goTest(dir string, packages ...string) (parts.Count, error) {
	return goTestEnv(nil, dir, packages...)
}

// goTestEnv is goTest with more in the environment.
func goTestEnv(more []string, dir string, packages ...string) (parts.Count, error) {
	cmd := exec.Command("go", append([]string{"test", "-json", "-trimpath", "-timeout=20m"}, packages...)...)
	env, end, err := build.TempDir(dir, build.GoEnv())
	if err != nil {
		return parts.Count{}, err
	}
	defer end()
	// The rules read files that the test cache does not know of.
	cmd.Dir, cmd.Env = dir, append(append(env, "HOLDFAST_TEST_RUN="+time.Now().String()), more...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return parts.Count{}, err
	}
	if err := cmd.Start(); err != nil {
		return parts.Count{}, err
	}
	var n parts.Count
	output := map[string][]string{}
	sc := bufio.NewScanner(stdout)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e struct {
			Action, Package, Test, Output, ImportPath string
			Elapsed                                   float64
		}
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			fmt.Println(sc.Text())
			continue
		}
		key := e.Package + e.ImportPath + " " + e.Test
		switch {
		case e.Output != "":
			output[key] = append(output[key], e.Output)
		case e.Action == "pass" && e.Test != "":
			n.Passed++
		case e.Action == "fail" && e.Test != "", e.Action == "build-fail":
			n.Failed++
			fmt.Print("FAIL ", key, "\n", strings.Join(output[key], ""))
		case e.Action == "fail":
			fmt.Print("FAIL ", key, "\n", strings.Join(output[key], ""))
		case e.Action == "pass" && e.Elapsed > 10:
			fmt.Printf("%s took %.0f s\n", e.Package, e.Elapsed)
		}
	}
	serr := sc.Err()
	err = cmd.Wait()
	if serr != nil {
		return n, fmt.Errorf("output of go test in %s: %w", dir, serr)
	}
	if err != nil {
		return n, exit.Preconditionf("go test in %s: %v\n%s", dir, err, stderr.Bytes())
	}
	return n, nil
}

// buildForLabs builds the product and every binary that a lab runs, each once.
func buildForLabs(b *base.Base) (parts.Count, error) {
	files, err := build.Build(b, build.Options{Variant: base.Ours})
	n := parts.Count{Passed: len(files)}
	if err != nil {
		return n, err
	}
	built, err := labbuild.Build(b.Root, labNames(), nil, nil)
	n.Passed += built
	return n, err
}

// labNames lists the labs of make test.
func labNames() []string {
	var names []string
	for _, l := range labkit.Labs() {
		if !l.LongOnly {
			names = append(names, l.Name)
		}
	}
	return names
}

// labsAtOnce is how many labs run side by side. Each has a machine of its own
// (see labkit), and most of a lab's time is spent waiting for timers of the
// components, so that more of them than cores is right.
const labsAtOnce = 4

// labRetries is how often a lab that failed is run again, as often as one of
// upstream's tests.
const labRetries = 2

// runLabs runs each lab in its short profile.
func runLabs(b *base.Base) (parts.Count, error) {
	names := labNames()
	packages := slices.Clone(labkit.DebianPackages)
	for _, l := range labkit.Labs() {
		packages = append(packages, l.Packages...)
	}
	// Here and not by the labs, which would do it side by side.
	if err := labkit.InstallPackages(context.Background(), packages, os.Stdout); err != nil {
		return parts.Count{}, err
	}
	var n parts.Count
	var failed []string
	var mu sync.Mutex
	one := func(name string) {
		start := time.Now()
		var out bytes.Buffer
		err := labkit.RunLabs(context.Background(), []string{name}, labkit.Options{Profile: labkit.Short, Seed: 1, Root: b.Root, Out: &out})
		mu.Lock()
		defer mu.Unlock()
		os.Stdout.Write(out.Bytes())
		fmt.Printf("lab %s took %.0f s\n\n", name, time.Since(start).Seconds())
		if err != nil {
			n.Failed++
			failed = append(failed, name)
			fmt.Printf("lab %s: %v\n", name, err)
			return
		}
		n.Passed++
	}
	var g errgroup.Group
	g.SetLimit(labsAtOnce)
	for _, name := range names {
		g.Go(func() error { one(name); return nil })
	}
	if err := g.Wait(); err != nil {
		return n, err
	}
	// A lab that did not answer as it must beside others gets another chance
	// alone, twice at most, and is reported either way.
	for i := 0; i < labRetries && len(failed) > 0; i++ {
		again := failed
		failed, n.Failed = nil, 0
		for _, name := range again {
			fmt.Printf("lab %s again, alone\n", name)
			one(name)
			if !slices.Contains(failed, name) {
				fmt.Printf("flaky: lab %s answered as it must only when it ran again, alone\n", name)
			}
		}
	}
	if len(failed) > 0 {
		return n, exit.Preconditionf("labs that did not answer as they must: %s", strings.Join(failed, ", "))
	}
	return n, nil
}
