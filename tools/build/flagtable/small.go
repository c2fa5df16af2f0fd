// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package flagtable

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
)

// SmallFile is a component's table as kubectl-holdfast carries it, relative to the root.
func SmallFile(component string) string {
	return filepath.Join("cmd", "internal", "kubeletflags", component+".txt")
}

// smallDefaults are the flags whose defaults kubectl-holdfast needs.
var smallDefaults = []string{"eviction-hard"}

// Small writes what kubectl-holdfast needs of a component's table, a line for each flag and gate:
// the name, for a flag its type, and a digit for each release, 1 where the release has it.
func Small(t *Table) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Written by make flags from %s.\nreleases %s\n", filepath.ToSlash(File(t.Component)), strings.Join(t.Releases, " "))
	for _, f := range t.Flags {
		kind := ""
		for _, as := range f.As {
			// bool is what takes no value of its own; of the other types any one will do.
			if kind = as.Is.Type; kind == "bool" {
				break
			}
		}
		fmt.Fprintf(&b, "flag %s %s %s\n", f.Name, kind, digits(t.Releases, func(r string) bool { return f.In(r) != nil }))
	}
	for _, name := range smallDefaults {
		f := t.Flag(name)
		if f == nil {
			continue
		}
		for _, as := range f.As {
			in := func(r string) bool { return f.In(r) != nil && f.In(r).Default == as.Is.Default }
			fmt.Fprintf(&b, "default %s %s %s\n", name, digits(t.Releases, in), as.Is.Default)
		}
	}
	for _, g := range t.Gates {
		fmt.Fprintf(&b, "gate %s %s\n", g.Name, digits(t.Releases, func(r string) bool { return g.In(r) != nil }))
	}
	return b.Bytes()
}

func digits(releases []string, has func(string) bool) string {
	var b strings.Builder
	for _, r := range releases {
		if has(r) {
			b.WriteByte('1')
		} else {
			b.WriteByte('0')
		}
	}
	return b.String()
}
