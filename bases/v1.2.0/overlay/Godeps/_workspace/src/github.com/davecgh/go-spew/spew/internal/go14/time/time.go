// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package time mirrors the private layout that time.Time had in Go 1.4.
//
// A go-spew dump prints the private fields of a struct. Kubernetes v1.2.0
// hashes such dumps, names ReplicaSets after the hashes, and was released as a
// Go 1.4.2 build. Since Go 1.9 time.Time has other fields, so a dump made by a
// newer build has other bytes and every hash is another one. go-spew prints
// these mirror types in place of time.Time.
//
// The package has to be called "time", and its types, fields and field order
// have to be those of Go 1.4, because a dump shows all of them.
//
// Only the layout and the contents of the local zone are reproduced. Nothing
// here computes with times.
package time

import (
	"os"
	"sync"
	gotime "time"
)

// Time is time.Time as the released binaries had it. A dump shows the types,
// too: with any other integer type for nsec the names of ReplicaSets that
// people published while they ran v1.2.0 do not come out.
type Time struct {
	sec  int64 // seconds since 1 January of year 1, UTC
	nsec int32 // 0 to 999999999
	loc  *Location
}

// Location is time.Location as Go 1.4 had it.
type Location struct {
	name       string
	zone       []zone
	tx         []zoneTrans
	cacheStart int64
	cacheEnd   int64
	cacheZone  *zone
}

type zone struct {
	name   string
	offset int
	isDST  bool
}

type zoneTrans struct {
	when         int64
	index        uint8
	isstd, isutc bool
}

// unixToInternal is the number of seconds from year 1 to 1970.
const unixToInternal = (1969*365 + 1969/4 - 1969/100 + 1969/400) * 24 * 60 * 60

var (
	// started stands for the moment at which a Go 1.4 process read its local
	// zone: the first time it formatted a local time, which is its first log
	// line. The zone's cache depends on it.
	started = gotime.Now().Unix()

	utcLoc = Location{name: "UTC"}

	localOnce sync.Once
	localLoc  *Location
)

// From returns t in the layout of Go 1.4.
//
// The zero Time has no location. A time in the local zone points to the local
// zone as Go 1.4 would have read it at the start of this process. Any other
// time points to UTC; the API's decoders make local times only.
func From(t gotime.Time) Time {
	if t == (gotime.Time{}) {
		return Time{}
	}
	out := Time{
		sec:  t.Unix() + unixToInternal,
		nsec: int32(t.Nanosecond()),
		loc:  &utcLoc,
	}
	if t.Location() == gotime.Local {
		localOnce.Do(func() {
			tz, set := os.LookupEnv("TZ")
			localLoc = loadLocal(tz, set, os.ReadFile, started)
		})
		out.loc = localLoc
	}
	return out
}
