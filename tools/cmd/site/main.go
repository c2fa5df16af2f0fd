// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command site makes a website of the pages, with mkdocs and its theme material (Debian's package
// mkdocs-material), in _output/site/html, and checks it.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/verify/site"
)

func main() {
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(exit.Code(err))
	}
}

func build() error {
	if len(os.Args) > 1 {
		return exit.Usagef("usage: site: it takes no arguments")
	}
	root, err := base.FindRoot(".")
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("mkdocs"); err != nil {
		return exit.Preconditionf("mkdocs is not on PATH: install Debian's package mkdocs-material")
	}
	out := filepath.Join(root, "_output", "site")
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	staged, html, config := filepath.Join(out, "pages"), filepath.Join(out, "html"), filepath.Join(out, "mkdocs.yml")
	pages, err := site.Stage(root, staged)
	if err != nil {
		return err
	}
	if err := os.WriteFile(config, []byte(site.Config(pages, staged, html)), 0o644); err != nil {
		return err
	}
	mkdocs := exec.Command("mkdocs", "build", "--quiet", "--strict", "--config-file", config)
	mkdocs.Stdout, mkdocs.Stderr = os.Stdout, os.Stderr
	if err := mkdocs.Run(); err != nil {
		return exit.Preconditionf("mkdocs: %v", err)
	}
	bad, err := site.Check(html)
	if err != nil {
		return err
	}
	if len(bad) > 0 {
		return exit.Preconditionf("%d faults:\n  %s", len(bad), strings.Join(bad, "\n  "))
	}
	fmt.Printf("%d pages, no dead link: %s\n", len(pages), filepath.Join(html, "index.html"))
	return nil
}
