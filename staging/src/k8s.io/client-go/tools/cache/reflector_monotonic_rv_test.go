// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"reflect"
	"testing"

	"k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache/rvcursor"
)

func rvPod(name, rv string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: rv}}
}

// rvWatch is a watch that sends events and ends.
func rvWatch(events ...watch.Event) watch.Interface {
	w := watch.NewFakeWithChanSize(len(events), false)
	for _, e := range events {
		w.Action(e.Type, e.Object)
	}
	w.Stop()
	return w
}

func rvEvent(eventType watch.EventType, name, rv string) watch.Event {
	return watch.Event{Type: eventType, Object: rvPod(name, rv)}
}

// setMonotonicRV sets the rule for a test and returns how to set it back.
func setMonotonicRV(enabled bool) func() {
	rvcursor.SetEnabledFunc(func() bool { return enabled })
	return func() { rvcursor.SetEnabledFunc(func() bool { return true }) }
}

// gaugeValue is a GaugeMetric that can be read.
type gaugeValue struct{ value float64 }

func (g *gaugeValue) Set(v float64) { g.value = v }

func TestReflectorWatchHandlerMonotonicRV(t *testing.T) {
	const long = "1234567890123456789012345"
	table := map[string]struct {
		start  string
		events []watch.Event
		on     string // where the next watch starts
		off    string // the same with the rule off, as upstream
		gauge  float64
		keys   []string
	}{
		"old version on deletion": {
			start:  "7",
			events: []watch.Event{rvEvent(watch.Added, "a", "10"), rvEvent(watch.Added, "b", "11"), rvEvent(watch.Deleted, "old", "5")},
			on:     "11", off: "5", gauge: 11,
			keys: []string{"a", "b"},
		},
		"own version on deletion": {
			start:  "7",
			events: []watch.Event{rvEvent(watch.Added, "a", "10"), rvEvent(watch.Added, "b", "11"), rvEvent(watch.Deleted, "old", "12")},
			on:     "12", off: "12", gauge: 12,
			keys: []string{"a", "b"},
		},
		"the store is changed by every event": {
			start:  "20",
			events: []watch.Event{rvEvent(watch.Added, "a", "10"), rvEvent(watch.Modified, "b", "9"), rvEvent(watch.Deleted, "old", "8")},
			on:     "20", off: "8", gauge: 20,
			keys: []string{"a", "b"},
		},
		"not well-formed": {
			start:  "7",
			events: []watch.Event{rvEvent(watch.Added, "a", "10"), rvEvent(watch.Modified, "old", "abc")},
			on:     "abc", off: "abc",
			keys: []string{"a", "old"},
		},
		"after one that is not well-formed": {
			start:  "abc",
			events: []watch.Event{rvEvent(watch.Added, "a", "5")},
			on:     "5", off: "5", gauge: 5,
			keys: []string{"a", "old"},
		},
		"one more digit": {
			start:  "8",
			events: []watch.Event{rvEvent(watch.Added, "a", "9"), rvEvent(watch.Added, "b", "10"), rvEvent(watch.Deleted, "old", "9")},
			on:     "10", off: "9", gauge: 10,
			keys: []string{"a", "b"},
		},
		"25 digits": {
			start:  "7",
			events: []watch.Event{rvEvent(watch.Added, "a", long), rvEvent(watch.Deleted, "old", "99")},
			on:     long, off: "99",
			keys: []string{"a"},
		},
		"what exists, in no order": {
			start:  "0",
			events: []watch.Event{rvEvent(watch.Added, "a", "10"), rvEvent(watch.Added, "b", "6")},
			on:     "6", off: "6", gauge: 6,
			keys: []string{"a", "b", "old"},
		},
		"unknown type of event": {
			start:  "7",
			events: []watch.Event{rvEvent(watch.Added, "a", "10"), rvEvent("BOOKMARK", "b", "50")},
			on:     "10", off: "50", gauge: 10,
			keys: []string{"a", "old"},
		},
		"unknown type of event with an old version": {
			start:  "7",
			events: []watch.Event{rvEvent(watch.Added, "a", "10"), rvEvent("BOOKMARK", "b", "5")},
			on:     "10", off: "5", gauge: 10,
			keys: []string{"a", "old"},
		},
	}
	for name, tc := range table {
		for _, enabled := range []bool{true, false} {
			restore := setMonotonicRV(enabled)
			s := NewStore(MetaNamespaceKeyFunc)
			s.Add(rvPod("old", "5"))
			g := NewReflector(&testLW{}, &v1.Pod{}, s, 0)
			gauge := &gaugeValue{}
			g.metrics.lastResourceVersion = gauge
			resumeRV := tc.start
			if err := g.watchHandler(rvWatch(tc.events...), &resumeRV, nevererrc, wait.NeverStop); err != nil {
				t.Errorf("%s: unexpected error %v", name, err)
			}
			restore()

			want := tc.on
			if !enabled {
				want = tc.off
			}
			if resumeRV != want {
				t.Errorf("%s (enabled %v): next watch from %q, expected %q", name, enabled, resumeRV, want)
			}
			if got := g.LastSyncResourceVersion(); got != want {
				t.Errorf("%s (enabled %v): LastSyncResourceVersion %q, expected %q", name, enabled, got, want)
			}
			if enabled && tc.gauge != 0 && gauge.value != tc.gauge {
				t.Errorf("%s: metric %v, expected %v", name, gauge.value, tc.gauge)
			}
			keys := map[string]bool{}
			for _, key := range s.ListKeys() {
				keys[key] = true
			}
			wantKeys := map[string]bool{}
			for _, key := range tc.keys {
				wantKeys[key] = true
			}
			if !reflect.DeepEqual(keys, wantKeys) {
				t.Errorf("%s (enabled %v): store has %v, expected %v", name, enabled, keys, wantKeys)
			}
		}
	}
}

