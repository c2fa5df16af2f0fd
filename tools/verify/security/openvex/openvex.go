// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openvex writes the table of vulnerabilities as an OpenVEX document
// (openvex.dev, specification 0.2.0), from which scanners learn which of their
// findings concern the product. It has the entries with a CVE number: another name
// is in no scanner's database.
package openvex

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/openvex/go-vex/pkg/vex"

	"holdfast/tools/verify/security"
)

// id names the document; it is an IRI and leads nowhere. author is that of the patches.
const (
	id     = "https://holdfast.invalid/vex/"
	author = "Holdfast developers <developers@holdfast.invalid>"
)

// Write returns the document for the product release, JSON that ends with a newline.
func Write(t *security.Table, release string) ([]byte, error) {
	doc := vex.New()
	doc.ID, doc.Author = id+release, author
	doc.Timestamp, doc.Version = &t.Updated, t.Version
	said := map[string]bool{}
	add := func(cve, component string, s vex.Statement) error {
		s.Vulnerability = vex.Vulnerability{Name: vex.VulnerabilityID(cve)}
		if err := s.Validate(); err != nil {
			return fmt.Errorf("%s, %s: %w", cve, component, err)
		}
		doc.Statements = append(doc.Statements, s)
		said[cve+" "+component] = true
		return nil
	}
	for _, e := range t.Entries {
		if e.Status == security.NotOurs {
			continue
		}
		for _, cve := range e.CVE {
			for _, c := range e.Components {
				s := statement(e)
				s.Products = []vex.Product{product(c, release, module(t, e))}
				if err := add(cve, c, s); err != nil {
					return nil, err
				}
			}
		}
	}
	// What another component has. Ours may have an entry of its own for the number.
	for _, e := range t.Entries {
		if e.Status != security.NotOurs {
			continue
		}
		for _, cve := range e.CVE {
			for _, c := range security.Ours {
				if said[cve+" "+c] {
					continue
				}
				if err := add(cve, c, vex.Statement{
					Products:        []vex.Product{product(c, release, module(t, e))},
					Status:          vex.StatusNotAffected,
					Justification:   vex.VulnerableCodeNotInExecutePath,
					ImpactStatement: "a vulnerability of " + e.Components[0] + ", which this program is not",
				}); err != nil {
					return nil, err
				}
			}
		}
	}
	var out bytes.Buffer
	if err := doc.ToJSON(&out); err != nil {
		return nil, err
	}
	// What cannot be read again is of no use to a scanner.
	read, err := vex.Parse(out.Bytes())
	if err != nil || len(read.Statements) != len(doc.Statements) {
		return nil, fmt.Errorf("the document of %s cannot be read again: %v", release, err)
	}
	return out.Bytes(), nil
}

// statement is what the entry's status is in OpenVEX.
func statement(e *security.Entry) vex.Statement {
	switch e.Status {
	case security.Closed:
		notes := fmt.Sprintf("closed by %s since +holdfast.%d", e.Fix, e.Since)
		if e.Left != "" {
			notes += "; what stays: " + e.Left
		}
		return vex.Statement{Status: vex.StatusFixed, StatusNotes: notes}
	case security.OptIn, security.Affected, security.Documented:
		return vex.Statement{Status: vex.StatusAffected, ActionStatement: e.Do}
	case security.NotAffected:
		impact := e.Because
		if e.Line != nil {
			impact += " (" + e.Line.String() + ")"
		}
		why := vex.VulnerableCodeNotPresent
		if slices.ContainsFunc(e.NotLinked, func(n string) bool { return strings.HasSuffix(e.Module, n) }) {
			why = vex.ComponentNotPresent // nothing of the module is linked
		}
		return vex.Statement{Status: vex.StatusNotAffected, Justification: why, ImpactStatement: impact}
	}
	return vex.Statement{Status: vex.StatusUnderInvestigation}
}

// module is the package URL of the Go module that has the vulnerability.
func module(t *security.Table, e *security.Entry) string {
	if e.Module != "" {
		return "pkg:golang/" + e.Module
	}
	return "pkg:golang/k8s.io/kubernetes@" + t.Base
}

func product(component, release, module string) vex.Product {
	purl := security.PURL(component, release)
	return vex.Product{
		Component:     vex.Component{ID: purl, Identifiers: map[vex.IdentifierType]string{vex.PURL: purl}},
		Subcomponents: []vex.Subcomponent{{Component: vex.Component{ID: module}}},
	}
}
