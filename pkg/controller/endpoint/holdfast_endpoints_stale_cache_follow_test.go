// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/kubernetes/pkg/controller"
)

// The lease of a leader election has no Service.
func TestHoldfastEndpointsOfLease(t *testing.T) {
	defer staleGate(t, true)()
	c := newStaleCluster(t)
	lease := func(version int) *v1.Endpoints {
		return &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler", ResourceVersion: strconv.Itoa(version),
			Labels:      map[string]string{"version": strconv.Itoa(version)},
			Annotations: map[string]string{resourcelock.LeaderElectionRecordAnnotationKey: strconv.Itoa(version)}}}
	}
	for i := 0; i < 100; i++ {
		c.e.endpointsChanged(lease(i), lease(i+1))
	}
	c.e.endpointsDeleted(cache.DeletedFinalStateUnknown{Key: "kube-system/kube-scheduler", Obj: lease(100)})
	if got := c.requeued(); got != "" || len(c.queue.now) != 0 || len(c.e.writes.byKey) != 0 || c.requests != nil {
		t.Errorf("queued %q, %q; keys %v; requests %q", got, c.queue.now, c.e.writes.byKey, c.requests)
	}
}

// The handlers are there with the gate on only: a deletion that comes by the informer.
func TestHoldfastEndpointsFollowed(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer staleGate(t, on)()
			ep := &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", ResourceVersion: "5"}}
			client, watcher := fake.NewSimpleClientset(ep), watch.NewFake()
			client.PrependWatchReactor("endpoints", core.DefaultWatchReactor(watcher, nil))
			factory := informers.NewSharedInformerFactory(client, controller.NoResyncPeriodFunc())
			e := NewEndpointController(factory.Core().V1().Pods(), factory.Core().V1().Services(), factory.Core().V1().Endpoints(), client)
			factory.Core().V1().Services().Informer().GetStore().Add(staleService())
			stop := make(chan struct{})
			defer close(stop)
			go factory.Core().V1().Endpoints().Informer().Run(stop)
			if !cache.WaitForCacheSync(stop, factory.Core().V1().Endpoints().Informer().HasSynced) {
				t.Fatal("no sync")
			}
			watcher.Delete(ep)
			got := ""
			for begin := time.Now(); got == "" && time.Since(begin) < 2*time.Second; time.Sleep(20 * time.Millisecond) {
				if e.queue.Len() > 0 {
					key, _ := e.queue.Get()
					got = key.(string)
				}
			}
			if (got == "ns/web") != on {
				t.Errorf("gate %v: queued %q", on, got)
			}
		}()
	}
}

// What endpoints-node-name writes in two steps are own writes. The product may lack that fix.
func TestHoldfastEndpointsMovedAddresses(t *testing.T) {
	defer staleGate(t, true)()
	c := newStaleCluster(t)
	mover, ok := interface{}(c.e).(interface {
		moveAddresses(stored, wanted *v1.Endpoints, err error) error
	})
	if !ok {
		t.Skip("built without endpoints-node-name")
	}
	c.sync()
	c.arrive()
	node1, node2 := "n1", "n2"
	stored, wanted := c.stored.DeepCopy(), c.stored.DeepCopy()
	stored.Subsets[0].Addresses[0].NodeName, wanted.Subsets[0].Addresses[0].NodeName = &node1, &node2
	c.requests = nil
	if err := mover.moveAddresses(stored, wanted, errors.NewInvalid(schema.GroupKind{Kind: "Endpoints"}, "web",
		field.ErrorList{field.Forbidden(field.NewPath("subsets").Index(0).Child("addresses").Index(0).Child("nodeName"), "")})); err != nil {
		t.Fatal(err)
	}
	c.want("requests", strings.Join(c.requests, " "), "update update")
	c.want("remembered", c.e.writes.byKey["ns/web"].version, c.stored.ResourceVersion)
	c.arrive()
	c.want("own event", c.requeued(), "")
}
