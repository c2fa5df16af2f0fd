// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/build/builder"
	"holdfast/tools/build/dropin"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/flagtable"
	"holdfast/tools/verify/gotest"
	"holdfast/tools/verify/hashoracle"
	"holdfast/tools/verify/security"
	"holdfast/tools/verify/upstreamtest"
)

// All are the parts for the default base b, or with long those of make test-all: also those whose
// answer seldom changes. Each runs whole, every time. The labs are another program.
func All(b *base.Base, long bool) ([]Part, error) {
	tools := filepath.Join(b.Root, "tools")
	test := func(dir string, more []string, packages ...string) func(context.Context) (Count, error) {
		return func(ctx context.Context) (Count, error) { return goTest(ctx, more, dir, packages...) }
	}
	all := []Part{
		{Name: "rules", Run: test(tools, nil, rulesPackage)},
		{Name: "tools", Run: func(ctx context.Context) (Count, error) {
			packages, err := toolPackages(ctx, tools)
			if err != nil {
				return Count{}, err
			}
			return goTest(ctx, nil, tools, packages...)
		}},
		{Name: "operators", Run: test(filepath.Join(b.Root, "cmd"), nil, "./...")},
		{Name: "webhook", Run: test(filepath.Join(b.Root, "webhook"), nil, "./...")},
		{Name: "release", Run: test(filepath.Join(b.Root, "release"), nil, "./...")},
		{Name: "source", Run: func(ctx context.Context) (Count, error) {
			if err := writeTrees(ctx, b); err != nil {
				return Count{}, err
			}
			return Count{Passed: len(b.Variants)}, nil
		}},
		{Name: "minus-one", Run: func(ctx context.Context) (Count, error) { return MinusOne(ctx, b, how(long)) }},
		{Name: "unit", Needs: []string{"source"}, Run: func(ctx context.Context) (Count, error) { return unit(ctx, b) }},
		{Name: "dropin", Run: func(ctx context.Context) (Count, error) { return commandLines(ctx, b) }},
		{Name: "security", Run: func(context.Context) (Count, error) { return vulnerabilities(b) }},
		{Name: "upstream-touched", Needs: []string{"source"}, Run: func(ctx context.Context) (Count, error) { return UpstreamTests(ctx, b, Doubtful) }},
		{Name: "reproducible", Run: test(tools, []string{"HOLDFAST_REPRODUCIBLE=short"}, "-count=1", "./verify/reproducible")},
	}
	if long {
		all = append(all,
			Part{Name: "integration", Needs: []string{"source"}, Run: func(ctx context.Context) (Count, error) { return UpstreamTests(ctx, b, Patched) }},
			Part{Name: "hash-oracle", Needs: []string{"source"}, Run: func(context.Context) (Count, error) { return hashOracle(b) }},
			Part{Name: "flags", Run: func(ctx context.Context) (Count, error) {
				n, err := flagtable.Check(ctx, b.Root, os.Stdout)
				return Count{Passed: n}, err
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
		if other.Long && !long {
			all = append(all, Part{Name: "unit-" + name, Run: func(ctx context.Context) (Count, error) { return UpstreamTests(ctx, other, OursAlone) }})
			continue
		}
		all = append(all,
			Part{Name: "upstream-touched-" + name, Run: func(ctx context.Context) (Count, error) { return UpstreamTests(ctx, other, Doubtful) }},
			Part{Name: "minus-one-" + name, Run: func(ctx context.Context) (Count, error) { return MinusOne(ctx, other, how(long)) }})
		if slices.Contains(dropin.Bases, name) {
			all = append(all, Part{Name: "dropin-" + name, Run: func(ctx context.Context) (Count, error) {
				for _, v := range []base.Variant{base.Stock, base.Ours} {
					if _, err := builder.Build(ctx, other, builder.Options{Variant: v, Binaries: dropin.Components}); err != nil {
						return Count{}, err
					}
				}
				return commandLines(ctx, other)
			}})
		}
		if security.Has(b.Root, name) {
			all = append(all, Part{Name: "security-" + name, Run: func(context.Context) (Count, error) { return vulnerabilities(other) }})
		}
	}
	return all, nil
}

// commandLines compares those of the builds of a base that are there.
func commandLines(ctx context.Context, b *base.Base) (Count, error) {
	n, err := dropin.CompareCommandLines(ctx, dropin.CommandLines{Root: b.Root, Base: b.Name, Out: os.Stdout,
		StockDir: b.BinDir(base.Stock), OursDir: b.BinDir(base.Ours)})
	return Count{Passed: n}, err
}

// vulnerabilities checks what is said of those of a base.
func vulnerabilities(b *base.Base) (Count, error) {
	n, err := security.Check(b.Root, b.Name)
	return Count{Passed: n}, err
}

// how is how make test and make test-all look at ours without each fix.
func how(long bool) string {
	if long {
		return Compile
	}
	return Applies
}

const rulesPackage = "./verify/rules"

// toolPackages are the packages of the tools but the repository's rules, which
// are a part of their own.
func toolPackages(ctx context.Context, dir string) ([]string, error) {
	cmd := builder.Command(ctx, "go", "list", "./...")
	cmd.Dir, cmd.Env = dir, builder.GoEnv()
	out, err := cmd.Output()
	if err != nil {
		return nil, exit.Preconditionf("go list ./... in %s: %v", dir, err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool { return strings.HasSuffix(p, strings.TrimPrefix(rulesPackage, ".")) }), nil
}

// unit builds, vets and tests the root module.
func unit(ctx context.Context, b *base.Base) (Count, error) {
	own, err := ownPackages(b)
	if err != nil {
		return Count{}, err
	}
	packages := append([]string{"./..."}, own...)
	for _, verb := range []string{"build", "vet"} {
		// As goTest compiles, so that nothing is compiled twice.
		if err := goRun(ctx, b.Root, append([]string{verb, "-trimpath"}, packages...)...); err != nil {
			return Count{}, err
		}
	}
	return goTest(ctx, nil, b.Root, append([]string{"-vet=off"}, packages...)...) // vet has just looked
}

func hashOracle(b *base.Base) (Count, error) {
	r, err := hashoracle.Run(hashoracle.Options{Root: b.Root, Containers: 100000, Seed: 1, Workers: 2, SchemaEvery: 10, Log: os.Stdout})
	if err != nil {
		return Count{}, err
	}
	if r.Differ > 0 {
		return Count{Failed: 1}, exit.Preconditionf("%d of %d containers have a different hash from the releases' own code:\n%s", r.Differ, r.Containers, strings.Join(r.Mismatches, "\n"))
	}
	fmt.Printf("%d random containers, %v: %d hashes as the releases' own code gives them, %d rightly withheld, %d differ\n", r.Containers, r.Asked, r.Hashes, r.Withheld, r.Differ)
	return Count{Passed: 1}, nil
}

// How MinusOne looks at a variant.
const (
	Applies = "applies" // the patches that are left apply: in seconds
	Compile = "compile" // the packages that ours touches, and their tests
	Build   = "build"   // and the product's binaries
)

// MinusOne looks whether ours can do without each fix of the product in turn,
// or each of those named.
func MinusOne(ctx context.Context, b *base.Base, how string, only ...string) (Count, error) {
	names, err := builder.ProductFixes(b)
	if err != nil {
		return Count{}, err
	}
	if len(only) > 0 {
		names = only
	}
	var n Count
	var bad []string
	for _, s := range names {
		err := builder.AppliesWithout(b, s)
		if err == nil && how != Applies {
			_, err = builder.CheckWithout(ctx, b, s)
		}
		if err == nil && how == Build {
			err = builder.BuildWithout(ctx, b, s)
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
func writeTrees(ctx context.Context, b *base.Base) error {
	for _, v := range b.VariantNames() {
		if _, err := builder.Source(ctx, b, v); err != nil {
			return err
		}
	}
	return nil
}

// Sets of upstream's tests.
const (
	Touched     = "touched"     // of the packages that overlay or series touch
	Doubtful    = "doubtful"    // the same, but stock tests only those where ours leaves a doubt
	OursAlone   = "ours"        // the same, in ours alone: what fails must be known to fail in stock
	Linked      = "all"         // and of all that the binaries link
	Integration = "integration" // the integration suites, with an etcd

	// Patched are the integration suites of the controllers that we patch; stock runs those only
	// where ours leaves a doubt.
	Patched = "integration-patched"
)

// patchedSuites are those of Patched. Upstream has none of StatefulSets at 1.9.
var patchedSuites = []string{"daemonset", "deployment", "replicaset"}

// UpstreamTests runs a set of upstream's tests in both trees of b and compares what
// fails. only chooses integration suites by their folders.
func UpstreamTests(ctx context.Context, b *base.Base, set string, only ...string) (Count, error) {
	if err := writeTrees(ctx, b); err != nil {
		return Count{}, err
	}
	both, oursOnly, err := packagesOf(ctx, b, set, only)
	if err != nil {
		return Count{}, err
	}
	doubtful := set == Doubtful || set == Patched
	stock, ours, bad, err := upstreamtest.Check(ctx, b, both, oursOnly,
		upstreamtest.Options{Integration: set == Integration || set == Patched, Doubtful: doubtful, OursAlone: set == OursAlone})
	if err != nil {
		return Count{}, err
	}
	if set != OursAlone {
		fmt.Printf("upstream's tests, stock: %d packages, %d passed, %d failed (known), %d flaky\n", stock.Packages, stock.Passed, len(stock.Failed), len(stock.Flaky))
	}
	if doubtful {
		fmt.Printf("upstream's tests, stock: %d of %d packages left out: their tests passed in ours, which has the same\n", len(both)-stock.Packages, len(both))
	}
	fmt.Printf("upstream's tests, ours:  %d packages, %d passed, %d failed (the same), %d flaky\n", ours.Packages, ours.Passed, len(ours.Failed), len(ours.Flaky))
	for _, o := range []*upstreamtest.Outcome{stock, ours} {
		for _, f := range o.Flaky {
			fmt.Printf("flaky: %s, failed %d of %d times\n", f, o.Fails[f], o.Fails[f]+1)
		}
	}
	n := Count{Passed: stock.Passed + ours.Passed, Failed: len(bad)}
	if len(bad) > 0 {
		return n, exit.Preconditionf("%s", strings.Join(bad, "\n"))
	}
	return n, nil
}

// packagesOf are the packages of a set: those that stock has too, and ours alone.
func packagesOf(ctx context.Context, b *base.Base, set string, only []string) (both, oursOnly []string, err error) {
	if set == Patched {
		only = patchedSuites
	}
	if set == Integration || set == Patched {
		both, err = upstreamtest.Integration(b, only)
		return both, nil, err
	}
	both, oursOnly, err = upstreamtest.Touched(b)
	if err != nil || set == Touched || set == Doubtful || set == OursAlone {
		return both, oursOnly, err
	}
	linked, err := upstreamtest.All(ctx, b)
	both = append(both, linked...)
	slices.Sort(both)
	return slices.Compact(both), oursOnly, err
}

// goRun runs one go command in dir and shows what it says when it fails.
func goRun(ctx context.Context, dir string, args ...string) error {
	cmd := builder.Command(ctx, "go", args...)
	// Without cgo, as goTest.
	cmd.Dir, cmd.Env = dir, append(builder.GoEnv(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return exit.Preconditionf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// goTest runs our own tests in dir, with more in the environment, and counts
// them; what failed tests print is shown.
func goTest(ctx context.Context, more []string, dir string, packages ...string) (Count, error) {
	cmd := builder.Command(ctx, "go", append([]string{"test", "-json", "-trimpath", "-ldflags=-w", "-timeout=20m"}, packages...)...)
	env, end, err := builder.TempDir(dir, strings.Join(packages, " "), builder.GoEnv())
	if err != nil {
		return Count{}, err
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
		return Count{}, err
	}
	if err := cmd.Start(); err != nil {
		return Count{}, err
	}
	var n Count
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
