// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/outcome"
	"holdfast/tools/build/testrepo"
	"holdfast/tools/labkit/history"
)

// lab is one that does nothing.
func lab(name string) Lab {
	return Lab{Name: name, Summary: "s", Steps: func(*Env) []Step { return nil },
		Oracle: Oracle{Text: []string{"nothing"}, Judge: func(*history.History) Outcome { return Outcome{} }}}
}

// TestNamed: a name is a lab's, else a folder's.
func TestNamed(t *testing.T) {
	var ls Labs
	for _, l := range []Lab{{Name: "rv"}, {Name: "rv-old", Folder: "rv"}, {Name: "hash-a", Folder: "hash"}, {Name: "hash-b", Folder: "hash"}, {Name: "hash-v1.2.0"}, {Name: "fine", Folder: "checks/all"}} {
		ls = append(ls, &l)
	}
	for _, c := range []struct{ in, want []string }{
		{[]string{"rv"}, []string{"rv"}},
		{[]string{"hash"}, []string{"hash-a", "hash-b"}},
		{[]string{"all", "hash-v1.2.0"}, []string{"fine", "hash-v1.2.0"}},
	} {
		var got []string
		labs, err := ls.Named(c.in)
		for _, l := range labs {
			got = append(got, l.Name)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("Named(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
	if _, err := ls.Named([]string{"rv-old", "nosuch"}); exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), `no lab "nosuch"; there are: rv, rv-old, hash-a`) {
		t.Error(err)
	}
}

func TestNewLabs(t *testing.T) {
	b := lab("b")
	b.Folder = "checks/b"
	of := func(labs map[string][]string, all ...Lab) (Labs, error) {
		return NewLabs(all, &fixes.Table{Fixes: []*fixes.Fix{{Name: "x", Kind: fixes.Own,
			Forms: []*fixes.Form{testrepo.Form("v1.9.11", map[string]bool{"G": true, "H": false}, labs)}}}})
	}
	ls, err := of(map[string][]string{"a": {"H", "G"}}, b, lab("a"))
	if err != nil || len(ls) != 2 || ls[0].Name != "a" {
		t.Fatal(ls, err)
	}
	if a := ls.Find("a"); strings.Join(a.Gates(), " ") != "G H" || len(a.Runs()) != 3 || len(ls.Find("b").Runs()) != 2 || ls.Find("c") != nil {
		t.Errorf("%+v", a)
	}
	if _, err := of(nil, lab("a"), b); exit.Code(err) != 1 || !strings.Contains(err.Error(), "no fix has the lab a") {
		t.Error(err)
	}
	if _, err := of(map[string][]string{"a": nil, "c": nil}, lab("a"), b); exit.Code(err) != 1 || !strings.Contains(err.Error(), "patches/x/fix.json names the lab c") {
		t.Error(err)
	}
	if _, err := of(map[string][]string{"a": nil}, lab("a"), b, b); err == nil || !strings.Contains(err.Error(), "there are two labs b") {
		t.Error(err)
	}
	if _, err := of(nil, lab("B")); err == nil || !strings.Contains(err.Error(), "Name must be") {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	ok := lab("a-b")
	if err := ok.validate(); err != nil {
		t.Error(err)
	}
	for want, f := range map[string]func(*Lab){
		"Name must be":      func(l *Lab) { l.Name = "A" },
		"Summary must be":   func(l *Lab) { l.Summary = "a\nb" },
		"Steps are missing": func(l *Lab) { l.Steps = nil },
		"Oracle is missing": func(l *Lab) { l.Oracle.Judge = nil },
		"has no Expect":     func(l *Lab) { l.Variants = []Variant{"x"} },
	} {
		l := ok
		f(&l)
		if err := l.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestExpectedAndVariants(t *testing.T) {
	l := Lab{}
	if l.Expected(Stock) != Reproduced || l.Expected(Ours) != Absent || l.Expected(GateOff) != Reproduced {
		t.Error("defaults")
	}
	if n := len(l.Runs()); n != 2 {
		t.Errorf("%d variants without gates", n)
	}
	for v, want := range map[Variant]Verdict{"ours -a": Reproduced, "ours -b": Absent, "ours -a -b": Reproduced, "stock -a": "", "x": ""} {
		l := Lab{fixes: []string{"a"}}
		if got := l.Expected(v); got != want {
			t.Errorf("%s: %q, want %q", v, got, want)
		}
	}
	l = Lab{gates: []string{"X", "Y"}, Expect: map[Variant]Verdict{Stock: Absent}}
	if l.Expected(Stock) != Absent || l.Expected(Ours) != Absent || len(l.Runs()) != 3 {
		t.Error("overridden")
	}
	e := &Env{Lab: &l, Variant: GateOff, Bins: &Binaries{Dir: "/b"}}
	p := e.UnderTest("v1.9.11", "kubelet")
	if got := strings.Join(p.GateArgs(), " "); got != "--feature-gates=X=false,Y=false" || p.Path != "/b/v1.9.11/ours/kubelet" {
		t.Errorf("%+v %s", p, got)
	}
	if p = e.Stock("v1.8.15", "kubelet"); len(p.GateArgs()) != 0 || p.Path != "/b/v1.8.15/stock/kubelet" || p.Minor() != 8 || p.NodeController() != "node" {
		t.Errorf("%+v", p)
	}
	if p = e.Stock("v1.12.10", "kube-controller-manager"); p.NodeController() != "nodelifecycle" {
		t.Errorf("%+v", p)
	}
	e.Variant = Ours
	if p = e.UnderTest("v1.9.11", "kubelet").WithGates(map[string]bool{"Z": true}); strings.Join(p.GateArgs(), "") != "--feature-gates=Z=true" {
		t.Errorf("%+v", p)
	}
}

func TestBinaries(t *testing.T) {
	t.Setenv("HOLDFAST_BIN_DIR", "")
	t.Setenv("HOLDFAST_BIN_MAP", "v1.9.11/stock=/env")
	b, err := NewBinaries("/repo", []string{"v1.9.11/ours/kubelet=/k", "v1.8.15/stock=/old"})
	if err != nil {
		t.Fatal(err)
	}
	for bin, want := range map[Binary]string{
		{"v1.9.11", "stock", "kubelet"}: "/env/kubelet",
		{"v1.9.11", "ours", "kubelet"}:  "/k",
		{"v1.9.11", "ours", "kcm"}:      "/repo/_output/bin/v1.9.11/ours/kcm",
		{"v1.8.15", "stock", "kubelet"}: "/old/kubelet",
	} {
		if got := b.Path(bin); got != want {
			t.Errorf("%v: %s, want %s", bin, got, want)
		}
	}
	err = b.Check([]Binary{{"v1.9.11", "ours", "kubelet"}})
	if err == nil || !strings.Contains(err.Error(), "/k (v1.9.11/ours/kubelet)") {
		t.Errorf("got %v", err)
	}
	t.Setenv("HOLDFAST_BIN_DIR", "/elsewhere")
	if b, err = NewBinaries("/repo", nil); err != nil || b.Path(Binary{"v1", "ours", "x"}) != "/elsewhere/v1/ours/x" {
		t.Errorf("%v %v", b, err)
	}
	for _, bad := range []string{"x", "x=y", "a/b/c/d=e", "a/b="} {
		if _, err := NewBinaries("/repo", []string{bad}); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

func TestMeasure(t *testing.T) {
	r := AbsentBecause("all is well")
	r.Measure("requests", 7, "")
	r.Measure("gap", 0.5, "s")
	if want := []outcome.Number{{Name: "requests", Value: 7}, {Name: "gap", Value: 0.5, Unit: "s"}}; !slices.Equal(r.Numbers, want) {
		t.Errorf("numbers %v, want %v", r.Numbers, want)
	}
}

// TestOnBase: the lab of another base has its folder, runs what the lab runs, and is not in make test.
func TestOnBase(t *testing.T) {
	of := func(base string) Lab {
		return Lab{Name: "smoke", Folder: "checks/smoke", Summary: "all works", Test: []Variant{Ours}, Needs: ManagerNeeds(base)}
	}
	l := OnBase(of, "v1.12.10")
	if l.Name != "smoke-v1.12.10" || l.Path() != "checks/smoke" || l.Summary != "all works, at 1.12" || !slices.Equal(l.Runs(), []Variant{Stock, Ours}) || len(l.Test) > 0 || l.Needs[0].Base != "v1.12.10" {
		t.Errorf("%+v", l)
	}
	if l := OnBase(func(string) Lab { return Lab{Name: "a"} }, "v1.12.10"); l.Path() != "a" {
		t.Errorf("%+v", l)
	}
}
