// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command container-hash-oracle compares the kubelet's package hashcompat and
// kubectl-holdfast container-hash with the code of kubernetes v1.6.1, v1.7.0,
// v1.8.15 and v1.9.11, built from their modules, on random containers; or the
// code, and that of v1.11.10 and v1.12.10, with the golden data. It needs the source tree of the default
// base (make source) and keeps what it builds in _output/hashoracle.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/verify/hashoracle"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "container-hash-oracle:", err)
		os.Exit(exit.Code(err))
	}
}

func run() error {
	n := flag.Int("n", 100_000, "random `containers`")
	seed := flag.Int64("seed", 1, "`seed` of the series of containers")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "sets of programs that run side by side")
	every := flag.Int("schema-every", 10, "ask kubectl-holdfast about one container in `so many`")
	golden := flag.String("golden", "", "compare the releases with this golden data `file` instead")
	write := flag.Bool("write", false, "with -golden: add the columns that the file lacks")
	rootFlag := flag.String("root", "", "`folder` of the repository (default: the one around the working directory)")
	flag.Parse()
	if flag.NArg() > 0 {
		return exit.Usagef("unexpected argument %q: container-hash-oracle -h shows the usage", flag.Arg(0))
	}
	root, err := base.FindRoot(*rootFlag)
	if err != nil {
		return err
	}
	if *golden != "" {
		equal, differ, err := hashoracle.Golden(root, *golden, *write, os.Stderr)
		if err != nil {
			return err
		}
		for _, d := range differ {
			fmt.Println(d)
		}
		fmt.Printf("golden data: %d hashes equal, %d differ\n", equal, len(differ))
		if len(differ) > 0 {
			return exit.Preconditionf("%s is not what the releases compute", *golden)
		}
		return nil
	}
	begin := time.Now()
	r, err := hashoracle.Run(hashoracle.Options{Root: root, Containers: *n, Seed: *seed, Workers: *workers, SchemaEvery: *every, Log: os.Stderr})
	if err != nil {
		return err
	}
	for _, m := range r.Mismatches {
		fmt.Println(m)
	}
	for name, n := range r.Asked {
		fmt.Printf("%s: %d containers\n", name, n)
	}
	fmt.Printf("%d containers of seed %d: %d hashes equal, %d withheld, %d mismatches, %.0f s\n",
		r.Containers, *seed, r.Hashes, r.Withheld, r.Differ, time.Since(begin).Seconds())
	if r.Differ > 0 {
		return exit.Preconditionf("what Holdfast computes differs from the releases")
	}
	return nil
}
