// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/endpoint/batching"
)

// recordingQueue records how keys come in, and holds them too.
type recordingQueue struct {
	workqueue.RateLimitingInterface
	now, after []string
}

func (q *recordingQueue) Add(key interface{}) {
	q.now = append(q.now, key.(string))
	q.RateLimitingInterface.Add(key)
}

func (q *recordingQueue) AddAfter(key interface{}, d time.Duration) {
	q.after = append(q.after, key.(string))
	q.RateLimitingInterface.AddAfter(key, d)
}

func batchingService(name string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       v1.ServiceSpec{Selector: map[string]string{"app": name}},
	}
}

func batchingPod(rv, app string, ready v1.ConditionStatus) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", ResourceVersion: rv, Labels: map[string]string{"app": app}},
		Status: v1.PodStatus{
			PodIP:      "1.2.3.4",
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}},
		},
	}
}

func newBatchingController(period time.Duration) (*EndpointController, *recordingQueue) {
	client := fake.NewSimpleClientset()
	factory := informers.NewSharedInformerFactory(client, controller.NoResyncPeriodFunc())
	e := NewEndpointController(factory.Core().V1().Pods(), factory.Core().V1().Services(), factory.Core().V1().Endpoints(), client).
		BatchPodUpdates(batching.Period(period))
	q := &recordingQueue{RateLimitingInterface: e.queue}
	e.queue = q
	for _, s := range []string{"a", "b"} {
		factory.Core().V1().Services().Informer().GetStore().Add(batchingService(s))
	}
	return e, q
}

// TestBatchPodUpdates: which changes wait.
func TestBatchPodUpdates(t *testing.T) {
	ready, notReady := batchingPod("1", "a", v1.ConditionTrue), batchingPod("2", "a", v1.ConditionFalse)
	relabelled := batchingPod("2", "b", v1.ConditionTrue)
	for name, tc := range map[string]struct {
		change func(*EndpointController)
		keys   int
		// never: it does not wait, whatever the period.
		never bool
	}{
		"pod added":                   {change: func(e *EndpointController) { e.addPod(ready) }, keys: 1},
		"readiness of a pod changed":  {change: func(e *EndpointController) { e.updatePod(ready, notReady) }, keys: 1},
		"labels of a pod changed":     {change: func(e *EndpointController) { e.updatePod(ready, relabelled) }, keys: 2},
		"nothing of a pod changed":    {change: func(e *EndpointController) { e.updatePod(ready, batchingPod("2", "a", v1.ConditionTrue)) }},
		"resync of a pod":             {change: func(e *EndpointController) { e.updatePod(ready, ready) }},
		"pod deleted":                 {change: func(e *EndpointController) { e.deletePod(ready) }, keys: 1},
		"pod deleted, seen by a list": {change: func(e *EndpointController) { e.deletePod(cache.DeletedFinalStateUnknown{Key: "ns/pod", Obj: ready}) }, keys: 1},
		"pod of no Service":           {change: func(e *EndpointController) { e.addPod(batchingPod("1", "c", v1.ConditionTrue)) }},
		"Service added":               {change: func(e *EndpointController) { e.enqueueService(batchingService("a")) }, keys: 1, never: true},
		"Service deleted, seen by a list": {change: func(e *EndpointController) {
			e.enqueueService(cache.DeletedFinalStateUnknown{Key: "ns/a", Obj: batchingService("a")})
		}, keys: 1, never: true},
	} {
		for _, period := range []time.Duration{0, time.Hour} {
			e, q := newBatchingController(period)
			tc.change(e)
			now, after := len(q.now), len(q.after)
			wantNow, wantAfter := tc.keys, 0
			if period > 0 && !tc.never {
				wantNow, wantAfter = 0, tc.keys
			}
			if now != wantNow || after != wantAfter {
				t.Errorf("%s, period %v: Add %v, AddAfter %v; expected %d and %d", name, period, q.now, q.after, wantNow, wantAfter)
			}
			e.queue.ShutDown()
		}
	}
}

// TestBatchPodUpdatesWindow: the first change starts the window, later ones do not
// prolong it, a change of the Service does not wait for it, and what it brings forward
// does not take the waiting change away.
func TestBatchPodUpdatesWindow(t *testing.T) {
	const period = 2 * time.Second
	e, _ := newBatchingController(period)
	defer e.queue.ShutDown()
	type got struct {
		key string
		at  time.Duration
	}
	begin := time.Now()
	taken := make(chan got, 10)
	go func() {
		for {
			key, quit := e.queue.Get()
			if quit {
				close(taken)
				return
			}
			taken <- got{key.(string), time.Since(begin)}
			e.queue.Done(key)
		}
	}()
	status := map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}
	for i := 0; i < 10; i++ {
		e.updatePod(batchingPod("1", "a", status[i%2 == 0]), batchingPod("2", "a", status[i%2 == 1]))
		time.Sleep(period / 20)
	}
	service := time.Since(begin)
	e.enqueueService(batchingService("a"))

	first := <-taken
	if first.key != "ns/a" || first.at < service || first.at >= period {
		t.Errorf("%+v: expected the change of the Service, which came after %v", first, service)
	}
	second := <-taken
	if second.key != "ns/a" || second.at < period || second.at >= period*3/2 {
		t.Errorf("%+v: expected the pods' changes %v after the first", second, period)
	}
	select {
	case more := <-taken:
		t.Errorf("%+v: ten changes were taken up more than once", more)
	case <-time.After(period):
	}
}

// TestBatchPodUpdatesDefault: a controller that nobody asks to batch does not.
func TestBatchPodUpdatesDefault(t *testing.T) {
	client := fake.NewSimpleClientset()
	factory := informers.NewSharedInformerFactory(client, controller.NoResyncPeriodFunc())
	e := NewEndpointController(factory.Core().V1().Pods(), factory.Core().V1().Services(), factory.Core().V1().Endpoints(), client)
	if !reflect.DeepEqual(e.podUpdates, podUpdates{}) || e.podUpdates.period != 0 {
		t.Errorf("%+v", e.podUpdates)
	}
}
