// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package process_test

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

	"holdfast/tools/labkit/process"
)

const helperEnv = "LABKIT_TEST_HELPER"

// TestMain makes the test program its own helper process.
func TestMain(m *testing.M) {
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
		c := exec.Command(process.Self())
		c.Env = append(os.Environ(), helperEnv+"=sleep")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Println("child", c.Process.Pid)
		time.Sleep(time.Hour)
	case "groupchild": // a child in the same group
		c := exec.Command(process.Self())
		c.Env = append(os.Environ(), helperEnv+"=sleep")
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Println("child", c.Process.Pid)
		time.Sleep(time.Hour)
	case "supervisor": // starts a process, says its pid, and waits to be killed
		s, err := process.NewSupervisor(os.Getenv("LABKIT_TEST_DIR"), "inner-"+fmt.Sprint(os.Getpid()))
		if err != nil {
			panic(err)
		}
		p, err := s.Start(context.Background(), process.Process{Name: "victim", Path: process.Self(), Env: []string{helperEnv + "=sleep"}})
		if err != nil {
			panic(err)
		}
		fmt.Println("child", p.Pid)
		time.Sleep(time.Hour)
	}
}
