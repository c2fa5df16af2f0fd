// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
}

// Record lists r in ns ("" = everywhere), then watches until ctx ends or Stop.
// When it returns the watch stands, so that nothing later is missed.
func (c *Client) Record(ctx context.Context, r GVR, ns string) (*Recorder, error) {
	ctx, cancel := context.WithCancel(ctx)
	rec := &Recorder{changed: make(chan struct{}), cancel: cancel, done: make(chan struct{})}
	w, err := rec.listWatch(ctx, c, r, ns)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("record %s: %w", r.Resource, err)
	}
	go func() {
		defer close(rec.done)
		for ctx.Err() == nil {
			if w != nil {
				rec.drain(ctx, w)
			}
			if ctx.Err() != nil {
				return
			}
			rec.add(RecordedEvent{Time: time.Now(), Type: "GAP"})
			if w, err = rec.listWatch(ctx, c, r, ns); err != nil {
				w = nil
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		}
	}()
	return rec, nil
}

func (rec *Recorder) listWatch(ctx context.Context, c *Client, r GVR, ns string) (watch.Interface, error) {
	l, err := c.in(r, ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	w, err := c.in(r, ns).Watch(ctx, metav1.ListOptions{ResourceVersion: l.GetResourceVersion()})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for i := range l.Items {
		rec.add(RecordedEvent{Time: now, Type: "LISTED", Object: &l.Items[i]})
	}
	return w, nil
}

func (rec *Recorder) drain(ctx context.Context, w watch.Interface) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-w.ResultChan():
			if !ok {
				return
			}
			o, _ := ev.Object.(*Object)
			rec.add(RecordedEvent{Time: time.Now(), Type: string(ev.Type), Object: o})
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
		if ev.Type == "GAP" {
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
