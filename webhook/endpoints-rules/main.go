// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command endpoints-rules places the addresses of Endpoints by rules. See
// docs/user/endpoints-rules.md.
package main

import (
	"os"

	"holdfast/webhook/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
