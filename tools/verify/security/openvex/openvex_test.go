// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package openvex

import (
	"fmt"
	"testing"
	"time"

	"github.com/openvex/go-vex/pkg/vex"

	"holdfast/tools/verify/security"
)

func TestWrite(t *testing.T) {
	entry := func(cve string, s security.Status, change func(*security.Entry), components ...string) *security.Entry {
		e := &security.Entry{CVE: []string{cve}, What: "w", Status: s, Components: components}
		change(e)
		return e
	}
	const k, c = "kubelet", "kube-controller-manager"
	table := &security.Table{Base: "v1", Version: 3, Updated: time.Unix(0, 0), Entries: []*security.Entry{
		entry("CVE-1-0001", security.Closed, func(e *security.Entry) { e.Fix, e.Since, e.Left = "a", 2, "much" }, k),
		entry("CVE-1-0002", security.Affected, func(e *security.Entry) { e.Do, e.Module = "pray", "m/n" }, k, c),
		entry("CVE-1-0003", security.NotAffected, func(e *security.Entry) {
			e.Because, e.Line = "none", &security.Line{File: "f.go", Line: 7, Text: "text"}
		}, c),
		entry("CVE-1-0004", security.Unjudged, func(e *security.Entry) {}, k),
		entry("CVE-1-0006", security.NotAffected, func(e *security.Entry) {
			e.Because, e.Module, e.NotLinked = "not there", "m/n/o", []string{"n/o"}
		}, k),
		entry("CVE-1-0007", security.NotAffected, func(e *security.Entry) {
			e.Because, e.Module, e.NotLinked = "not used", "m/n/o", []string{"m/n/o/html"}
		}, k),
		entry("CVE-1-0003", security.NotOurs, func(e *security.Entry) {}, "kube-proxy"),
		entry("CVE-1-0005", security.OptIn, func(e *security.Entry) { e.Fix, e.Since, e.Do = "b", 2, "ask" }, k),
		{Name: "no-number", What: "w", Status: security.Affected, Components: []string{k}},
	}}
	raw, err := Write(table, "v1+holdfast.2")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := vex.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range doc.Statements {
		p := s.Products[0]
		got = append(got, fmt.Sprint(s.Vulnerability.Name, " ", p.ID, " ", p.Subcomponents[0].ID, " ", s.Status, " ", s.Justification, "|", s.StatusNotes, "|", s.ActionStatement, "|", s.ImpactStatement))
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
	}
	const kubelet, manager, kube = "pkg:generic/kubelet@v1%2Bholdfast.2 ", "pkg:generic/kube-controller-manager@v1%2Bholdfast.2 ", "pkg:golang/k8s.io/kubernetes@v1 "
	want := []string{
		"CVE-1-0001 " + kubelet + kube + "fixed |closed by a since +holdfast.2; what stays: much||",
		"CVE-1-0002 " + kubelet + "pkg:golang/m/n affected ||pray|",
		"CVE-1-0002 " + manager + "pkg:golang/m/n affected ||pray|",
		"CVE-1-0003 " + manager + kube + "not_affected vulnerable_code_not_present|||none (f.go:7)",
		"CVE-1-0004 " + kubelet + kube + "under_investigation |||",
		"CVE-1-0006 " + kubelet + "pkg:golang/m/n/o not_affected component_not_present|||not there",
		"CVE-1-0007 " + kubelet + "pkg:golang/m/n/o not_affected vulnerable_code_not_present|||not used",
		"CVE-1-0005 " + kubelet + kube + "affected ||ask|",
		"CVE-1-0003 " + kubelet + kube + "not_affected vulnerable_code_not_in_execute_path|||a vulnerability of kube-proxy, which this program is not",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	if doc.Version != 3 || doc.Context == "" || doc.Author == "" || !doc.Timestamp.Equal(time.Unix(0, 0)) {
		t.Errorf("%+v", doc.Metadata)
	}
	// OpenVEX wants an action for what is affected.
	table.Entries[1].Do = ""
	if _, err := Write(table, "v1+holdfast.2"); err == nil {
		t.Error("a statement that OpenVEX refuses is written")
	}
}
