// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
)

// foreignOwnerTest is a garbage collector and an API server that has objects, by path.
type foreignOwnerTest struct {
	t       *testing.T
	handler *fakeActionHandler
	gc      garbageCollector
}

func newForeignOwnerTest(t *testing.T, on bool) (*foreignOwnerTest, func()) {
	restore := utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GCForeignOwnerCheck, on)
	f := &foreignOwnerTest{t: t, handler: &fakeActionHandler{response: map[string]FakeResponse{}}}
	server, config := testServerAndClientConfig(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := f.handler.response[r.Method+r.URL.Path]; !ok {
			f.handler.response[r.Method+r.URL.Path] = FakeResponse{http.StatusNotFound, nil}
		}
		f.handler.ServeHTTP(w, r)
	})
	f.gc = setupGC(t, config)
	return f, func() {
		close(f.gc.stop)
		server.Close()
		restore()
	}
}

func foreignOwnersCounted(t *testing.T) float64 {
	var m dto.Metric
	if err := foreignOwners.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func path(namespace, resource, name string) string {
	if namespace == "" {
		return "/api/v1/" + resource + "/" + name
	}
	return "/api/v1/namespaces/" + namespace + "/" + resource + "/" + name
}

// pod is a pod of namespace with owners, that the API server has.
func (f *foreignOwnerTest) pod(namespace, name string, owners ...metav1.OwnerReference) *v1.Pod {
	p := getPod(name, owners)
	p.Namespace, p.UID = namespace, types.UID("uid-of-"+name)
	f.handler.response["GET"+path(namespace, "pods", name)] = FakeResponse{200, serilizeOrDie(f.t, p)}
	f.handler.response["DELETE"+path(namespace, "pods", name)] = FakeResponse{200, nil}
	return p
}

func owner(kind, name string, uid types.UID) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: name, UID: uid, BlockOwnerDeletion: &yes}
}

