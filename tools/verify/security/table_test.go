// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/outcome"
	"holdfast/tools/build/testrepo"
	"holdfast/tools/record/outcomes"
)

const open = `{
  "updated": "2026-01-01T00:00:00Z", "version": 1,
  "entries": [
    {"cve": ["CVE-2020-0002", "CVE-2020-0003"], "components": ["kube-controller-manager"], "what": "leaks", "status": "affected", "do": "wait"},
    {"cve": ["CVE-2020-0004"], "components": ["kubelet"], "what": "none", "status": "not-affected", "because": "fixed",
     "line": {"file": "pkg/a.go", "line": 2, "text": "repaired"}},
    {"cve": ["CVE-2020-0005"], "components": ["kubelet", "kube-controller-manager"], "what": "none", "status": "not-affected", "because": "not there", "notLinked": ["example.com/dns"]},
    {"cve": ["CVE-2020-0005"], "components": ["kube-proxy"], "what": "forwards", "status": "not-ours", "do": "block"}
  ]
}`

// closed is what the fixes fixed and asked close.
const closed = `{"cve": ["CVE-2020-0001"], "components": ["kubelet"], "what": "breaks", "since": {"v1": 2}}
{"name": "no-number", "components": ["kubelet"], "what": "breaks too", "since": {"v1": 1}, "left": "little"}
{"cve": ["CVE-2020-0006"], "components": ["kubelet"], "what": "waits", "since": {"v1": 2}, "left": "ask for A"}`

func table(closed string) *fixes.Table {
	of := func(name string, kind fixes.Kind, base string, gates map[string]bool, labs map[string][]string) *fixes.Fix {
		f := testrepo.Form(base, gates, labs)
		f.Page = "patches/" + name + "/README.md"
		return &fixes.Fix{Name: name, Kind: kind, Components: []string{"kubelet"}, Forms: []*fixes.Form{f}}
	}
	fixed := of("fixed", fixes.Security, "v1", map[string]bool{"G": true}, map[string][]string{"all": {"G"}, "fixed": {"G"}})
	asked := of("asked", fixes.Security, "v1", map[string]bool{"A": false}, nil)
	lines := strings.Split(closed, "\n")
	for _, l := range lines[:len(lines)-1] {
		fixed.Vulnerabilities = append(fixed.Vulnerabilities, json.RawMessage(l))
	}
	asked.Vulnerabilities = []json.RawMessage{json.RawMessage(lines[len(lines)-1])}
	return &fixes.Table{Fixes: []*fixes.Fix{fixed, asked, of("plain", fixes.Own, "v1", nil, nil), of("elsewhere", fixes.Security, "v2", nil, nil)}}
}

func parse(t *testing.T) (*Table, *base.Base) {
	t.Helper()
	b := &base.Base{Name: "v1", Version: "v1", Release: "v1+holdfast.2", Fixes: table(closed)}
	got, err := New([]byte(open), b.Fixes, b.Name)
	if err != nil {
		t.Fatal(err)
	}
	return got, b
}

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct{ old, new, says string }{
		{`"CVE-2020-0001"`, `"2020-0001"`, `patches/fixed/fix.json: 2020-0001: "2020-0001" is no CVE number`},
		{`"no-number"`, `"No number"`, "is no CVE number, and no name"},
		{`"name": "no-number", `, ``, `patches/fixed/fix.json: entry 2 has neither "cve" nor "name"`},
		{`"since": {"v1": 2}, "left": "ask for A"`, `"status": "closed", "since": {"v1": 2}`, `it has a "status"`},
		{`"since": {"v1": 2}, "left": "ask for A"`, `"fix": "fixed", "since": {"v1": 2}`, "patches/asked/fix.json: vulnerability 1"},
		{`{"v1": 2}, "left": "ask for A"`, `{"v1": 2, "v2": 1}, "left": "ask for A"`, `patches/asked/fix.json: CVE-2020-0006: "since" names base v2, which does not have the fix`},
		{`"CVE-2020-0003"`, `"CVE-2020-0002"`, "CVE-2020-0002 has two entries for kube-controller-manager"},
		{`"affected", "do": "wait"`, `"affected"`, `it is "affected" and has no "do"`},
		{`"affected", "do": "wait"`, `"closed", "since": {"v1": 1}`, "what a fix closes stands in its fix.json"},
		{`"affected", "do"`, `"hope", "do"`, `"status" is "hope"`},
		{`, "since": {"v1": 2}}`, `}`, `it is "closed" and has no "since"`},
		{`"status": "affected", "do": "wait"`, `"status": "affected", "do": "wait", "since": {"v1": 1}`, `it is "affected" and has a "since"`},
		{`"because": "not there", "notLinked": ["example.com/dns"]`, `"because": "I say so"`, "a reason that can be checked is missing"},
		{`"example.com/dns"`, `"dns"`, "too short"},
		{`"line": 2`, `"line": 0`, `"line" wants a file`},
		{`"pkg/a.go"`, `"/pkg/a.go"`, `"line" wants a file`},
		{`["kube-proxy"]`, `["kubelet"]`, `CVE-2020-0005 has two entries for kubelet`},
		{`["kube-proxy"], "what": "forwards", "status": "not-ours"`, `["kube-proxy"], "what": "forwards", "status": "affected"`, "has another than"},
		{`"components": ["kube-controller-manager"], "what": "leaks", "status": "affected"`, `"components": ["kubelet"], "what": "x", "status": "not-ours"`, `"components" has one of`},
		{`"what": "leaks"`, `"what": ""`, `"what" and "components" must be there`},
		{`"version": 1`, `"version": 0`, "must be there"},
		{open, `{"updated": "2026-01-01T00:00:00Z", "version": 1, "entries": []}`, `"entries" must be there`},
		{`"what": "leaks"`, `"why": "leaks"`, "unknown field"},
	} {
		o, c := strings.Replace(open, tc.old, tc.new, 1), strings.Replace(closed, tc.old, tc.new, 1)
		if o == open && c == closed {
			t.Fatalf("neither has %s", tc.old)
		}
		_, err := New([]byte(o), table(c), "v1")
		if exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.new, err, tc.says)
		}
	}
	if _, err := New([]byte(open+"{}"), table(closed), "v1"); err == nil || !strings.Contains(err.Error(), File("v1")) {
		t.Error("two values are taken")
	}
}

