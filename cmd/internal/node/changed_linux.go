// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math"
	"syscall"
)

// changed is when a file was put in its place, in seconds since 1970, whatever time a package gives
// it; the far future if that cannot be told.
func changed(file string) int64 {
	var s syscall.Stat_t
	if syscall.Stat(file, &s) != nil {
		return math.MaxInt64
	}
	return s.Ctim.Sec
}
