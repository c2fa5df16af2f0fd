// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package exit gives errors the exit status they end a command with: 2 for a
// command line that cannot be right, 1 for a precondition that does not hold
// or work that failed.
package exit

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// The statuses a holdfast command ends with.
const (
	Failed = 1
	Usage  = 2
)

type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

// Usagef returns an error about the command line (status 2).
func Usagef(format string, args ...any) error {
	return coded{fmt.Errorf(format, args...), Usage}
}

// Preconditionf returns an error about the state the command found (status 1).
// Its text names the file or setting and says how to go on.
func Preconditionf(format string, args ...any) error {
	return coded{fmt.Errorf(format, args...), Failed}
}

// NoArgs is cobra.NoArgs with our exit status.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("%s takes no arguments, got %q", cmd.CommandPath(), args)
	}
	return nil
}

// Code returns the exit status for err: 0 for nil, and Failed where err
// carries no status of its own.
func Code(err error) int {
	if err == nil {
		return 0
	}
	var c coded
	if errors.As(err, &c) {
		return c.code
	}
	return Failed
}