func TestFixFaults(t *testing.T) {
	got, b := parse(t)
	if bad := got.FixFaults(b); len(bad) > 0 {
		t.Error(bad)
	}
	for _, tc := range []struct {
		change func()
		says   string
	}{
		{func() { got.Entries[0].Since = 4 }, "since +holdfast.4 of base v1, whose next release is +holdfast.3"},
		{func() { got.Entries[0].Since = 3; b.Unreleased = true }, "since +holdfast.3 of base v1, whose next release is +holdfast.2"},
		{func() { got.Entries[0].Components = []string{"kube-controller-manager"} }, `CVE-2020-0001 is closed in kube-controller-manager`},
		{func() { got.Entries[2].Left = "ask" }, `patches/asked/fix.json: CVE-2020-0006 is closed by a fix whose gate A is off by default`},
		{func() { got.Entries = got.Entries[2:] }, "patches/fixed/fix.json: it closes nothing"},
		{func() { b.Release = "v1" }, "does not end with +holdfast.N"},
	} {
		got, b = parse(t)
		tc.change()
		if bad := strings.Join(got.FixFaults(b), "\n"); !strings.Contains(bad, tc.says) {
			t.Errorf("%q, want %q", bad, tc.says)
		}
	}
}

// TestUnanswered: each table judges what another one judges for the same program.
func TestUnanswered(t *testing.T) {
	a, _ := parse(t)
	b, _ := parse(t)
	b.Base = "v2"
	both := []*Judged{{Table: a}, {Table: b}}
	if bad := unanswered(both); len(bad) > 0 {
		t.Error(bad)
	}
	for i, says := range map[int][]string{
		0: {"bases/v1/vulnerabilities.json judges CVE-2020-0001 for kubelet, and neither bases/v2/vulnerabilities.json"},
		1: {"judges no-number for kubelet"},
		3: {"judges CVE-2020-0002 for kube-controller-manager", "judges CVE-2020-0003 for kube-controller-manager"},
		6: nil, // kube-proxy is not of the product
	} {
		b.Entries = append(slices.Clone(a.Entries[:i]), a.Entries[i+1:]...)
		bad := unanswered(both)
		if len(bad) != len(says) {
			t.Errorf("without entry %d: %q", i, bad)
			continue
		}
		for k := range says {
			if !strings.Contains(bad[k], says[k]) {
				t.Errorf("without entry %d: %q, want %q", i, bad[k], says[k])
			}
		}
	}
	b.Entries = slices.Clone(a.Entries)
	e := *b.Entries[5]
	e.Components = []string{"kubelet"}
	b.Entries[5] = &e
	if bad := unanswered(both); len(bad) != 1 || !strings.Contains(bad[0], "judges CVE-2020-0005 for kube-controller-manager") {
		t.Errorf("one of two components: %q", bad)
	}
}

