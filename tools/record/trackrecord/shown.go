// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package trackrecord

import (
	"fmt"
	"regexp"
	"strings"

	"holdfast/tools/build/fixes"
	"holdfast/tools/labkit"
	"holdfast/tools/record/outcomes"
)

// FrontPage says how many incidents the record shows; Page has each of them.
const FrontPage = "README.md"

// shownRE is the part of a sentence that Shown writes.
var shownRE = regexp.MustCompile(`\d+ of \d+ incidents`)

// Shown returns a page with the number of incidents that the record shows, and of all, in the place
// of the old ones: "N of N incidents". An incident is shown if each of its labs saw it with stock,
// and provoked it without seeing it with ours.
func Shown(page string, table *fixes.Table, record *outcomes.Record, labs labkit.Labs) (string, error) {
	if !shownRE.MatchString(page) {
		return "", fmt.Errorf(`a page does not say "N of N incidents"`)
	}
	shown, all := 0, 0
	for row := range strings.Lines(Rows(table, record, labs)) {
		cells := strings.Split(row, " | ")
		if len(cells) < 5 {
			return "", fmt.Errorf("a row of the track record has too few cells: %s", row)
		}
		all++
		if cells[3] == "reproduced" && strings.TrimSuffix(cells[4], fixes.AsleepMark) == "absent" {
			shown++
		}
	}
	return shownRE.ReplaceAllString(page, fmt.Sprintf("%d of %d incidents", shown, all)), nil
}
