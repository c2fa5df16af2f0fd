// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
