// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package output is the flag -o that every command has.
package output

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"holdfast/cmd/internal/exit"
)

// Format is what -o is set to.
type Format string

// The formats.
const (
	// Table is for people. It may change from release to release.
	Table Format = "table"
	// JSON is for programs: its fields stay.
	JSON Format = "json"
)

// String, Set and Type make Format a flag.
func (f *Format) String() string { return string(*f) }

// Set refuses what is no format.
func (f *Format) Set(s string) error {
	if s != string(Table) && s != string(JSON) {
		return exit.Usagef("use table or json")
	}
	*f = Format(s)
	return nil
}

// Type is what help shows for the value.
func (f *Format) Type() string { return "table|json" }

// Flag adds -o to a command. describe says what its JSON is.
func Flag(cmd *cobra.Command, f *Format, describe string) {
	*f = Table
	cmd.Flags().VarP(f, "output", "o", "table, or json: "+describe)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{string(Table), string(JSON)}, cobra.ShellCompDirectiveNoFileComp))
}

// Line writes v as one line of JSON.
func Line(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
