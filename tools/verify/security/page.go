// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/prose"
	"holdfast/tools/record/outcomes"
)

// PageFile is the page that Page writes.
const PageFile = "docs/security.md"

// VexFile is the OpenVEX document of a base, which is not committed.
func VexFile(b *base.Base) string {
	if b.Default {
		return "_output/vex.json"
	}
	return "_output/vex-" + b.Name + ".json"
}

const pageHead = `<!-- Written by make security from bases/*/vulnerabilities.json and the fixes. Edit those. -->

# Known vulnerabilities

This page covers ` + "`kubelet` and `kube-controller-manager`" + ` of this checkout, compared with stock %s. %s
The binaries of 1.2.0 close no vulnerability. For other components this page only says [what you have to do](#other-components-what-you-have-to-do).
Every vulnerability that is open in a stock kube-apiserver is also open in Holdfast's optional kube-apiserver, unless this page says otherwise.

If you are in a hurry, replace both binaries, turn on the gates in the section "Closed by a gate that is off", then read the sections about open vulnerabilities, and "Other components". %s.

` + "`holdfast test --part security`" + ` checks every reason on this page. If a row names a line, the test looks for this line in the stock tree that
` + "`make source`" + ` writes. If a row says "Not linked", the test searches the symbols of the built binaries (` + "`go tool nm`" + `).%s

`

const pageTail = `## Going back

If you replace Holdfast's binary with the stock one, all closed vulnerabilities are open again at once. Remove Holdfast's gates from the flags first: a stock binary
does not start with them. Of these fixes only [localnet-firewall](../patches/localnet-firewall/README.md) leaves something on a node, a
firewall rule. A reboot removes the rule; the page of the fix says how to remove it without a reboot. [Install](user/install.md) lists everything else that stays. Passwords
and server responses that a stock binary wrote into logs and events remain there.

[Decision 0009](decisions/0009-what-a-refusal-tells.md) lists what each fix counts, logs and shows in events. The check
[security-use](../tools/labs/checks/security-use/README.md) shows that legitimate use works as with stock, and measures the cost of the limits. ` + "`make fuzz`" + ` feeds a million generated inputs to each parser that has a fuzz test.

## Scanners

` + "`make security` also writes this page's content as an OpenVEX document for each release: %s" + `. The products are %s, with the version of the build.

` + "`make vulncheck DB=FOLDER|URL`" + ` runs govulncheck on both binaries with the database that you name, and fails on a
finding that this page does not explain. For another release than %s, add BASE. Without DB the command prints how to get a database. govulncheck helps to find vulnerabilities, but if it
finds none, that proves nothing. In a binary, govulncheck misses three kinds of code: client-go, apimachinery and the other parts of Kubernetes, which have
no version of their own here; modules whose name has changed, for example docker/spdystream; and functions that the
database does not list, for example the old prometheus.Handler.

A vulnerability that this page does not name has not been examined. This applies to most vulnerabilities of
the libraries from 2017 and 2018 that the binaries link. The standard library is that of today's Go.
`

