// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package vulncheck

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/tools/build/exit"
	"holdfast/tools/verify/security"
)

// TestCheck asks the real govulncheck, with a database written by hand, about a
// program that links two of its five modules.
func TestCheck(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, "holdfast/tools/cmd/security")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	database, err := URL("testdata/vulndb")
	if err != nil {
		t.Fatal(err)
	}
	entry := func(cve string, status security.Status, components ...string) *security.Entry {
		return &security.Entry{CVE: []string{cve}, What: "something", Status: status, Components: components}
	}
	both := security.Ours
	programs := map[string]string{both[0]: program, both[1]: program}
	for _, tc := range []struct {
		name    string
		entries []*security.Entry
		fails   []string // what the error says; nil: there is none
		not     string
	}{
		{"one is explained, one is not", []*security.Entry{entry("CVE-9999-0003", security.Affected, both...)},
			[]string{"does not explain 2 findings", "kubelet: GO-9999-0004 (CVE-9999-0004) in golang.org/x/vuln@v1.", "kube-controller-manager: GO-9999-0004", "golang.org/x/vuln/scan.Command"}, "9999-0003"},
		{"in one of the programs", []*security.Entry{entry("CVE-9999-0003", security.Affected, both...), entry("CVE-9999-0004", security.NotAffected, "kubelet")},
			[]string{"does not explain 1 findings", "kube-controller-manager: GO-9999-0004"}, "kubelet: "},
		{"all", []*security.Entry{entry("CVE-9999-0003", security.Closed, both...), entry("CVE-9999-0004", security.NotOurs, "kube-proxy")}, nil, ""},
	} {
		var out bytes.Buffer
		err := Check(context.Background(), &out, &security.Table{Entries: tc.entries}, database, programs)
		if tc.fails == nil {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			if n := strings.Count(out.String(), "kubelet: 2 findings\n"); n != 1 {
				t.Errorf("%s: it printed\n%s", tc.name, &out)
			}
			continue
		}
		if exit.Code(err) != exit.Failed {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for _, s := range tc.fails {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q is not said: %v", tc.name, s, err)
			}
		}
		if strings.Contains(err.Error(), tc.not) || strings.Contains(err.Error(), "9999-0005") {
			t.Errorf("%s: %v", tc.name, err)
		}
		if !strings.Contains(out.String(), "kubelet: GO-9999-0003 (CVE-9999-0003) in github.com/openvex/go-vex@") {
			t.Errorf("%s: the explained one is not shown: %s", tc.name, &out)
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, tc := range []struct{ db, says string }{
		{"", "make vulncheck DB="},
		{"/nowhere", "DB=/nowhere is neither a URL"},
		{"ftp://host/db", "neither a URL"},
		{".", "index/modules.json"},
	} {
		if _, err := URL(tc.db); exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%q: %v, want %q", tc.db, err, tc.says)
		}
	}
	if got, err := URL("https://vuln.go.dev"); err != nil || got != "https://vuln.go.dev" {
		t.Error(got, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := Scan(ctx, "file:///nowhere", filepath.Join(t.TempDir(), "gone")); exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), "build it first") {
		t.Error(err)
	}
	for _, text := range []string{"", "{", `{"finding": {"osv": "GO-1"}}`} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for a whole answer", text)
		}
	}
}
