// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"holdfast/webhook/internal/names"
	"holdfast/webhook/internal/review"
	"holdfast/webhook/internal/rules"
)

// The endpoints controller of 1.9 computes Endpoints when a pod's readiness, IP
// or node changes, or it is deleted (podChanged in pkg/controller/endpoint), and
// when the Service changes. It does not when an image changes, nor when a rule's
// reason ends. So what is stored is compared with the verdicts here, at every
// event, and written.

// Times of a missing address. One that a rule dropped is brought back at once;
// of another nothing is known, the controller may be about to add it.
const (
	missingFor  = 30 * time.Second
	firstTouch  = 2 * time.Second
	longestWait = 5 * time.Minute
	writeWithin = 10 * time.Second
)

// behindFor is when an address is looked at again of which the store knows too old
// a pod. The newer pod may change no verdict, so that nothing else would do it.
const behindFor = time.Second

// Endpoints that are written again and again while no verdict changes are disputed:
// by a replica with other rules, say, or one that takes another container for
// pending. The first writes are made at once, then the pause doubles.
const (
	freeWrites   = 5
	longestPause = time.Minute
	settledFor   = 5 * time.Minute
)

// pause is how long Endpoints are not written yet.
func (st *state) pause(now time.Time) time.Duration {
	if !st.disputed(now) {
		return 0
	}
	return st.wrote.Add(min(time.Second<<min(st.writes-freeWrites, 6), longestPause)).Sub(now)
}

func (st *state) disputed(now time.Time) bool {
	return st.writes > freeWrites && now.Sub(st.wrote) < settledFor
}

func sameNotes(a, b map[string]string) bool {
	a, b = maps.Clone(a), maps.Clone(b)
	delete(a, names.Rules)
	delete(b, names.Rules)
	return maps.Equal(a, b)
}

// wanted is what stored Endpoints should be.
type wanted struct {
	ep *v1.Endpoints
	// moved are addresses that are elsewhere than in what is stored.
	moved int
	// behind are addresses of which the store knows too old a pod.
	behind int
	counts map[string]int
	seen   map[types.UID]bool
}

// want places each address of what is stored as its verdict says. An address
// without one stays.
func (st *state) want(stored *v1.Endpoints) wanted {
	w := wanted{ep: stored.DeepCopy(), counts: map[string]int{}, seen: map[types.UID]bool{}}
	subsets := []v1.EndpointSubset{}
	for i := range w.ep.Subsets {
		ss := &w.ep.Subsets[i]
		n := v1.EndpointSubset{Ports: ss.Ports}
		for ready, l := range map[bool][]v1.EndpointAddress{true: ss.Addresses, false: ss.NotReadyAddresses} {
			for _, a := range l {
				switch st.place(&w, &a, ready) {
				case rules.Ready:
					n.Addresses = append(n.Addresses, a)
				case rules.NotReady:
					n.NotReadyAddresses = append(n.NotReadyAddresses, a)
				}
			}
		}
		sortAddresses(n.Addresses)
		sortAddresses(n.NotReadyAddresses)
		if len(n.Addresses)+len(n.NotReadyAddresses) > 0 {
			subsets = append(subsets, n)
		}
	}
	w.ep.Subsets = subsets
	return w
}

// place decides about one stored address. It gives an address that is moved the
// resourceVersion of the pod that was judged: another replica then sees whether
// it knows that one.
func (st *state) place(w *wanted, a *v1.EndpointAddress, ready bool) rules.Place {
	was := rules.NotReady
	if ready {
		was = rules.Ready
	}
	if a.TargetRef == nil || a.TargetRef.Kind != "Pod" {
		return was
	}
	v, ok := st.verdicts[a.TargetRef.UID]
	w.seen[a.TargetRef.UID] = true
	switch {
	case !ok || !v.expected: // the controller is about to take it out
		return was
	case older(v.rv, a.TargetRef.ResourceVersion):
		w.behind++
		return was
	}
	to := v.Place
	if to == rules.Leave {
		to = rules.NotReady
		if v.ready {
			to = rules.Ready
		}
	} else {
		w.counts[v.Rule]++
	}
	if to != was {
		w.moved++
		ref := *a.TargetRef
		ref.ResourceVersion = v.rv
		a.TargetRef = &ref
	}
	return to
}

func sortAddresses(l []v1.EndpointAddress) {
	slices.SortStableFunc(l, func(a, b v1.EndpointAddress) int {
		if c := strings.Compare(a.IP, b.IP); c != 0 || a.TargetRef == nil || b.TargetRef == nil {
			return c
		}
		return strings.Compare(string(a.TargetRef.UID), string(b.TargetRef.UID))
	})
}

