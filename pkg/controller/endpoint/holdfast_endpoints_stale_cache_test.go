// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/features"
)

// staleQueue records how keys come in, and holds them too.
type staleQueue struct {
	workqueue.RateLimitingInterface
	now, after []string
}

func (q *staleQueue) Add(key interface{}) {
	q.now = append(q.now, key.(string))
	q.RateLimitingInterface.Add(key)
}

func (q *staleQueue) AddAfter(key interface{}, d time.Duration) {
	q.after = append(q.after, key.(string))
	q.RateLimitingInterface.AddAfter(key, d)
}

func stalePod(ready v1.ConditionStatus) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", ResourceVersion: "1", Labels: map[string]string{"app": "web"}},
		Status:     v1.PodStatus{PodIP: "1.2.3.4", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}},
	}
}

func staleService() *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: v1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []v1.ServicePort{{Port: 80, Protocol: "TCP"}}}}
}

// staleCluster is an API server with one Service, ns/web, its Endpoints and one pod, and a
// controller whose caches the test fills: nothing arrives by itself.
type staleCluster struct {
	*testing.T
	e       *EndpointController
	queue   *staleQueue
	service *v1.Service
	// services, pods and cached are the controller's caches.
	services, pods cache.Store
	cached         cache.Store

	version int
	stored  *v1.Endpoints
	// requests are the verbs of the requests for Endpoints.
	requests []string
	// answering is called when a write is done and its answer is under way.
	answering func()
	// refuse is what each creation is answered, if it is set.
	refuse error
}

func newStaleCluster(t *testing.T) *staleCluster {
	c := &staleCluster{T: t, version: 5}
	client := &fake.Clientset{}
	client.AddReactor("*", "endpoints", func(a core.Action) (bool, runtime.Object, error) {
		c.requests = append(c.requests, a.GetVerb())
		return c.serve(a)
	})
	factory := informers.NewSharedInformerFactory(client, controller.NoResyncPeriodFunc())
	c.e = NewEndpointController(factory.Core().V1().Pods(), factory.Core().V1().Services(), factory.Core().V1().Endpoints(), client)
	c.queue = &staleQueue{RateLimitingInterface: c.e.queue}
	c.e.queue = c.queue
	c.service = staleService()
	c.services = factory.Core().V1().Services().Informer().GetStore()
	c.services.Add(c.service)
	c.pods = factory.Core().V1().Pods().Informer().GetStore()
	c.cached = factory.Core().V1().Endpoints().Informer().GetStore()
	c.pod(v1.ConditionTrue)
	return c
}

func (c *staleCluster) pod(ready v1.ConditionStatus) {
	c.pods.Add(stalePod(ready))
}

func (c *staleCluster) serve(a core.Action) (bool, runtime.Object, error) {
	resource := v1.Resource("endpoints")
	store := func(o runtime.Object) (bool, runtime.Object, error) {
		c.store(o.(*v1.Endpoints))
		own := c.stored.DeepCopy()
		if c.answering != nil {
			c.answering()
		}
		return true, own, nil
	}
	switch a := a.(type) {
	case core.CreateActionImpl:
		if c.refuse != nil {
			return true, &v1.Endpoints{}, c.refuse
		}
		if c.stored != nil {
			return true, &v1.Endpoints{}, errors.NewAlreadyExists(resource, "web")
		}
		return store(a.GetObject())
	case core.UpdateActionImpl:
		switch {
		case c.stored == nil:
			return true, &v1.Endpoints{}, errors.NewNotFound(resource, "web")
		case a.GetObject().(*v1.Endpoints).ResourceVersion != c.stored.ResourceVersion:
			return true, &v1.Endpoints{}, errors.NewConflict(resource, "web", fmt.Errorf("stored is %s", c.stored.ResourceVersion))
		}
		return store(a.GetObject())
	default:
		if c.stored == nil {
			return true, &v1.Endpoints{}, errors.NewNotFound(resource, "web")
		}
		return true, c.stored.DeepCopy(), nil
	}
}

