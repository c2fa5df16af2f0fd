// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package auditrv

import (
	"slices"
	"strconv"
	"time"
)

// judge judges one stream.
type judge struct {
	key     streamKey
	creates []creation
	others  []write
	epochs  []*epoch
	lag     time.Duration
	scans   map[*watch]scan
	r       *Result
}

// scan is how far the creations were looked through for a watch, and the index of the
// one with the largest bound, -1 if there is none.
type scan struct{ next, top int }

// epochOf is the epoch at a time, nil before the first.
func (j *judge) epochOf(at time.Time) *epoch {
	for i := len(j.epochs) - 1; i >= 0; i-- {
		if !j.epochs[i].from.After(at) {
			return j.epochs[i]
		}
	}
	return nil
}

func (j *judge) stream(s *stream) {
	for _, w := range s.watches {
		p := w.before
		if p == nil {
			continue
		}
		j.r.Restarts++
		e := j.epochOf(w.start)
		if e != nil && e.from.After(w.chain) && !e.had(w.rv, p.start) {
			continue // what the client had seen was taken back
		}
		f := Finding{Time: w.start, From: w.rv, Before: p.rv, BeforeTime: p.start}
		switch {
		case less(w.rv, p.rv):
			f.Kind = Back
		case j.key.partial || !p.ok || p.end.Sub(p.start) < j.lag:
			continue
		default:
			if seen := p.end.Add(-j.lag); !j.stale(&f, w, seen) && !j.repeat(&f, w, seen) {
				continue
			}
		}
		j.r.Findings = append(j.r.Findings, f)
	}
}

// stale looks for an object with a later version than w's that w's reader had seen:
// one that was completed by seen, since its chain began and since the last restore.
func (j *judge) stale(f *Finding, w *watch, seen time.Time) bool {
	from, err := strconv.ParseUint(w.rv, 10, 64)
	if err != nil {
		return false
	}
	p := w.before
	begin := w.chain
	if e := j.epochOf(w.start); e != nil && e.from.After(begin) {
		begin = e.from
	}
	// A chain goes through the creations once.
	sc, ok := j.scans[p]
	if !ok || sc.top >= 0 && !j.creates[sc.top].completed.After(begin) {
		sc = scan{next: j.completedBy(begin), top: -1}
	}
	for n := j.completedBy(seen); sc.next < n; sc.next++ {
		if c := j.creates[sc.next]; c.completed.After(begin) && (sc.top < 0 || c.atLeast >= j.creates[sc.top].atLeast) {
			sc.top = sc.next
		}
	}
	j.scans[w] = sc
	if sc.top >= 0 && j.creates[sc.top].atLeast > from {
		c := j.creates[sc.top]
		f.Kind, f.Missed, f.AtLeast = Stale, c.String(), c.atLeast
		return true
	}
	// p's version existed when p started, so a creation after that is later.
	if w.rv == p.rv {
		for i := j.completedBy(seen) - 1; i >= 0 && j.creates[i].completed.After(p.start); i-- {
			if j.creates[i].received.After(p.start) {
				f.Kind, f.Missed, f.AtLeast = Stale, j.creates[i].String(), from+1
				return true
			}
		}
	}
	return false
}

// completedBy is how many creations were completed by then.
func (j *judge) completedBy(then time.Time) int {
	n, _ := slices.BinarySearchFunc(j.creates, then, func(c creation, t time.Time) int {
		if c.completed.After(t) {
			return 1
		}
		return -1
	})
	return n
}

func (j *judge) repeat(f *Finding, w *watch, seen time.Time) bool {
	p := w.before
	if w.rv != p.rv {
		return false
	}
	i, _ := slices.BinarySearchFunc(j.others, p.start, func(o write, t time.Time) int { return o.completed.Compare(t) })
	for ; i < len(j.others) && !j.others[i].completed.After(seen); i++ {
		if o := j.others[i]; o.received.After(p.start) && (j.key.namespace == "" || j.key.namespace == o.namespace) {
			f.Kind, f.Missed = Repeat, o.String()
			return true
		}
	}
	return false
}
