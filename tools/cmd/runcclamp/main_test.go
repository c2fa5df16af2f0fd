// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestClampJSON(t *testing.T) {
	for _, tt := range []struct {
		in    string
		least int
		under string
		want  string // "" = unchanged
	}{
		{`{"process":{"oomScoreAdj":-998},"big":12345678901234567890}`, 0, "process", `{"big":12345678901234567890,"process":{"oomScoreAdj":0}}`},
		{`{"process":{"oomScoreAdj":1000}}`, 0, "process", ""},
		{`{"process":{"oomScoreAdj":null}}`, 0, "process", ""},
		{`{"process":{}}`, 0, "process", ""},
		{`{}`, 0, "process", ""},
		{`{"oomScoreAdj":-998}`, -500, "", `{"oomScoreAdj":-500}`},
	} {
		var under []string
		if tt.under != "" {
			under = []string{tt.under}
		}
		out, changed, err := clampJSON([]byte(tt.in), tt.least, under...)
		want := tt.want
		if want == "" {
			want = tt.in
		}
		if err != nil || changed != (tt.want != "") || string(out) != want {
			t.Errorf("%s: %s, changed %v, %v", tt.in, out, changed, err)
		}
	}
	if _, _, err := clampJSON([]byte(`[`), 0); err == nil {
		t.Error("accepted bad JSON")
	}
}

func TestClampFor(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	self, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Skip(err)
	}
	least, _ := strconv.Atoi(strings.TrimSpace(string(self)))
	for _, args := range [][]string{{"--log", "x", "create", "--bundle", dir, "id"}, {"create", "--bundle=" + dir, "id"}, {"exec", "--process", file, "id"}} {
		in := `{"process":{"oomScoreAdj":-1001}}`
		want := `{"process":{"oomScoreAdj":` + strconv.Itoa(least) + `}}`
		if args[0] == "exec" {
			in, want = `{"oomScoreAdj":-1001}`, `{"oomScoreAdj":`+strconv.Itoa(least)+`}`
		}
		if err := os.WriteFile(file, []byte(in), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := clampFor(args); err != nil {
			t.Error(err)
		}
		if b, _ := os.ReadFile(file); string(b) != want {
			t.Errorf("%v: %s", args, b)
		}
	}
	for _, args := range [][]string{{"state", "id"}, {"exec", "id", "sh"}, {"--version"}} {
		if err := clampFor(args); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	if err := clampFor([]string{"create", "--bundle", "/no/such"}); err == nil {
		t.Error("a missing bundle is no error")
	}
}
