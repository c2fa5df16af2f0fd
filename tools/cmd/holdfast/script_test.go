// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"holdfast/tools/build/testrepo"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"holdfast": func() { os.Exit(Main(os.Args[1:])) }})
}

// TestScripts runs the command as a user does, in the checkout of testrepo,
// $WORK/repo, with an empty module cache and the checkout's own proxy. The
// command "exits N holdfast …" checks the exit status.
func TestScripts(t *testing.T) {
	goEnv := func(name string) string {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	gocache := goEnv("GOCACHE")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			r, err := testrepo.Create(e.WorkDir)
			if err != nil {
				return err
			}
			e.Defer(func() { testrepo.MakeWritable(r.ModCache) })
			for _, f := range []string{".gitattributes", "hack/archive-commit"} { // those of Holdfast itself
				raw, err := os.ReadFile(filepath.Join("..", "..", "..", f))
				if err == nil {
					err = os.MkdirAll(filepath.Dir(filepath.Join(r.Root, f)), 0o755)
				}
				if err == nil {
					err = os.WriteFile(filepath.Join(r.Root, f), raw, 0o644)
				}
				if err != nil {
					return err
				}
			}
			for _, kv := range r.Env() {
				k, v, _ := strings.Cut(kv, "=")
				e.Setenv(k, v)
			}
			e.Setenv("GOCACHE", gocache)
			e.Setenv("GOTOOLCHAIN", "local")
			e.Setenv("src", "_output/src/v1.9.11/ours")
			e.Setenv("bin", "_output/bin/v1.9.11")
			e.Cd = r.Root
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				want, err := strconv.Atoi(args[0])
				if err != nil || neg {
					ts.Fatalf("usage: exits STATUS COMMAND…")
				}
				err = ts.Exec(args[1], args[2:]...)
				got := 0
				var ee *exec.ExitError
				if errors.As(err, &ee) {
					got = ee.ExitCode()
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if got != want {
					ts.Fatalf("exit status %d, want %d", got, want)
				}
			},
			// sub FILE OLD NEW replaces OLD in FILE, once.
			"sub": func(ts *testscript.TestScript, neg bool, args []string) {
				c := ts.ReadFile(args[0])
				if !strings.Contains(c, args[1]) {
					ts.Fatalf("%s does not contain %q", args[0], args[1])
				}
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(c, args[1], args[2], 1)), 0o644))
			},
			// write FILE TEXT
			"write": func(ts *testscript.TestScript, neg bool, args []string) {
				file := ts.MkAbs(args[0])
				ts.Check(os.MkdirAll(filepath.Dir(file), 0o755))
				ts.Check(os.WriteFile(file, []byte(args[1]+"\n"), 0o644))
			},
		},
	})
}
