// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