// scriptedLW answers lists and watches from a script, and notes the
// resourceVersion of each watch. After the last watch it closes stop.
type scriptedLW struct {
	lists   []string // resourceVersions of the lists
	watches []func() (watch.Interface, error)
	started []string
	listed  int
	stop    chan struct{}
}

func (lw *scriptedLW) List(options metav1.ListOptions) (runtime.Object, error) {
	if lw.listed >= len(lw.lists) {
		return nil, fmt.Errorf("one list too many")
	}
	rv := lw.lists[lw.listed]
	lw.listed++
	return &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: rv}}, nil
}

func (lw *scriptedLW) Watch(options metav1.ListOptions) (watch.Interface, error) {
	lw.started = append(lw.started, options.ResourceVersion)
	if len(lw.started) > len(lw.watches) {
		close(lw.stop)
		return nil, fmt.Errorf("the script has ended")
	}
	return lw.watches[len(lw.started)-1]()
}

func (lw *scriptedLW) run(t *testing.T) *Reflector {
	lw.stop = make(chan struct{})
	r := NewReflector(lw, &v1.Pod{}, NewStore(MetaNamespaceKeyFunc), 0)
	for {
		select {
		case <-lw.stop:
			return r
		default:
		}
		if err := r.ListAndWatch(lw.stop); err != nil {
			t.Fatalf("unexpected error %v", err)
		}
	}
}

func events(es ...watch.Event) func() (watch.Interface, error) {
	return func() (watch.Interface, error) { return rvWatch(es...), nil }
}

func TestReflectorRestartsWatchMonotonicRV(t *testing.T) {
	gone := apierrs.NewGone("too old resource version: 11 (500)").Status()
	table := map[string]struct {
		lists   []string
		watches []func() (watch.Interface, error)
		started []string
		last    string
	}{
		"next watch from the largest version": {
			lists: []string{"9"},
			watches: []func() (watch.Interface, error){
				events(rvEvent(watch.Added, "a", "10"), rvEvent(watch.Added, "b", "11"), rvEvent(watch.Deleted, "c", "5")),
				events(rvEvent(watch.Deleted, "a", "10")),
				events(rvEvent(watch.Deleted, "b", "12")),
			},
			started: []string{"9", "11", "11", "12"},
			last:    "12",
		},
		"never before the list": {
			lists: []string{"100"},
			watches: []func() (watch.Interface, error){
				events(rvEvent(watch.Deleted, "a", "10")),
				events(rvEvent(watch.Added, "b", "101")),
			},
			started: []string{"100", "100", "101"},
			last:    "101",
		},
		"410 in the watch: list again, from there also when it is lower": {
			lists: []string{"9", "4"},
			watches: []func() (watch.Interface, error){
				events(rvEvent(watch.Added, "a", "10"), rvEvent(watch.Added, "b", "11")),
				events(watch.Event{Type: watch.Error, Object: &gone}),
				events(rvEvent(watch.Added, "a", "5"), rvEvent(watch.Deleted, "a", "3")),
			},
			started: []string{"9", "11", "4", "5"},
			last:    "5",
		},
		"410 as the answer to the watch: the same": {
			lists: []string{"9", "4"},
			watches: []func() (watch.Interface, error){
				events(rvEvent(watch.Added, "a", "11"), rvEvent(watch.Deleted, "b", "8")),
				func() (watch.Interface, error) { return nil, apierrs.NewGone("too old resource version") },
				events(rvEvent(watch.Added, "a", "6")),
			},
			started: []string{"9", "11", "4", "6"},
			last:    "6",
		},
		"list without a well-formed version": {
			lists: []string{"0"},
			watches: []func() (watch.Interface, error){
				events(rvEvent(watch.Added, "a", "5")),
				events(rvEvent(watch.Deleted, "b", "3")),
			},
			started: []string{"0", "5", "5"},
			last:    "5",
		},
	}
	for name, tc := range table {
		lw := &scriptedLW{lists: tc.lists, watches: tc.watches}
		r := lw.run(t)
		if !reflect.DeepEqual(lw.started, tc.started) {
			t.Errorf("%s: watches started from %v, expected %v", name, lw.started, tc.started)
		}
		if lw.listed != len(tc.lists) {
			t.Errorf("%s: %d lists, expected %d", name, lw.listed, len(tc.lists))
		}
		if got := r.LastSyncResourceVersion(); got != tc.last {
			t.Errorf("%s: LastSyncResourceVersion %q, expected %q", name, got, tc.last)
		}
	}
}
