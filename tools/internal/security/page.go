// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/slugs"
)

// PageFile is the page that Page writes, VexFile the OpenVEX document.
const (
	PageFile = "docs/security.md"
	VexFile  = "vex.json"
)

const pageHead = `<!-- Written by make security from security.json. Edit that. -->
# Known vulnerabilities

This is about ` + "`kubelet` and `kube-controller-manager` %s" + `, against stock %s. For 1.2.0 nothing is closed.
Nothing is said of other components but what [you have to do there](#not-ours-what-you-have-to-do).

In a hurry: swap both binaries, then go through "open" and "not ours". %d numbers are closed, %d stay open.

Every reason on this page is checked by ` + "`holdfast test --part security`" + `: a line against the stock tree that
` + "`make source`" + ` writes, "not linked" against the symbols of the built binaries (` + "`go tool nm`" + `).

`

const pageTail = `## Going back

A stock binary in ours' place has all of it open again, at once. One thing is left of ours on a node: the firewall rule of
[localnet-firewall](patches/localnet-firewall.md), until the node is rebooted; its page says how to take it away. Nothing else
is written anywhere. A stock binary does not start with a gate of ours in its flags: take them out first. Passwords and
answers that stand in a stock binary's old logs and events stay there.

What each fix counts, logs and shows in events: [decision 0009](decisions/0009-what-a-refusal-tells.md).

## Scanners

[vex.json](../vex.json) says the same as an OpenVEX document. Its products are %s.

` + "`make vulncheck DB=FOLDER|URL`" + ` runs govulncheck on both binaries with the database that you name, and fails on a
finding that ` + "`security.json`" + ` does not explain. Without DB it says how to get one. It is a help and no gate. In a binary
it does not see: client-go, apimachinery and the other parts of Kubernetes, which have no version of their own here;
modules that changed their name, for example docker/spdystream; a function that is reached by another way than the database says,
for example the old prometheus.Handler.

What neither this page nor vex.json names has not been judged. That is so for most vulnerabilities of the libraries of 2017
and 2018 that the binaries link. Go's own library is today's.
`

// Page is docs/security.md. The track record's answers are those that labs must
// give; a rule of the repository compares them with the labs.
func Page(t *Table, b *base.Base) string {
	var w strings.Builder
	count := func(s Status) (n int) {
		for _, e := range t.Entries {
			if e.Status == s {
				n += len(e.CVE)
			}
		}
		return n
	}
	fmt.Fprintf(&w, pageHead, b.Release, b.Version, count(Closed), count(Affected)+count(Documented))

	section(&w, t, "Closed", "", []Status{Closed}, "| what somebody can do on stock | number | component | closed by | since | what stays |\n|---|---|---|---|---|---|\n", func(e *Entry) []string {
		return []string{e.What, number(e), components(e), slugLink(b, e.Slug), fmt.Sprintf("+holdfast.%d", e.Since), e.Left}
	})
	const open = "| what somebody can do | number | component | until it is closed |\n|---|---|---|---|\n"
	row := func(e *Entry) []string { return []string{e.What + where(e), number(e), components(e), e.Do} }
	section(&w, t, "Open", "", []Status{Affected}, open, row)
	section(&w, t, "Open on purpose", "To close these would take something from a legitimate user.", []Status{Documented}, open, row)
	section(&w, t, "Not known yet", "", []Status{Unjudged}, open, row)
	section(&w, t, "Not ours: what you have to do", "Ours does not change these components, and no release of 1.9 closes these but where it says so.",
		[]Status{NotOurs}, "| component | what somebody can do | number | what to do |\n|---|---|---|---|\n", func(e *Entry) []string {
			return []string{components(e), e.What, number(e), e.Do}
		})
	section(&w, t, "Not affected", "A scanner that goes by the version reports these. They are not in stock "+b.Version+" either.",
		[]Status{NotAffected}, "| number | component | what it is | why not |\n|---|---|---|---|\n", func(e *Entry) []string {
			return []string{number(e), components(e), e.What, reason(e)}
		})

	w.WriteString("## Track record\n\nEach lab tries the vulnerability in a cluster; *reproduced* and *absent* are explained in [README](../README.md#track-record).\n\n" +
		"| number | slug | stock | ours | ours, gate off | run it |\n|---|---|---|---|---|---|\n")
	for _, r := range Record(t, b) {
		fmt.Fprintf(&w, "| %s | %s | %s | %s | %s | `make lab LAB=%s` |\n", strings.Join(r.IDs, ", "), r.Slug, Reproduced, Absent, r.GateOff, r.Lab)
	}
	var products []string
	for _, c := range Ours {
		products = append(products, "`"+PURL(c, b.Release)+"`")
	}
	fmt.Fprintf(&w, "\n"+pageTail, strings.Join(products, " and "))
	return w.String()
}