// store is a write, of the controller or of somebody else.
func (c *staleCluster) store(ep *v1.Endpoints) {
	c.version++
	c.stored = ep.DeepCopy()
	c.stored.Namespace = "ns"
	c.stored.ResourceVersion = strconv.Itoa(c.version)
}

// foreign is a write of somebody else: no addresses.
func (c *staleCluster) foreign() {
	ep := c.stored.DeepCopy()
	ep.Subsets = nil
	c.store(ep)
}

// arrive brings what is stored into the controller's cache, with its event.
func (c *staleCluster) arrive() {
	old, found, _ := c.cached.GetByKey("ns/web")
	switch {
	case c.stored == nil && found:
		c.cached.Delete(old)
		c.e.endpointsDeleted(old)
	case c.stored != nil:
		c.cached.Add(c.stored.DeepCopy())
		if found {
			c.e.endpointsChanged(old, c.stored.DeepCopy())
		}
	}
}

// sync lets the controller look at the Service, and returns the verbs of its requests.
func (c *staleCluster) sync() string {
	c.requests = nil
	if err := c.e.syncService("ns/web"); err != nil {
		c.requests = append(c.requests, "error")
	}
	return strings.Join(c.requests, " ")
}

func (c *staleCluster) want(what, got, want string) {
	c.Helper()
	if got != want {
		c.Errorf("%s: %q, want %q", what, got, want)
	}
}

// addresses are the stored ones: ready and not ready.
func (c *staleCluster) addresses() string {
	if c.stored == nil {
		return "none"
	}
	ready, not := 0, 0
	for _, s := range c.stored.Subsets {
		ready, not = ready+len(s.Addresses), not+len(s.NotReadyAddresses)
	}
	return fmt.Sprintf("%d+%d", ready, not)
}

func (c *staleCluster) requeued() string {
	keys := c.queue.after
	c.queue.after = nil
	return strings.Join(keys, " ")
}

func staleGate(t *testing.T, on bool) func() {
	return utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.EndpointsStaleCacheCheck, on)
}

// The cache does not have the controller's own last write yet.
func TestHoldfastEndpointsBehindOwnWrite(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer staleGate(t, on)()
			c := newStaleCluster(t)
			c.want("first", c.sync(), "create")
			c.arrive()
			c.want("nothing to do", c.sync(), "")
			c.pod(v1.ConditionFalse)
			c.want("not ready", c.sync(), "update")
			c.pod(v1.ConditionTrue) // the update has not arrived
			if !on {
				c.want("gate off: the cache says ready", c.sync(), "")
				c.want("gate off: stays", c.addresses(), "0+1")
				return
			}
			c.want("ready again", c.sync(), "get update")
			c.want("stored", c.addresses(), "1+0")
			c.arrive()
			c.want("at rest", c.sync(), "")
			c.want("own writes", c.requeued(), "")
		}()
	}
}

// A Service is deleted and made again; the deletion of its Endpoints arrives late.
func TestHoldfastEndpointsOfServiceMadeAgain(t *testing.T) {
	defer staleGate(t, true)()
	c := newStaleCluster(t)
	c.sync()
	c.arrive()
	c.stored = nil
	c.want("the new Service", c.sync(), "")
	c.arrive()
	c.want("the deletion arrives", c.requeued(), "ns/web")
	c.want("its sync", c.sync(), "create")
	c.want("stored", c.addresses(), "1+0")
	// The cache has nothing, and somebody asks again before the creation has arrived.
	c.want("before it arrives", c.sync(), "get")

	// A deletion that arrives while a write is under way: the cache is not asked again.
	c.arrive()
	c.pod(v1.ConditionFalse)
	c.answering = func() {
		c.answering = nil
		stored := c.stored
		c.stored = nil
		c.arrive()
		c.stored = stored
	}
	c.want("deleted meanwhile", c.sync(), "update")
	c.want("requeued", c.requeued(), "ns/web")
	c.stored = nil
	c.want("made again", c.sync(), "create")

	// The Service has no selector any more.
	c.arrive()
	c.service.Spec.Selector = nil
	c.stored = nil
	c.arrive()
	c.want("without a selector", c.requeued(), "")
	if n := len(c.e.writes.byKey); n != 0 {
		t.Errorf("%d keys are remembered", n)
	}
}

