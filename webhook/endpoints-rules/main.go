// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command endpoints-rules places the addresses of Endpoints by rules. See
// docs/user/endpoints-rules.md.
package main

import (
	"os"

	"holdfast/webhook/internal/cli"
)

// version is what make links in (holdfast version); a plain go build does not know it.
var version = "unknown"

func main() {
	os.Exit(cli.Main(version, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
