// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rvcursor

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

type fakeCounter struct{ count int }

func (c *fakeCounter) Inc() { c.count++ }

// fakeSettings replaces what a binary connects.
type fakeSettings struct {
	counters map[string]*fakeCounter
	warnings chan string
}

func (f *fakeSettings) NewRegressionsMetric(expectedType string, kept bool) CounterMetric {
	name := fmt.Sprintf("%s/%v", expectedType, kept)
	if f.counters[name] == nil {
		f.counters[name] = &fakeCounter{}
	}
	return f.counters[name]
}

// connect connects fake settings and returns them and a function that restores
// those before.
func connect(enabled func() bool, serverVersion func() string) (*fakeSettings, func()) {
	f := &fakeSettings{counters: map[string]*fakeCounter{}, warnings: make(chan string, 100)}
	oldEnabled, oldMetrics, oldVersion, oldWarningf := settings.enabled, settings.metrics, settings.serverVersion, settings.warningf
	SetEnabledFunc(enabled)
	SetMetricsProvider(f)
	SetServerVersionFunc(serverVersion)
	settings.Lock()
	settings.warningf = func(format string, args ...interface{}) { f.warnings <- fmt.Sprintf(format, args...) }
	settings.Unlock()
	return f, func() {
		SetEnabledFunc(oldEnabled)
		SetMetricsProvider(oldMetrics)
		SetServerVersionFunc(oldVersion)
		settings.Lock()
		settings.warningf = oldWarningf
		settings.Unlock()
	}
}

func (f *fakeSettings) expectWarnings(t *testing.T, want int) []string {
	var got []string
	for len(got) < want {
		select {
		case w := <-f.warnings:
			got = append(got, w)
		case <-time.After(10 * time.Second):
			t.Fatalf("expected %d warnings, got %q", want, got)
		}
	}
	select {
	case w := <-f.warnings:
		t.Errorf("expected %d warnings, got another: %q", want, w)
	case <-time.After(50 * time.Millisecond):
	}
	return got
}

func on() bool          { return true }
func off() bool         { return false }
func v190() string      { return "v1.9.0" }
func svc() reflect.Type { return reflect.TypeOf(&v1.Service{}) }

type event struct {
	eventType watch.EventType
	rv        string
}

// follower is a watch, as the reflector keeps it.
type follower struct {
	*Cursor
	at string
}

func follow(expectedType reflect.Type, start string) *follower {
	return &follower{New("informers.go:86", expectedType, start), start}
}

func (f *follower) next(e event) string {
	f.at = f.Next(f.at, e.rv, e.eventType, e.object())
	return f.at
}

func (e event) object() metav1.Object {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc", ResourceVersion: e.rv}}
}

func TestCursor(t *testing.T) {
	type step struct {
		event
		on  string // cursor with the rule
		off string // cursor as upstream's
	}
	for name, tc := range map[string]struct {
		start       string
		steps       []step
		regressions int
	}{
		"a deletion with the version before it": {
			start: "7",
			steps: []step{
				{event{watch.Added, "10"}, "10", "10"},
				{event{watch.Added, "11"}, "11", "11"},
				{event{watch.Deleted, "5"}, "11", "5"},
			},
			regressions: 1,
		},
		"a deletion with its own version": {
			start: "7",
			steps: []step{
				{event{watch.Added, "11"}, "11", "11"},
				{event{watch.Deleted, "12"}, "12", "12"},
			},
		},
		"older than the list": {
			start: "100",
			steps: []step{
				{event{watch.Deleted, "5"}, "100", "5"},
				{event{watch.Deleted, "6"}, "100", "6"},
				{event{watch.Added, "101"}, "101", "101"},
			},
			regressions: 2,
		},
		"a change that leaves the filter": {
			start: "1",
			steps: []step{
				{event{watch.Added, "20"}, "20", "20"},
				{event{watch.Modified, "21"}, "21", "21"},
				{event{watch.Deleted, "20"}, "21", "20"},
			},
			regressions: 1,
		},
		"the same version again": {
			start: "20",
			steps: []step{
				{event{watch.Modified, "20"}, "20", "20"},
				{event{watch.Modified, "20"}, "20", "20"},
			},
		},
		"one more digit": {
			start: "9",
			steps: []step{
				{event{watch.Added, "10"}, "10", "10"},
				{event{watch.Deleted, "9"}, "10", "9"},
				{event{watch.Added, "100"}, "100", "100"},
			},
			regressions: 1,
		},
		"25 digits": {
			start: longRV,
			steps: []step{
				{event{watch.Added, longRV[:24] + "7"}, longRV[:24] + "7", longRV[:24] + "7"},
				{event{watch.Deleted, longRV[:24] + "6"}, longRV[:24] + "7", longRV[:24] + "6"},
				{event{watch.Deleted, "99"}, longRV[:24] + "7", "99"},
			},
			regressions: 2,
		},
		"versions that are not well-formed": {
			start: "0",
			steps: []step{
				{event{watch.Added, "10"}, "10", "10"},
				{event{watch.Added, "abc"}, "abc", "abc"},
				{event{watch.Added, "5"}, "5", "5"},
				{event{watch.Added, ""}, "", ""},
				{event{watch.Added, "6"}, "6", "6"},
				{event{watch.Deleted, "007"}, "007", "007"},
				{event{watch.Deleted, "0"}, "0", "0"},
			},
		},
		"what exists, sent at the start": {
			start: "0",
			steps: []step{
				{event{watch.Added, "10"}, "10", "10"},
				{event{watch.Added, "7"}, "7", "7"},
				{event{"BOOKMARK", "20"}, "7", "20"},
				{event{watch.Added, "5"}, "5", "5"},
				{event{watch.Modified, "12"}, "12", "12"},
				{event{watch.Added, "9"}, "12", "9"},
				{event{watch.Deleted, "8"}, "12", "8"},
			},
			regressions: 2,
		},
		"a deletion after what exists": {
			start: "",
			steps: []step{
				{event{watch.Added, "10"}, "10", "10"},
				{event{watch.Deleted, "8"}, "10", "8"},
			},
			regressions: 1,
		},
		"an unknown type of event": {
			start: "10",
			steps: []step{
				{event{"BOOKMARK", "20"}, "10", "20"},
				{event{"", "5"}, "10", "5"},
				{event{watch.Added, "11"}, "11", "11"},
			},
		},
	} {
		f, restore := connect(on, v190)
		kept := follow(svc(), tc.start)
		SetEnabledFunc(off)
		followed := follow(svc(), tc.start)
		for i, s := range tc.steps {
			if got := kept.next(s.event); got != s.on {
				t.Errorf("%s: step %d, rule on: %q, expected %q", name, i, got, s.on)
			}
			if got := followed.next(s.event); got != s.off {
				t.Errorf("%s: step %d, rule off: %q, expected %q", name, i, got, s.off)
			}
		}
		// off, the same is counted: what the rule would have done
		for _, c := range []string{"*v1.Service/true", "*v1.Service/false"} {
			if got := f.counters[c].count; got != tc.regressions {
				t.Errorf("%s: counter %s is %d, expected %d", name, c, got, tc.regressions)
			}
		}
		restore()
	}
}

