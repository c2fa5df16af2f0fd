// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/outcome"
	"holdfast/tools/build/testrepo"
	"holdfast/tools/record/outcomes"
)

// TestTwoBases: what two bases say in the same words is one row, with the line of each; where they
// differ, a row names its release, and a cell what the number is in the other one.
func TestTwoBases(t *testing.T) {
	first, b := parse(t)
	b.Default = true
	const other = `{
  "updated": "2026-01-01T00:00:00Z", "version": 1,
  "entries": [
    {"cve": ["CVE-2020-0002", "CVE-2020-0003"], "components": ["kube-controller-manager"], "what": "leaks", "status": "affected", "do": "flee"},
    {"cve": ["CVE-2020-0004"], "components": ["kubelet"], "what": "none", "status": "not-affected", "because": "fixed",
     "line": {"file": "pkg/b.go", "line": 9, "text": "restored"}},
    {"cve": ["CVE-2020-0005"], "components": ["kubelet", "kube-controller-manager"], "what": "none", "status": "not-affected", "because": "not there", "notLinked": ["example.com/dns"]},
    {"name": "no-number", "components": ["kubelet"], "what": "breaks too", "status": "affected", "do": "wait"},
    {"cve": ["CVE-2020-0006"], "components": ["kubelet"], "what": "waits", "status": "not-affected", "because": "gone", "notLinked": ["example.com/wait"]}
  ]
}`
	list := table(strings.Replace(closed, `"what": "breaks", "since": {"v1": 2}`, `"what": "breaks", "since": {"v1": 2, "v2": 1}`, 1))
	list.Fixes[0].Forms = append(list.Fixes[0].Forms, testrepo.Form("v2", nil, map[string][]string{"fixed-v2": nil}))
	list.Fixes = append(list.Fixes[:3:3], &fixes.Fix{Name: "more", Kind: fixes.Security})
	second, err := New([]byte(other), list, "v2")
	if err != nil {
		t.Fatal(err)
	}
	v2 := &base.Base{Name: "v2", Version: "v2", Release: "v2+holdfast.1", Unreleased: true, Fixes: list}
	if bad := second.FixFaults(v2); len(bad) > 0 {
		t.Error(bad)
	}
	first.findOptIn(b.Fixes)
	all := []*Judged{{first, b}, {second, v2}}
	if bad := unanswered(all); len(bad) > 0 {
		t.Error(bad)
	}
	record := &outcomes.Record{Outcomes: []outcome.Outcome{{Lab: "fixed-v2", Variant: base.Stock, Verdict: "reproduced"}}}
	page := Page(all, record)
	for _, want := range []string{
		"compared with stock v1 and v2.",
		"Holdfast has no release for 2 yet",
		"For 1, 1 CVE numbers are closed and 3 are open. For 2, 1 CVE numbers are closed and 2 are open.",
		"For 2 the part is `security-v2`",
		"| closed by | 1: closed since | 2: closed since | what stays open |\n|---|---|---|---|---|---|---|\n",
		"| breaks | CVE-2020-0001 | kubelet | [fixed](../patches/fixed/README.md) | +holdfast.2 | every build |  |\n",
		"| breaks too | none (no-number) | kubelet | [fixed](../patches/fixed/README.md) | +holdfast.1 | **open** | little |\n",
		"| waits | CVE-2020-0006 | kubelet | [asked](../patches/asked/README.md) | +holdfast.2 | not affected | ask for A |\n",
		"| 1 | leaks | CVE-2020-0002, CVE-2020-0003 | kube-controller-manager | wait |\n| 2 | leaks | CVE-2020-0002, CVE-2020-0003 | kube-controller-manager | flee |\n| 2 | breaks too |",
		"| 1, 2 | CVE-2020-0004 | kubelet | none | fixed. 1: `repaired` at pkg/a.go:2; 2: `restored` at pkg/b.go:9 |\n",
		"| 1, 2 | CVE-2020-0005 | kubelet, kube-controller-manager | none | not there. Not linked: `example.com/dns` |\n",
		"| 2 | CVE-2020-0006 | kubelet | waits | gone.",
		"| 1 | CVE-2020-0001, no-number | fixed | not yet |",
		"| 2 | CVE-2020-0001 | fixed | reproduced | not yet | no gate | `make lab LAB=fixed-v2` |\n",
		"`_output/vex.json` for 1 and `_output/vex-v2.json` for 2",
	} {
		if !strings.Contains(strings.ReplaceAll(page, "\n", " "), strings.ReplaceAll(want, "\n", " ")) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
}
