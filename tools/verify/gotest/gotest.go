// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gotest reads what go test -json prints.
package gotest

import (
	"bufio"
	"encoding/json"
	"io"
)

// Event is one line of go test -json (see go doc test2json).
type Event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of build-output and build-fail events
	FailedBuild                   string // of a package's fail event: the ImportPath that was not built
	Elapsed                       float64
}

// Read calls event for each event and other for each line that is none: what a
// test process wrote past the test framework.
func Read(in io.Reader, event func(Event), other func(line string)) error {
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e Event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			other(sc.Text())
			continue
		}
		event(e)
	}
	return sc.Err()
}
