// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upstreamtest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/builder"
	"holdfast/tools/build/exit"
)

// Known are the failures of the stock tree that are understood: "package Test"
// to the reason.
type Known map[string]string

// LoadKnown reads bases/<base>/known-failures.txt: "package Test reason…" a
// line; "#" begins a comment.
func LoadKnown(b *base.Base) (Known, error) {
	file := filepath.Join("bases", b.Name, "known-failures.txt")
	f, err := os.Open(filepath.Join(b.Root, file))
	if err != nil {
		return nil, exit.Preconditionf("known failures of upstream's tests: %v", err)
	}
	defer f.Close()
	k := Known{}
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		l := strings.TrimSpace(sc.Text())
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		parts := strings.SplitN(l, " ", 3)
		if len(parts) != 3 {
			return nil, exit.Preconditionf("%s:%d: want \"package Test reason\"", file, n)
		}
		name := parts[0] + " " + parts[1]
		if k[name] != "" {
			return nil, exit.Preconditionf("%s:%d: %s is listed twice", file, n, name)
		}
		k[name] = parts[2]
	}
	return k, sc.Err()
}

// Compare says what is wrong, a sentence each: a failure of stock that is not
// known, a failure of ours that stock does not have or the other way round, and
// a test that ran in stock and did not in ours.
func Compare(stock, ours *Outcome, known Known) []string {
	var bad []string
	for _, f := range stock.Failed {
		if known[f] == "" {
			bad = append(bad, fmt.Sprintf("%s fails in the stock tree and is not in known-failures.txt:\n%s", f, indent(stock.Output[f])))
		}
	}
	for _, f := range ours.Failed {
		if !slices.Contains(stock.Failed, f) {
			bad = append(bad, fmt.Sprintf("%s fails in the patched tree and passes in stock (or is ours):\n%s", f, indent(ours.Output[f])))
		}
	}
	for _, f := range stock.Failed {
		if known[f] != "" && !slices.Contains(ours.Failed, f) {
			bad = append(bad, fmt.Sprintf("%s fails in the stock tree and not in the patched one: the lists must be equal", f))
		}
	}
	for _, f := range sortedKeys(stock.Ran) {
		pkg, _, _ := strings.Cut(f, " ")
		if !ours.Ran[f] && !slices.Contains(ours.Failed, pkg+" "+pkgFailure) && !slices.Contains(stock.Failed, f) {
			bad = append(bad, fmt.Sprintf("%s passes in the stock tree and does not run in the patched one", f))
		}
	}
	return bad
}

// unknown says which failures of ours are not known ones of stock.
func unknown(ours *Outcome, known Known) []string {
	var bad []string
	for _, f := range ours.Failed {
		if known[f] == "" {
			bad = append(bad, fmt.Sprintf("%s fails in the patched tree and is not in known-failures.txt:\n%s", f, indent(ours.Output[f])))
		}
	}
	return bad
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ")
}

// Touched lists the packages that the overlay or the product's series change: those
// that stock has too, and those that are ours alone. Import paths, sorted.
func Touched(b *base.Base) (both, oursOnly []string, err error) {
	if err := b.HasVariant(base.Ours); err != nil {
		return nil, nil, err
	}
	dirs, err := builder.TouchedDirs(b)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range dirs {
		pkg := builder.ImportPath(b, d)
		files, _ := filepath.Glob(filepath.Join(b.SrcDir(base.Stock), filepath.FromSlash(d), "*.go"))
		if len(files) > 0 {
			both = append(both, pkg)
		} else {
			oursOnly = append(oursOnly, pkg)
		}
	}
	sort.Strings(both)
	sort.Strings(oursOnly)
	return both, oursOnly, nil
}

// Check runs the packages in both trees and returns the two outcomes and what
// is wrong.
func Check(ctx context.Context, b *base.Base, both, oursOnly []string, opts Options) (stock, ours *Outcome, bad []string, err error) {
	known, err := LoadKnown(b)
	if err != nil {
		return nil, nil, nil, err
	}
	logs := filepath.Join(b.Output(), "logs", b.Name)
	if ours, err = Run(ctx, b, base.Ours, append(slices.Clone(both), oursOnly...), logs, opts); err != nil {
		return nil, nil, nil, err
	}
	if opts.OursAlone {
		return &Outcome{}, ours, unknown(ours, known), nil
	}
	if opts.Doubtful {
		if both, err = doubtful(b, both, ours, known); err != nil {
			return nil, nil, nil, err
		}
	}
	if stock, err = Run(ctx, b, base.Stock, both, logs, opts); err != nil {
		return nil, nil, nil, err
	}
	return stock, ours, Compare(stock, ours, known), nil
}

// All lists the packages of the tree whose tests stand for the whole product:
// what the issue names and everything else that the two binaries link.
func All(ctx context.Context, b *base.Base) ([]string, error) {
	return builder.ListTestPackages(ctx, b, base.Stock, []string{
		b.Module + "/pkg/kubelet/...",
		b.Module + "/pkg/controller/...",
		b.Module + "/pkg/volume/rbd/...",
		"k8s.io/client-go/tools/...",
	})
}
