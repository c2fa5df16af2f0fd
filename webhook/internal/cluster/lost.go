// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the program knows of pods can be of no use any more while reviews go on. Its watch may
// bring no events: its credentials are gone, or its way to the API server, which is another one
// than that of the reviews. Then each new pod would be kept from the ready addresses for
// ever. Or etcd was restored, and the resourceVersions of today's pods are below those that
// the program knows. It ends then. Started anew, it changes nothing until its caches are
// filled.

// deafFor is how long newer pods may be seen in Endpoints without an event of any pod.
const deafFor = 30 * time.Second

// How often Lost looks whether the watch brings events, and whether resourceVersions went
// back. A list of one pod may take listWithin.
const (
	lostEvery     = 10 * time.Second
	restoredEvery = time.Minute
	listWithin    = 10 * time.Second
)

// eventWithin is how long an event may be on its way when a list has its pod. Tests have less.
var eventWithin = time.Second

// deafness is since when an address is known whose pod is newer than the last event of a pod.
type deafness struct {
	mu sync.Mutex
	// last is the resourceVersion of the last event, namespace that of the address.
	last, namespace string
	since           time.Time // zero: there is none
}

// note takes in an address whose pod is newer than the last event. It reports whether one
// has been known for deafFor without an event.
func (d *deafness) note(last, namespace string, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() || d.last != last {
		d.last, d.namespace, d.since = last, namespace, now
	}
	return now.Sub(d.since) >= deafFor
}

// stalled is the namespace of the address if note would report so; "" if not.
func (d *deafness) stalled(last string, now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() || d.last != last || now.Sub(d.since) < deafFor {
		return ""
	}
	return d.namespace
}

// forget takes an address back whose pod is not newer.
func (d *deafness) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since = time.Time{}
}

// Lost returns why the program has to start anew, or nil when ctx ends.
func (s *Store) Lost(ctx context.Context) error {
	l := &lost{s: s}
	t := time.NewTicker(lostEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if !s.Synced() {
			continue
		}
		if err := l.look(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// lost is what Lost knows from one look to the next.
type lost struct {
	s *Store
	// highest is the newest resourceVersion of a pod that there was an event of.
	highest string
	// below is how often in a row the API server had only older ones.
	below int
	asked time.Time
}

func (l *lost) look(ctx context.Context) error {
	last, now := l.s.podRV(), l.s.now()
	if older(l.highest, last) {
		l.highest = last
	}
	stalled := l.s.deaf.stalled(last, now)
	// A tick may come a little early.
	if stalled == "" && l.below == 0 && now.Sub(l.asked) < restoredEvery-lostEvery/2 {
		return nil
	}
	l.asked = now
	at, err := l.s.serverAt(ctx)
	switch {
	case err != nil && stalled != "":
		return unlisted(err)
	case err != nil:
		return nil // the watch may go on, or its next failure is seen
	case older(at, l.highest):
		// An API server may ask an etcd that lags.
		if l.below++; l.below > 1 {
			return fmt.Errorf("the API server is at resourceVersion %s, and there was an event of a pod at %s: etcd was restored", at, l.highest)
		}
		return nil
	}
	l.below = 0
	if stalled == "" {
		return nil
	}
	missed, err := l.s.missed(ctx, stalled, last)
	switch {
	case err != nil:
		return unlisted(err)
	case missed:
		return fmt.Errorf("the watch of pods has brought no event for %v, though there are newer pods", deafFor)
	}
	// Whoever may write Endpoints can make up an address.
	l.s.log.Warn("an address has the resourceVersion of no pod", "namespace", stalled)
	l.s.deaf.forget()
	return nil
}

// unlisted is why the program ends that hears nothing and cannot ask either.
func unlisted(err error) error {
	return fmt.Errorf("the watch of pods has brought no event for %v, though an address of a newer pod was seen; and pods cannot be listed: %w", deafFor, err)
}

// missed reports whether a namespace has a pod that is newer than the last event, which does not
// come.
func (s *Store) missed(ctx context.Context, namespace, last string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(list.Items, func(p v1.Pod) bool { return older(last, p.ResourceVersion) }) {
		return false, nil
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(eventWithin):
	}
	return s.podRV() == last, nil
}

// serverAt is the resourceVersion that the API server is at: that of a list which it does not
// answer from its cache.
func (s *Store) serverAt(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	list, err := s.client.CoreV1().Pods(v1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}
