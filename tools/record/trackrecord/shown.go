// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package trackrecord

import (
	"fmt"
	"regexp"

	"holdfast/tools/build/fixes"
	"holdfast/tools/labkit"
	"holdfast/tools/record/outcomes"
)

// FrontPage says how many incidents the record shows; Page has each of them.
const FrontPage = "README.md"

// shownRE is the part of a sentence that Shown writes.
var shownRE = regexp.MustCompile(`\d+ of \d+ incidents`)

// Shown returns a page with the number of incidents that the record shows, and of all, in the place
// of the old ones: "N of N incidents".
func Shown(page string, table *fixes.Table, record *outcomes.Record, labs labkit.Labs) (string, error) {
	if !shownRE.MatchString(page) {
		return "", fmt.Errorf(`a page does not say "N of N incidents"`)
	}
	all, shown := rows(table, record, labs), 0
	for _, r := range all {
		if r.shown {
			shown++
		}
	}
	return shownRE.ReplaceAllString(page, fmt.Sprintf("%d of %d incidents", shown, len(all))), nil
}
