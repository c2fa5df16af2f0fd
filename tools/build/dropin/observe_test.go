// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holdfast/tools/build/flagtable"
)

func TestWrongCommandLines(t *testing.T) {
	for c, lines := range wrong {
		seen := map[string]bool{}
		for _, l := range lines {
			if k := strings.Join(l, " "); len(l) == 0 || seen[k] {
				t.Errorf("%s: %q is empty, or there twice", c, l)
			} else {
				seen[k] = true
			}
		}
		if len(seen) < 30 {
			t.Errorf("%s has %d wrong command lines", c, len(seen))
		}
	}
	if len(wrong) != len(Components) {
		t.Errorf("%d components", len(wrong))
	}
}

func TestFirstLine(t *testing.T) {
	for text, want := range map[string]string{
		"unknown flag: --x\nUsage of y:\n":                                        "unknown flag: --x",
		"I1122 09:18:00.1   12 a.go:5] Version: v1\nerror: bad\n":                 "error: bad",
		"Flag --port has been deprecated, x\nF1122 09:18:00.1   12 a.go:77] no\n": "a.go: no",
		"I1122 09:18:00.1   12 a.go:5] only\n":                                    "a.go: only",
		"":                                                                        "",
		"error: v1.9.11+holdfast.2.post.g0123456789ab":                            "error: VERSION",
	} {
		if got := firstLine(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestHelp(t *testing.T) {
	text := `Usage of kubelet:
      --address 0.0.0.0        The address (default 0.0.0.0)
  -v, --v Level                log level
      --feature-gates mapStringBool   A set. Options are:
AllAlpha=true|false (ALPHA - default=false)
      --cidrs cidrs   open (default 10.1.0.0/16,10.0.0.0/16)
      --version version[=true]   Print
`
	got := helpFacts(Kubelet, text)
	same := strings.Replace(text, "10.1.0.0/16,10.0.0.0/16", "10.0.0.0/16,10.1.0.0/16", 1)
	if d := Compare([]Run{got}, []Run{helpFacts(Kubelet, same)}); same == text || len(d) > 0 {
		t.Errorf("another order of a set: %v", d)
	}
	var names []string
	for _, f := range got {
		names = append(names, f.Name)
	}
	if want := []string{"--address", "--v", "--feature-gates", "--cidrs", "--version"}; !reflect.DeepEqual(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if v := got[2].Value; v != "mapStringBool A set." {
		t.Errorf("the gates are in it: %q", v)
	}
	if d := Compare([]Run{got}, []Run{helpFacts(Kubelet, strings.Replace(text, "log level", "level", 1))}); len(d) != 1 || d[0].Name != "--v" {
		t.Errorf("another text: %v", d)
	}
}

func TestOfSource(t *testing.T) {
	flag := flagtable.SaidFlag{Flag: flagtable.Flag{Type: "int", Default: "1", Deprecated: true}, Deprecation: "gone soon", Shorthand: "x", Usage: "how. Options are: A B"}
	got := ofSource(Manager, flagtable.Said{Flags: map[string]flagtable.SaidFlag{"x": flag}, Gates: map[string]flagtable.Gate{"G": {Default: true, Stage: "BETA"}}})
	want := []Fact{
		{Kind: "flag", Component: Manager, Name: "--x", Value: `int, default "1", deprecated: "gone soon", -x: how.`},
		{Kind: "gate", Component: Manager, Name: "G", Value: "true, BETA"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// fake is a program that answers as a component would.
func fake(t *testing.T, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fake")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOfBinary(t *testing.T) {
	good := fake(t, `case "$*" in --help) echo '      --v int   x';; --version) echo 'Kubernetes v1.9.11-0.3-gabcdef0';; *) echo "bad: $*" >&2; exit 3;; esac`)
	facts, err := ofBinary(context.Background(), Kubelet, good, nil)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, f := range facts {
		count[f.Kind]++
		if f.Kind == "refusal" && f.Name == "--no-such-flag" && f.Value != "status 3: bad: --no-such-flag" {
			t.Errorf("%+v", f)
		}
		if f.Kind == "version" && f.Value != "status 0: Kubernetes v1.9.11" {
			t.Errorf("%+v", f)
		}
	}
	if want := map[string]int{"help": 1, "version": 1, "refusal": len(wrong[Kubelet])}; !reflect.DeepEqual(count, want) {
		t.Errorf("%v, want %v", count, want)
	}
	if _, err := ofBinary(context.Background(), Kubelet, fake(t, `case "$*" in --help|--version) ;; *) exit 0;; esac`), nil); err == nil || !strings.Contains(err.Error(), "not a wrong command line") {
		t.Errorf("a command line that is taken: %v", err)
	}
}
