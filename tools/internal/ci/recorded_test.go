// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package ci

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/internal/parts"
)

// TestRecorded: a part is left out while what it was made from is the same, and only then.
func TestRecorded(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("pins", "a v1\n")
	write("code/a.go", "package a\n")
	write("code/README.md", "a\n")
	write("page.md", "a\n")
	write("code/vendor/b.go", "package b\n")
	ran, skipped, answer := 0, 0, error(nil)
	part := func(o Options) parts.Count {
		t.Helper()
		n, err := o.recorded(root, "part", []string{"pins", "code", "page.md"}, func() (parts.Count, error) {
			ran++
			if answer != nil {
				return parts.Count{Failed: 1}, answer
			}
			return parts.Count{Passed: 3, Skipped: skipped}, nil
		})()
		if !errors.Is(err, answer) {
			t.Fatalf("%v, want %v", err, answer)
		}
		return n
	}
	runs := func(what string, o Options, want bool) {
		t.Helper()
		before := ran
		n := part(o)
		if got := ran > before; got != want || want && n != (parts.Count{Passed: 3}) || !want && n != (parts.Count{Skipped: 3}) {
			t.Errorf("%s: it ran %v, %+v", what, got, n)
		}
	}
	record := func() {
		t.Helper()
		if err := WritePassed(root); err != nil {
			t.Fatal(err)
		}
	}
	answer = errors.New("a test failed")
	part(Options{})
	record()
	answer = nil
	runs("it failed last", Options{}, true)
	if err := ForgetPassed(root); err != nil {
		t.Fatal(err)
	}
	skipped = 1
	part(Options{})
	record()
	skipped = 0
	runs("it left something out", Options{}, true)
	runs("it passed, and that is not recorded", Options{}, true)
	record()
	runs("that is recorded", Options{}, false)
	runs("all are to run", Options{All: true}, true)
	write("code/README.md", "b\n")
	write("code/vendor/b.go", "package c\n")
	runs("a page has changed", Options{}, false)
	write("page.md", "b\n")
	runs("a page has changed that is named", Options{}, true)
	write("page.md", "a\n")
	write("code/a.go", "package a // x\n")
	runs("a file has changed", Options{}, true)
	write("code/a.go", "package a\n")
	runs("it is as before", Options{}, false)
	write("code/b_test.go", "package a\n")
	runs("there is a file more", Options{}, true)
	record()
	runs("that is recorded too", Options{}, false)
	write("code/b_test.go", "package a // x\n")
	if err := ForgetPassed(root); err != nil {
		t.Fatal(err)
	}
	record()
	write("code/b_test.go", "package a\n")
	runs("nothing has passed since", Options{}, false)

	write(PassedFile, `{"part": {"key": "x", "test": 3}}`)
	if _, err := (Options{}).recorded(root, "part", []string{"pins"}, nil)(); err == nil || !strings.Contains(err.Error(), PassedFile) {
		t.Errorf("a record with an unknown field: %v", err)
	}
	if err := WritePassed(root); err == nil || !strings.Contains(err.Error(), PassedFile) {
		t.Errorf("a record with an unknown field is overwritten: %v", err)
	}
}

// TestRecordedFiles: what the keys are made of is there.
func TestRecordedFiles(t *testing.T) {
	for _, name := range slices.Concat(touchedFiles, hashOracleFiles, flagsFiles) {
		if _, err := os.Stat(filepath.Join("../../..", name)); err != nil {
			t.Error(err)
		}
	}
}
