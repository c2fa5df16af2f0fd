// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package exit gives errors the exit status that they end the program with.
package exit

import (
	"errors"
	"fmt"
)

// The statuses that the program ends with.
const (
	OK = 0
	// Failed: a precondition is missing, or what was asked for does not hold.
	Failed = 1
	// Usage: the command line cannot be right; nothing was done.
	Usage = 2
)

type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

// Usagef returns an error about the command line.
func Usagef(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

// Code returns the status for err.
func Code(err error) int {
	var u usage
	switch {
	case err == nil:
		return OK
	case errors.As(err, &u):
		return Usage
	}
	return Failed
}
