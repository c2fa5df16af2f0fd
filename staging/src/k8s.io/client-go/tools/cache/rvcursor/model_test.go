// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rvcursor_test

import (
	"fmt"
	"strconv"

	"k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// change is an entry of the server's history.
type change struct {
	revision  int
	eventType watch.EventType
	name      string
	// sent is the resourceVersion that the event carries. Of a server that is right
	// it is the revision.
	sent string
}

// op is one step of what happens to a server.
type op struct {
	kind opKind
	// name is the object, for create, update, leave and remove.
	name string
	// sent overrides the resourceVersion that the event carries, if not "".
	sent string
}

type opKind int

const (
	create  opKind = iota
	update         // MODIFIED
	remove         // DELETED
	leave          // an update that leaves the watch's filter: DELETED, though the object lives on
	cut            // the watch ends
	compact        // the server forgets its history so far: a watch from before it is answered with 410 Gone
	restore        // the server loses its newest changes, as when etcd is restored from a backup, and says 410 Gone to those who watched
)

// server is a model of kube-apiserver's watch cache and of what is behind it. With
// oldVersions it is the one of 1.7.0, 1.8.0 and 1.9.0 to 1.9.2: a DELETED event
// carries the resourceVersion of the object before the change.
type server struct {
	oldVersions bool

	ops       []op
	revision  int
	compacted int
	objects   map[string]int // name -> revision of its last change
	// history since compacted
	history []change
	// restored is true from a restore to the next list. Whoever watched before has to
	// list: the revisions that were lost are given out again.
	restored bool
	// noFuture ignores the version of an op that the server has not reached.
	noFuture bool
	// listAtEnd makes the reader list once more when there is no op left, as after
	// 410 Gone.
	listAtEnd bool
	// stop is closed when there is no op left, and all that happened was sent: after
	// a few watches, because there may be events that come with every watch.
	stop chan struct{}
	idle int

	// What the reader of the watch has had since its last list.
	listed   int // revision of that list
	largest  int // largest version that an event carried, or that of the list
	seen     map[int]bool
	store    map[string]bool
	replays  []string
	restarts int
	relists  int
}

func newServer(oldVersions bool, ops []op) *server {
	s := &server{oldVersions: oldVersions, ops: ops, objects: map[string]int{}, stop: make(chan struct{})}
	s.revision = 1
	return s
}

// apply does one op and returns the change it makes, nil if none.
func (s *server) apply(o op) *change {
	before, exists := s.objects[o.name]
	c := change{name: o.name}
	switch {
	case o.kind == create && !exists:
		c.eventType = watch.Added
	case o.kind == update && exists:
		c.eventType = watch.Modified
	case (o.kind == remove || o.kind == leave) && exists:
		c.eventType = watch.Deleted
	case o.kind == compact:
		s.compacted = s.revision
		s.history = nil
		return nil
	default:
		return nil
	}
	s.revision++
	c.revision = s.revision
	c.sent = strconv.Itoa(c.revision)
	if c.eventType == watch.Deleted {
		delete(s.objects, o.name)
		if s.oldVersions {
			c.sent = strconv.Itoa(before)
		}
	} else {
		s.objects[o.name] = s.revision
	}
	if n, err := strconv.Atoi(o.sent); o.sent != "" && !(err == nil && n > c.revision && s.noFuture) {
		c.sent = o.sent
	}
	s.history = append(s.history, c)
	return &c
}

// lose takes the newest half of the history back.
func (s *server) lose() {
	lost := s.history[len(s.history)/2:]
	s.history = s.history[:len(s.history)/2]
	if len(lost) == 0 {
		return
	}
	s.revision = lost[0].revision - 1
	s.restored = true
	// What was before compacted cannot be told from the history; begin anew from
	// what is known.
	for _, c := range lost {
		delete(s.objects, c.name)
	}
	for _, c := range s.history {
		if c.eventType == watch.Deleted {
			delete(s.objects, c.name)
		} else {
			s.objects[c.name] = c.revision
		}
	}
	// A backup is older than any compaction that came after it.
	s.compacted = s.revision
	s.history = nil
}

// object is name as of revision content, sent with the version rv.
func object(name, rv string, content int) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: rv}, Data: map[string]string{"revision": strconv.Itoa(content)}}
}

func (s *server) List(options metav1.ListOptions) (runtime.Object, error) {
	s.relists++
	s.restored = false
	s.listed, s.largest, s.seen, s.store = s.revision, s.revision, map[int]bool{}, map[string]bool{}
	list := &v1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.revision)}}
	for name, rv := range s.objects {
		list.Items = append(list.Items, *object(name, strconv.Itoa(rv), rv))
		s.store[name] = true
	}
	return list, nil
}

// Watch sends the history after options.ResourceVersion and what the ops bring, up
// to the next cut. The watch that it returns has all its events already, so the
// model needs no goroutine; it has at least one, because a reflector lists again
// after a short watch without any. A version that the server has not reached is
// waited for, and what happens until then is not sent, as by the watch cache of 1.7
// to 1.9 (cacheWatcher.process, storage/cacher.go).
func (s *server) Watch(options metav1.ListOptions) (watch.Interface, error) {
	s.restarts++
	from, err := strconv.Atoi(options.ResourceVersion)
	switch {
	case err != nil:
		return nil, apierrs.NewBadRequest(fmt.Sprintf("resource version %q is not a number", options.ResourceVersion))
	case s.restored, from < s.compacted:
		return nil, apierrs.NewGone(fmt.Sprintf("too old resource version: %d (%d)", from, s.compacted))
	}
	var events []change
	for _, c := range s.history {
		if c.revision > from {
			events = append(events, c)
		}
	}
	for {
		if len(s.ops) == 0 {
			if s.listAtEnd {
				s.listAtEnd = false
				return nil, apierrs.NewGone("too old resource version")
			}
			s.idle++
			if len(events) == 0 || s.idle > 3 {
				close(s.stop)
				return nil, fmt.Errorf("nothing happens any more")
			}
			break
		}
		o := s.ops[0]
		s.ops = s.ops[1:]
		if o.kind == cut && len(events) > 0 {
			break
		}
		if o.kind == restore {
			s.lose()
			if len(events) > 0 {
				break
			}
			return nil, fmt.Errorf("connection refused")
		}
		if c := s.apply(o); c != nil && c.revision > from {
			events = append(events, *c)
		}
	}
	w := watch.NewFakeWithChanSize(len(events), false)
	for _, c := range events {
		s.deliver(c)
		w.Action(c.eventType, object(c.name, c.sent, c.revision))
	}
	w.Stop()
	return w, nil
}

// deliver notes a change that the reader gets a second time. Of a server that sends
// old versions one kind cannot be helped and does no harm: deletions after the
// largest version that was sent. The object is gone from the store then.
func (s *server) deliver(c change) {
	if s.seen[c.revision] || c.revision <= s.listed {
		if c.eventType != watch.Deleted || s.store[c.name] || c.revision <= s.largest {
			s.replays = append(s.replays, fmt.Sprintf("%s %s of revision %d (largest version seen: %d)", c.eventType, c.name, c.revision, s.largest))
		}
	}
	s.seen[c.revision] = true
	if rv, err := strconv.Atoi(c.sent); err == nil && rv > s.largest {
		s.largest = rv
	}
	if c.eventType == watch.Deleted {
		delete(s.store, c.name)
	} else {
		s.store[c.name] = true
	}
}
