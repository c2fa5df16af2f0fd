// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package auditrv

import (
	"fmt"
	"io"
	"time"
)

const timeFormat = "2006-01-02T15:04:05.000Z"

// maxShown is how many findings of one stream the text report lists.
const maxShown = 10

// Report writes results for people.
func (l *Log) Report(w io.Writer, results []*Result) {
	proven, hints := 0, 0
	for _, r := range results {
		if r.Proven() {
			proven++
		} else {
			hints++
		}
	}
	fmt.Fprintf(w, "%d events", l.Events)
	if !l.First.IsZero() {
		fmt.Fprintf(w, " from %s to %s", l.First.UTC().Format(timeFormat), l.Last.UTC().Format(timeFormat))
	}
	fmt.Fprintf(w, ", %d kinds of watch, %d restarts of a watch\n", len(l.streams), l.Restarts)
	if l.Unjudged > 0 {
		fmt.Fprintf(w, "%d watches began after a list and could not be judged\n", l.Unjudged)
	}
	for _, at := range l.Restores {
		fmt.Fprintf(w, "%s: lists have older versions than earlier events: etcd was restored, or an API server lags behind\n", at.UTC().Format(timeFormat))
	}
	for _, r := range results {
		if r.Proven() {
			r.report(w, "FOUND")
		}
	}
	for _, r := range results {
		if !r.Proven() {
			r.report(w, "hint")
		}
	}
	switch {
	case proven > 0:
		fmt.Fprintf(w, "\n%d watch(es) restart from an older version: see patches/reflector-monotonic-rv/README.md\n", proven)
	case hints > 0:
		fmt.Fprintf(w, "\nno watch provably restarts from an older version; %d hint(s), which updates without a change can also explain\n", hints)
	case l.Restarts == 0:
		fmt.Fprintln(w, "no watch was restarted in this log, so the log shows nothing")
	default:
		fmt.Fprintln(w, "no watch restarts from an older version")
	}
}

// Summary is what -o json prints.
type Summary struct {
	Events int       `json:"events"`
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	// Watches is how many kinds of watch there are, Restarts how many watches
	// continue another one.
	Watches  int `json:"watches"`
	Restarts int `json:"restarts"`
	// Unjudged is how many watches began after a list and could not be judged.
	Unjudged int `json:"unjudged"`
	// Restores are the times when lists had gone back for everybody.
	Restores []time.Time `json:"restores"`
	// BadLines is how many lines are no audit events, Unread the files that could
	// not be read to their end.
	BadLines int       `json:"badLines"`
	Unread   []string  `json:"unread"`
	Results  []*Result `json:"results"`
}

// Summary returns the log's numbers with results.
func (l *Log) Summary(results []*Result) Summary {
	return Summary{Events: l.Events, First: l.First, Last: l.Last, Watches: len(l.streams), Restarts: l.Restarts, Unjudged: l.Unjudged,
		Restores: append([]time.Time{}, l.Restores...), Unread: []string{}, Results: append([]*Result{}, results...)}
}

func (r *Result) report(w io.Writer, word string) {
	agent := r.UserAgent
	if agent == "" {
		agent = "user agent not in the log"
	}
	fmt.Fprintf(w, "\n%s: %s: %s (%s) from %s, %s\n", word, r.Resource, r.User, agent, r.Source, r.Request)
	fmt.Fprintf(w, "  %d restarts: %d went back, %d stale, %d repeat; first %s, last %s\n", r.Restarts, r.Count(Back), r.Count(Stale), r.Count(Repeat),
		r.Findings[0].Time.UTC().Format(timeFormat), r.Findings[len(r.Findings)-1].Time.UTC().Format(timeFormat))
	for i, f := range r.Findings {
		if i == maxShown {
			fmt.Fprintf(w, "    … and %d more (all with -o json)\n", len(r.Findings)-maxShown)
			break
		}
		fmt.Fprintf(w, "    %s %-6s resourceVersion=%s, after a watch from %s (%s before)", f.Time.UTC().Format(timeFormat), f.Kind, f.From, f.Before, f.Time.Sub(f.BeforeTime).Round(time.Second))
		if f.AtLeast > 0 {
			fmt.Fprintf(w, " that has seen the %s with resourceVersion %d or later", f.Missed, f.AtLeast)
		} else if f.Missed != "" {
			fmt.Fprintf(w, " in which there was a %s", f.Missed)
		}
		fmt.Fprintln(w)
	}
}