// rc is a ReplicationController of namespace ns1 that the API server has.
func (f *foreignOwnerTest) rc(name string, uid types.UID) *v1.ReplicationController {
	rc := &v1.ReplicationController{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ReplicationController"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: name, UID: uid}}
	f.handler.response["GET"+path("ns1", "replicationcontrollers", name)] = FakeResponse{200, serilizeOrDie(f.t, rc)}
	return rc
}

func (f *foreignOwnerTest) node(name string, uid types.UID) *v1.Node {
	n := &v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	f.handler.response["GET"+path("", "nodes", name)] = FakeResponse{200, serilizeOrDie(f.t, n)}
	return n
}

func (f *foreignOwnerTest) event(what eventType, object runtime.Object) {
	e := &event{eventType: what, obj: object, gvk: object.GetObjectKind().GroupVersionKind()}
	f.gc.dependencyGraphBuilder.graphChanges.Add(e)
	f.gc.dependencyGraphBuilder.processGraphChanges()
}

// work empties the queues, and returns how many items it took. A bounded number: a test
// fails by the bound if an item is queued again and again.
func (f *foreignOwnerTest) work() int {
	gb := f.gc.dependencyGraphBuilder
	for n := 0; n < 200; n++ {
		switch {
		case gb.graphChanges.Len() > 0:
			gb.processGraphChanges()
		case gb.attemptToDelete.Len() > 0:
			f.gc.attemptToDeleteWorker()
		default:
			return n
		}
	}
	f.t.Error("the queues do not get empty")
	return -1
}

func (f *foreignOwnerTest) did(method, path string) int {
	n := 0
	f.handler.lock.Lock()
	defer f.handler.lock.Unlock()
	for _, a := range f.handler.actions {
		if a.method == method && a.path == path {
			n++
		}
	}
	return n
}

func (f *foreignOwnerTest) deleted() string {
	var names []string
	f.handler.lock.Lock()
	defer f.handler.lock.Unlock()
	for _, a := range f.handler.actions {
		if a.method == "DELETE" {
			names = append(names, a.path[strings.LastIndex(a.path, "/")+1:])
		}
	}
	return strings.Join(names, " ")
}

// At a start of the controller manager the informers may bring a foreign dependent
// first, in any order with the others.
func TestGCForeignOwnerAtStart(t *testing.T) {
	for _, test := range []struct {
		name  string
		on    bool
		of    metav1.OwnerReference
		order string
	}{
		{"another name", true, owner("ReplicationController", "nope", "x"), "evil rc victim"},
		{"another name, victim first", true, owner("ReplicationController", "nope", "x"), "evil victim rc"},
		{"the owner first", true, owner("ReplicationController", "nope", "x"), "rc victim evil"},
		{"the right name in another namespace", true, owner("ReplicationController", "web", "x"), "evil rc victim"},
		{"another kind", true, owner("Secret", "web", "x"), "evil rc victim"},
		{"the gate off", false, owner("ReplicationController", "nope", "x"), "evil rc victim"},
	} {
		func() {
			f, stop := newForeignOwnerTest(t, test.on)
			defer stop()
			rc := f.rc("web", "x")
			objects := map[string]runtime.Object{"rc": rc,
				"victim": f.pod("ns1", "victim", owner("ReplicationController", "web", "x")),
				"evil":   f.pod("evil", "foreign", test.of)}
			for _, o := range strings.Fields(test.order) {
				f.event(addEvent, objects[o])
			}
			f.work()
			if got, want := strings.Contains(f.deleted(), "victim"), !test.on; got != want {
				t.Errorf("%s: the pod of a living owner deleted: %v, want %v; %q", test.name, got, want, f.deleted())
			}
			if !test.on {
				return
			}
			// Nothing is deleted that stock keeps when it hears of the owner first.
			if f.deleted() != "" {
				t.Errorf("%s: deleted: %q", test.name, f.deleted())
			}
			n, ok := f.gc.dependencyGraphBuilder.uidToNode.Read("x")
			if !ok || n.identity.Name != "web" || n.identity.Namespace != "ns1" || !n.isObserved() {
				t.Fatalf("%s: the owner is not in the graph as it is: %v", test.name, n)
			}
			// The owner goes: so do all its dependents, each once.
			delete(f.handler.response, "GET"+path("ns1", "replicationcontrollers", "web"))
			f.event(deleteEvent, rc)
			f.work()
			for _, pod := range []string{path("ns1", "pods", "victim"), path("evil", "pods", "foreign")} {
				if f.did("DELETE", pod) != 1 {
					t.Errorf("%s: deletions of %s: %d", test.name, pod, f.did("DELETE", pod))
				}
			}
		}()
	}
}

// Without a start: one foreign object makes the owner absent, another one has the
// victim looked at.
func TestGCForeignOwnerWhileRunning(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			f, stop := newForeignOwnerTest(t, on)
			defer stop()
			counted := foreignOwnersCounted(t)
			f.event(addEvent, f.rc("web", "x"))
			victim := f.pod("ns1", "victim", owner("ReplicationController", "web", "x"))
			f.event(addEvent, victim)
			f.event(addEvent, f.pod("evil", "first", owner("Pod", "none", "no-such-uid"), owner("ReplicationController", "nope", "x")))
			f.work()
			second := f.pod("evil", "second", owner("Pod", "nope", victim.UID))
			f.event(addEvent, second)
			second = second.DeepCopy()
			second.OwnerReferences = nil
			f.event(updateEvent, second)
			f.work()
			if f.did("GET", path("ns1", "pods", "victim")) == 0 {
				t.Fatalf("gate %v: nobody has looked at the victim", on)
			}
			if f.did("DELETE", path("evil", "pods", "first")) != 1 {
				t.Errorf("gate %v: an object whose owners are both absent is not deleted", on)
			}
			if got := foreignOwnersCounted(t) - counted; (got > 0) != on {
				t.Errorf("gate %v: counted %v", on, got)
			}
			if got := f.did("DELETE", path("ns1", "pods", "victim")) > 0; got == on {
				t.Errorf("gate %v: the victim is deleted: %v", on, got)
			}
		}()
	}
}

// The owner's own informer has not brought it: each identity that dependents name is
// looked up once, and only dependents that name an absent one are deleted.
func TestGCForeignOwnerNotObserved(t *testing.T) {
	f, stop := newForeignOwnerTest(t, true)
	defer stop()
	rc := f.rc("web", "x")
	for i := 0; i < 30; i++ {
		f.event(addEvent, f.pod("evil", fmt.Sprint("foreign-", i), owner("ReplicationController", fmt.Sprint("nope-", i), "x")))
	}
	f.event(addEvent, f.pod("ns1", "victim", owner("ReplicationController", "web", "x")))
	gb := f.gc.dependencyGraphBuilder
	for i := 0; i < 400 && gb.graphChanges.Len()+gb.attemptToDelete.Len() > 0; i++ {
		if gb.graphChanges.Len() > 0 {
			gb.processGraphChanges()
		} else {
			f.gc.attemptToDeleteWorker()
		}
	}
	if strings.Contains(f.deleted(), "victim") {
		t.Errorf("the pod of a living owner is deleted")
	}
	f.event(addEvent, rc)
	n, ok := gb.uidToNode.Read("x")
	if !ok || n.identity.Namespace != "ns1" || n.identity.Name != "web" {
		t.Fatalf("the owner is not in the graph: %v", n)
	}
	if len(n.dependents) != 31 {
		t.Errorf("the owner has %d dependents in the graph, want 31", len(n.dependents))
	}
}

