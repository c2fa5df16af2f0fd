// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// The security command works on the table of known
// vulnerabilities. It is a command of its own because the build tool needs none of the
// libraries that it links:
//
//	security write                         writes docs/security.md, and an OpenVEX document for each base
//	security vulncheck FOLDER|URL [BASE]   asks govulncheck about a base's binaries
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
	case len(args) > 0 && len(args) <= 3 && args[0] == "vulncheck":
		args = append(args, "", "")
		return check(args[1], args[2])
	}
	return exit.Usagef("usage: security write | security vulncheck FOLDER|URL [BASE]")
}

func write() error {
	root, err := base.FindRoot(".")
	if err != nil {
		return err
	}
	all, err := security.LoadAll(root)
	if err != nil {
		return err
	}
	record, err := outcomes.Load(root)
	if err != nil {
		return err
	}
	files := map[string][]byte{security.PageFile: []byte(security.Page(all, record))}
	for _, j := range all {
		release, err := builder.Release(j.Of, base.Ours)
		if err != nil {
			return err
		}
		if files[security.VexFile(j.Of)], err = openvex.Write(j.Table, release); err != nil {
			return err
		}
	}
	for file, content := range files {
		if err := os.WriteFile(filepath.Join(root, file), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func check(db, name string) error {
	database, err := vulncheck.URL(db)
	if err != nil {
		return err
	}
	root, err := base.FindRoot(".")
	if err != nil {
		return err
	}
	j, err := security.Load(root, name)
	if err != nil {
		return err
	}
	programs := map[string]string{}
	for _, c := range security.Ours {
		programs[c] = filepath.Join(j.Of.BinDir(base.Ours), c)
	}
	return vulncheck.Check(context.Background(), os.Stdout, j.Table, database, programs)
}
