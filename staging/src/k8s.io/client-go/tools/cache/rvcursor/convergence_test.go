// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rvcursor_test

import (
	"reflect"
	"strconv"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/cache/rvcursor"

	"pgregory.net/rapid"
)

// runReflector runs a reflector against s until nothing happens any more, and returns
// what its store has then: the revision of each object's content, by name.
func runReflector(fatalf func(string, ...interface{}), s *server) map[string]int {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	r := cache.NewReflector(s, &v1.ConfigMap{}, store, 0)
	for lists := 0; ; lists++ {
		select {
		case <-s.stop:
			contents := map[string]int{}
			for _, key := range store.ListKeys() {
				item, _, _ := store.GetByKey(key)
				revision, err := strconv.Atoi(item.(*v1.ConfigMap).Data["revision"])
				if err != nil {
					fatalf("%s has the content %v", key, item)
				}
				contents[key] = revision
			}
			return contents
		default:
		}
		if lists > 1000 {
			fatalf("the reflector lists without end")
		}
		if err := r.ListAndWatch(s.stop); err != nil {
			fatalf("unexpected error %v", err)
		}
	}
}

func (s *server) check(fatalf func(string, ...interface{}), store map[string]int) {
	if !reflect.DeepEqual(store, s.objects) {
		fatalf("the store has %v, the server %v (name: revision)", store, s.objects)
	}
}

var names = []string{"a", "b", "c", "d"}

// drawOps draws what happens to a server. sent draws the version an event is to
// carry, "" for the model's own.
func drawOps(t *rapid.T, sent func(t *rapid.T) string) []op {
	n := rapid.IntRange(1, 60).Draw(t, "ops")
	ops := make([]op, n)
	for i := range ops {
		ops[i].kind = rapid.SampledFrom([]opKind{create, create, create, update, update, remove, remove, leave, cut, cut, cut, compact, restore}).Draw(t, "kind")
		ops[i].name = rapid.SampledFrom(names).Draw(t, "name")
		ops[i].sent = sent(t)
	}
	return ops
}

func modelsOwn(*rapid.T) string { return "" }

// TestNothingIsReplayed: whatever happens to a server, and wherever its watches
// are cut, the reflector's store ends up like the server and no watch brings again
// what was seen, whether or not the server sends old versions with deletions.
func TestNothingIsReplayed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newServer(rapid.Bool().Draw(t, "oldVersions"), drawOps(t, modelsOwn))
		s.check(t.Fatalf, runReflector(t.Fatalf, s))
		if len(s.replays) > 0 {
			t.Fatalf("replayed: %v", s.replays)
		}
	})
}

// older draws a version that is malformed, or older than what was sent before.
func older(t *rapid.T) string {
	return rapid.OneOf(
		rapid.Just(""),
		rapid.SampledFrom([]string{"abc", "0", "00", "1x", "-1", "01", " "}),
		rapid.Map(rapid.IntRange(1, 3), strconv.Itoa),
	).Draw(t, "sent")
}

// TestConvergesWithOldVersions: the same end for events with any older or malformed
// version, where nothing can be promised about replays.
func TestConvergesWithOldVersions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newServer(rapid.Bool().Draw(t, "oldVersions"), drawOps(t, older))
		s.noFuture = true
		s.check(t.Fatalf, runReflector(t.Fatalf, s))
	})
}

// TestConvergesWithAnyVersions: versions from the future too. A watch from one of them
// waits, and what happens until then is not sent: no rule of the reader's could help
// that. With the next list all is well again.
func TestConvergesWithAnyVersions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newServer(rapid.Bool().Draw(t, "oldVersions"), drawOps(t, func(t *rapid.T) string {
			if rapid.Bool().Draw(t, "future") {
				return rapid.SampledFrom([]string{"5", "20", "50", "1000", "1234567890123456789"}).Draw(t, "sent")
			}
			return older(t)
		}))
		s.listAtEnd = true
		s.check(t.Fatalf, runReflector(t.Fatalf, s))
	})
}

// TestModelWaitsForTheFuture: it does, so that the list at the end is needed.
func TestModelWaitsForTheFuture(t *testing.T) {
	for _, listAtEnd := range []bool{false, true} {
		s := newServer(false, []op{{kind: create, name: "a", sent: "50"}, {kind: cut}, {kind: create, name: "b"}, {kind: update, name: "a"}})
		s.listAtEnd = listAtEnd
		same := reflect.DeepEqual(runReflector(t.Fatalf, s), s.objects)
		if same != listAtEnd {
			t.Errorf("list at the end %v: the store is like the server: %v", listAtEnd, same)
		}
	}
}

// TestModelShowsTheIncident: without the rule the model does what clusters saw, so
// it can tell the two apart.
func TestModelShowsTheIncident(t *testing.T) {
	ops := func() []op {
		return []op{{kind: create, name: "old"}, {kind: create, name: "a"}, {kind: create, name: "b"}, {kind: remove, name: "old"}, {kind: cut}}
	}
	run := func(enabled bool) *server {
		rvcursor.SetEnabledFunc(func() bool { return enabled })
		defer rvcursor.SetEnabledFunc(func() bool { return true })
		s := newServer(true, ops())
		s.check(t.Fatalf, runReflector(t.Fatalf, s))
		return s
	}
	if s := run(true); len(s.replays) != 0 {
		t.Errorf("rule on: replayed %v", s.replays)
	}
	if s := run(false); len(s.replays) == 0 {
		t.Errorf("rule off: nothing was replayed, the model does not show the incident")
	}
}
