// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/security"
	"holdfast/tools/internal/security/openvex"
	"holdfast/tools/labkit"
)

// TestSecurity: security.json, what is made of it, the pages of the slugs and the
// labs say the same. Its reasons are checked by the part security of make test, which
// has the stock tree and the binaries.
func TestSecurity(t *testing.T) {
	r := checkout(t)
	table, b, err := security.Load(r.root)
	if err != nil {
		t.Fatal(err)
	}
	// The gates of a lab, and so whether it runs with them off, are in the slugs.
	if err := labkit.UseTable(b.Slugs); err != nil {
		t.Fatal(err)
	}
	vex, err := openvex.Write(table, b.Release)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{security.PageFile: security.Page(table, b), security.VexFile: string(vex)} {
		if string(r.files[file]) != want {
			t.Errorf("%s is not what %s says: make security", file, security.File)
		}
	}
	if !strings.Contains(string(r.files["README.md"]), "]("+security.PageFile+")") {
		t.Errorf("README.md does not link %s", security.PageFile)
	}
	report(t, pageFaults(table, b, func(page string) string { return string(r.files[page]) }))
	report(t, recordFaults(security.Record(table, b), func(lab string, v labkit.Variant) string {
		l, err := labkit.Find(lab)
		if err != nil || !slices.Contains(l.Runs(), v) {
			return ""
		}
		return string(l.Expected(v))
	}))
}

// pageFaults: the page of a slug names each number that the slug closes.
func pageFaults(table *security.Table, b *base.Base, text func(page string) string) []string {
	var bad []string
	for _, e := range table.Entries {
		if e.Status != security.Closed {
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

// recordFaults compares the track record with what the labs must answer: a lab that
// must answer otherwise, or does not run with the gates off, is not shown as if it did.
func recordFaults(rows []security.RecordRow, expected func(lab string, v labkit.Variant) string) []string {
	var bad []string
	for _, row := range rows {
		want := map[labkit.Variant]string{labkit.Stock: security.Reproduced, labkit.Ours: security.Absent}
		if row.HasGate {
			want[labkit.GateOff] = row.GateOff
		}
		for _, v := range []labkit.Variant{labkit.Stock, labkit.Ours, labkit.GateOff} {
			if w := want[v]; w != "" && expected(row.Lab, v) != w {
				bad = append(bad, fmt.Sprintf("%s has %s in its track record by lab %s, which must answer %q and not %q in the variant %s", security.PageFile, row.Slug, row.Lab, expected(row.Lab, v), w, v))
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
	rows := []security.RecordRow{{Slug: "a", Lab: "one", GateOff: security.Reproduced, HasGate: true}, {Slug: "b", Lab: "two"}}
	answers := map[string]string{"one stock": "reproduced", "one ours": "absent", "one ours-gate-off": "reproduced", "two stock": "reproduced", "two ours": "absent"}
	ask := func(lab string, v labkit.Variant) string { return answers[lab+" "+string(v)] }
	found(t, recordFaults(rows, ask))
	answers["one ours-gate-off"], answers["two stock"] = "", "absent"
	found(t, recordFaults(rows, ask), "by lab one, which must answer \"\"", "by lab two, which must answer \"absent\"")
}
