// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
)

// Judged is a base and what is known of its vulnerabilities.
type Judged struct {
	*Table
	Of *base.Base
}

// Load reads the vulnerabilities of the base of that name, "" for the default one.
func Load(root, name string) (*Judged, error) {
	b, err := base.LoadDefault(root)
	if err == nil && name != "" && name != b.Name {
		b, err = base.Load(root, name)
	}
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(root, File(b.Name)))
	if err != nil {
		return nil, exit.Preconditionf("the vulnerabilities of base %s: %v", b.Name, err)
	}
	t, err := New(raw, b.Fixes, b.Name)
	if err != nil {
		return nil, err
	}
	if bad := t.FixFaults(b); len(bad) > 0 {
		return nil, exit.Preconditionf("%s", strings.Join(bad, "\n"))
	}
	t.findOptIn(b.Fixes)
	return &Judged{Table: t, Of: b}, nil
}

// LoadAll reads those of every base that has a File: first the default base, then by name. It is an
// error if one says nothing of a number that another judges.
func LoadAll(root string) ([]*Judged, error) {
	first, err := Load(root, "")
	if err != nil {
		return nil, err
	}
	names, err := base.Names(root)
	if err != nil {
		return nil, err
	}
	all := []*Judged{first}
	for _, name := range names {
		if name == first.Base || !Has(root, name) {
			continue
		}
		j, err := Load(root, name)
		if err != nil {
			return nil, err
		}
		all = append(all, j)
	}
	if bad := unanswered(all); len(bad) > 0 {
		return nil, exit.Preconditionf("%s", strings.Join(bad, "\n"))
	}
	return all, nil
}

// Has says whether a base has a File.
func Has(root, name string) bool {
	_, err := os.Stat(filepath.Join(root, File(name)))
	return err == nil
}

// unanswered are the numbers and names that one table judges for a program of the product, and
// another table does not.
func unanswered(all []*Judged) []string {
	var bad []string
	for _, from := range all {
		for _, e := range from.Entries {
			for _, c := range e.Components {
				for _, id := range e.ids() {
					for _, to := range all {
						if slices.Contains(Ours, c) && to.find(id, c) == nil {
							bad = append(bad, fmt.Sprintf("%s judges %s for %s, and neither %s nor a fix says what it is there", File(from.Base), id, c, File(to.Base)))
						}
					}
				}
			}
		}
	}
	return bad
}

// ids are the entry's numbers, or its name if it has none.
func (e *Entry) ids() []string {
	if len(e.CVE) > 0 {
		return e.CVE
	}
	return []string{e.Name}
}

// find is the entry that judges a number, or a name, for a component; nil if there is none.
func (t *Table) find(id, component string) *Entry {
	for _, e := range t.Entries {
		if slices.Contains(e.Components, component) && (e.Name == id || slices.Contains(e.CVE, id)) {
			return e
		}
	}
	return nil
}
