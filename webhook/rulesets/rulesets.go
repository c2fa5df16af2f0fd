// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rulesets has the rules files that come with the program.
package rulesets

import (
	"embed"
	"path"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Names are the names of the rule sets, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // they are in the program
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	return out
}

// Text is a rule set's file; false for a name that there is not.
func Text(name string) ([]byte, bool) {
	text, err := files.ReadFile(name + ".yaml")
	return text, err == nil
}
