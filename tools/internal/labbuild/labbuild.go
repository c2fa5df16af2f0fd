// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package labbuild builds the binaries that labs run.
package labbuild

import (
	"holdfast/tools/internal/base"
	"holdfast/tools/internal/builder"
	"holdfast/tools/internal/exit"
	"holdfast/tools/labkit"
)

// Build builds what the named labs run in the given variants (nil: all of
// them), each binary once, and returns how many there are. Binaries that rules
// (see labkit.NewBinaries) take from elsewhere are left alone.
func Build(root string, names []string, only []labkit.Variant, rules []string) (int, error) {
	needs, err := labkit.NeedsOf(names, only)
	if err != nil {
		return 0, exit.Usagef("%v", err)
	}
	return Binaries(root, needs, rules)
}

// Binaries builds the given ones.
func Binaries(root string, needs []labkit.Binary, rules []string) (int, error) {
	bins, err := labkit.NewBinaries(root, rules)
	if err != nil {
		return 0, exit.Usagef("%v", err)
	}
	type tree struct {
		base    string
		variant base.Variant
	}
	var order []tree
	names := map[tree][]string{}
	for _, n := range needs {
		if !bins.OurBuild(n) {
			continue
		}
		t := tree{n.Base, n.Variant}
		if names[t] == nil {
			order = append(order, t)
		}
		names[t] = append(names[t], n.Name)
	}
	built := 0
	for _, t := range order {
		b, err := base.Load(root, t.base)
		if err != nil {
			return built, err
		}
		files, err := builder.Build(b, builder.Options{Variant: t.variant, Binaries: names[t]})
		built += len(files)
		if err != nil {
			return built, err
		}
	}
	return built, nil
}
