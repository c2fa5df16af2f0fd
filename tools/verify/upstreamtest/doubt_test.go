// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package upstreamtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/testrepo"
)

// TestDoubtful: stock tests again what failed or was skipped in ours, what is known to fail, and
// packages whose tests are not the same.
func TestDoubtful(t *testing.T) {
	r := testrepo.New(t)
	b := r.Base(t, testrepo.Name)
	for _, v := range b.VariantNames() {
		if _, err := Run(t.Context(), b, v, []string{"example.com/up/pkg/plain"}, t.TempDir(), Options{}); err != nil {
			t.Fatal(err)
		}
	}
	const pkg = "example.com/up/pkg/greet"
	packages := []string{pkg, "example.com/up/pkg/version"}
	outcome := func(failed string, skipped string) *Outcome {
		o := &Outcome{Skipped: map[string]bool{}}
		if failed != "" {
			o.Failed = []string{failed}
		}
		if skipped != "" {
			o.Skipped[skipped] = true
		}
		return o
	}
	for name, tc := range map[string]struct {
		ours  *Outcome
		known Known
		want  string
	}{
		"all passed":                   {outcome("", ""), nil, ""},
		"one failed":                   {outcome(pkg+" TestA", ""), nil, pkg},
		"one was skipped":              {outcome("", pkg+" TestA"), nil, pkg},
		"one is known to fail":         {outcome("", ""), Known{pkg + " TestA": "why"}, pkg},
		"a package of ours failed":     {outcome("example.com/up/pkg/ours TestA", ""), nil, ""},
		"known to fail, not asked for": {outcome("", ""), Known{"example.com/up/pkg/plain TestA": "why"}, ""},
	} {
		got, err := doubtful(b, packages, tc.ours, tc.known)
		if err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tc.want)
		}
	}
	file := filepath.Join(b.SrcDir(base.Stock), "pkg/greet/more_test.go")
	if err := os.WriteFile(file, []byte("package greet\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	same := filepath.Join(b.SrcDir(base.Ours), "pkg/greet/more_test.go")
	for text, want := range map[string]string{"": pkg, "package greet // other\n": pkg, "package greet\n": ""} {
		if text != "" {
			if err := os.WriteFile(same, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if err := os.RemoveAll(same); err != nil {
			t.Fatal(err)
		}
		if got, err := doubtful(b, packages, outcome("", ""), nil); err != nil || strings.Join(got, " ") != want {
			t.Errorf("test file %q in ours: %q, %v, want %q", text, got, err, want)
		}
	}
	if got, err := doubtful(b, []string{"example.com/up/pkg/plain"}, outcome("", ""), nil); err != nil || len(got) > 0 {
		t.Errorf("a package that nothing of ours touches: %q, %v", got, err)
	}
	if _, err := doubtful(b, []string{"example.com/other"}, outcome("", ""), nil); err == nil {
		t.Error("a package of no folder")
	}
}

// TestUnknown: where ours is tested alone, a failure that is known of stock is none of ours.
func TestUnknown(t *testing.T) {
	o := &Outcome{Failed: []string{"a T1", "b T2"}, Output: map[string]string{"b T2": "said\n"}}
	got := unknown(o, Known{"a T1": "a reason"})
	if len(got) != 1 || got[0] != "b T2 fails in the patched tree and is not in known-failures.txt:\n    said" {
		t.Errorf("%q", got)
	}
}
