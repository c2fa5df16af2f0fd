// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package auditrv

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// creation is a create with a lower bound of its resourceVersion.
type creation struct {
	write
	atLeast uint64
}

// stepKind orders the steps of one time.
type stepKind int

const (
	listed stepKind = iota
	observed
	completed
	received
)

// step is something that says, or needs, a bound of resourceVersions.
type step struct {
	at   time.Time
	kind stepKind
	rv   uint64
	by   *watch // of an observation, and of a list the watch that followed it
	w    *write // of completions and receptions
	of   string // the list's resource
}

// epoch is the time from one restore to the next.
type epoch struct {
	from time.Time
	// raises are versions that existed in the epoch, ascending, and since when.
	raises []observation
}

// had reports whether a version that is not before rv existed by then.
func (e *epoch) had(rv string, then time.Time) bool {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return false
	}
	i, _ := slices.BinarySearchFunc(e.raises, n, func(o observation, n uint64) int { return cmp.Compare(o.rv, n) })
	return i < len(e.raises) && !e.raises[i].at.After(then)
}

// bounds returns the creations by resource, in the order of their completion, each
// with a lower bound of its resourceVersion. A resourceVersion that a client names
// in a watch or an update exists then, and every creation that is received later has
// a larger one, each its own. In a log like that of 1.8 "later" is a second later than
// a reception, and the lag later than a completion: it has no more than the second of
// the one and a guess of the other. It also returns, by class, the epochs that begin
// with resourceVersions going back for everybody.
func (l *Log) bounds() (map[string][]creation, map[string][]*epoch) {
	var second, guess time.Duration
	if l.coarse {
		second, guess = time.Second, l.lag()
	}
	steps := map[string][]step{}
	for resource, os := range l.observations {
		c := l.class(resource)
		for _, o := range os {
			steps[c] = append(steps[c], step{at: o.at.Add(second), kind: observed, rv: o.rv, by: o.by})
		}
	}
	for key, s := range l.streams {
		c := l.class(key.resource)
		for _, w := range s.watches {
			if n, err := strconv.ParseUint(w.rv, 10, 64); err == nil && w.list != nil {
				steps[c] = append(steps[c], step{at: w.list.received, rv: n, by: w, of: key.resource, kind: listed})
			}
		}
	}
	for i := range l.writes {
		w := &l.writes[i]
		if !w.create {
			continue
		}
		c := l.class(w.resource)
		steps[c] = append(steps[c], step{at: w.completed.Add(guess), kind: completed, w: w}, step{at: w.received, kind: received, w: w})
	}
	creations := map[string][]creation{}
	epochs := map[string][]*epoch{}
	for c, ss := range steps {
		slices.SortStableFunc(ss, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.kind, b.kind)) })
		var base, n uint64 // some version is >= base+n
		var since time.Time
		var now *epoch // nil before the first restore
		raise := func(rv uint64, at time.Time) {
			if rv <= base+n {
				return
			}
			base, n, since = rv, 0, at
			if now != nil {
				now.raises = append(now.raises, observation{at: at, rv: rv})
			}
		}
		bound := map[*write]uint64{}
		newest := map[string]creation{} // by resource, that with the largest bound
		for _, s := range ss {
			switch {
			case s.kind == listed:
				// The list shows less than was known before it was asked for.
				last := newest[s.of]
				back := s.by.instead != nil && less(s.by.rv, s.by.instead.rv)
				if !back && (last.atLeast <= s.rv || last.completed.Add(l.lag()).After(s.at)) {
					continue
				}
				// Its version is one of the answer, so it counts from the start of the watch
				// that names it.
				now = &epoch{from: s.at}
				epochs[c] = append(epochs[c], now)
				base, n = 0, 0
				clear(bound)
				clear(newest)
			case s.kind == observed:
				// What a client knows from before a restore says nothing.
				if s.by == nil || now == nil || s.by.chain.After(now.from) {
					raise(s.rv, s.at)
				}
			case s.kind == received:
				if base > 0 {
					bound[s.w] = base + n + 1
				}
			default:
				cr := creation{write: *s.w, atLeast: max(s.w.rv, bound[s.w])}
				creations[s.w.resource] = append(creations[s.w.resource], cr)
				if cr.atLeast > newest[s.w.resource].atLeast {
					newest[s.w.resource] = cr
				}
				if base > 0 && !s.w.received.Before(since) {
					n++
				}
				raise(s.w.rv, s.at)
			}
		}
	}
	for _, cs := range creations {
		sortBy(cs, func(c creation) time.Time { return c.completed })
	}
	return creations, epochs
}
