// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-holdfast is what operators of old Kubernetes releases run, as
// a plugin of kubectl or alone. See docs/user/kubectl-holdfast.md.
package main

import (
	"os"

	"holdfast/cmd/internal/cli"
)

// version is what make links in (holdfast version); a plain go build does not know it.
var version = "unknown"

func main() {
	os.Exit(cli.Main(version, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
