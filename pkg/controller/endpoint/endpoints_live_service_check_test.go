// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/features"
)

func TestSyncServiceMissingFromCache(t *testing.T) {
	service := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo"},
		Spec:       v1.ServiceSpec{Selector: map[string]string{"foo": "bar"}},
	}
	table := map[string]struct {
		gate        bool
		inCache     bool
		inServer    bool
		serverErr   error
		noEndpoints bool

		deletes int
		gets    int
		retry   bool
	}{
		"deleted":                          {gate: true, gets: 1, deletes: 1},
		"deleted, without Endpoints":       {gate: true, noEndpoints: true, gets: 1, deletes: 1},
		"exists":                           {gate: true, inServer: true, gets: 1, retry: true},
		"the server does not answer":       {gate: true, serverErr: fmt.Errorf("connection refused"), gets: 1, retry: true},
		"the server is overloaded":         {gate: true, serverErr: errors.NewServerTimeout(v1.Resource("services"), "get", 1), gets: 1, retry: true},
		"forbidden":                        {gate: true, serverErr: errors.NewForbidden(v1.Resource("services"), "foo", nil), gets: 1, retry: true},
		"in the cache":                     {gate: true, inCache: true, noEndpoints: true},
		"gate off: deleted":                {deletes: 1},
		"gate off: exists, deleted anyway": {inServer: true, deletes: 1},
	}
	for name, tc := range table {
		utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.EndpointsLiveServiceCheck, tc.gate))

		objects := []runtime.Object{}
		if tc.inServer || tc.inCache {
			objects = append(objects, service)
		}
		if !tc.noEndpoints {
			objects = append(objects, &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo"}})
		}
		client := fake.NewSimpleClientset(objects...)
		if tc.serverErr != nil {
			err := tc.serverErr
			client.PrependReactor("get", "services", func(core.Action) (bool, runtime.Object, error) { return true, nil, err })
		}
		factory := informers.NewSharedInformerFactory(client, controller.NoResyncPeriodFunc())
		e := NewEndpointController(factory.Core().V1().Pods(), factory.Core().V1().Services(), factory.Core().V1().Endpoints(), client)
		if tc.inCache {
			factory.Core().V1().Services().Informer().GetStore().Add(service)
		}
		client.ClearActions()

		e.queue.Add("ns/foo")
		e.processNextWorkItem()

		gets, deletes := 0, 0
		for _, a := range client.Actions() {
			if a.Matches("get", "services") {
				gets++
			}
			if a.Matches("delete", "endpoints") {
				deletes++
			}
		}
		if gets != tc.gets || deletes != tc.deletes {
			t.Errorf("%s: %d GETs of Services and %d deletes of Endpoints, expected %d and %d", name, gets, deletes, tc.gets, tc.deletes)
		}
		if retry := e.queue.NumRequeues("ns/foo") > 0; retry != tc.retry {
			t.Errorf("%s: queued again: %v, expected %v", name, retry, tc.retry)
		}
	}
	utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.EndpointsLiveServiceCheck))
}

// TestSyncServiceMissingFromCacheForAWhile: a Service that the cache gets back, and
// one that is deleted in the meantime, end as the server has them.
func TestSyncServiceMissingFromCacheForAWhile(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		service := &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo"},
			Spec:       v1.ServiceSpec{Selector: map[string]string{"foo": "bar"}},
		}
		client := fake.NewSimpleClientset(service, &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo"}})
		factory := informers.NewSharedInformerFactory(client, controller.NoResyncPeriodFunc())
		e := NewEndpointController(factory.Core().V1().Pods(), factory.Core().V1().Services(), factory.Core().V1().Endpoints(), client)

		e.queue.Add("ns/foo")
		e.processNextWorkItem()
		if e.queue.NumRequeues("ns/foo") != 1 {
			t.Fatalf("expected the Service to be tried again")
		}
		if deleted {
			if err := client.CoreV1().Services("ns").Delete("foo", nil); err != nil {
				t.Fatal(err)
			}
		} else {
			factory.Core().V1().Services().Informer().GetStore().Add(service)
			factory.Core().V1().Endpoints().Informer().GetStore().Add(&v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo", ResourceVersion: "1"}})
		}
		// the second try waits in the queue and comes by itself
		e.processNextWorkItem()

		_, err := client.CoreV1().Endpoints("ns").Get("foo", metav1.GetOptions{})
		if deleted && !errors.IsNotFound(err) {
			t.Errorf("the Service was deleted: expected no Endpoints, got %v", err)
		}
		if !deleted && err != nil {
			t.Errorf("the Service is there: expected Endpoints, got %v", err)
		}
		if n := e.queue.NumRequeues("ns/foo"); n != 0 {
			t.Errorf("deleted %v: still tried again (%d)", deleted, n)
		}
	}
}