// putRight compares the stored Endpoints of a Service with the verdicts. It
// answers when to look again: 0 at the next event, retry soon.
func (s *Store) putRight(ctx context.Context, k string) time.Duration {
	namespace, name, err := cache.SplitMetaNamespaceKey(k)
	if err != nil {
		return 0
	}
	svc, _ := s.service(namespace, name)
	stored, err := s.endpoints.Endpoints(namespace).Get(name)
	if svc == nil || err != nil || s.Rules() == nil {
		s.setMisplaced(k, 0)
		return 0
	}
	if _, ok := stored.Annotations[names.Leader]; ok {
		return 0
	}
	s.mu.Lock()
	st := s.states[k]
	if st == nil {
		s.mu.Unlock()
		return 0
	}
	w := st.want(stored)
	touch, again := st.lacks(&w, s.now())
	if w.behind > 0 && (again == 0 || again > behindFor) {
		again = behindFor
	}
	st.misplaced = w.moved + w.behind + len(st.missing)
	pause := st.pause(s.now())
	s.mu.Unlock()
	if touch {
		s.touch(ctx, svc)
	}
	switch {
	case w.moved == 0:
		return again
	case pause > 0 && again > 0:
		return min(pause, again)
	case pause > 0:
		return pause
	}
	if !s.write(ctx, k, &w) {
		return retry
	}
	return again
}

// lacks looks for addresses that are missing although no rule drops them. It
// answers whether the Service is to be touched now, and when to look again.
func (st *state) lacks(w *wanted, now time.Time) (touch bool, again time.Duration) {
	look := func(at time.Time) {
		if d := max(at.Sub(now), 10*time.Millisecond); again == 0 || d < again {
			again = d
		}
	}
	wait := min(firstTouch<<min(st.touches, 10), longestWait)
	for uid, v := range st.verdicts {
		if w.seen[uid] || !v.expected || v.Place == rules.Drop {
			delete(st.missing, uid)
			if w.seen[uid] && v.Place != rules.Drop {
				delete(st.dropped, uid)
			}
			continue
		}
		since, ok := st.missing[uid]
		if !ok {
			since = now
			st.missing[uid] = now
		}
		due := since
		if !st.dropped[uid] {
			due = since.Add(missingFor)
		}
		if next := st.touched.Add(wait); st.touches > 0 && next.After(due) {
			due = next
		}
		if due.After(now) {
			look(due)
			continue
		}
		touch = true
	}
	if len(st.missing) == 0 {
		st.touches = 0
	}
	if touch {
		st.touched, st.touches = now, st.touches+1
		look(now.Add(min(firstTouch<<min(st.touches, 10), longestWait)))
	}
	return touch, again
}

func (s *Store) setMisplaced(k string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.states[k]; st != nil {
		st.misplaced = n
	}
}

// wrote counts a write that the server took.
func (s *Store) wrote(k string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, now := s.states[k], s.now()
	switch {
	case st == nil:
		return
	case now.Sub(st.wrote) >= settledFor:
		st.writes = 0
	}
	st.writes, st.wrote = st.writes+1, now
}

// write stores Endpoints under the resourceVersion that was read, and reports
// whether the server has them as they were meant.
func (s *Store) write(ctx context.Context, k string, w *wanted) bool {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	note := review.Note(w.counts)
	if w.ep.Annotations == nil {
		w.ep.Annotations = map[string]string{}
	}
	if note != "" || w.ep.Annotations[names.Rules] != "" {
		w.ep.Annotations[names.Rules] = note
	}
	log := s.log.With("endpoints", k, "resourceVersion", w.ep.ResourceVersion)
	got, err := s.client.CoreV1().Endpoints(w.ep.Namespace).Update(ctx, w.ep, metav1.UpdateOptions{})
	switch {
	case errors.IsConflict(err):
		s.Counters.Conflicts.Add(1)
		log.Debug("somebody else wrote first")
		return false
	case errors.IsNotFound(err):
		return true // deleted: nothing is left to be put right
	case err != nil:
		s.Counters.WriteErrors.Add(1)
		log.Warn("Endpoints could not be put right", "error", err.Error())
		return false
	}
	s.wrote(k)
	s.Counters.PutRight.Add(1)
	s.Counters.Moved.Add(int64(w.moved))
	if !samePlaces(got, w.ep) {
		s.Counters.Overruled.Add(1)
		log.Info("the server stored something else than was written: another replica knows other pods or rules")
		return false
	}
	log.Debug("Endpoints put right", "addresses", w.moved, "rules", note)
	return true
}

func samePlaces(a, b *v1.Endpoints) bool { return maps.Equal(placesOf(a), placesOf(b)) }

func placesOf(ep *v1.Endpoints) map[string]bool {
	out := map[string]bool{}
	for i := range ep.Subsets {
		for _, a := range ep.Subsets[i].Addresses {
			out[a.IP] = true
		}
		for _, a := range ep.Subsets[i].NotReadyAddresses {
			out[a.IP] = false
		}
	}
	return out
}

// touch changes an annotation of a Service, upon which the endpoints controller
// computes its Endpoints, and with them the addresses that are missing.
func (s *Store) touch(ctx context.Context, svc *v1.Service) {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{names.Touched: s.now().UTC().Format(time.RFC3339Nano)}}})
	if err != nil {
		return
	}
	log := s.log.With("service", key(svc.Namespace, svc.Name))
	if _, err := s.client.CoreV1().Services(svc.Namespace).Patch(ctx, svc.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.Counters.WriteErrors.Add(1)
		log.Warn("the Service could not be touched", "error", err.Error())
		return
	}
	s.Counters.Touched.Add(1)
	log.Info("Service touched: its Endpoints lack addresses that no rule drops")
}
