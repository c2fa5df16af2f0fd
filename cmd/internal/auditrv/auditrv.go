// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package auditrv finds, in the audit log of a kube-apiserver, the clients whose
// watches restart from the past: the incident of the fix reflector-monotonic-rv.
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
// or none, or with sendInitialEvents, begins with all objects, as a list does, and
// continues nothing.
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
// seconds with the same identity does not hide a watch that goes back, and a steady
// series of lists after which nobody watches is not a reflector's. A page of a list
// (continue=) is no list.
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

type watch struct {
	rv         string
	start, end time.Time // end is zero while the watch is open
	ok         bool      // answered with 200
	// all: it begins with all objects, as a list does, and so continues nothing.
	all bool

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
	observations map[string][]observation // by resource
	shared       map[string]bool          // the resources of class ""
	// Events counts the events, Restarts the watches that continue another one, Other
	// the lines of docker's logs that are not of the audit log.
	Events, Restarts, Other int
	// Unjudged counts the watches after a list that may as well continue another watch.
	Unjudged    int
	First, Last time.Time
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

func (l *Log) observe(resource string, at time.Time, rv string, by *watch) {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil || n == 0 {
		return
	}
	c := resource
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
	l.Unjudged = 0
	for _, s := range l.streams {
		s.relate(l.lag())
		for _, w := range s.watches {
			if w.list != nil && w.instead != nil {
				l.Unjudged++
			}
		}
	}
	l.interleave()
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
			epochs: epochs[l.class(key.resource)], lag: l.lag(), scans: map[*watch]scan{}, r: r}
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
