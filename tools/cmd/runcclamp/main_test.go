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

func TestProcess(t *testing.T) {
	for _, tt := range []struct {
		in    string
		least int
		under []string
		want  string // "" = unchanged
	}{
		{`{"process":{"oomScoreAdj":-998},"big":12345678901234567890}`, 0, []string{"process"}, `{"big":12345678901234567890,"process":{"oomScoreAdj":0}}`},
		{`{"process":{"oomScoreAdj": 1000}}`, 0, []string{"process"}, ""},
		{`{"process":{"oomScoreAdj":null,"capabilities":null}}`, 0, []string{"process"}, ""},
		{`{"process":{}}`, 0, []string{"process"}, ""},
		{`{"process":null}`, 0, []string{"process"}, ""},
		{`{}`, 0, []string{"process"}, ""},
		{`{"oomScoreAdj":-998}`, -500, nil, `{"oomScoreAdj":-500}`},
		{`{"capabilities":{"bounding":["CAP_CHOWN", "CAP_KILL"],"ambient":[]}}`, 0, nil, ""},
		{`{"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE","CAP_KILL"],"permitted":["CAP_SYS_RESOURCE"]}}`, 0, nil,
			`{"capabilities":{"bounding":["CAP_CHOWN","CAP_KILL"],"permitted":[]}}`},
		{`{"capabilities":{"bounding":["CAP_SYS_RESOURCE"]},"oomScoreAdj":-998}`, 0, nil, `{"capabilities":{"bounding":[]},"oomScoreAdj":0}`},
	} {
		l := &limits{oomScoreAdj: tt.least, capabilities: []string{"CAP_CHOWN", "CAP_KILL"}}
		out, err := edit([]byte(tt.in), l.process, tt.under...)
		want := tt.want
		if want == "" {
			want = tt.in
		}
		if err != nil || string(out) != want {
			t.Errorf("%s: %s, %v", tt.in, out, err)
		}
	}
	for _, bad := range []string{`[`, `{"oomScoreAdj":"x"}`, `{"capabilities":[]}`} {
		if _, err := edit([]byte(bad), (&limits{}).process); err == nil {
			t.Errorf("accepted %s", bad)
		}
	}
}

func TestOwnLimits(t *testing.T) {
	l, err := ownLimits()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range l.capabilities {
		if !strings.HasPrefix(c, "CAP_") || c != strings.ToUpper(c) {
			t.Errorf("%q is no OCI name", c)
		}
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
