// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// The holdfast command materialises, patches, builds and tests the bases. The
// Makefile is a thin front of it.
package main

import (
	"os"

	"holdfast/tools/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
