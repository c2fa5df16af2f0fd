// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	_ "embed"
	"strings"
)

//go:embed gates.txt
var gatesText string

// gates are Holdfast's feature gates that are on by default, and what each ends. The table is written
// from patches/*/fix.json by go test ./internal/doctor -update.
var gates = parseGates(gatesText)

func parseGates(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if gate, incident, ok := strings.Cut(strings.TrimSpace(line), " "); ok && gate != "#" {
			out[gate] = incident
		}
	}
	return out
}
