// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/tools/build/base"
)

// TestQueued: its place is in the overlay, so that a change there is seen at once.
func TestQueued(t *testing.T) {
	root, err := base.FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Mutate(Queued, func(file string) ([]byte, error) { return os.ReadFile(filepath.Join(root, file)) }); err != nil {
		t.Error(err)
	}
}

func TestMutate(t *testing.T) {
	ms := []Mutant{{Says: "x", File: "f", Old: "b", New: "BB"}, {Says: "y", File: "f", Old: "c", New: "C"}}
	get := func(string) ([]byte, error) { return []byte("abc"), nil }
	got, err := Mutate(ms, get)
	if err != nil || string(got["f"]) != "aBBC" {
		t.Errorf("%s, %v", got["f"], err)
	}
	for _, text := range []string{"ac", "abbc"} {
		if _, err := Mutate(ms, func(string) ([]byte, error) { return []byte(text), nil }); err == nil || !strings.Contains(err.Error(), "not once") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Mutate(ms, func(string) ([]byte, error) { return nil, errors.New("gone") }); err == nil {
		t.Error("a file that is not there")
	}
}

// TestUncaught: each mutant is caught by what it says and by nothing else.
func TestUncaught(t *testing.T) {
	var all []Difference
	for _, m := range Mutants {
		for _, c := range m.Catches {
			c.Component, c.Name = Kubelet, strings.TrimSuffix(c.Name, "*")
			all = append(all, c)
		}
	}
	kinds := append(KindNames(false), KindNames(true)...)
	if got := Uncaught(Mutants, kinds, all); len(got) > 0 {
		t.Errorf("%q", got)
	}
	if got := Uncaught(Mutants, KindNames(false), all); len(got) > 0 {
		t.Errorf("on the command line: %q", got)
	}
	for i := range all {
		less := append(append([]Difference{}, all[:i]...), all[i+1:]...)
		if got := Uncaught(Mutants, kinds, less); len(got) != 1 {
			t.Errorf("without %v: %q", all[i], got)
		}
	}
	if got := Uncaught(Mutants, kinds, nil); len(got) != len(all) {
		t.Errorf("of nothing: %q", got)
	}
}
