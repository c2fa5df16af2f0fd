// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package auditrv

import (
	"slices"
	"time"
)

// giveUp is how long after its end a watch may be continued. Reflectors try again
// within seconds; a watch whose process has ended is continued by none.
const giveUp = 10 * time.Minute

// relate finds out which watch continues which.
func (s *stream) relate(lag time.Duration) {
	sortBy(s.watches, func(w *watch) time.Time { return w.start })
	sortBy(s.lists, func(l *list) time.Time { return l.answered })
	var ended, open []*watch // ended are those that no other continues yet
	var pending []*list      // lists that no watch has followed yet
	lists := s.steadyLeftOut()
	for _, w := range s.watches {
		w.before, w.list, w.instead, w.chain = nil, nil, nil, time.Time{}
		open = slices.DeleteFunc(open, func(o *watch) bool {
			if o.end.IsZero() || o.end.After(w.start) {
				return false
			}
			ended = append(ended, o)
			return true
		})
		open = append(open, w)
		ended = slices.DeleteFunc(ended, func(o *watch) bool { return w.start.Sub(o.end) > giveUp })
		for len(lists) > 0 && !lists[0].answered.After(w.start) {
			pending = append(pending, lists[0])
			lists = lists[1:]
		}
		// A list that this watch can follow came after the end of a watch that was
		// given up for it; the server may note that end a little late. Where none has
		// ended, it is a client's first watch.
		follows := func(l *list, o *watch) bool {
			since := o.end.Add(-lag)
			if since.Before(o.start) {
				since = o.start
			}
			return l.answered.After(since)
		}
		pending = slices.DeleteFunc(pending, func(l *list) bool {
			return len(ended) > 0 && !slices.ContainsFunc(ended, func(o *watch) bool { return follows(l, o) })
		})
		fresh := w.all
		if i := slices.IndexFunc(pending, func(l *list) bool { return l.rv == "" || l.rv == w.rv }); !fresh && i >= 0 {
			w.list, fresh = pending[i], true
			pending = slices.Delete(pending, i, i+1)
		}
		if fresh {
			w.chain = w.start
			// Of the watches that it may replace take the one that would look worst.
			if i := highest(ended); i >= 0 {
				w.instead = ended[i]
				ended = slices.Delete(ended, i, i+1)
			}
			continue
		}
		if p := continued(ended, w); p != nil {
			ended = slices.DeleteFunc(ended, func(o *watch) bool { return o == p })
			w.before, w.chain = p, p.chain
		}
	}
}

// steadyLeftOut are the lists but those in the middle of a steady series: the two gaps
// before and the two after are equal but for a fifth, and after none of its neighbours a
// watch begins. No reflector lists like that, as it watches after a list. A reflector's own
// list beside such a series makes the gaps unequal.
func (s *stream) steadyLeftOut() []*list {
	followed := make([]bool, len(s.lists))
	for i, l := range s.lists {
		n, _ := slices.BinarySearchFunc(s.watches, l.answered, func(w *watch, t time.Time) int { return w.start.Compare(t) })
		followed[i] = n < len(s.watches) && (i+1 == len(s.lists) || s.watches[n].start.Before(s.lists[i+1].answered))
	}
	var out []*list
	for i, l := range s.lists {
		steady := i >= 2 && i+2 < len(s.lists)
		for k := i - 2; steady && k < i+2; k++ {
			gap, first := s.lists[k+1].answered.Sub(s.lists[k].answered), s.lists[i-1].answered.Sub(s.lists[i-2].answered)
			steady = (gap-first).Abs() <= first/5 && (k == i || !followed[k])
		}
		if !steady || followed[i+2] {
			out = append(out, l)
		}
	}
	return out
}

// highest returns the index of the watch with the largest version, -1 if there is
// none.
func highest(ws []*watch) int {
	top := -1
	for i, w := range ws {
		if top < 0 || less(ws[top].rv, w.rv) {
			top = i
		}
	}
	return top
}

// continued returns the watch that w continues, by the kindest reading: the one that
// started nearest before w's version, else the one nearest after.
func continued(ended []*watch, w *watch) *watch {
	var p *watch
	for _, o := range ended {
		switch {
		case p == nil:
			p = o
		case !less(w.rv, o.rv) && (less(w.rv, p.rv) || less(p.rv, o.rv)):
			p = o
		case less(w.rv, o.rv) && less(o.rv, p.rv):
			p = o
		}
	}
	return p
}
