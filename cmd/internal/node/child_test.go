// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// TestChild is no test: it is the program that TestKilled kills.
func TestChild(t *testing.T) {
	dir := os.Getenv("HOLDFAST_NODE_DIR")
	if dir == "" {
		t.Skip("only as a child of TestKilled")
	}
	f := openFake(dir)
	at, _ := strconv.Atoi(os.Getenv("HOLDFAST_NODE_KILL"))
	n := 0
	f.Step = func(name string) {
		if n++; n == at {
			f.write("killed-at", name)
			p, _ := os.FindProcess(os.Getpid())
			_ = p.Kill()
			select {}
		}
	}
	status, out := f.do(os.Getenv("HOLDFAST_NODE_BACK") != "")
	fmt.Println(out)
	os.Exit(10 + status)
}

// child runs the program in a process of its own that is killed at a step. It returns its
// status, or -1 if it was killed.
func (f *fake) child(t *testing.T, back bool, killAt int) (int, string) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), "HOLDFAST_NODE_DIR="+f.dir, "HOLDFAST_NODE_KILL="+strconv.Itoa(killAt))
	if back {
		cmd.Env = append(cmd.Env, "HOLDFAST_NODE_BACK=1")
	}
	out, err := cmd.CombinedOutput()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	code := cmd.ProcessState.ExitCode()
	if code == -1 {
		return -1, string(out)
	}
	return code - 10, string(out)
}
