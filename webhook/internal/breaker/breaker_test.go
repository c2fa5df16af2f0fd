// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package breaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	ktesting "k8s.io/client-go/testing"

	"holdfast/webhook/internal/names"
)

type rig struct {
	t      *testing.T
	client *fake.FakeDynamicClient
	now    time.Time
}

func start(t *testing.T) *rig {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": "MutatingWebhookConfiguration",
		"metadata": map[string]any{"name": "er", "annotations": map[string]any{"a": "b"}}, "webhooks": []any{map[string]any{"name": "x", "failurePolicy": "Ignore"}}}}
	return &rig{t: t, now: time.Unix(1_000_000, 0), client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{Resource: "MutatingWebhookConfigurationList"}, o)}
}

// breaker has a server that answers as *down says.
func (r *rig) breaker(id string, down *bool) *Breaker {
	return Defaults(Config{Client: r.client, Name: "er", ID: id, Now: func() time.Time { return r.now }, Log: slog.New(slog.DiscardHandler), Check: func(context.Context) error {
		if *down {
			return errors.New("no answer")
		}
		return nil
	}})
}

// state is the number of webhooks and who took them out, without the times.
func (r *rig) state() string {
	o, err := r.client.Resource(Resource).Get(context.Background(), "er", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	if a := o.GetAnnotations(); a["a"] != "b" || (a[names.Saved] == "") != (a[names.TrippedBy] == "") {
		r.t.Errorf("annotations %v", a)
	}
	if len(hooks) == 1 && fmt.Sprint(hooks[0]) != "map[failurePolicy:Ignore name:x]" {
		r.t.Errorf("webhook %v", hooks[0])
	}
	return fmt.Sprintf("%d %s", len(hooks), times.ReplaceAllString(o.GetAnnotations()[names.TrippedBy], ""))
}

var times = regexp.MustCompile(`=\d+`)

// change alters the configuration as somebody else would.
func (r *rig) change(f func(*unstructured.Unstructured)) {
	r.t.Helper()
	o, err := r.client.Resource(Resource).Get(context.Background(), "er", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	f(o)
	if _, err := r.client.Resource(Resource).Update(context.Background(), o, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) after(d time.Duration) { r.now = r.now.Add(d) }

func (r *rig) steps(b *Breaker, n int, want string) {
	r.t.Helper()
	for range n {
		b.Step(context.Background())
	}
	if got := r.state(); got != want {
		r.t.Errorf("after %d steps of %s: %q, want %q", n, b.ID, got, want)
	}
}

func TestBreaker(t *testing.T) {
	r, down := start(t), false
	b := r.breaker("m1", &down)
	r.steps(b, 20, "1 ")
	down = true
	r.steps(b, 2, "1 ")
	down = false
	r.steps(b, 1, "1 ")
	down = true
	r.steps(b, 3, "0 m1")
	r.steps(b, 9, "0 m1")
	down = false
	r.steps(b, 4, "0 m1")
	r.steps(b, 1, "1 ")
	r.steps(b, 20, "1 ")
}

// TestTwoBreakers: the webhooks come back when the last one is content, also one
// that was restarted in between.
func TestTwoBreakers(t *testing.T) {
	r, down1, down2 := start(t), true, true
	b1, b2 := r.breaker("m1", &down1), r.breaker("m2", &down2)
	r.steps(b1, 3, "0 m1")
	r.steps(b2, 3, "0 m1,m2")
	down1, down2 = false, false
	r.steps(b1, 5, "0 m2")
	r.steps(r.breaker("m2", &down2), 5, "1 ")
}

// TestAPIServerAway: what could not be done is tried again.
func TestAPIServerAway(t *testing.T) {
	r, down := start(t), true
	away := true
	r.client.PrependReactor("update", "*", func(ktesting.Action) (bool, runtime.Object, error) {
		return away, nil, errors.New("no API server")
	})
	b := r.breaker("m1", &down)
	r.steps(b, 5, "1 ")
	away = false
	r.steps(b, 1, "0 m1")
	away, down = true, false
	r.steps(b, 9, "0 m1")
	away = false
	r.steps(b, 1, "1 ")
}

// TestAppliedAgain: the manifest is applied while the server does not answer.
func TestAppliedAgain(t *testing.T) {
	r, down := start(t), true
	b := r.breaker("m1", &down)
	r.steps(b, 3, "0 m1")
	r.change(func(o *unstructured.Unstructured) {
		o.Object["webhooks"] = []any{map[string]any{"name": "x", "failurePolicy": "Ignore"}}
	})
	r.steps(b, 1, "0 m1")
	// As a whole: deleted, and there again.
	b.Name = "none"
	r.steps(b, 1, "0 m1")
	b.Name = "er"
	r.change(func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{"a": "b"})
		o.Object["webhooks"] = []any{map[string]any{"name": "x", "failurePolicy": "Ignore"}}
	})
	r.steps(b, 1, "0 m1")
	down = false
	r.steps(b, 5, "1 ")
}

// TestGone: what a breaker took out that never comes back is put back by another one,
// and what one took out that still fails is not.
func TestGone(t *testing.T) {
	r, down, up := start(t), true, false
	m1, m2, m3 := r.breaker("m1", &down), r.breaker("m2", &up), r.breaker("m3", &down)
	r.steps(m1, 3, "0 m1")
	r.steps(m2, 20, "0 m1")
	for range 8 {
		r.after(lookAfter)
		r.steps(m2, 1, "0 m1")
	}
	r.steps(m3, 3, "0 m1,m3")
	for range 20 { // m3 goes on
		r.after(lookAfter)
		m3.Step(context.Background())
		m2.Step(context.Background())
	}
	r.steps(m2, 1, "0 m3")
	r.after(goneAfter + time.Second)
	r.steps(m2, 1, "1 ")
}

// TestWithoutTime: the entry of an older release, which is not renewed, counts from
// when it is first seen. So does one from the future.
func TestWithoutTime(t *testing.T) {
	for _, entry := range []string{"m1", "m1=99999999999"} {
		r, down, up := start(t), true, false
		r.steps(r.breaker("m1", &down), 3, "0 m1")
		r.change(func(o *unstructured.Unstructured) {
			a := o.GetAnnotations()
			a[names.TrippedBy] = entry
			o.SetAnnotations(a)
		})
		m2 := r.breaker("m2", &up)
		r.steps(m2, 5, "0 m1")
		r.after(goneAfter)
		r.steps(m2, 1, "0 m1")
		r.after(lookAfter)
		r.steps(m2, 1, "1 ")
		// Its own one goes at once.
		r.steps(r.breaker("m1", &down), 3, "0 m1")
		r.change(func(o *unstructured.Unstructured) {
			a := o.GetAnnotations()
			a[names.TrippedBy] = entry
			o.SetAnnotations(a)
		})
		r.steps(r.breaker("m1", &up), 5, "1 ")
	}
}

// TestConflict: a breaker that was restarted tries again when somebody wrote first.
func TestConflict(t *testing.T) {
	r, down := start(t), true
	r.steps(r.breaker("m1", &down), 3, "0 m1")
	down = false
	conflicts := 0
	r.client.PrependReactor("update", "*", func(ktesting.Action) (bool, runtime.Object, error) {
		if conflicts++; conflicts > 1 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(Resource.GroupResource(), "er", nil)
	})
	b := r.breaker("m1", &down)
	r.steps(b, 5, "0 m1")
	r.steps(b, 1, "1 ")
	if conflicts != 2 {
		t.Errorf("%d updates", conflicts)
	}
}

// TestNothingToDo: a configuration without webhooks that no breaker emptied stays so,
// and a renewal is not written at each step.
func TestNothingToDo(t *testing.T) {
	r, down, up := start(t), true, false
	m1 := r.breaker("m1", &down)
	r.steps(m1, 3, "0 m1")
	r.client.ClearActions()
	r.steps(m1, 20, "0 m1")
	for _, a := range r.client.Actions() {
		if a.GetVerb() == "update" {
			t.Error("an update without a need")
		}
	}
	r.change(func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"a": "b"}) })
	r.steps(m1, 1, "0 ")
	r.steps(r.breaker("m2", &up), 5, "0 ")
}

// TestWatch: the server's metric follows the configuration.
func TestWatch(t *testing.T) {
	r, down := start(t), true
	b := r.breaker("m1", &down)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	said := make(chan bool, 1000)
	watch := func(name string) {
		go Watch(ctx, b.Client, name, 5*time.Millisecond, slog.New(slog.DiscardHandler), func(in bool) { said <- in })
	}
	until := func(want bool) {
		t.Helper()
		for timeout := time.After(5 * time.Second); ; {
			select {
			case got := <-said:
				if got == want {
					return
				}
			case <-timeout:
				t.Fatalf("it never said %v", want)
			}
		}
	}
	watch("er")
	until(true)
	r.steps(b, 3, "0 m1")
	until(false)
	down = false
	r.steps(b, 5, "1 ")
	until(true)
	watch("none")
	until(false)
}
