// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-holdfast is what operators of old Kubernetes releases run, as
// a plugin of kubectl or alone. See docs/user/kubectl-holdfast.md.
package main

import (
	"os"

	"holdfast/cmd/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
