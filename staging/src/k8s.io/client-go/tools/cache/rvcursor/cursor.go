// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rvcursor

import (
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Cursor follows one watch. It is not safe for concurrent use: a watch has one
// reader.
type Cursor struct {
	reflector    string
	expectedType string
	// enabled is the answer of the setting when the watch started.
	enabled bool
	// synthetic is true in a watch from "" or "0" until it has sent anything but
	// ADDED: the server begins with an ADDED event for each object that there is.
	synthetic bool
	// kept is where the next watch would start by the rule when it is off: it serves to
	// count what the rule would have done.
	kept string
	// regressions counts the events that are older than kept.
	regressions CounterMetric
	warned      bool
}

// New returns the cursor of a watch that was started from resourceVersion.
// reflector is the reflector's name, for the log. expectedType is what it watches,
// nil for anything.
func New(reflector string, expectedType reflect.Type, resourceVersion string) *Cursor {
	settings.RLock()
	enabled, metrics := settings.enabled, settings.metrics
	settings.RUnlock()
	c := &Cursor{
		reflector:    reflector,
		expectedType: "unknown",
		enabled:      enabled(),
		synthetic:    resourceVersion == "" || resourceVersion == "0",
		kept:         resourceVersion,
	}
	if expectedType != nil {
		c.expectedType = fmt.Sprint(expectedType)
	}
	// Made here and not at the first regression, so that a counter exists, at 0,
	// before anything goes wrong: an increase from nothing is not seen by an alert.
	c.regressions = metrics.NewRegressionsMetric(c.expectedType, c.enabled)
	return c
}

// Next takes an event of the watch, with its resourceVersion, and returns the
// resourceVersion from which the next watch is to start; current is what it returned
// for the event before, or where the watch started. A type of event that is not known
// says nothing about what has been received, so it does not move the cursor.
//
// It is called for every event of every watch, so it keeps nothing and is handed what
// the reflector has read already.
func (c *Cursor) Next(current, rv string, eventType watch.EventType, obj metav1.Object) string {
	if !c.enabled {
		c.kept = c.next(c.kept, rv, eventType, obj)
		return rv
	}
	return c.next(current, rv, eventType, obj)
}

func (c *Cursor) next(current, rv string, eventType watch.EventType, obj metav1.Object) string {
	switch eventType {
	case watch.Added:
		if c.synthetic {
			return rv // these come in no order
		}
	case watch.Modified, watch.Deleted:
		c.synthetic = false
	default:
		return current
	}
	if !Less(rv, current) {
		return rv
	}
	c.regressions.Inc()
	c.warn(current, eventType, obj)
	return current
}

// warn tells, once a watch, that the server sends old resourceVersions. It does not
// wait for the server's version.
func (c *Cursor) warn(current string, eventType watch.EventType, obj metav1.Object) {
	if c.warned {
		return
	}
	c.warned = true
	settings.RLock()
	serverVersion, warningf := settings.serverVersion, settings.warningf
	settings.RUnlock()

	consequence := "the next watch will not start from before that"
	if !c.enabled {
		consequence = "the next watch may start from there and replay what has been seen (ReflectorMonotonicResourceVersion is off)"
	}
	msg := fmt.Sprintf("%s: watch of %s: the server sent %s %s/%s with resourceVersion %s after resourceVersion %s; %s.",
		c.reflector, c.expectedType, eventType, obj.GetNamespace(), obj.GetName(), obj.GetResourceVersion(), current, consequence)
	go func() {
		warningf("%s Server version: %s (kube-apiserver 1.7.0 to 1.7.12, 1.8.0 to 1.8.7 and 1.9.0 to 1.9.2 do this on deletions, see kubernetes/kubernetes#58547)", msg, serverVersion())
	}()
}