// An owner that nobody finds: all dependents go, also one that the API server keeps for
// its finalizer, and the queues get empty.
func TestGCForeignOwnerAbsent(t *testing.T) {
	f, stop := newForeignOwnerTest(t, true)
	defer stop()
	f.event(addEvent, f.pod("evil", "foreign", owner("ReplicationController", "nope", "x")))
	f.event(addEvent, f.pod("ns1", "one", owner("ReplicationController", "web", "x")))
	f.event(addEvent, f.pod("ns1", "two", owner("ReplicationController", "web", "x")))
	if n := f.work(); n < 0 || n > 20 {
		t.Errorf("%d items", n)
	}
	for _, pod := range []string{path("evil", "pods", "foreign"), path("ns1", "pods", "one"), path("ns1", "pods", "two")} {
		if f.did("DELETE", pod) == 0 {
			t.Errorf("%s is not deleted", pod)
		}
	}
	if _, ok := f.gc.dependencyGraphBuilder.uidToNode.Read("x"); ok {
		t.Error("the absent owner stays in the graph")
	}
	if n := f.did("GET", path("ns1", "replicationcontrollers", "web")); n > 2 {
		t.Errorf("the absent owner was asked for %d times in one namespace", n)
	}
}

// An owner without a namespace has dependents in many: it is the same in each.
func TestGCForeignOwnerClusterScoped(t *testing.T) {
	f, stop := newForeignOwnerTest(t, true)
	defer stop()
	node := f.node("n1", "x")
	f.event(addEvent, f.pod("ns1", "one", owner("Node", "n1", "x")))
	f.event(addEvent, node)
	f.event(addEvent, f.pod("ns2", "two", owner("Node", "n1", "x")))
	f.work()
	if f.deleted() != "" {
		t.Errorf("deleted: %q", f.deleted())
	}
	if n, ok := f.gc.dependencyGraphBuilder.uidToNode.Read("x"); !ok || len(n.dependents) != 2 || n.identity.Namespace != "" {
		t.Errorf("in the graph: %v", n)
	}
	// One that does not exist is asked for once for its node in the graph, and once more.
	for i := 0; i < 5; i++ {
		f.event(addEvent, f.pod(fmt.Sprint("ns", i), fmt.Sprint("of-gone-", i), owner("Node", "gone", "y")))
	}
	f.work()
	if n := f.did("GET", path("", "nodes", "gone")); n != 2 {
		t.Errorf("the absent node was asked for %d times, want 2", n)
	}
	if n := len(strings.Fields(f.deleted())); n != 5 {
		t.Errorf("deleted: %q, want 5", f.deleted())
	}
}

// What a cluster-scoped object is told about a name without a namespace is nothing about
// that name in a namespace.
func TestGCForeignOwnerOfClusterScopedDependent(t *testing.T) {
	defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GCForeignOwnerCheck, true)()
	c := NewUIDCache(5)
	web := owner("ReplicationController", "web", "x")
	c.addOwner(web, "", true)
	if !c.hasOwner(web, "") || c.hasOwner(web, "ns1") {
		t.Errorf("absent in no namespace %v, in ns1 %v", c.hasOwner(web, ""), c.hasOwner(web, "ns1"))
	}
	c.addOwner(owner("Node", "n1", "y"), "ns1", false)
	if !c.hasOwner(owner("Node", "n1", "y"), "ns2") || c.hasOwner(owner("Node", "n2", "y"), "ns2") {
		t.Error("a node is not absent by its name alone")
	}
	// An object can name one UID in many ways.
	for i := 0; i < 10*maxAbsentIdentities; i++ {
		c.addOwner(owner("ReplicationController", fmt.Sprint(i), "x"), "evil", true)
	}
	value, _ := c.cache.Get(types.UID("x"))
	if n := len(value.(map[ownerIdentity]struct{})); n > maxAbsentIdentities {
		t.Errorf("%d identities of one UID are kept", n)
	}
	c.Add("x")
	c.addOwner(owner("ReplicationController", "nope", "x"), "evil", true)
	if !c.hasOwner(web, "ns1") {
		t.Error("a UID that an informer saw go is not absent for all")
	}
}
