// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// The security command works on the table of known
// vulnerabilities. It is a command of its own because the build tool needs none of the
// libraries that it links:
//
//	security write                 writes docs/security.md and _output/vex.json
//	security vulncheck FOLDER|URL  asks govulncheck about the product's binaries
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"holdfast/tools/build/base"
	"holdfast/tools/build/builder"
	"holdfast/tools/build/exit"
	"holdfast/tools/record/outcomes"
	"holdfast/tools/verify/security"
	"holdfast/tools/verify/security/openvex"
	"holdfast/tools/verify/security/vulncheck"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "security: %v\n", err)
		os.Exit(exit.Code(err))
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "write":
		return write()
	case len(args) > 0 && len(args) <= 2 && args[0] == "vulncheck":
		return check(append(args, "")[1])
	}
	return exit.Usagef("usage: security write | security vulncheck FOLDER|URL")
}

func write() error {
	root, err := base.FindRoot(".")
	if err != nil {
		return err
	}
	t, b, err := security.Load(root)
	if err != nil {
		return err
	}
	record, err := outcomes.Load(root)
	if err != nil {
		return err
	}
	release, err := builder.Release(b, base.Ours)
	if err != nil {
		return err
	}
	vex, err := openvex.Write(t, release)
	if err != nil {
		return err
	}
	for file, content := range map[string][]byte{security.PageFile: []byte(security.Page(t, b, record)), security.VexFile: vex} {
		if err := os.WriteFile(filepath.Join(root, file), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func check(db string) error {
	database, err := vulncheck.URL(db)
	if err != nil {
		return err
	}
	root, err := base.FindRoot(".")
	if err != nil {
		return err
	}
	t, b, err := security.Load(root)
	if err != nil {
		return err
	}
	programs := map[string]string{}
	for _, c := range security.Ours {
		programs[c] = filepath.Join(b.BinDir(base.Ours), c)
	}
	return vulncheck.Check(context.Background(), os.Stdout, t, database, programs)
}