func TestCursorAsksWhenTheWatchStarts(t *testing.T) {
	enabled := false
	_, restore := connect(func() bool { return enabled }, v190)
	defer restore()

	before := follow(nil, "10")
	enabled = true
	after := follow(nil, "10")
	enabled = false
	if got := before.next(event{watch.Deleted, "5"}); got != "5" {
		t.Errorf("watch started with the rule off: %q, expected %q", got, "5")
	}
	if got := after.next(event{watch.Deleted, "5"}); got != "10" {
		t.Errorf("watch started with the rule on: %q, expected %q", got, "10")
	}
}

func TestCursorWarnsOncePerWatch(t *testing.T) {
	f, restore := connect(on, v190)
	defer restore()

	for watches := 0; watches < 2; watches++ {
		c := follow(svc(), "11")
		for i := 0; i < 3; i++ {
			c.next(event{watch.Deleted, "5"})
		}
	}
	for _, w := range f.expectWarnings(t, 2) {
		for _, part := range []string{"informers.go:86", "*v1.Service", "DELETED", "ns/svc", "resourceVersion 5 ", "resourceVersion 11;", "v1.9.0", "will not start"} {
			if !strings.Contains(w, part) {
				t.Errorf("%q is missing from the warning: %s", part, w)
			}
		}
	}

	SetEnabledFunc(off)
	c := follow(svc(), "11")
	c.next(event{watch.Deleted, "5"})
	c.next(event{watch.Deleted, "5"})
	if w := f.expectWarnings(t, 1)[0]; !strings.Contains(w, "ReflectorMonotonicResourceVersion is off") {
		t.Errorf("the warning does not tell that the rule is off: %s", w)
	}
}

func TestCursorDoesNotWarnOfAServerThatIsRight(t *testing.T) {
	f, restore := connect(on, func() string { t.Error("server version asked for without need"); return "" })
	defer restore()

	c := follow(svc(), "10")
	for _, e := range []event{{watch.Added, "11"}, {watch.Modified, "12"}, {watch.Deleted, "13"}, {"BOOKMARK", "5"}, {watch.Added, "abc"}} {
		c.next(e)
	}
	f.expectWarnings(t, 0)
}

// TestCursorDoesNotWaitForTheServerVersion: the events go on while a server that
// hangs is asked for its version.
func TestCursorDoesNotWaitForTheServerVersion(t *testing.T) {
	release := make(chan struct{})
	f, restore := connect(on, func() string { <-release; return "v1.8.0" })
	defer restore()

	c := follow(svc(), "10")
	if got := c.next(event{watch.Deleted, "5"}); got != "10" {
		t.Errorf("got %q", got)
	}
	f.expectWarnings(t, 0)
	close(release)
	f.expectWarnings(t, 1)
}

func TestCursorOfAnything(t *testing.T) {
	f, restore := connect(on, v190)
	defer restore()
	follow(nil, "10").next(event{watch.Deleted, "5"})
	if c := f.counters["unknown/true"]; c == nil || c.count != 1 {
		t.Errorf("got %v", f.counters)
	}
	f.expectWarnings(t, 1)
}

// BenchmarkCursorNext is what the rule adds to an event in order.
func BenchmarkCursorNext(b *testing.B) {
	events := make([]event, 1000)
	for i := range events {
		events[i] = event{watch.Modified, fmt.Sprint(100000000 + i)}
	}
	obj := event{}.object()
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += len(events) {
		c, at := New("name", svc(), "100000000"), "100000000"
		for _, e := range events {
			at = c.Next(at, e.rv, e.eventType, obj)
		}
	}
}
