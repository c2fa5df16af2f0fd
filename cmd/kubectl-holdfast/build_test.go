// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// platforms are those that the program is built for.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/arm64"}

// goEnv is the environment of a go command for a platform, without a user's settings.
func goEnv(platform string) []string {
	goos, goarch, _ := strings.Cut(platform, "/")
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local")
}

// ofPlatforms are the files of some platforms: a file's time of change has another name on each.
var ofPlatforms = []string{"holdfast/cmd/internal/node/changed_linux.go", "holdfast/cmd/internal/node/changed_other.go"}

// TestPlatforms: for every platform all packages are there, none needs cgo, none is
// of Kubernetes, and ours are the same files everywhere but those of ofPlatforms. Compiling the standard
// library for three platforms takes most of a minute of CPU, so only the platform
// that this runs on is built, by TestPlainBuild; with HOLDFAST_BUILD=all every one is.
func TestPlatforms(t *testing.T) {
	for _, platform := range platforms {
		cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Module,CgoFiles,IgnoredGoFiles,Error", ".")
		cmd.Env = goEnv(platform)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: go list: %v\n%s", platform, err, errs.Bytes())
		}
		modules := map[string]bool{}
		dec := json.NewDecoder(bytes.NewReader(out))
		for {
			var p struct {
				ImportPath               string
				Standard                 bool
				Module                   struct{ Path string }
				CgoFiles, IgnoredGoFiles []string
				Error                    *struct{ Err string }
			}
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if p.Error != nil || len(p.CgoFiles) > 0 {
				t.Errorf("%s: %s: %v, cgo %v", platform, p.ImportPath, p.Error, p.CgoFiles)
			}
			others := slices.DeleteFunc(p.IgnoredGoFiles, func(file string) bool { return slices.Contains(ofPlatforms, p.ImportPath+"/"+file) })
			if p.Module.Path == "holdfast/cmd" && len(others) > 0 {
				t.Errorf("%s: %s leaves %v out", platform, p.ImportPath, others)
			}
			if !p.Standard {
				modules[p.Module.Path] = true
			}
		}
		for m := range modules {
			if strings.HasPrefix(m, "k8s.io/") || strings.HasPrefix(m, "holdfast") && m != "holdfast/cmd" {
				t.Errorf("%s: module %s is linked", platform, m)
			}
		}
		if len(modules) < 3 {
			t.Errorf("%s: only the modules %v", platform, modules)
		}
		if os.Getenv("HOLDFAST_BUILD") == "all" {
			build(t, platform)
		}
	}
}

func build(t *testing.T, platform string) string {
	file := filepath.Join(t.TempDir(), "kubectl-holdfast")
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", file, "."}
	cmd := exec.Command("go", args...)
	cmd.Env = goEnv(platform)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: go %s: %v\n%s", platform, strings.Join(args, " "), err, out)
	}
	return file
}

// TestPlainBuild: what a plain go build makes runs on its own, with nothing around it.
func TestPlainBuild(t *testing.T) {
	out, err := exec.Command("go", "env", "GOHOSTOS", "GOHOSTARCH").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := build(t, strings.Join(strings.Fields(string(out)), "/"))
	cmd := exec.Command(file, "container-hash", "--release", "1.9", "-o", "json", "-")
	cmd.Dir, cmd.Env = t.TempDir(), []string{}
	cmd.Stdin = strings.NewReader(`{"id":"a","spec":{"name":"a","image":"b"}}`)
	answer, err := cmd.CombinedOutput()
	if want := `{"id":"a","hash":{"1.9":824610409},"oldest":"1.9"}` + "\n"; err != nil || string(answer) != want {
		t.Errorf("%v: %s, want %s", err, answer, want)
	}
	if out, err := exec.Command(file, "--version").Output(); err != nil || string(out) != "kubectl-holdfast version unknown\n" {
		t.Errorf("--version: %v: %s", err, out)
	}
	// The exit status is the command's.
	cmd = exec.Command(file, "audit-rw")
	var ee *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &ee) || ee.ExitCode() != 2 {
		t.Errorf("an unknown command: %v, want status 2", err)
	}
}