// PURL is the package URL of one of the product's programs.
func PURL(component, release string) string {
	return "pkg:generic/" + component + "@" + strings.ReplaceAll(release, "+", "%2B")
}

// section writes the entries of some statuses as a table, and nothing if there are none.
func section(w *strings.Builder, t *Table, title, says string, of []Status, head string, row func(*Entry) []string) {
	var rows []string
	for _, e := range t.Entries {
		if slices.Contains(of, e.Status) {
			rows = append(rows, "| "+strings.Join(row(e), " | ")+" |\n")
		}
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "## %s\n\n", title)
	if says != "" {
		fmt.Fprintf(w, "%s\n\n", says)
	}
	fmt.Fprintf(w, "%s%s\n", head, strings.Join(rows, ""))
}

func number(e *Entry) string {
	if len(e.CVE) == 0 {
		return "none (" + e.Name + ")"
	}
	return strings.Join(e.CVE, ", ")
}

func components(e *Entry) string { return strings.Join(e.Components, ", ") }

func where(e *Entry) string {
	if e.Line == nil {
		return ""
	}
	return " (" + e.Line.String() + ")"
}

func reason(e *Entry) string {
	out := e.Because
	if e.Line != nil {
		out += fmt.Sprintf(". `%s` at %s", e.Line.Text, e.Line)
	}
	if len(e.NotLinked) > 0 {
		out += ". Not linked: `" + strings.Join(e.NotLinked, "`, `") + "`"
	}
	return out
}

func slugLink(b *base.Base, slug string) string {
	s := b.Slugs.Find(slug)
	if s == nil || s.Form(b.Name) == nil || s.Form(b.Name).Page == "" {
		return slug
	}
	return fmt.Sprintf("[%s](%s)", slug, strings.TrimPrefix(s.Form(b.Name).Page, "docs/"))
}

// The answers of labs, as labkit has them.
const (
	Reproduced = "reproduced"
	Absent     = "absent"
	noGate     = "no gate"
)

// RecordRow is one slug in the track record: a lab answers Reproduced on stock,
// Absent on ours and GateOff with the gates off.
type RecordRow struct {
	IDs       []string
	Slug, Lab string
	GateOff   string
	HasGate   bool
}

// Record has a row for each slug that closes something and has a lab.
func Record(t *Table, b *base.Base) []RecordRow {
	var out []RecordRow
	for _, e := range t.Entries {
		if e.Status != Closed {
			continue
		}
		if i := slices.IndexFunc(out, func(r RecordRow) bool { return r.Slug == e.Slug }); i >= 0 {
			out[i].IDs = append(out[i].IDs, e.ID())
			continue
		}
		form := b.Slugs.Find(e.Slug).Form(b.Name)
		lab := labOf(e.Slug, form)
		if lab == "" {
			continue
		}
		r := RecordRow{IDs: []string{e.ID()}, Slug: e.Slug, Lab: lab, GateOff: noGate}
		if r.HasGate = len(form.Labs[lab]) > 0; r.HasGate {
			r.GateOff = Reproduced
		}
		out = append(out, r)
	}
	return out
}

// labOf is the lab of the slug's own name, or else the first by name.
func labOf(slug string, form *slugs.Form) string {
	names := slices.Sorted(maps.Keys(form.Labs))
	if slices.Contains(names, slug) {
		return slug
	}
	if len(names) == 0 {
		return ""
	}
	return names[0]
}
