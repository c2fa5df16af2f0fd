// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package unreadybeforereplace

import (
	"fmt"
	"slices"

	"holdfast/tools/labkit/history"
)

// saw says of a pod in its drain whether something came within its bound, and whether
// docker had a kill of its old container by then.
type saw struct {
	Case   string
	Round  int
	What   what
	In     bool
	Killed bool
}

type what string

const (
	unready what = "is not ready"
	waits   what = "still waits"
	held    what = "is held by the next process of the kubelet"
	again   what = "is ready again with its old container"
	anew    what = "is ready with a new container"
	gone    what = "is gone"
)

// wrong says what is wrong with it, "" if nothing is.
func (s saw) wrong() string {
	switch {
	case !s.In:
		return fmt.Sprintf("%s: not seen that it %s", s.Case, s.What)
	case s.Killed && slices.Contains([]what{unready, waits, held, again}, s.What):
		return fmt.Sprintf("%s %s, and its container was killed before", s.Case, s.What)
	}
	return ""
}

// story is all that a watcher saw of the pod of a case.
type story struct {
	Case   string
	Round  int
	Was    string // its old container
	Events []podEvent
}

// wrong: the pod was ready with its old container, then not ready, and never ready with
// it again.
func (s story) wrong() string {
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
		return s.Case + " was never seen not ready with its old container"
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
var cases = map[string][]what{
	putBack:    {unready, again},
	thirdImage: {unready, waits, anew},
	noImage:    {unready, waits, anew},
	deleted:    {unready, gone},
	notLive:    {unready, anew},
	optedOut:   {anew},
	restarted:  {unready, held, anew},
	toStock:    {unready, anew},
}

// told are the cases that have a story.
var told = []string{thirdImage, noImage, notLive, restarted}

// wrongCase is the first case that went wrong.
func wrongCase(h *history.History) string {
	for _, o := range history.Of[saw](h) {
		if why := o.wrong(); why != "" {
			return why
		}
	}
	for _, o := range history.Of[story](h) {
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

// missing says what was not seen of the cases, of which there are n rounds.
func missing(h *history.History, n int) string {
	type key struct {
		name  string
		round int
		what  what
	}
	seen := map[key]int{}
	for _, o := range history.Of[saw](h) {
		seen[key{o.Case, o.Round, o.What}]++
	}
	for _, o := range history.Of[story](h) {
		seen[key{o.Case, o.Round, "story"}]++
	}
	for name, whats := range cases {
		if slices.Contains(told, name) {
			whats = append(slices.Clone(whats), "story")
		}
		rounds := n
		if name == toStock {
			rounds = 1
		}
		for r := range rounds {
			for _, w := range whats {
				if seen[key{name, r, w}] != 1 {
					return fmt.Sprintf("case %s, round %d, %q: seen %d times, want once", name, r+1, w, seen[key{name, r, w}])
				}
			}
		}
	}
	history.One[alone](h)
	return missingFollowed(h)
}
