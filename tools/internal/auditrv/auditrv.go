// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package auditrv finds, in the audit log of a kube-apiserver, the clients whose
// watches restart from the past: the incident of the slug reflector-monotonic-rv.
//
// A reflector lists once and then watches; when a watch ends it watches again from
// the resourceVersion of the last event that it received. The log has the
// resourceVersion of each watch request, but not the events. Three things can be
// told from it about a watch that continues another one, with no list between:
//
//   - back: it starts before the one that it continues. No right client and server
//     do that.
//   - stale: it starts before an object that was created well before the end of the
//     one that it continues, so the client had received a later resourceVersion. The
//     usual form is the same resourceVersion again and again while objects are
//     created. The version of the created object is in the log at level
//     RequestResponse; otherwise a lower bound of it is, see bounds.
//   - repeat: it starts where the one that it continues did, though an object was
//     updated or patched in between. This is a hint only: an update that changes
//     nothing has no event.
//
// A watch that starts again at the same place without any of this is what a client
// does when nothing has happened, and is not reported.
//
// Which watch continues which is told by the client (user, user agent, first source
// address) and the request (path and selectors). Where several watches of one client
// are the same request, the reading that is kindest to the client is taken.
package auditrv

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strconv"
	"time"
)

// Kind is what is wrong with a restart.
type Kind string

// The kinds, see the package's comment. Back and Stale are proofs, Repeat is a hint.
const (
	Back   Kind = "back"
	Stale  Kind = "stale"
	Repeat Kind = "repeat"
)

// Stream is one kind of watch of one client.
type Stream struct {
	// UserAgent is "" in logs of releases that do not write it (before 1.12).
	UserAgent string `json:"userAgent,omitempty"`
	User      string `json:"user"`
	Source    string `json:"source,omitempty"`
	// Resource is "services", "deployments.extensions".
	Resource string `json:"resource"`
	// Request is the path and the selectors of the watch, such as
	// "/api/v1/services?fieldSelector=…".
	Request string `json:"request"`
}

// Finding is one watch that restarted from the past.
type Finding struct {
	Kind Kind `json:"kind"`
	// Time is when the watch started.
	Time time.Time `json:"time"`
	// From is the resourceVersion that the watch asked for, Before that of the
	// watch that it continues, which started at BeforeTime.
	From       string    `json:"from"`
	Before     string    `json:"before"`
	BeforeTime time.Time `json:"beforeTime"`
	// Missed names, for stale and repeat, a write that the client had seen, and
	// AtLeast the least resourceVersion that it can have had (0 for repeat).
	Missed  string `json:"missed,omitempty"`
	AtLeast uint64 `json:"atLeast,omitempty"`
}

// Result is what was found about one stream.
type Result struct {
	Stream
	// Restarts counts the watches that continue another one.
	Restarts int       `json:"restarts"`
	Findings []Finding `json:"findings"`
}

// Count returns the number of findings of kind.
func (r *Result) Count(kind Kind) int {
	n := 0
	for _, f := range r.Findings {
		if f.Kind == kind {
			n++
		}
	}
	return n
}

// Proven says whether a finding is a proof.
func (r *Result) Proven() bool { return r.Count(Back)+r.Count(Stale) > 0 }

// Lag is how long after its completion a write is sure to have reached a watcher.
// CoarseLag is the same for logs that do not tell when a request was completed (1.8):
// that is guessed from the lines before.
const (
	Lag       = time.Second
	CoarseLag = 5 * time.Second
)

type watch struct {
	rv         string
	start, end time.Time // end is zero while the watch is open
	ok         bool      // answered with 200
}

type write struct {
	resource, namespace, name string
	create                    bool
	received, completed       time.Time
	rv                        uint64 // of the response object, 0 if not in the log
}

// observation is a resourceVersion that existed at a time.
type observation struct {
	at time.Time
	rv uint64
}

type streamKey struct {
	Stream
	resource, namespace string
	// partial is set if the watch selects, so that it need not see every write.
	partial bool
}

type stream struct {
	watches []*watch
	lists   []time.Time
}

// Log collects what matters of audit events, in any order, and judges it. The zero
// value is not usable; see NewLog.
type Log struct {
	streams map[streamKey]*stream
	// open are the watches by auditID, until their end.
	open map[string]*watch
	// seen are hashes of the auditIDs of lists and writes, because a line may be in
	// two of the files.
	seen         map[uint64]struct{}
	writes       []write
	observations map[string][]observation // by class, see class
	// Events counts the events, Restarts the watches that continue another one.
	Events, Restarts int
	First, Last      time.Time

	coarse bool
	clock  time.Time // latest time in the file that is read
}

