// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// RecordedEvent is what a Recorder saw. Type is ADDED, MODIFIED, DELETED or
// ERROR as sent by the server, LISTED for what was there at the start, or
// GAP where the watch was lost and the list taken anew (Object is nil then).
type RecordedEvent struct {
	Time   time.Time // when it arrived here
	Type   string
	Object *Object
}

// Recorder keeps every watch event of a resource.
type Recorder struct {
	mu      sync.Mutex
	events  []RecordedEvent
	changed chan struct{} // closed and replaced at every event
	cancel  context.CancelFunc
	done    chan struct{}

	c  *Client
	r  GVR
	ns string
	// last is the resourceVersion up to which everything is in events; of the one
	// goroutine that watches.
	last string
}

// Record lists r in ns ("" = everywhere), then watches until ctx ends or Stop.
// When it returns the watch stands, so that nothing later is missed. A watch that ends is
// taken up where it ended; only if the server has forgotten what came then, and etcd cannot
// tell either, there is a GAP.
func (c *Client) Record(ctx context.Context, r GVR, ns string) (*Recorder, error) {
	ctx, cancel := context.WithCancel(ctx)
	rec := &Recorder{changed: make(chan struct{}), cancel: cancel, done: make(chan struct{}), c: c, r: r, ns: ns}
	w, err := rec.listWatch(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("record %s: %w", r.Resource, err)
	}
	go func() {
		defer close(rec.done)
		for ctx.Err() == nil {
			began := time.Now()
			gone := rec.drain(ctx, w)
			if time.Since(began) < recordPause { // a server that ends each watch at once
				pause(ctx)
			}
			for w = nil; ctx.Err() == nil && w == nil; {
				if gone {
					w, err = rec.catchUp(ctx)
				} else {
					w, err = rec.watch(ctx, rec.last)
					gone = apierrors.IsGone(err) || apierrors.IsResourceExpired(err)
				}
				if err != nil {
					w = nil
					pause(ctx)
				}
			}
		}
	}()
	return rec, nil
}

// recordPause is between two tries of a Recorder to watch.
const recordPause = 200 * time.Millisecond

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(recordPause):
	}
}

func (rec *Recorder) watch(ctx context.Context, from string) (watch.Interface, error) {
	return rec.c.in(rec.r, rec.ns).Watch(ctx, metav1.ListOptions{ResourceVersion: from})
}

// anew lists, and watches from that list on.
func (rec *Recorder) anew(ctx context.Context) (*unstructured.UnstructuredList, watch.Interface, error) {
	l, err := rec.c.in(rec.r, rec.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	w, err := rec.watch(ctx, l.GetResourceVersion())
	return l, w, err
}

func (rec *Recorder) listWatch(ctx context.Context) (watch.Interface, error) {
	l, w, err := rec.anew(ctx)
	if err != nil {
		return nil, err
	}
	rec.listed(l)
	return w, nil
}

func (rec *Recorder) listed(l *unstructured.UnstructuredList) {
	now := time.Now()
	for i := range l.Items {
		rec.add(RecordedEvent{Time: now, Type: "LISTED", Object: &l.Items[i]})
	}
	rec.last = l.GetResourceVersion()
}

// catchUp lists and watches anew, after a watch whose continuation the server has forgotten.
// What came between is told by etcd; if it cannot tell there is a GAP.
func (rec *Recorder) catchUp(ctx context.Context) (watch.Interface, error) {
	l, w, err := rec.anew(ctx)
	if err != nil {
		return nil, err
	}
	missed, err := rec.missed(ctx, l)
	if err != nil {
		rec.add(RecordedEvent{Time: time.Now(), Type: gap})
		rec.listed(l)
		return w, nil
	}
	for _, ev := range missed {
		rec.add(ev)
	}
	rec.last = l.GetResourceVersion()
	return w, nil
}

// gap is the type of an event that says that others may be missing.
const gap = "GAP"

// drain takes what w sends until it ends, and says whether the server has forgotten what
// comes next.
func (rec *Recorder) drain(ctx context.Context, w watch.Interface) (gone bool) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case ev, ok := <-w.ResultChan():
			if !ok {
				return false
			}
			o, _ := ev.Object.(*Object)
			if ev.Type == watch.Error {
				// Whatever it is, the next watch must not begin with it again.
				if o == nil || Int(o, "code") != http.StatusGone {
					rec.add(RecordedEvent{Time: time.Now(), Type: string(ev.Type), Object: o})
				}
				return true
			}
			rec.add(RecordedEvent{Time: time.Now(), Type: string(ev.Type), Object: o})
			if o != nil {
				rec.last = o.GetResourceVersion()
			}
		}
	}
}

func (rec *Recorder) add(ev RecordedEvent) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.events = append(rec.events, ev)
	close(rec.changed)
	rec.changed = make(chan struct{})
}

// Events is everything so far, oldest first.
func (rec *Recorder) Events() []RecordedEvent {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return append([]RecordedEvent(nil), rec.events...)
}

// Of is the events of one object.
func (rec *Recorder) Of(ns, name string) []RecordedEvent {
	var out []RecordedEvent
	for _, ev := range rec.Events() {
		if ev.Object != nil && ev.Object.GetName() == name && ev.Object.GetNamespace() == ns {
			out = append(out, ev)
		}
	}
	return out
}

// Latest is the newest known state of an object, nil if it is gone or unseen.
func (rec *Recorder) Latest(ns, name string) *Object {
	evs := rec.Of(ns, name)
	if len(evs) == 0 || evs[len(evs)-1].Type == string(watch.Deleted) {
		return nil
	}
	return evs[len(evs)-1].Object
}

// Gaps is how often the watch was lost; an oracle that needs every event
// cannot answer Absent if it is not 0.
func (rec *Recorder) Gaps() int {
	n := 0
	for _, ev := range rec.Events() {
		if ev.Type == gap {
			n++
		}
	}
	return n
}

// Wait returns the first event, also among those already seen, that ok accepts.
// ok is not called for gaps and is called once per event.
func (rec *Recorder) Wait(ctx context.Context, bound time.Duration, what string, ok func(RecordedEvent) bool) (RecordedEvent, error) {
	t := time.NewTimer(bound)
	defer t.Stop()
	next := 0
	for {
		rec.mu.Lock()
		evs, changed := rec.events[next:], rec.changed
		next = len(rec.events)
		rec.mu.Unlock()
		for _, ev := range evs {
			if ev.Object != nil && ok(ev) {
				return ev, nil
			}
		}
		select {
		case <-changed:
		case <-t.C:
			return RecordedEvent{}, fmt.Errorf("%s: not within %v", what, bound)
		case <-ctx.Done():
			return RecordedEvent{}, fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// Stop ends the watch; the events stay.
func (rec *Recorder) Stop() {
	rec.cancel()
	<-rec.done
}
