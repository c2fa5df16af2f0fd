// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlainBuild: what a plain go build makes is static, links no module of ours
// but this one, and runs on its own.
func TestPlainBuild(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endpoints-rules")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", file, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := exec.Command("go", "version", "-m", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); len(f) > 1 && (f[0] == "dep" && strings.HasPrefix(f[1], "holdfast") || f[1] == "CGO_ENABLED=1") {
			t.Errorf("linked: %s", line)
		}
	}
	run := func(want int, args ...string) string {
		t.Helper()
		cmd := exec.Command(file, args...)
		cmd.Dir, cmd.Env = t.TempDir(), []string{}
		out, err := cmd.CombinedOutput()
		var ee *exec.ExitError
		got := 0
		if errors.As(err, &ee) {
			got = ee.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%v: %v, want status %d\n%s", args, err, want, out)
		}
		return string(out)
	}
	if out := run(0, "--version"); out != "endpoints-rules version unknown\n" {
		t.Errorf("--version says %s", out)
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules:\n- {name: a, when: pod.reddy, then: drop}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := run(1, "check", rules); !strings.Contains(out, "rules.yaml:2:") || !strings.Contains(out, "reddy") {
		t.Errorf("check says %s", out)
	}
	for _, args := range [][]string{{"serv"}, {"serve", "--nope"}, {"serve"}, {"test"}, {"check"}, {"manifests", "--rule-set", "image-pending"}, {"manifests", "--rule-set", "nope", "--image", "x"},
		{"serve", "--tls-cert-file=a", "--tls-private-key-file=b"}, {"breaker"}, {"serve", "x"}} {
		if out := run(2, args...); !strings.Contains(out, "--help") {
			t.Errorf("%v says %s", args, out)
		}
	}
	out, err := os.ReadFile(filepath.Join("testdata", "image-pending.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	scenario := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(scenario, out, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := run(0, "test", scenario); !strings.Contains(out, "notReady  image-pending") {
		t.Errorf("test says %s", out)
	}
	if out := run(0, "explain", scenario); !strings.Contains(out, "image-pending applies") || !strings.Contains(out, "image-pending does not apply") {
		t.Errorf("explain says %s", out)
	}
	if bytes.Count(out, []byte(", notReady: [10.0.0.2]")) != 1 {
		t.Fatal("the scenario is another one")
	}
	if err := os.WriteFile(scenario, bytes.ReplaceAll(out, []byte(", notReady: [10.0.0.2]"), []byte(", dropped: [10.0.0.2]")), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := run(1, "test", scenario); !strings.Contains(out, "10.0.0.2 is notReady, expected drop") {
		t.Errorf("test says %s", out)
	}
}