var seed = maphash.MakeSeed()

// again says whether the request was added before.
func (l *Log) again(auditID string) bool {
	if auditID == "" {
		return false
	}
	h := maphash.String(seed, auditID)
	_, ok := l.seen[h]
	l.seen[h] = struct{}{}
	return ok
}

func (l *Log) lag() time.Duration {
	if l.coarse {
		return CoarseLag
	}
	return Lag
}

// NewLog returns an empty log.
func NewLog() *Log {
	return &Log{streams: map[streamKey]*stream{}, open: map[string]*watch{}, seen: map[uint64]struct{}{}, observations: map[string][]observation{}}
}

// class names the resources whose resourceVersions count the same changes. The core
// group is stored in one etcd, except that events often are in another; a group that
// is served by an aggregated server may have a storage of its own.
func class(resource string) string {
	for i := range resource {
		if resource[i] == '.' {
			return resource
		}
	}
	if resource == "events" {
		return resource
	}
	return ""
}

func (l *Log) observe(resource string, at time.Time, rv string) {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil || n == 0 {
		return
	}
	c := class(resource)
	// Most observations say nothing new, so only the rising ones are kept. Files
	// that are read in another order than they were written lose some.
	if o := l.observations[c]; len(o) > 0 && o[len(o)-1].rv >= n && !at.Before(o[len(o)-1].at) {
		return
	}
	l.observations[c] = append(l.observations[c], observation{at, n})
}

// Results judges the log. Streams are in the order of their first finding, those
// without any are left out.
func (l *Log) Results() []*Result {
	creates := l.bounds()
	others := map[string][]write{}
	for _, w := range l.writes {
		if !w.create {
			others[w.resource] = append(others[w.resource], w)
		}
	}
	for _, ws := range others {
		sortBy(ws, func(w write) time.Time { return w.completed })
	}
	l.Restarts = 0
	var results []*Result
	for key, s := range l.streams {
		r := &Result{Stream: key.Stream}
		judge(key, s, creates[key.resource], others[key.resource], l.lag(), r)
		l.Restarts += r.Restarts
		if len(r.Findings) > 0 {
			results = append(results, r)
		}
	}
	slices.SortFunc(results, func(a, b *Result) int {
		return cmp.Or(a.Findings[0].Time.Compare(b.Findings[0].Time), cmp.Compare(a.Request, b.Request), cmp.Compare(a.User, b.User))
	})
	return results
}

func sortBy[T any](s []T, at func(T) time.Time) {
	slices.SortStableFunc(s, func(a, b T) int { return at(a).Compare(at(b)) })
}

// creation is a create with a lower bound of its resourceVersion.
type creation struct {
	write
	atLeast uint64
	// highest is the largest atLeast of this and all creations that were completed
	// before.
	highest uint64
	// top is the index of the creation that has it.
	top int
}

