// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/record/outcomes"
	"holdfast/tools/verify/security"
	"holdfast/tools/verify/security/openvex"
)

// TestSecurity: what is known of vulnerabilities, the page that is made of it and the pages of the
// fixes say the same. Its reasons are checked by the part security of make test, which
// has the stock tree and the binaries.
func TestSecurity(t *testing.T) {
	r := checkout(t)
	all, err := security.LoadAll(r.root)
	if err != nil {
		t.Fatal(err)
	}
	record, err := outcomes.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range all {
		if _, err := openvex.Write(j.Table, j.Of.Release); err != nil {
			t.Error(err)
		}
		report(t, pageFaults(j.Table, j.Of, func(page string) string { return string(r.files[page]) }))
	}
	if string(r.files[security.PageFile]) != security.Page(all, record) {
		t.Errorf("%s is not what bases/*/vulnerabilities.json and the fixes say: make security", security.PageFile)
	}
	if !strings.Contains(string(r.files["README.md"]), "]("+security.PageFile+")") {
		t.Errorf("README.md does not link %s", security.PageFile)
	}
}

// pageFaults: the page of a fix names each number that the fix closes.
func pageFaults(table *security.Table, b *base.Base, text func(page string) string) []string {
	var bad []string
	for _, e := range table.Entries {
		if e.Fix == "" {
			continue
		}
		page := b.Fixes.Find(e.Fix).Form(b.Name).Page
		for _, cve := range e.CVE {
			if !strings.Contains(text(page), cve) {
				bad = append(bad, fmt.Sprintf("%s closes %s, and its page %q does not say so", e.Fix, cve, page))
			}
		}
	}
	return bad
}

func TestFindsSecurityFaults(t *testing.T) {
	j, err := security.Load(checkout(t).root, "")
	if err != nil {
		t.Fatal(err)
	}
	table, b := j.Table, j.Of
	table.Entries = slices.DeleteFunc(table.Entries, func(e *security.Entry) bool { return !slices.Contains(e.CVE, "CVE-2024-10220") })
	found(t, pageFaults(table, b, func(string) string { return "" }),
		"gitrepo-hardening closes CVE-2024-10220, and its page \"patches/gitrepo-hardening/README.md\"", "closes CVE-2025-1767")
}
