// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upstreamtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// niceOf runs nice, which prints the nice value that it has, the way that start starts it.
func niceOf(start func(*exec.Cmd) error) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command("nice")
	cmd.Stdout = &out
	if err := start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return strings.TrimSpace(out.String()), err
}

// TestAtUsualPriority starts this test again with the nice value that make test gives it.
func TestAtUsualPriority(t *testing.T) {
	const inside = "HOLDFAST_TEST_NICE"
	if os.Getenv(inside) != "" {
		runtime.LockOSThread() // the second has the first one's thread
		raised, err := niceOf(func(c *exec.Cmd) error { return atUsualPriority(c.Start) })
		if err != nil {
			t.Fatal(err)
		}
		after, err := niceOf((*exec.Cmd).Start)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("raised to %s, then %s\n", raised, after)
		return
	}
	may, err := exec.Command("nice", "-n", "19", "nice", "-n", "-19", "nice").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "raised to " + strings.TrimSpace(string(may)) + ", then 19\n"
	cmd := exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^TestAtUsualPriority$")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("want %q: %v\n%s", want, err, out)
	}
}
