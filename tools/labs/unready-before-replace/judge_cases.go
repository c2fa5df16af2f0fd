// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package unreadybeforereplace

import (
	"fmt"
	"slices"

	"holdfast/tools/labkit/history"
)

// stateSeen says of a pod in its drain and a state of it whether it came within its
// bound, and whether docker had a kill of its old container by then.
type stateSeen struct {
	Case   string
	Round  int
	State  podState
	In     bool
	Killed bool
}

// podState is a state that the pod of a case comes to.
type podState string

const (
	unready podState = "is not ready"
	waits   podState = "still waits"
	held    podState = "is kept not ready by the next kubelet process"
	again   podState = "is ready again with its old container"
	anew    podState = "is ready with a new container"
	gone    podState = "is gone"
)

// wrong says what is wrong with it, "" if nothing is.
func (s stateSeen) wrong() string {
	switch {
	case !s.In:
		return fmt.Sprintf("%s: no observation that it %s", s.Case, s.State)
	case s.Killed && slices.Contains([]podState{unready, waits, held, again}, s.State):
		return fmt.Sprintf("%s %s, but its container was killed before that", s.Case, s.State)
	}
	return ""
}

// watchedPod is all that a watcher saw of the pod of a case.
type watchedPod struct {
	Case   string
	Round  int
	Was    string // its old container
	Events []podEvent
}

// wrong: the pod was ready with its old container, then not ready, and never ready with
// it again.
func (s watchedPod) wrong() string {
	was, off := false, false
	for _, ev := range s.Events {
		switch {
		case ev.Container != s.Was:
		case ev.Ready && off:
			return s.Case + " was ready again before its container was replaced"
		case ev.Ready:
			was = true
		case was:
			off = true
		}
	}
	if !off {
		return s.Case + " was never published as not ready with its old container"
	}
	return ""
}

// The cases, by the names of their pods.
const (
	putBack    = "put-back"
	thirdImage = "third-image"
	noImage    = "no-image"
	deleted    = "deleted"
	notLive    = "not-live"
	optedOut   = "opted-out"
	restarted  = "restarted"
	toStock    = "to-stock"
)

var duringCases = []string{putBack, thirdImage, noImage, deleted, notLive, optedOut}

// cases are what must be seen of each, in each round of the cases; of toStock once.
var cases = map[string][]podState{
	putBack:    {unready, again},
	thirdImage: {unready, waits, anew},
	noImage:    {unready, waits, anew},
	deleted:    {unready, gone},
	notLive:    {unready, anew},
	optedOut:   {anew},
	restarted:  {unready, held, anew},
	toStock:    {unready, anew},
}

// watchedCases are those of which all that the watcher saw is recorded, too.
var watchedCases = []string{thirdImage, noImage, notLive, restarted}

// wrongCase is the first case that went wrong.
func wrongCase(h *history.History) string {
	for _, o := range history.Of[stateSeen](h) {
		if why := o.wrong(); why != "" {
			return why
		}
	}
	for _, o := range history.Of[watchedPod](h) {
		if why := o.wrong(); why != "" {
			return why
		}
	}
	for _, o := range history.Of[alone](h) {
		if why := o.wrong(); why != "" {
			return why
		}
	}
	for _, o := range history.Of[followed](h) {
		if why, sure := o.wrong(); why != "" && sure {
			return why
		}
	}
	return ""
}

// allEvents stands for a watchedPod among the states of its case.
const allEvents podState = "all events"

// missing says what was not seen of the cases, of which there are n rounds.
func missing(h *history.History, n int) string {
	type key struct {
		name  string
		round int
		state podState
	}
	seen := map[key]int{}
	for _, o := range history.Of[stateSeen](h) {
		seen[key{o.Case, o.Round, o.State}]++
	}
	for _, o := range history.Of[watchedPod](h) {
		seen[key{o.Case, o.Round, allEvents}]++
	}
	for name, states := range cases {
		if slices.Contains(watchedCases, name) {
			states = append(slices.Clone(states), allEvents)
		}
		rounds := n
		if name == toStock {
			rounds = 1
		}
		for r := range rounds {
			for _, s := range states {
				if seen[key{name, r, s}] != 1 {
					return fmt.Sprintf("case %s, round %d, %q: recorded %d times, want once", name, r+1, s, seen[key{name, r, s}])
				}
			}
		}
	}
	history.One[alone](h)
	return missingFollowed(h)
}
