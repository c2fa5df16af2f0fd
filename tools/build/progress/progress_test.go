// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// buffer may be written and read by two goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestPlainLines(t *testing.T) {
	defer func(d time.Duration) { every = d }(every)
	every = 10 * time.Millisecond
	var out buffer
	s := plain(&out, "build kubelet")
	if got := out.String(); got != "build kubelet …\n" {
		t.Errorf("at the start: %q", got)
	}
	s.Now("k8s.io/api")
	deadline := time.Now().Add(10 * time.Second)
	for !strings.Contains(out.String(), "build kubelet … 0 s: k8s.io/api\n") {
		if time.Now().After(deadline) {
			t.Fatalf("no line of what it is at: %q", out.String())
		}
		time.Sleep(time.Millisecond)
	}
	s.Done("3 files")
	got := out.String()
	if !regexp.MustCompile(`build kubelet: \d+\.\d s, 3 files\n$`).MatchString(got) {
		t.Errorf("at the end: %q", got)
	}
	if strings.ContainsAny(got, "\r\x1b") {
		t.Errorf("plain lines carry a terminal's codes: %q", got)
	}
	time.Sleep(5 * every)
	if out.String() != got {
		t.Errorf("lines after the end: %q", strings.TrimPrefix(out.String(), got))
	}
}

func TestFail(t *testing.T) {
	var out buffer
	plain(&out, "x").Fail()
	if !regexp.MustCompile(`^x …\nx: failed after \d+\.\d s\n$`).MatchString(out.String()) {
		t.Errorf("%q", out.String())
	}
}

func TestLastLine(t *testing.T) {
	s := plain(io.Discard, "x")
	defer s.Done("")
	var log bytes.Buffer
	w := s.LastLine(&log)
	for _, part := range []string{"one\ntw", "o\nthr"} {
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.now.Load().(string); got != "two" {
		t.Errorf("it is at %q, want the last whole line", got)
	}
	if log.String() != "one\ntwo\nthr" {
		t.Errorf("%q", log.String())
	}
}

// TestTerminal runs the test binary below script(1), which gives it a terminal.
func TestTerminal(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_TERMINAL") != "" {
		s := Start("step %d", 1)
		s.Now("half way")
		time.Sleep(500 * time.Millisecond)
		s.Done("well")
		return
	}
	script, err := exec.LookPath("script")
	if err != nil {
		t.Fatal("script (package bsdutils) is missing: ", err)
	}
	cmd := exec.Command(script, "-qec", "stty cols 80 rows 24 && "+os.Args[0]+" -test.run=^TestTerminal$", "/dev/null")
	cmd.Env = append(os.Environ(), "HOLDFAST_TEST_TERMINAL=1", "TERM=xterm")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"step 1 ", "half way", "\x1b[", "step 1: 0."} {
		if !strings.Contains(string(out), want) {
			t.Errorf("on a terminal %q is missing: %q", want, out)
		}
	}
	for name, f := range map[string]func() (*os.File, error){
		"/dev/null": func() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_WRONLY, 0) },
		"a pipe":    func() (*os.File, error) { _, w, err := os.Pipe(); return w, err },
		"a file":    func() (*os.File, error) { return os.CreateTemp(t.TempDir(), "") },
	} {
		file, err := f()
		if err != nil {
			t.Fatal(err)
		}
		if terminal(file) {
			t.Errorf("%s passes for a terminal", name)
		}
		file.Close()
	}
}
