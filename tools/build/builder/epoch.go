// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"strconv"
	"time"
)

// epoch turns seconds since 1970 into the form that upstream's buildDate has.
func epoch(s string) (string, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return "", err
	}
	return time.Unix(n, 0).UTC().Format("2006-01-02T15:04:05Z"), nil
}
