// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

const helperEnv = "LABKIT_TEST_HELPER"

// TestMain makes the test program its own helper process and its own runner
// inside a machine.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == InnerCommand {
		if err := RunInner(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if h := os.Getenv(helperEnv); h != "" {
		helper(h)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// helper is what a started process does.
func helper(what string) {
	switch what {
	case "sleep":
		time.Sleep(time.Hour)
	case "fail":
		fmt.Println("cannot open the frobnicator")
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Hour)
	case "serve": // on LABKIT_TEST_ADDR, unhealthy for the first half second
		began := time.Now()
		_ = http.ListenAndServe(os.Getenv("LABKIT_TEST_ADDR"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if time.Since(began) < 500*time.Millisecond {
				http.Error(w, "not yet", http.StatusInternalServerError)
			}
		}))
	case "child": // a child in its own session outlives this process and its group
		c := exec.Command(selfExe())
		c.Env = append(os.Environ(), helperEnv+"=sleep")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Println("child", c.Process.Pid)
		time.Sleep(time.Hour)
	case "groupchild": // a child in the same group
		c := exec.Command(selfExe())
		c.Env = append(os.Environ(), helperEnv+"=sleep")
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Println("child", c.Process.Pid)
		time.Sleep(time.Hour)
	case "supervisor": // starts a process, says its pid, and waits to be killed
		s, err := NewSupervisor(os.Getenv("LABKIT_TEST_DIR"), "inner-"+fmt.Sprint(os.Getpid()))
		if err != nil {
			panic(err)
		}
		p, err := s.Start(context.Background(), Process{Name: "victim", Path: selfExe(), Env: []string{helperEnv + "=sleep"}})
		if err != nil {
			panic(err)
		}
		fmt.Println("child", p.Pid)
		time.Sleep(time.Hour)
	}
}
