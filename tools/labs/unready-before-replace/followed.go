// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package unreadybeforereplace

import (
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// followed is one pod whose image was changed, from then until it is ready with a new
// container, or the bound is over.
type followed struct {
	Case     string
	Round    int
	Was      string    // its container when the image was changed
	Killed   time.Time // zero if docker's stream has no kill of Was
	Replaced bool
	Events   []podEvent // since the change
}

// The cases that are followed, in the long profile only.
const (
	sameImage   = "same-image"
	killedSoon  = "killed-soon"
	killedInEnd = "killed-in-end"
	killedAfter = "killed-after"
	way         = "way"
)

// followedCases are how often each is run.
var followedCases = map[string]int{sameImage: 1, killedSoon: 3, killedInEnd: 3, killedAfter: 3, way: 2}

// wrong is K for that pod, without the Endpoints, "" if it holds. It is not sure if the
// watch may have been late, or if docker's stream has no kill.
func (f followed) wrong() (why string, sure bool) {
	var off time.Time
	for _, ev := range f.Events {
		switch {
		case !ev.Ready && off.IsZero():
			off = ev.At
		case ev.Ready && !off.IsZero() && ev.Container == f.Was:
			return f.Case + " was ready again before its container was replaced", true
		}
	}
	late := off.Sub(f.Killed)
	switch {
	case !f.Replaced:
		return f.Case + " is not ready with a new container", true
	case off.IsZero():
		return f.Case + " was never published as not ready", true
	case f.Killed.IsZero():
		return f.Case + ": docker's stream has no kill of its container", false
	case late > lag:
		return fmt.Sprintf("%s was not ready %v after the kill", f.Case, late.Round(10*time.Millisecond)), late > busy
	}
	return "", true
}

// missingFollowed says what was not seen of the cases that are followed.
func missingFollowed(h *history.History) string {
	seen := map[string]map[int]bool{}
	for _, o := range history.Of[followed](h) {
		if why, _ := o.wrong(); why != "" {
			return why
		}
		if seen[o.Case] == nil {
			seen[o.Case] = map[int]bool{}
		}
		seen[o.Case][o.Round] = true
	}
	if h.Profile != string(labkit.Long) {
		return ""
	}
	for name, rounds := range followedCases {
		if len(seen[name]) != rounds {
			return fmt.Sprintf("case %s: recorded %d times, want %d", name, len(seen[name]), rounds)
		}
	}
	return ""
}
