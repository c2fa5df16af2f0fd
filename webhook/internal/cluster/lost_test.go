// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"holdfast/webhook/internal/review"
	"holdfast/webhook/internal/rules"
)

// watched is a Store whose last event of a pod, clock and API server the test sets.
type watched struct {
	*Store
	last, server string
	pod          string // the resourceVersion of the only one
	fails        error  // of each list
	failsOfOne   error  // of the list of one namespace
	clock        time.Time
	lists        int
}

func newWatched() *watched {
	w := &watched{last: "100", server: "100", pod: "90", clock: time.Date(2018, 1, 2, 0, 0, 0, 0, time.UTC)}
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		w.lists++
		l := &v1.PodList{}
		l.ResourceVersion = w.server
		if a.GetNamespace() == "d" {
			l.Items = []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "new", ResourceVersion: w.pod}}}
			if w.failsOfOne != nil {
				return true, l, w.failsOfOne
			}
		}
		return true, l, w.fails
	})
	w.Store = New(Config{Client: client, Log: slog.New(slog.DiscardHandler)})
	w.podRV, w.now = func() string { return w.last }, func() time.Time { return w.clock }
	return w
}

// decide is what a review of an address of that pod gets.
func (w *watched) decide(rv string) review.Decision {
	return w.Decide("d", "web", review.Address{UID: "new", ResourceVersion: rv})
}

var held = review.Decision{Known: true, Behind: true}

// TestDeaf: an address of a pod that has not come is held until deafFor is over without an event
// of any pod. Then it stays where the controller has it, as each of the pods that the program
// knows too little of.
func TestDeaf(t *testing.T) {
	w := newWatched()
	w.states["d/web"] = newState()
	w.states["d/web"].verdicts["known"] = verdict{Verdict: rules.Verdict{Place: rules.NotReady, Rule: "r"}, rv: "90"}
	known := func(rv string) review.Decision {
		return w.Decide("d", "web", review.Address{UID: "known", ResourceVersion: rv})
	}
	for i := range 3 {
		if got := w.decide("105"); got != held {
			t.Errorf("after %d looks: %+v", i, got)
		}
		w.clock = w.clock.Add(9 * time.Second)
	}
	// An event came: it begins anew.
	w.last = "101"
	w.clock = w.clock.Add(time.Hour)
	if got := w.decide("105"); got != held {
		t.Errorf("after an event: %+v", got)
	}
	w.clock = w.clock.Add(deafFor - 1)
	if got := w.decide("105"); got != held {
		t.Errorf("a moment before the end: %+v", got)
	}
	w.clock = w.clock.Add(1)
	for name, got := range map[string]review.Decision{"a new pod": w.decide("105"), "a pod that has changed": known("105")} {
		if got != (review.Decision{}) {
			t.Errorf("deaf, %s: %+v", name, got)
		}
	}
	if got := known("90"); !got.Known || got.Behind || got.Place != rules.NotReady {
		t.Errorf("deaf, a pod that has not changed: %+v", got)
	}
	w.last = "105"
	if got := w.decide("105"); got != (review.Decision{}) {
		t.Errorf("a pod that is gone: %+v", got)
	}
	if got := known("105"); !got.Behind {
		t.Errorf("not judged yet: %+v", got)
	}
}

// TestLost: what Lost ends with. Each look is 10 s after the one before.
func TestLost(t *testing.T) {
	defer func(d time.Duration) { eventWithin = d }(eventWithin)
	eventWithin = time.Millisecond
	for name, tc := range map[string]struct {
		looks int
		do    func(w *watched, look int)
		want  string
		lists int
	}{
		"all is well": {looks: 13, lists: 3, do: func(w *watched, n int) { w.last, w.server = "101", "103" }},
		"a quiet cluster, and a watch that goes on": {looks: 13, lists: 3, do: func(w *watched, n int) {
			if n == 5 {
				w.decide("110")
				w.last, w.server = "110", "111"
			}
		}},
		"no event for a newer pod": {looks: 13, lists: 3, want: "has brought no event for 30s, though there are newer pods", do: func(w *watched, n int) {
			w.server, w.pod = "120", "110"
			w.decide("110")
		}},
		"nor an answer": {looks: 13, lists: 2, want: "though an address of a newer pod was seen; and pods cannot be listed: Unauthorized", do: func(w *watched, n int) {
			w.fails = errors.New("Unauthorized")
			w.decide("110")
		}},
		"nor an answer of the namespace": {looks: 13, lists: 3, want: "though an address of a newer pod was seen; and pods cannot be listed: Forbidden", do: func(w *watched, n int) {
			w.failsOfOne = errors.New("Forbidden")
			w.decide("110")
		}},
		"no answer, and nothing newer": {looks: 13, lists: 3, do: func(w *watched, n int) { w.fails = errors.New("timeout") }},
		"an address that somebody made up": {looks: 4, lists: 3, do: func(w *watched, n int) {
			w.server = "120"
			w.decide("110")
		}},
		"etcd was restored": {looks: 20, lists: 3, want: "is at resourceVersion 50, and there was an event of a pod at 100: etcd was restored", do: func(w *watched, n int) {
			if n > 0 {
				w.server = "50"
			}
		}},
		"etcd was restored, and the pods listed anew": {looks: 20, lists: 3, want: "etcd was restored", do: func(w *watched, n int) {
			if n > 0 {
				w.last, w.server = "50", "51"
			}
		}},
		"an etcd lagged": {looks: 9, lists: 3, do: func(w *watched, n int) {
			w.server = "100"
			if n == 6 {
				w.server = "99"
			}
		}},
	} {
		w := newWatched()
		l := &lost{s: w.Store}
		var err error
		for n := range tc.looks {
			tc.do(w, n)
			if err = l.look(context.Background()); err != nil {
				break
			}
			w.clock = w.clock.Add(lostEvery)
		}
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || w.lists != tc.lists {
			t.Errorf("%s: %v after %d lists, want %q after %d", name, err, w.lists, tc.want, tc.lists)
		}
	}
}

// TestTrackerForgets: a judgement that has a pod in hand while it is deleted shows it to the
// tracker once more, after podGone. What drops its verdict takes it out again.
func TestTrackerForgets(t *testing.T) {
	r := start(t, ruleSet(t, "image-pending"), 3)
	p, err := r.store.pods.Pods("d").Get("web-2")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "d", "web-2"); err != nil {
		t.Fatal(err)
	}
	known := func() (verdicts, tracked bool) {
		r.store.mu.RLock()
		defer r.store.mu.RUnlock()
		r.store.tracker.mu.Lock()
		defer r.store.tracker.mu.Unlock()
		_, verdicts = r.store.states["d/web"].verdicts[p.UID]
		return verdicts, r.store.tracker.pods[p.UID] != nil
	}
	forgotten := func() bool {
		verdict, tracked := known()
		return !verdict && !tracked
	}
	r.wait("the pod is gone", forgotten)
	for _, it := range []item{{onePod, "d", "web-2"}, {oneService, "d", "web"}} {
		r.store.mu.Lock()
		r.store.states["d/web"].verdicts[p.UID] = verdict{pod: p.Name, rv: p.ResourceVersion}
		r.store.tracker.observe(p, time.Now(), nil)
		r.store.mu.Unlock()
		if verdict, tracked := known(); !verdict || !tracked {
			t.Fatalf("%v: the verdict is there: %v, the tracker has the pod: %v", it, verdict, tracked)
		}
		r.store.work.Add(it)
		r.wait("the pod is forgotten", forgotten)
	}
}
