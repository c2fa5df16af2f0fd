// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ci is what make test runs: the parts, and what each of them does. It
// knows the labs by their command alone (see labs.go).
package ci

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/builder"
	"holdfast/tools/internal/commandline"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/flagtable"
	"holdfast/tools/internal/gotest"
	"holdfast/tools/internal/hashoracle"
	"holdfast/tools/internal/parts"
	"holdfast/tools/internal/security"
	"holdfast/tools/internal/upstreamtest"
)

// Options say which parts run.
type Options struct {
	// All is make test-all: all labs in all variants in place of the short set, and the parts
	// whose answer seldom changes.
	All bool
}

// Parts are the parts of make test, or of make test-all, for the default base b. Each runs whole,
// every time.
func Parts(b *base.Base, o Options) ([]parts.Part, error) {
	tools := filepath.Join(b.Root, "tools")
	all := []parts.Part{
		{Name: "rules", Beside: true, Run: func() (parts.Count, error) { return goTest(nil, tools, rulesPackage) }},
		{Name: "tools", Beside: true, Run: func() (parts.Count, error) {
			packages, err := toolPackages(tools)
			if err != nil {
				return parts.Count{}, err
			}
			return goTest(nil, tools, packages...)
		}},
		{Name: "source", Run: func() (parts.Count, error) {
			if err := writeTrees(b); err != nil {
				return parts.Count{}, err
			}
			return parts.Count{Passed: len(b.Variants)}, nil
		}},
		{Name: "binaries", Needs: []string{"source"}, Run: func() (parts.Count, error) { return Binaries(b, o.All) }},
		// The longest of those beside the labs come first, so that the end is short.
		{Name: "upstream-touched", Beside: true, Needs: []string{"source"}, Run: func() (parts.Count, error) { return UpstreamTests(b, Doubtful) }},
		{Name: "reproducible", Beside: true, Needs: []string{"binaries"}, Run: func() (parts.Count, error) {
			return goTest([]string{"HOLDFAST_REPRODUCIBLE=short"}, tools, "-count=1", "./internal/reproducible")
		}},
		{Name: "unit", Beside: true, Needs: []string{"binaries"}, Run: func() (parts.Count, error) { return unit(b) }},
		{Name: "operators", Beside: true, Run: func() (parts.Count, error) { return goTest(nil, filepath.Join(b.Root, "cmd"), "./...") }},
		{Name: "webhook", Beside: true, Run: func() (parts.Count, error) { return goTest(nil, filepath.Join(b.Root, "webhook"), "./...") }},
		{Name: "dropin", Beside: true, Needs: []string{"binaries"}, Run: func() (parts.Count, error) {
			n, err := commandline.Compare(context.Background(), commandline.Options{Root: b.Root, Out: os.Stdout,
				StockDir: b.BinDir(base.Stock), OursDir: b.BinDir(base.Ours)})
			return parts.Count{Passed: n}, err
		}},
		{Name: "security", Beside: true, Needs: []string{"binaries"}, Run: func() (parts.Count, error) {
			n, err := security.Check(b.Root)
			return parts.Count{Passed: n}, err
		}},
		{Name: "minus-one", Beside: true, Run: func() (parts.Count, error) { return MinusOne(b, Fits) }},
	}
	if o.All {
		all = append(all,
			parts.Part{Name: "integration", Beside: true, Needs: []string{"source"}, Run: func() (parts.Count, error) { return UpstreamTests(b, Patched) }},
			parts.Part{Name: "hash-oracle", Beside: true, Needs: []string{"source"}, Run: func() (parts.Count, error) { return hashOracle(b) }},
			parts.Part{Name: "flags", Beside: true, Needs: []string{"binaries"}, Run: func() (parts.Count, error) {
				n, err := flagtable.Check(b.Root, os.Stdout)
				return parts.Count{Passed: n}, err
			}})
	}
	names, err := base.Names(b.Root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		other, err := base.Load(b.Root, name)
		if err != nil {
			return nil, err
		}
		if other.Name == b.Name || other.HasVariant(base.Ours) != nil {
			continue
		}
		all = append(all,
			parts.Part{Name: "upstream-touched-" + name, Beside: true, Run: func() (parts.Count, error) { return UpstreamTests(other, Doubtful) }},
			parts.Part{Name: "minus-one-" + name, Beside: true, Run: func() (parts.Count, error) { return MinusOne(other, Fits) }})
	}
	return append(all, parts.Part{Name: "labs", Needs: []string{"binaries"}, Fresh: true, Waits: true, Run: func() (parts.Count, error) { return labs(b.Root, o.All) }}), nil
}

