// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestMain makes the test program its own runner inside a machine, and a process
// that does nothing.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == InnerCommand {
		if err := Inner(os.Args[2], allTestLabs()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(sleeperEnv) != "" {
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

const sleeperEnv = "LABKIT_TEST_SLEEP"
