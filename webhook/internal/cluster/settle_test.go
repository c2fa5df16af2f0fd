// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"holdfast/webhook/internal/review"
	"holdfast/webhook/internal/rules"
)

// write stores Endpoints as the controller would: nothing asks the webhook.
func (r *rig) write(f func(*v1.Endpoints)) {
	r.t.Helper()
	ctx := context.Background()
	for {
		ep, err := r.client.CoreV1().Endpoints("d").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		ep = ep.DeepCopy()
		f(ep)
		if _, err = r.client.CoreV1().Endpoints("d").Update(ctx, ep, metav1.UpdateOptions{}); err == nil {
			return
		}
		time.Sleep(time.Millisecond) // a replica wrote first
	}
}

// TestBehind: an address is of a newer pod than the store has, and that pod, when it
// comes, changes no verdict. The address must not stay where it is for ever.
func TestBehind(t *testing.T) {
	r := start(t, ruleSet(t, "image-pending"), 1)
	p, err := r.client.CoreV1().Pods("d").Get(context.Background(), "web-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rv := r.next()
	r.write(func(ep *v1.Endpoints) {
		a := address(p)
		a.TargetRef.ResourceVersion = rv
		ep.Subsets[0].Addresses, ep.Subsets[0].NotReadyAddresses = nil, []v1.EndpointAddress{a}
	})
	r.wait("an address of a newer pod counts as misplaced", func() bool { return r.store.Misplaced() == 1 })
	if got := r.stored(); got != "[]|[1]|" {
		t.Errorf("before the pod came: %s", got)
	}
	begin := time.Now()
	r.change(1, func(*v1.Pod) {})
	r.waitStored("[1]|[]|")
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("after %v", took)
	}
	r.wait("nothing is misplaced", func() bool { return r.store.Misplaced() == 0 })
}

// TestDispute: two replicas with opposite rules do not write for ever without a pause,
// and what changes meanwhile is written at once.
func TestDispute(t *testing.T) {
	r := start(t, parsed(t, "rules:\n- {name: a, when: 'true', then: ready}\n"), 1)
	second := r.replica(parsed(t, "rules:\n- {name: b, when: 'true', then: notReady}\n"))
	disputed := func() bool { return r.store.Disputed() == 1 && second.Disputed() == 1 }
	writes := func() int64 { return r.store.Counters.PutRight.Load() + second.Counters.PutRight.Load() }
	r.wait("both know of the dispute", disputed)
	before := writes()
	time.Sleep(5 * time.Second) // pauses of 2 and 4 s each
	if n := writes() - before; n > 6 {
		t.Errorf("%d writes in 5 s of a dispute", n)
	}
	r.store.SetRules(parsed(t, "rules:\n- {name: b, when: 'true', then: notReady}\n"))
	r.waitStored("[]|[1]|b=1")
	r.wait("the dispute is over", func() bool { return r.store.Disputed() == 0 && r.store.Misplaced() == 0 })
}

// TestPause: the first writes at once, then later and later; a changed verdict, and a
// long time without a write, begin anew.
func TestPause(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := New(Config{Debounce: time.Millisecond})
	s.now = func() time.Time { return now }
	st := newState()
	s.states["d/web"] = st
	v := verdict{rv: "1", ready: true}
	st.put("u", v)
	for i, want := range []time.Duration{0, 0, 0, 0, 0, 2, 4, 8, 16, 32, 60, 60, 60} {
		s.wrote("d/web")
		if got := st.pause(now); got != want*time.Second {
			t.Errorf("after write %d: %v, want %d s", i+1, got, want)
		}
	}
	now = now.Add(40 * time.Second)
	if got := st.pause(now); got != 20*time.Second || s.Disputed() != 1 {
		t.Errorf("40 s later: %v, %d disputed", got, s.Disputed())
	}
	v.rv = "2"
	if st.put("u", v); s.Disputed() != 1 {
		t.Error("a newer pod with the same verdict ends the dispute")
	}
	v.rv, v.ready = "3", false
	if st.put("u", v); st.pause(now) != 0 || s.Disputed() != 0 {
		t.Error("another verdict waits")
	}
	for range 9 {
		s.wrote("d/web")
	}
	now = now.Add(settledFor)
	if s.wrote("d/web"); st.pause(now) != 0 || s.Disputed() != 0 {
		t.Error("after a long time it is still disputed")
	}
}

