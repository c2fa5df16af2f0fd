// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/outcomes"
	"holdfast/tools/internal/security"
	"holdfast/tools/internal/security/openvex"
)

// TestSecurity: security.json, what is made of it and the pages of the slugs say the
// same. Its reasons are checked by the part security of make test, which
// has the stock tree and the binaries.
func TestSecurity(t *testing.T) {
	r := checkout(t)
	table, b, err := security.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	record, err := outcomes.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	vex, err := openvex.Write(table, b.Release)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{security.PageFile: security.Page(table, b, record), security.VexFile: string(vex)} {
		if string(r.files[file]) != want {
			t.Errorf("%s is not what %s says: make security", file, security.File)
		}
	}
	if !strings.Contains(string(r.files["README.md"]), "]("+security.PageFile+")") {
		t.Errorf("README.md does not link %s", security.PageFile)
	}
	report(t, pageFaults(table, b, func(page string) string { return string(r.files[page]) }))
}

// pageFaults: the page of a slug names each number that the slug closes.
func pageFaults(table *security.Table, b *base.Base, text func(page string) string) []string {
	var bad []string
	for _, e := range table.Entries {
		if e.Slug == "" {
			continue
		}
		page := b.Slugs.Find(e.Slug).Form(b.Name).Page
		for _, cve := range e.CVE {
			if !strings.Contains(text(page), cve) {
				bad = append(bad, fmt.Sprintf("%s: %s closes %s, and its page %q does not say so", security.File, e.Slug, cve, page))
			}
		}
	}
	return bad
}

func TestFindsSecurityFaults(t *testing.T) {
	table, b, err := security.Load(checkout(t).root)
	if err != nil {
		t.Fatal(err)
	}
	table.Entries = table.Entries[:1]
	found(t, pageFaults(table, b, func(string) string { return "" }),
		"gitrepo-hardening closes CVE-2024-10220, and its page \"docs/patches/gitrepo-hardening.md\"", "closes CVE-2025-1767")
}