// Page is docs/security.md. The track record's verdicts are those of record.
func Page(all []*Judged, record *outcomes.Record) string {
	var w strings.Builder
	fmt.Fprintf(&w, pageHead, each(all, " and ", func(j *Judged) string { return j.Of.Version }), each(all, " ", builds),
		each(all, ". ", counts), each(all[1:], "", func(j *Judged) string {
			return " For " + name(j) + " the part is `security-" + j.Base + "`, which `make test-all` runs."
		}))

	closed := "| vulnerability of upstream's binary | number | component | closed by |" + each(all, "", func(j *Judged) string { return " " + name(j) + ": closed since |" }) + " %s |\n|---|---|---|---|" + each(all, "", func(*Judged) string { return "---|" }) + "---|\n"
	cells := func(r *row) []string {
		e := r.any()
		return append([]string{e.What, number(e), components(e), fixLink(all, e.Fix)}, r.since(all)...)
	}
	section(&w, all, "Closed", "", []Status{Closed}, fmt.Sprintf(closed, "what stays open"), func(r *row) []string { return append(cells(r), r.any().Left) })
	section(&w, all, "Closed by a gate that is off", "The gate of this fix is off by default, because it changes what legitimate users see. Turn the gate on.", []Status{OptIn},
		fmt.Sprintf(closed, "how to turn the gate on"), func(r *row) []string { return append(cells(r), r.any().Do) })
	const open = "| release | vulnerability | number | component | what to do |\n|---|---|---|---|---|\n"
	openRow := func(r *row) []string {
		e, where := r.any(), r.lines(all, Line.String)
		if where != "" {
			where = " (" + where + ")"
		}
		return []string{r.releases(all), e.What + where, number(e), components(e), e.Do}
	}
	section(&w, all, "Open", "", []Status{Affected}, open, openRow)
	section(&w, all, "Open on purpose", "A fix would break something that legitimate users rely on.", []Status{Documented}, open, openRow)
	section(&w, all, "Not known yet", "", []Status{Unjudged}, open, openRow)
	section(&w, all, "Other components: what you have to do", "Holdfast does not change these components. No later patch release of the same minor release closes these vulnerabilities, unless the last column says so.",
		[]Status{NotOurs}, "| release | component | vulnerability | number | what to do |\n|---|---|---|---|---|\n", func(r *row) []string {
			e := r.any()
			return []string{r.releases(all), components(e), e.What, number(e), e.Do}
		})
	section(&w, all, "Not affected", "A scanner that compares versions reports these vulnerabilities. In the release that a row names, neither Holdfast's binaries nor stock binaries built with today's Go have the vulnerability.",
		[]Status{NotAffected}, "| release | number | component | what it is | why not affected |\n|---|---|---|---|---|\n", func(r *row) []string {
			e := r.any()
			return []string{r.releases(all), number(e), components(e), e.What, reason(e, r.lines(all, func(l Line) string { return fmt.Sprintf("`%s` at %s", l.Text, l) }))}
		})

	w.WriteString("## Track record\n\nEach lab tries to exploit the vulnerability in a cluster. The table shows the latest verdict of each lab\n([outcomes.json](../tools/labs/outcomes.json) records the commit of each); [the track record](evidence/track-record.md) explains the verdicts. †: the fix does nothing until you turn its gate on.\n\n" +
		"| release | number | fix | upstream | Holdfast | gate off | run it |\n|---|---|---|---|---|---|---|\n")
	var products []string
	for _, j := range all {
		for _, r := range TrackRecord(j.Table, j.Of, record) {
			fmt.Fprintf(&w, "| %s | %s | %s | %s | %s | %s | `make lab LAB=%s` |\n", name(j), strings.Join(r.IDs, ", "), r.Fix, r.Stock, r.Ours, r.GateOff, r.Lab)
		}
	}
	for _, c := range Ours {
		products = append(products, "`"+PURL(c, "VERSION")+"`")
	}
	fmt.Fprintf(&w, "\n"+pageTail, each(all, " and ", func(j *Judged) string { return "`" + VexFile(j.Of) + "` for " + name(j) }), strings.Join(products, " and "), name(all[0]))
	return fill(w.String())
}

// each joins what says returns of each base.
func each(all []*Judged, sep string, says func(*Judged) string) string {
	var out []string
	for _, j := range all {
		out = append(out, says(j))
	}
	return strings.Join(out, sep)
}

// name is how the page names a base.
func name(j *Judged) string { return strings.TrimPrefix(j.Base, "v") }

// builds says which builds have what the tables call closed.
func builds(j *Judged) string {
	if j.Of.Unreleased {
		return "Holdfast has no release for " + name(j) + " yet: every build closes the vulnerabilities that the tables show as closed for " + name(j) + "."
	}
	_, last, _ := strings.Cut(j.Of.Release, "+")
	return fmt.Sprintf("The latest release for %s is `%s`. \"After +%s\" in a row means that only builds made after that release close the vulnerability; their version continues with `.post.g…`.", name(j), j.Of.Release, last)
}

func counts(j *Judged) string {
	count := func(of ...Status) (n int) {
		for _, e := range j.Entries {
			if slices.Contains(of, e.Status) {
				n += len(e.CVE)
			}
		}
		return n
	}
	return fmt.Sprintf("For %s, %d CVE numbers are closed and %d are open", name(j), count(Closed), count(OptIn, Affected, Documented))
}

// fill breaks the lines of a page's paragraphs anew, at 100 columns. Tables, headings
// and comments stay as they are; the page has no lists and no blocks of code.
func fill(page string) string {
	blocks := strings.Split(page, "\n\n")
	for i, block := range blocks {
		if strings.Contains("|#<", block[:1]) {
			continue
		}
		if blocks[i] = strings.Join(prose.Lines(block, 100), "\n"); i == len(blocks)-1 {
			blocks[i] += "\n"
		}
	}
	return strings.Join(blocks, "\n\n")
}

