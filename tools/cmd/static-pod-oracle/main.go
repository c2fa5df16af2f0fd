// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command static-pod-oracle compares the kubelet's package staticpod with the code of
// kubernetes v1.7.0 and v1.8.15, built from their stock trees, on random manifests or on the
// golden data; or writes the package's table from the types of these trees and v1.9.11's. It
// needs the trees (make source, make BASE=v1.8.15 source, make BASE=v1.7.0 source) and keeps
// what it builds in _output/hashoracle.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/verify/hashoracle"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "static-pod-oracle:", err)
		os.Exit(exit.Code(err))
	}
}

func run() error {
	n := flag.Int("n", 100_000, "random `manifests`")
	seed := flag.Int64("seed", 1, "`seed` of the series of manifests")
	table := flag.Bool("table", false, "write the package's table instead")
	golden := flag.Bool("golden", false, "compare with the golden data instead")
	update := flag.Bool("update", false, "with -golden: write the UIDs that the releases give")
	rootFlag := flag.String("root", "", "`folder` of the repository (default: the one around the working directory)")
	flag.Parse()
	if flag.NArg() > 0 || *update && !*golden {
		return exit.Usagef("static-pod-oracle takes flags only, -update with -golden: static-pod-oracle -h shows them")
	}
	root, err := base.FindRoot(*rootFlag)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "pkg", "kubelet", "config", "staticpod")
	var r hashoracle.PodReport
	switch {
	case *table:
		text, err := hashoracle.PodTable(root, os.Stderr)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "table.go"), text, 0o644)
	case *golden:
		file := filepath.Join(dir, "testdata", "golden.jsonl")
		var want []byte
		if want, r, err = hashoracle.GoldenPods(root, file, os.Stderr); err != nil {
			return err
		}
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				return err
			}
		} else if have, err := os.ReadFile(file); err != nil || !bytes.Equal(have, want) {
			return exit.Preconditionf("%s is not what the releases compute: -golden -update writes it (%v)", file, err)
		}
	default:
		if r, err = hashoracle.RunPods(root, *n, *seed, os.Stderr); err != nil {
			return err
		}
	}
	for _, m := range r.Mismatches {
		fmt.Println(m)
	}
	fmt.Printf("%d pods: %d UIDs equal (%d of pods that need a gate or are refused), %d withheld, %d not decoded, %d pods differ\n", r.Pods, r.UIDs, r.Refused, r.Withheld, r.Undecoded, r.Differ)
	if r.Differ > 0 {
		return exit.Preconditionf("what Holdfast computes differs from the releases")
	}
	return nil
}