// A write is refused because something else is stored: the next try is on top of that.
func TestHoldfastEndpointsRefused(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer staleGate(t, on)()
			c := newStaleCluster(t)
			c.sync()
			c.arrive()
			c.foreign() // has not arrived
			c.pod(v1.ConditionFalse)
			c.want("conflict", c.sync(), "update error")
			if !on {
				c.want("gate off: again", c.sync(), "update error")
				return
			}
			c.want("again", c.sync(), "get update")
			c.want("stored", c.addresses(), "0+1")

			c.stored = nil // has not arrived
			c.pod(v1.ConditionTrue)
			c.want("not found", c.sync(), "get create")

			d := newStaleCluster(t) // nothing in its cache
			d.store(&v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}})
			d.want("exists", d.sync(), "create error")
			d.want("again", d.sync(), "get update")
			d.arrive()
			d.stored = nil // has not arrived
			d.pod(v1.ConditionFalse)
			d.want("not found", d.sync(), "update error")
			d.want("again", d.sync(), "get create")
			d.want("stored", d.addresses(), "0+1")
		}()
	}
}

// Endpoints that can never be created: their key goes with the Service.
func TestHoldfastEndpointsNeverWritten(t *testing.T) {
	defer staleGate(t, true)()
	for _, refuse := range []error{
		errors.NewForbidden(v1.Resource("endpoints"), "web", fmt.Errorf("the namespace is being terminated")),
		errors.NewNotFound(v1.Resource("namespaces"), "ns"),
	} {
		c := newStaleCluster(t)
		c.refuse = refuse
		c.want("refused", c.sync(), "create error")
		c.services.Delete(c.service)
		c.sync()
		if n := len(c.e.writes.byKey); n != 0 {
			t.Errorf("%v: %d keys are remembered", refuse, n)
		}
	}
}

// What somebody else wrote is taken up once in a while; own writes never are.
func TestHoldfastEndpointsChangedByOthers(t *testing.T) {
	defer staleGate(t, true)()
	c := newStaleCluster(t)
	c.sync()
	c.arrive()
	for i, ready := range []v1.ConditionStatus{v1.ConditionFalse, v1.ConditionTrue, v1.ConditionFalse, v1.ConditionTrue} {
		if i > 1 {
			c.answering = c.arrive // the event comes before the answer
		}
		c.pod(ready)
		c.want("own", c.sync(), "update")
		c.arrive()
		c.want("own event", c.requeued(), "")
	}
	c.answering = nil

	c.foreign()
	c.arrive()
	c.want("foreign", c.requeued(), "ns/web")
	c.want("written again", c.sync(), "update")
	c.arrive()
	c.foreign()
	c.arrive()
	c.want("foreign again: whoever insists wins", c.requeued(), "")
	c.e.writes.byKey["ns/web"].restored = time.Now().Add(-endpointsRestoreInterval)
	c.want("as stock, when a pod changes", c.sync(), "update")
	c.arrive()
	c.pod(v1.ConditionFalse)
	c.answering = func() { c.answering = nil; c.foreign(); c.arrive() }
	c.want("foreign right after an own write", c.sync(), "update")
	c.want("requeued", c.requeued(), "ns/web")

	// An older event that comes after an own write, an annotation, a resync.
	c.e.writes.byKey["ns/web"].restored = time.Time{}
	c.want("written again", c.sync(), "update")
	old := c.stored.DeepCopy()
	old.ResourceVersion, old.Subsets = "6", nil
	c.e.endpointsChanged(c.stored, old)
	annotated := c.stored.DeepCopy()
	annotated.ResourceVersion, annotated.Annotations = "9000", map[string]string{"a": "b"}
	c.e.endpointsChanged(c.stored, annotated)
	c.e.endpointsChanged(annotated, annotated)
	c.want("no change", c.requeued(), "")
}
