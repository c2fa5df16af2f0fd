// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package breaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"holdfast/webhook/internal/names"
)

type rig struct {
	t      *testing.T
	client *fake.FakeDynamicClient
}

func start(t *testing.T) *rig {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": "MutatingWebhookConfiguration",
		"metadata": map[string]any{"name": "er", "annotations": map[string]any{"a": "b"}}, "webhooks": []any{map[string]any{"name": "x", "failurePolicy": "Ignore"}}}}
	return &rig{t, fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{Resource: "MutatingWebhookConfigurationList"}, o)}
}

// breaker has a server that answers as *down says.
func (r *rig) breaker(id string, down *bool) *Breaker {
	return Defaults(Config{Client: r.client, Name: "er", ID: id, Log: slog.New(slog.DiscardHandler), Check: func(context.Context) error {
		if *down {
			return errors.New("no answer")
		}
		return nil
	}})
}

// state is the number of webhooks and who took them out.
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
	return fmt.Sprintf("%d %s", len(hooks), o.GetAnnotations()[names.TrippedBy])
}

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
	b := r.breaker("m1", &down)
	b.Name = "none"
	r.steps(b, 5, "1 ")
	b.Name = "er"
	r.steps(b, 1, "0 m1")
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
