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
// does when nothing has happened, and is not reported. A watch from resourceVersion 0
// or none begins with all objects, as a list does, and continues nothing.
//
// Which watch continues which is told by the client (user, user agent, first source
// address) and the request (path and selectors). Where several watches of one client
// are the same request, the reading that is kindest to the client is taken.
//
// # Lists
//
// A reflector lists after its watch has ended, and then watches. So a list between
// the end of a watch and the start of the next one means that the next one continues
// nothing. Lists at other times are somebody else's: a program that lists every few
// seconds with the same identity does not hide a watch that goes back. A page of a
// list (continue=) is no list.
//
// # Restored servers
//
// When etcd is restored from a backup, or lags, resourceVersions go back for
// everybody. This shows when a watch after a list starts before a watch that it
// replaces, or before an object of its resource that was created before. From then on
// nothing that was known before counts; a client that has not listed since is judged
// only once the versions have come to where it is.
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

// giveUp is how long after its end a watch may be continued. Reflectors try again
// within seconds; a watch whose process has ended is continued by none.
const giveUp = 10 * time.Minute

type watch struct {
	rv         string
	start, end time.Time // end is zero while the watch is open
	ok         bool      // answered with 200

	// What relate finds out: the watch that this one continues, nil if it follows a
	// list or is the first; the list, and the watch that was given up for it; and when
	// the chain of watches that leads here began with a list, zero if that is not in
	// the log.
	before  *watch
	list    *list
	instead *watch
	chain   time.Time
}

// list is a list that was answered.
type list struct {
	received, answered time.Time
	rv                 string // of the response, "" if it is not in the log
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
	// by is the watch that named it, nil for an update, which proves it.
	by *watch
}

type streamKey struct {
	Stream
	resource, namespace string
	// partial is set if the watch selects, so that it need not see every write.
	partial bool
}

type stream struct {
	watches []*watch
	lists   []*list
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
	// Events counts the events, Restarts the watches that continue another one, Other
	// the lines of docker's logs that are not of the audit log.
	Events, Restarts, Other int
	First, Last             time.Time
	// Restores are the times from which on resourceVersions had gone back for
	// everybody.
	Restores []time.Time

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

func (l *Log) observe(resource string, at time.Time, rv string, by *watch) {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil || n == 0 {
		return
	}
	c := class(resource)
	// Most updates say nothing new. A smaller version counts after a restore, so one
	// in a second is kept.
	if o := l.observations[c]; by == nil && len(o) > 0 && o[len(o)-1].rv >= n && !at.Before(o[len(o)-1].at) && at.Sub(o[len(o)-1].at) < time.Second {
		return
	}
	l.observations[c] = append(l.observations[c], observation{at, n, by})
}

// Results judges the log. Streams are in the order of their first finding, those
// without any are left out.
func (l *Log) Results() []*Result {
	for _, s := range l.streams {
		s.relate(l.lag())
	}
	creates, epochs := l.bounds()
	others := map[string][]write{}
	for _, w := range l.writes {
		if !w.create {
			others[w.resource] = append(others[w.resource], w)
		}
	}
	for _, ws := range others {
		sortBy(ws, func(w write) time.Time { return w.completed })
	}
	l.Restarts, l.Restores = 0, nil
	for _, es := range epochs {
		for _, e := range es {
			l.Restores = append(l.Restores, e.from)
		}
	}
	slices.SortFunc(l.Restores, time.Time.Compare)
	var results []*Result
	for key, s := range l.streams {
		r := &Result{Stream: key.Stream}
		j := judge{key: key, creates: inNamespace(creates[key.resource], key.namespace), others: others[key.resource],
			epochs: epochs[class(key.resource)], lag: l.lag(), scans: map[*watch]scan{}, r: r}
		j.stream(s)
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

// inNamespace are the creations that a watch of the namespace sees, all if it is "".
func inNamespace(cs []creation, namespace string) []creation {
	if namespace == "" {
		return cs
	}
	var in []creation
	for _, c := range cs {
		if c.namespace == namespace {
			in = append(in, c)
		}
	}
	return in
}

func sortBy[T any](s []T, at func(T) time.Time) {
	slices.SortStableFunc(s, func(a, b T) int { return at(a).Compare(at(b)) })
}

// relate finds out which watch continues which.
func (s *stream) relate(lag time.Duration) {
	sortBy(s.watches, func(w *watch) time.Time { return w.start })
	sortBy(s.lists, func(l *list) time.Time { return l.answered })
	var ended, open []*watch // ended are those that no other continues yet
	var pending []*list      // lists that no watch has followed yet
	lists := s.lists
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
		fresh := w.rv == "" || w.rv == "0"
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

// creation is a create with a lower bound of its resourceVersion.
type creation struct {
	write
	atLeast uint64
}

// step is something that says, or needs, a bound of resourceVersions.
type step struct {
	at    time.Time
	order int // lists, observations, then completions, then receptions of one time
	rv    uint64
	by    *watch // of an observation, and of a list the watch that followed it
	w     *write // of completions and receptions
	of    string // the list's resource
	list  bool
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
// a larger one, each its own. It also returns, by class, the epochs that begin with
// resourceVersions going back for everybody.
func (l *Log) bounds() (map[string][]creation, map[string][]*epoch) {
	steps := map[string][]step{}
	for c, os := range l.observations {
		for _, o := range os {
			steps[c] = append(steps[c], step{at: o.at, order: 1, rv: o.rv, by: o.by})
		}
	}
	for key, s := range l.streams {
		c := class(key.resource)
		for _, w := range s.watches {
			if n, err := strconv.ParseUint(w.rv, 10, 64); err == nil && w.list != nil {
				steps[c] = append(steps[c], step{at: w.list.received, rv: n, by: w, of: key.resource, list: true})
			}
		}
	}
	for i := range l.writes {
		w := &l.writes[i]
		if !w.create {
			continue
		}
		c := class(w.resource)
		steps[c] = append(steps[c], step{at: w.completed, order: 2, w: w}, step{at: w.received, order: 3, w: w})
	}
	creations := map[string][]creation{}
	epochs := map[string][]*epoch{}
	for c, ss := range steps {
		slices.SortStableFunc(ss, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.order, b.order)) })
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
			case s.list:
				// The list shows less than was known before it was asked for.
				last := newest[s.of]
				back := s.by.instead != nil && less(s.by.rv, s.by.instead.rv)
				if !back && (last.atLeast <= s.rv || last.completed.Add(l.lag()).After(s.at)) {
					continue
				}
				now = &epoch{from: s.at}
				epochs[c] = append(epochs[c], now)
				base, n = 0, 0
				raise(s.rv, s.at)
				clear(bound)
				clear(newest)
			case s.order == 1:
				// What a client knows from before a restore says nothing.
				if s.by == nil || now == nil || s.by.chain.After(now.from) {
					raise(s.rv, s.at)
				}
			case s.order == 3:
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