func TestCheckLines(t *testing.T) {
	got, _ := parse(t)
	tree := t.TempDir()
	if _, bad := got.CheckLines(tree); len(bad) != 1 || !strings.Contains(bad[0], "the stock tree has no pkg/a.go") {
		t.Error(bad)
	}
	if err := os.Mkdir(filepath.Join(tree, "pkg"), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, says := range map[string]string{
		"one\nis repaired\n":   "",
		"is repaired\none\n":   `pkg/a.go:2 does not have "repaired"; it is in the lines [1]`,
		"one\ntwo\nrepaired\n": "in the lines [3]",
		"one":                  "in the lines []",
	} {
		if err := os.WriteFile(filepath.Join(tree, "pkg/a.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		ok, bad := got.CheckLines(tree)
		if (says == "") != (ok == 1 && len(bad) == 0) || !strings.Contains(strings.Join(bad, ""), says) {
			t.Errorf("%q: %d, %q, want %q", text, ok, bad, says)
		}
	}
}

func TestCheckSymbols(t *testing.T) {
	got, _ := parse(t)
	names := map[string][]string{"kubelet": {"main.main", "example.com/dnsx"}, "kube-controller-manager": {"main.main"}}
	symbols := func(c string) ([]string, error) { return names[c], nil }
	ok, bad, err := got.CheckSymbols(symbols)
	if err != nil || ok != 1 || len(bad) != 1 || !strings.Contains(bad[0], "example.com/dns is linked into kubelet: it has the symbol example.com/dnsx") {
		t.Error(ok, bad, err)
	}
	names["kubelet"] = nil
	if ok, bad, err := got.CheckSymbols(symbols); ok != 2 || len(bad) > 0 || err != nil {
		t.Error(ok, bad, err)
	}
	if _, _, err := got.CheckSymbols(func(string) ([]string, error) { return nil, errors.New("no nm") }); err == nil {
		t.Error("a program that cannot be read is taken for one without symbols")
	}
}

// TestSymbols: a program whose symbols cannot be told, or are too few, is no proof.
func TestSymbols(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	small := filepath.Join(dir, "small")
	if out, err := exec.Command("go", "build", "-o", small, filepath.Join(dir, "main.go")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for program, says := range map[string]string{small: "symbols and main.main: true", filepath.Join(dir, "main.go"): "go tool nm", filepath.Join(dir, "gone"): "is it built"} {
		if _, err := Symbols(program); exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", program, err, says)
		}
	}
}

func TestPage(t *testing.T) {
	got, b := parse(t)
	record := &outcomes.Record{Outcomes: []outcome.Outcome{{Lab: "all", Variant: base.Stock, Verdict: "reproduced"}, {Lab: "all", Variant: base.Ours, Verdict: "absent"}}}
	got.findOptIn(b.Fixes)
	got.Entries[1].Since = 3 // the next release
	page := Page([]*Judged{{got, b}}, record)
	for _, want := range []string{
		"For 1, 1 CVE numbers are closed and 3 are open.",
		"| breaks | CVE-2020-0001 | kubelet | [fixed](../patches/fixed/README.md) | +holdfast.2 |  |\n",
		"| breaks too | none (no-number) | kubelet | [fixed](../patches/fixed/README.md) | after +holdfast.2 | little |\n",
		"| waits | CVE-2020-0006 | kubelet | [asked](../patches/asked/README.md) | +holdfast.2 | ask for A |\n",
		"| 1 | leaks | CVE-2020-0002, CVE-2020-0003 | kube-controller-manager | wait |\n",
		"| 1 | CVE-2020-0004 | kubelet | none | fixed. `repaired` at pkg/a.go:2 |\n",
		"| none | not there. Not linked: `example.com/dns` |\n",
		"| 1 | kube-proxy | forwards | CVE-2020-0005 | block |\n",
		"| 1 | CVE-2020-0001, no-number | fixed | reproduced | absent | not yet | `make lab LAB=fixed` |\n",
		"`pkg:generic/kubelet@VERSION`",
	} {
		if !strings.Contains(strings.ReplaceAll(page, "\n", " "), strings.ReplaceAll(want, "\n", " ")) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "Not known yet") {
		t.Error("a section without entries is written")
	}
	b.Fixes.Fixes[0].Forms[0].Labs, b.Fixes.Fixes[0].Forms[0].Gates = map[string][]string{"z": nil, "b": nil}, nil
	record.Put(outcome.Outcome{Lab: "z", Variant: base.Stock, Verdict: "reproduced"})
	if r := TrackRecord(got, b, record); len(r) != 1 || r[0].Lab != "b" || r[0].Stock != "reproduced" || r[0].Ours != notYet || r[0].GateOff != "no gate" {
		t.Errorf("%+v", r)
	}
}