const rulesPackage = "./internal/rules"

// toolPackages are the packages of the tools but the repository's rules, which
// are a part of their own.
func toolPackages(dir string) ([]string, error) {
	cmd := exec.Command("go", "list", "./...")
	cmd.Dir, cmd.Env = dir, builder.GoEnv()
	out, err := cmd.Output()
	if err != nil {
		return nil, exit.Preconditionf("go list ./... in %s: %v", dir, err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool { return strings.HasSuffix(p, strings.TrimPrefix(rulesPackage, ".")) }), nil
}

// unit builds, vets and tests the root module.
func unit(b *base.Base) (parts.Count, error) {
	own, err := ownPackages(b)
	if err != nil {
		return parts.Count{}, err
	}
	packages := append([]string{"./..."}, own...)
	for _, verb := range []string{"build", "vet"} {
		// As goTest compiles, so that nothing is compiled twice.
		if err := goRun(b.Root, append([]string{verb, "-trimpath"}, packages...)...); err != nil {
			return parts.Count{}, err
		}
	}
	return goTest(nil, b.Root, append([]string{"-vet=off"}, packages...)...) // vet has just looked
}

func hashOracle(b *base.Base) (parts.Count, error) {
	r, err := hashoracle.Run(hashoracle.Options{Root: b.Root, Containers: 100000, Seed: 1, Workers: 2, SchemaEvery: 10, Log: os.Stdout})
	if err != nil {
		return parts.Count{}, err
	}
	if r.Differ > 0 {
		return parts.Count{Failed: 1}, exit.Preconditionf("%d of %d containers have a different hash from the releases' own code:\n%s", r.Differ, r.Containers, strings.Join(r.Mismatches, "\n"))
	}
	fmt.Printf("%d random containers, %v: %d hashes as the releases' own code gives them, %d rightly withheld, %d differ\n", r.Containers, r.Asked, r.Hashes, r.Withheld, r.Differ)
	return parts.Count{Passed: 1}, nil
}

// How MinusOne looks at a variant.
const (
	Fits    = "fits"    // from the sources alone, in seconds
	Compile = "compile" // the packages that ours touches, and their tests
	Build   = "build"   // and the product's binaries
)

// MinusOne looks whether ours can do without each fix of the product in turn,
// or each of those named.
func MinusOne(b *base.Base, how string, only ...string) (parts.Count, error) {
	names, err := builder.ProductFixes(b)
	if err != nil {
		return parts.Count{}, err
	}
	if len(only) > 0 {
		names = only
	}
	var n parts.Count
	var bad []string
	for _, s := range names {
		err := builder.FitsWithout(b, s)
		if err == nil && how != Fits {
			_, err = builder.CheckWithout(b, s)
		}
		if err == nil && how == Build {
			err = builder.BuildWithout(b, s)
		}
		if exit.Code(err) == exit.Usage {
			return n, err
		}
		if err != nil {
			n.Failed++
			bad = append(bad, err.Error())
			continue
		}
		n.Passed++
	}
	if len(bad) > 0 {
		return n, exit.Preconditionf("%s", strings.Join(bad, "\n"))
	}
	return n, nil
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
	for _, v := range b.VariantNames() {
		if _, err := builder.Source(b, v); err != nil {
			return err
		}
	}
	return nil
}

// Sets of upstream's tests.
const (
	Touched     = "touched"     // of the packages that overlay or series touch
	Doubtful    = "doubtful"    // the same, but stock tests only those where ours leaves a doubt
	All         = "all"         // and of all that the binaries link
	Integration = "integration" // the integration suites, with an etcd

	// Patched are the integration suites of the controllers that we patch; stock runs those only
	// where ours leaves a doubt.
	Patched = "integration-patched"
)

// patchedSuites are those of Patched. Upstream has none of StatefulSets at 1.9.
var patchedSuites = []string{"daemonset", "deployment", "replicaset"}

// UpstreamTests runs a set of upstream's tests in both trees of b and compares what
// fails. only chooses integration suites by their folders.
func UpstreamTests(b *base.Base, set string, only ...string) (parts.Count, error) {
	if err := writeTrees(b); err != nil {
		return parts.Count{}, err
	}
	both, oursOnly, err := packagesOf(b, set, only)
	if err != nil {
		return parts.Count{}, err
	}
	doubtful := set == Doubtful || set == Patched
	stock, ours, bad, err := upstreamtest.Check(b, both, oursOnly, upstreamtest.Options{Integration: set == Integration || set == Patched, Doubtful: doubtful})
	if err != nil {
		return parts.Count{}, err
	}
	fmt.Printf("upstream's tests, stock: %d packages, %d passed, %d failed (known), %d flaky\n", stock.Packages, stock.Passed, len(stock.Failed), len(stock.Flaky))
	if doubtful {
		fmt.Printf("upstream's tests, stock: %d of %d packages left out: their tests passed in ours, which has the same\n", len(both)-stock.Packages, len(both))
	}
	fmt.Printf("upstream's tests, ours:  %d packages, %d passed, %d failed (the same), %d flaky\n", ours.Packages, ours.Passed, len(ours.Failed), len(ours.Flaky))
	for _, o := range []*upstreamtest.Outcome{stock, ours} {
		for _, f := range o.Flaky {
			fmt.Printf("flaky: %s, failed %d of %d times\n", f, o.Fails[f], o.Fails[f]+1)
		}
	}
	n := parts.Count{Passed: stock.Passed + ours.Passed, Failed: len(bad)}
	if len(bad) > 0 {
		return n, exit.Preconditionf("%s", strings.Join(bad, "\n"))
	}
	return n, nil
}

// packagesOf are the packages of a set: those that stock has too, and ours alone.
func packagesOf(b *base.Base, set string, only []string) (both, oursOnly []string, err error) {
	if set == Patched {
		only = patchedSuites
	}
	if set == Integration || set == Patched {
		both, err = upstreamtest.Integration(b, only)
		return both, nil, err
	}
	both, oursOnly, err = upstreamtest.Touched(b)
	if err != nil || set == Touched || set == Doubtful {
		return both, oursOnly, err
	}
	linked, err := upstreamtest.All(b)
	both = append(both, linked...)
	slices.Sort(both)
	return slices.Compact(both), oursOnly, err
}

// goRun runs one go command in dir and shows what it says when it fails.
func goRun(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	// Without cgo, as goTest.
	cmd.Dir, cmd.Env = dir, append(builder.GoEnv(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return exit.Preconditionf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// goTest runs our own tests in dir, with more in the environment, and counts
// them; what failed tests print is shown.
func goTest(more []string, dir string, packages ...string) (parts.Count, error) {
	cmd := exec.Command("go", append([]string{"test", "-json", "-trimpath", "-ldflags=-w", "-timeout=20m"}, packages...)...)
	env, end, err := builder.TempDir(dir, strings.Join(packages, " "), builder.GoEnv())
	if err != nil {
		return parts.Count{}, err
	}
	defer end()
	// Tests are linked without debug information, which takes a third less. The rules read files
	// that the test cache does not know of. Without cgo, as the programs
	// are built (hack/build-tool.sh): what these have compiled is compiled once.
	cmd.Dir, cmd.Env = dir, append(append(env, "CGO_ENABLED=0", "HOLDFAST_TEST_RUN="+time.Now().String()), more...)
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
	var failed []string
	serr := gotest.Read(stdout, func(e gotest.Event) {
		key := e.Package + e.ImportPath + " " + e.Test
		switch {
		case e.Output != "":
			output[key] = append(output[key], e.Output)
		case e.Action == "pass" && e.Test != "":
			n.Passed++
		case e.Action == "skip" && e.Test != "":
			n.Skipped++
			fmt.Print("SKIP ", key, "\n", strings.Join(output[key], ""))
		case e.Action == "fail" && e.Test != "", e.Action == "build-fail":
			n.Failed++
			failed = append(failed, key)
			fmt.Print("FAIL ", key, "\n", strings.Join(output[key], ""))
		case e.Action == "fail":
			fmt.Print("FAIL ", key, "\n", strings.Join(output[key], ""))
		case e.Action == "pass" && e.Elapsed > 10:
			fmt.Printf("%s took %.0f s\n", e.Package, e.Elapsed)
		}
	}, func(line string) { fmt.Println(line) })
	err = cmd.Wait()
	if serr != nil {
		return n, fmt.Errorf("output of go test in %s: %w", dir, serr)
	}
	if err != nil {
		return n, exit.Preconditionf("go test in %s: %v: %s\n%s", dir, err, strings.Join(failed, ", "), stderr.Bytes())
	}
	return n, nil
}