// bounds returns the creations by resource, in the order of their completion, each
// with a lower bound of its resourceVersion. A resourceVersion that a client names
// in a watch or an update exists then, and every creation that is received later has
// a larger one, each its own.
func (l *Log) bounds() map[string][]creation {
	type step struct {
		at    time.Time
		order int // observations, then completions, then receptions of one time
		rv    uint64
		w     *write
	}
	steps := map[string][]step{}
	for c, os := range l.observations {
		for _, o := range os {
			steps[c] = append(steps[c], step{at: o.at, order: 0, rv: o.rv})
		}
	}
	for i := range l.writes {
		w := &l.writes[i]
		if !w.create {
			continue
		}
		c := class(w.resource)
		steps[c] = append(steps[c], step{at: w.completed, order: 1, w: w}, step{at: w.received, order: 2, w: w})
	}
	creations := map[string][]creation{}
	for _, ss := range steps {
		slices.SortStableFunc(ss, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.order, b.order)) })
		var base, n uint64 // some version is >= base+n
		var since time.Time
		raise := func(rv uint64, at time.Time) {
			if rv > base+n {
				base, n, since = rv, 0, at
			}
		}
		bound := map[*write]uint64{}
		for _, s := range ss {
			switch {
			case s.w == nil:
				raise(s.rv, s.at)
			case s.order == 2:
				if base > 0 {
					bound[s.w] = base + n + 1
				}
			default:
				atLeast := max(s.w.rv, bound[s.w])
				creations[s.w.resource] = append(creations[s.w.resource], creation{write: *s.w, atLeast: atLeast})
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
	return creations
}

// judge goes through the watches of one stream in the order of time.
func judge(key streamKey, s *stream, creates []creation, others []write, lag time.Duration, r *Result) {
	sortBy(s.watches, func(w *watch) time.Time { return w.start })
	slices.SortFunc(s.lists, time.Time.Compare)
	var ended []*watch // watches that no other continues yet
	open := []*watch{}
	lists := s.lists
	if key.namespace != "" {
		in := creates
		creates = nil
		for _, c := range in {
			if c.namespace == key.namespace {
				creates = append(creates, c)
			}
		}
	}
	for i := range creates {
		creates[i].highest, creates[i].top = creates[i].atLeast, i
		if i > 0 && creates[i-1].highest >= creates[i].atLeast {
			creates[i].highest, creates[i].top = creates[i-1].highest, creates[i-1].top
		}
	}
	pending := 0 // lists that no watch has followed yet
	for _, w := range s.watches {
		open = slices.DeleteFunc(open, func(o *watch) bool {
			if o.end.IsZero() || o.end.After(w.start) {
				return false
			}
			ended = append(ended, o)
			return true
		})
		for len(lists) > 0 && !lists[0].After(w.start) {
			pending++
			lists = lists[1:]
		}
		open = append(open, w)
		if pending > 0 {
			// This watch follows a list, for which one of those that ended was given
			// up: take the one that would look worst.
			pending--
			if i := highest(ended); i >= 0 {
				ended = slices.Delete(ended, i, i+1)
			}
			continue
		}
		p := continued(ended, w)
		if p == nil {
			continue
		}
		ended = slices.DeleteFunc(ended, func(o *watch) bool { return o == p })
		r.Restarts++
		f := Finding{Time: w.start, From: w.rv, Before: p.rv, BeforeTime: p.start}
		switch {
		case less(w.rv, p.rv):
			f.Kind = Back
		case key.partial || !p.ok || p.end.Sub(p.start) < lag:
			continue
		default:
			if !f.stale(creates, w, p, p.end.Add(-lag)) && !f.repeat(key, others, w, p, p.end.Add(-lag)) {
				continue
			}
		}
		r.Findings = append(r.Findings, f)
	}
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

// stale looks for an object with a later version than w's, that p's reader had seen:
// one that was completed by seen.
func (f *Finding) stale(creates []creation, w, p *watch, seen time.Time) bool {
	from, err := strconv.ParseUint(w.rv, 10, 64)
	if err != nil {
		return false
	}
	// the last creation that was completed by then
	n, _ := slices.BinarySearchFunc(creates, seen, func(c creation, t time.Time) int {
		if c.completed.After(t) {
			return 1
		}
		return -1
	})
	if n == 0 {
		return false
	}
	if c := creates[n-1]; c.highest > from {
		f.Kind, f.Missed, f.AtLeast = Stale, creates[c.top].String(), c.highest
		return true
	}
	// p's version existed when p started, so a creation after that is later.
	if w.rv == p.rv {
		for i := n - 1; i >= 0 && creates[i].completed.After(p.start); i-- {
			if creates[i].received.After(p.start) {
				f.Kind, f.Missed, f.AtLeast = Stale, creates[i].String(), from+1
				return true
			}
		}
	}
	return false
}

func (f *Finding) repeat(key streamKey, others []write, w, p *watch, seen time.Time) bool {
	if w.rv != p.rv {
		return false
	}
	i, _ := slices.BinarySearchFunc(others, p.start, func(o write, t time.Time) int { return o.completed.Compare(t) })
	for ; i < len(others) && !others[i].completed.After(seen); i++ {
		if o := others[i]; o.received.After(p.start) && (key.namespace == "" || key.namespace == o.namespace) {
			f.Kind, f.Missed = Repeat, o.String()
			return true
		}
	}
	return false
}

func (w write) String() string {
	verb := "write"
	if w.create {
		verb = "creation"
	}
	name := w.name
	if name == "" {
		name = "an object"
	}
	if w.namespace != "" {
		name = w.namespace + "/" + name
	}
	return verb + " of " + name + " at " + w.completed.UTC().Format(timeFormat)
}

// less says whether a is an older resourceVersion than b. It is false unless both
// are decimal numbers without leading zeros, of any length (KEP-5504).
func less(a, b string) bool {
	if !wellFormed(a) || !wellFormed(b) {
		return false
	}
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

func wellFormed(rv string) bool {
	if rv == "" || rv[0] == '0' {
		return false
	}
	for i := range len(rv) {
		if rv[i] < '0' || rv[i] > '9' {
			return false
		}
	}
	return true
}