// since is the release that first closed the entry.
func since(b *base.Base, e *Entry) string {
	if b.Unreleased {
		return "every build"
	}
	if now, err := releaseNumber(b.Release); err == nil && e.Since > now {
		return fmt.Sprintf("after +holdfast.%d", now)
	}
	return fmt.Sprintf("+holdfast.%d", e.Since)
}

// PURL is the package URL of one of the product's programs.
func PURL(component, release string) string {
	return "pkg:generic/" + component + "@" + strings.ReplaceAll(release, "+", "%2B")
}

// section writes the entries of some statuses as a table, and nothing if there are none.
func section(w *strings.Builder, all []*Judged, title, says string, of []Status, head string, cells func(*row) []string) {
	table := rows(all, of)
	if len(table) == 0 {
		return
	}
	fmt.Fprintf(w, "## %s\n\n", title)
	if says != "" {
		fmt.Fprintf(w, "%s\n\n", says)
	}
	w.WriteString(head)
	for _, r := range table {
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells(r), " | "))
	}
	w.WriteString("\n")
}

func number(e *Entry) string {
	if len(e.CVE) == 0 {
		return "none (" + e.Name + ")"
	}
	return strings.Join(e.CVE, ", ")
}

func components(e *Entry) string { return strings.Join(e.Components, ", ") }

func reason(e *Entry, lines string) string {
	out := e.Because
	if lines != "" {
		out += ". " + lines
	}
	if len(e.NotLinked) > 0 {
		out += ". Not linked: `" + strings.Join(e.NotLinked, "`, `") + "`"
	}
	return out
}

// fixLink is the fix, and leads to its page in the first base that has one.
func fixLink(all []*Judged, fix string) string {
	for _, j := range all {
		if s := j.Of.Fixes.Find(fix); s != nil && s.Form(j.Base) != nil && s.Form(j.Base).Page != "" {
			return fmt.Sprintf("[%s](../%s)", fix, s.Form(j.Base).Page)
		}
	}
	return fix
}

// notYet is the verdict of a lab that is not in the record.
const notYet = "not yet"

// RecordRow is one fix in the track record: what the labs that show it answered in
// the last recorded run, and the one that shows it alone.
type RecordRow struct {
	IDs                  []string
	Fix, Lab             string
	Stock, Ours, GateOff string
}

// TrackRecord has a row for each fix that closes something and has a lab.
func TrackRecord(t *Table, b *base.Base, record *outcomes.Record) []RecordRow {
	var out []RecordRow
	for _, e := range t.Entries {
		if e.Fix == "" {
			continue
		}
		if i := slices.IndexFunc(out, func(r RecordRow) bool { return r.Fix == e.Fix }); i >= 0 {
			out[i].IDs = append(out[i].IDs, e.ID())
			continue
		}
		form := b.Fixes.Find(e.Fix).Form(b.Name)
		lab := labOf(e.Fix, form)
		if lab == "" {
			continue
		}
		r := RecordRow{IDs: []string{e.ID()}, Fix: e.Fix, Lab: lab, GateOff: "no gate"}
		r.Stock, r.Ours = verdict(record, form, base.Stock), verdict(record, form, base.Ours)
		if form.Asleep() != "" {
			r.Ours += fixes.AsleepMark
		}
		if len(form.Gates) > 0 {
			r.GateOff = verdict(record, form, "ours-gate-off")
		}
		out = append(out, r)
	}
	return out
}

// verdict is what the recorded labs of a form answered in a variant.
func verdict(record *outcomes.Record, form *fixes.Form, variant base.Variant) string {
	seen := map[string]bool{}
	for lab := range form.Labs {
		if v := record.Verdict(lab, variant); v != "" {
			seen[v] = true
		}
	}
	if len(seen) == 0 {
		return notYet
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
}

// labOf is the lab of the fix's own name, or else the first by name.
func labOf(fix string, form *fixes.Form) string {
	names := slices.Sorted(maps.Keys(form.Labs))
	if slices.Contains(names, fix) {
		return fix
	}
	if len(names) == 0 {
		return ""
	}
	return names[0]
}
