// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// The lab command runs labs, each an incident on stock and on our binaries, and
// clusters to try things on. It is a program apart from holdfast, which builds
// the binaries and needs neither the labs nor their libraries.
package main

import (
	"os"

	"holdfast/tools/internal/labcmd"
)

func main() { os.Exit(labcmd.Main(os.Args[1:])) }