// TestOver: the controller makes no address for a pod that has ended for good, so that
// none is missing.
func TestOver(t *testing.T) {
	r := start(t, ruleSet(t, "image-pending"), 1)
	for _, c := range []struct {
		policy v1.RestartPolicy
		phase  v1.PodPhase
		ready  v1.ConditionStatus
		want   bool
	}{
		{v1.RestartPolicyNever, v1.PodSucceeded, v1.ConditionFalse, false},
		{v1.RestartPolicyNever, v1.PodFailed, v1.ConditionFalse, false},
		{v1.RestartPolicyNever, v1.PodRunning, v1.ConditionFalse, true},
		{v1.RestartPolicyNever, v1.PodFailed, v1.ConditionTrue, true},
		{v1.RestartPolicyOnFailure, v1.PodSucceeded, v1.ConditionFalse, false},
		{v1.RestartPolicyOnFailure, v1.PodFailed, v1.ConditionFalse, true},
		{v1.RestartPolicyAlways, v1.PodSucceeded, v1.ConditionFalse, true},
		{"", v1.PodFailed, v1.ConditionFalse, true},
	} {
		p := r.pod(2)
		p.Spec.RestartPolicy, p.Status.Phase, p.Status.Conditions[0].Status = c.policy, c.phase, c.ready
		svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web"}, Spec: v1.ServiceSpec{Selector: p.Labels, Ports: []v1.ServicePort{{Port: 80}}}}
		if got := expected(svc, p); got != c.want {
			t.Errorf("%+v: expected is %v", c, got)
		}
		rows, err := Offline(ruleSet(t, "image-pending"), [][]runtime.Object{{svc, p}}, time.Now())
		if err != nil || (len(rows) == 1) != c.want {
			t.Errorf("%+v: %d rows, %v", c, len(rows), err)
		}
	}
	p := r.pod(2)
	p.Spec.RestartPolicy, p.Status.Phase, p.Status.Conditions[0].Status = v1.RestartPolicyNever, v1.PodSucceeded, v1.ConditionFalse
	if _, err := r.client.CoreV1().Pods("d").Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wait("it is judged", func() bool {
		d := r.store.Decide("d", "web", review.Address{UID: "u2", ResourceVersion: "1"})
		return d.Known && !d.Behind
	})
	time.Sleep(10 * r.store.debounce)
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	if st := r.store.states["d/web"]; st.misplaced != 0 || len(st.missing) != 0 || r.store.Counters.Touched.Load() != 0 {
		t.Errorf("%d misplaced, %v missing, touched %d times", st.misplaced, st.missing, r.store.Counters.Touched.Load())
	}
}

// TestBeforeRules: what is held stays so when the first rules come, although the
// Endpoints are looked at before they are judged.
func TestBeforeRules(t *testing.T) {
	r := start(t, nil, 1)
	r.patched(1)
	r.write(func(ep *v1.Endpoints) {
		s := &ep.Subsets[0]
		s.Addresses, s.NotReadyAddresses = nil, s.Addresses
	})
	r.wait("the cache has it", func() bool {
		ep, err := r.store.endpoints.Endpoints("d").Get("web")
		return err == nil && len(ep.Subsets[0].NotReadyAddresses) == 1
	})
	set := ruleSet(t, "image-pending")
	r.store.mu.Lock()
	r.store.set = set
	r.store.mu.Unlock()
	r.store.putRight(context.Background(), "d/web")
	r.store.SetRules(set)
	r.wait("it is judged", func() bool {
		return r.store.Decide("d", "web", review.Address{UID: "u1", ResourceVersion: "1"}).Place == rules.NotReady
	})
	if got, n := r.stored(), r.store.Counters.PutRight.Load(); got != "[]|[1]|" || n != 0 {
		t.Errorf("%s after %d writes", got, n)
	}
	r.replaced(1)
	r.waitStored("[1]|[]|")
}

// TestImageBeforeRules: an image that changed before the rules came is pending.
func TestImageBeforeRules(t *testing.T) {
	r := start(t, nil, 2)
	r.patched(1)
	r.wait("it was seen", func() bool {
		p, err := r.store.pods.Pods("d").Get("web-1")
		return err == nil && p.Spec.Containers[0].Image == "a:2"
	})
	r.store.SetRules(ruleSet(t, "image-pending"))
	r.waitStored("[2]|[1]|image-pending=1")
}
