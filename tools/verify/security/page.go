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

// PageFile is the page that Page writes, VexFile the OpenVEX document, which is not committed.
const (
	PageFile = "docs/security.md"
	VexFile  = "_output/vex.json"
)

const pageHead = `<!-- Written by make security from bases/%s/vulnerabilities.json and the fixes. Edit those. -->

# Known vulnerabilities

This page covers ` + "`kubelet` and `kube-controller-manager` of this checkout, whose latest release is `%s`" + `, compared with stock %s.
A row that says "after +%s" is fixed only in builds made after that release, whose version continues with ` + "`.post.g…`" + `. The binaries of 1.2.0 close no vulnerability. For other components this page only says [what you have to do](#other-components-what-you-have-to-do).
Every vulnerability that is open in a stock kube-apiserver is also open in the optional one, unless this page says otherwise.

If you are in a hurry, replace both binaries, turn on the gates below that are off, then read which vulnerabilities are still open, and "Other components". CVE numbers closed: %d, open: %d.

` + "`holdfast test --part security`" + ` checks every reason on this page. If a row names a line, the test looks for this line in the stock tree that
` + "`make source`" + ` writes. If a row says "Not linked", the test searches the symbols of the built binaries (` + "`go tool nm`" + `).

`

const pageTail = `## Going back

If you replace Holdfast's binary with the stock one, all closed vulnerabilities are open again at once. Remove Holdfast's gates from the flags first: a stock binary
does not start with them. Of these fixes only [localnet-firewall](../patches/localnet-firewall/README.md) leaves something on a node, a
firewall rule. A reboot removes the rule; the page of the fix says how to remove it without a reboot. [Install](user/install.md) lists everything else that stays. Passwords
and server responses that a stock binary wrote into logs and events remain there.

[Decision 0009](decisions/0009-what-a-refusal-tells.md) lists what each fix counts, logs and shows in events. The check
[security-use](../tools/labs/checks/security-use/README.md) shows that legitimate use works as with stock, and measures the cost of the limits; ` + "`make fuzz`" + ` feeds a million generated inputs to each parser that has a fuzz test.

## Scanners

` + "`make security` also writes this page's content as an OpenVEX document, `_output/vex.json`" + `. Its products are %s, with the version of the build.

` + "`make vulncheck DB=FOLDER|URL`" + ` runs govulncheck on both binaries with the database that you name, and fails on a
finding that this page does not explain. Without DB the command prints how to get a database. govulncheck helps to find vulnerabilities, but if it
finds none, that proves nothing. In a binary, govulncheck misses three kinds of code: client-go, apimachinery and the other parts of Kubernetes, which have
no version of their own here; modules whose name has changed, for example docker/spdystream; and functions that the
database does not list, for example the old prometheus.Handler.

A vulnerability that this page does not name has not been examined. This applies to most vulnerabilities of
the libraries from 2017 and 2018 that the binaries link. The standard library is that of today's Go.
`

// Page is docs/security.md. The track record's verdicts are those of record.
func Page(t *Table, b *base.Base, record *outcomes.Record) string {
	var w strings.Builder
	count := func(s Status) (n int) {
		for _, e := range t.Entries {
			if e.Status == s {
				n += len(e.CVE)
			}
		}
		return n
	}
	_, last, _ := strings.Cut(b.Release, "+")
	fmt.Fprintf(&w, pageHead, b.Name, b.Release, b.Version, last, count(Closed), count(OptIn)+count(Affected)+count(Documented))

	section(&w, t, "Closed", "", []Status{Closed}, "| what an attacker can do with upstream's binary | number | component | closed by | since | what stays open |\n|---|---|---|---|---|---|\n", func(e *Entry) []string {
		return []string{e.What, number(e), components(e), fixLink(b, e.Fix), since(b, e), e.Left}
	})
	section(&w, t, "Closed by a gate that is off", "The gate of this fix is off by default, because it changes what legitimate users see. Turn the gate on.", []Status{OptIn},
		"| what an attacker can do | number | component | closed by | since | how |\n|---|---|---|---|---|---|\n", func(e *Entry) []string {
			return []string{e.What, number(e), components(e), fixLink(b, e.Fix), since(b, e), e.Do}
		})
	const open = "| what an attacker can do | number | component | until it is closed |\n|---|---|---|---|\n"
	row := func(e *Entry) []string { return []string{e.What + where(e), number(e), components(e), e.Do} }
	section(&w, t, "Open", "", []Status{Affected}, open, row)
	section(&w, t, "Open on purpose", "A fix would break something that legitimate users rely on.", []Status{Documented}, open, row)
	section(&w, t, "Not known yet", "", []Status{Unjudged}, open, row)
	section(&w, t, "Other components: what you have to do", "Holdfast does not change these components. No 1.9 release closes these vulnerabilities, unless the last column says so.",
		[]Status{NotOurs}, "| component | what an attacker can do | number | what to do |\n|---|---|---|---|\n", func(e *Entry) []string {
			return []string{components(e), e.What, number(e), e.Do}
		})
	section(&w, t, "Not affected", "A scanner that compares versions reports these vulnerabilities. Neither Holdfast nor stock "+b.Version+" has them.",
		[]Status{NotAffected}, "| number | component | what it is | why not affected |\n|---|---|---|---|\n", func(e *Entry) []string {
			return []string{number(e), components(e), e.What, reason(e)}
		})

	w.WriteString("## Track record\n\nEach lab tries to exploit the vulnerability in a cluster. The table shows the latest verdict of each lab\n([outcomes.json](../tools/labs/outcomes.json) records the commit of each); [the track record](evidence/track-record.md) explains the verdicts. †: the fix does nothing until you turn its gate on.\n\n" +
		"| number | fix | upstream | Holdfast | gate off | run it |\n|---|---|---|---|---|---|\n")
	for _, r := range TrackRecord(t, b, record) {
		fmt.Fprintf(&w, "| %s | %s | %s | %s | %s | `make lab LAB=%s` |\n", strings.Join(r.IDs, ", "), r.Fix, r.Stock, r.Ours, r.GateOff, r.Lab)
	}
	var products []string
	for _, c := range Ours {
		products = append(products, "`"+PURL(c, "VERSION")+"`")
	}
	fmt.Fprintf(&w, "\n"+pageTail, strings.Join(products, " and "))
	return fill(w.String())
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

func fixLink(b *base.Base, fix string) string {
	s := b.Fixes.Find(fix)
	if s == nil || s.Form(b.Name) == nil || s.Form(b.Name).Page == "" {
		return fix
	}
	return fmt.Sprintf("[%s](%s)", fix, "../"+s.Form(b.Name).Page)
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
