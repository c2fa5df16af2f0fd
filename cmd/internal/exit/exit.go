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
	// OK: everything that was given has been answered.
	OK = 0
	// Failed: something could not be read or answered, or a condition that was
	// asked for does not hold. What could be answered has been.
	Failed = 1
	// Usage: the command line cannot be right; nothing was read.
	Usage = 2
	// Found: everything was read, and something needs a look (rbd-locks).
	Found = 3
)

type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

// Usagef returns an error about the command line.
func Usagef(format string, args ...any) error {
	return coded{fmt.Errorf(format, args...), Usage}
}

// Failedf returns an error about what was read.
func Failedf(format string, args ...any) error {
	return coded{fmt.Errorf(format, args...), Failed}
}

// Foundf returns an error about what was found.
func Foundf(format string, args ...any) error {
	return coded{fmt.Errorf(format, args...), Found}
}

// Code returns the status for err: 0 for nil, Failed where err has none.
func Code(err error) int {
	if err == nil {
		return OK
	}
	var c coded
	if errors.As(err, &c) {
		return c.code
	}
	return Failed
}
