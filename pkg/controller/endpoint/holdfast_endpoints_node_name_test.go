// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	api "k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/features"
)

// nodeNameCluster is an API server with one Service, ns/web, that validates its Endpoints as
// 1.9 does, and a controller whose cache has what is stored at each sync.
type nodeNameCluster struct {
	*testing.T
	e            *EndpointController
	pods, cached cache.Store

	version int
	stored  *v1.Endpoints
	// requests are the writes: verb, what they answer, and the addresses.
	requests []string
	// before is called before a write is served.
	before func()
}

func newNodeNameCluster(t *testing.T) *nodeNameCluster {
	c := &nodeNameCluster{T: t}
	client := &fake.Clientset{}
	client.AddReactor("*", "endpoints", func(a core.Action) (bool, runtime.Object, error) {
		w, ok := a.(core.UpdateAction) // or Create
		if !ok {
			return true, c.stored.DeepCopy(), nil
		}
		if c.before != nil {
			c.before()
		}
		ep := w.GetObject().(*v1.Endpoints).DeepCopy()
		ep.Namespace = "ns"
		err := c.serve(ep)
		answer := ""
		if err != nil {
			answer = " " + string(errors.ReasonForError(err))
		}
		c.requests = append(c.requests, a.GetVerb()+answer+" "+addresses(ep))
		return true, ep, err
	})
	factory := informers.NewSharedInformerFactory(client, controller.NoResyncPeriodFunc())
	c.e = NewEndpointController(factory.Core().V1().Pods(), factory.Core().V1().Services(), factory.Core().V1().Endpoints(), client)
	factory.Core().V1().Services().Informer().GetStore().Add(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: v1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []v1.ServicePort{{Port: 80, TargetPort: intstr.FromInt(80), Protocol: "TCP"}}}})
	c.pods = factory.Core().V1().Pods().Informer().GetStore()
	c.cached = factory.Core().V1().Endpoints().Informer().GetStore()
	return c
}

// serve stores ep, whose version it fills in, or says why not.
func (c *nodeNameCluster) serve(ep *v1.Endpoints) error {
	if c.stored != nil {
		if ep.ResourceVersion != c.stored.ResourceVersion {
			return errors.NewConflict(v1.Resource("endpoints"), "web", fmt.Errorf("stored is %s", c.stored.ResourceVersion))
		}
		var old, now api.Endpoints
		if err := corev1.Convert_v1_Endpoints_To_core_Endpoints(c.stored.DeepCopy(), &old, nil); err != nil {
			c.Fatal(err)
		}
		if err := corev1.Convert_v1_Endpoints_To_core_Endpoints(ep.DeepCopy(), &now, nil); err != nil {
			c.Fatal(err)
		}
		if errs := validation.ValidateEndpointsUpdate(&now, &old); len(errs) != 0 {
			return errors.NewInvalid(api.Kind("Endpoints"), "web", errs)
		}
	}
	c.store(ep)
	return nil
}

func (c *nodeNameCluster) store(ep *v1.Endpoints) {
	c.version++
	ep.ResourceVersion, ep.UID = strconv.Itoa(c.version), "uid"
	c.stored = ep.DeepCopy()
}

// pod adds a pod, or changes it. Pods are older the earlier their names are in the alphabet.
func (c *nodeNameCluster) pod(name, ip, node string, ready v1.ConditionStatus) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"},
			CreationTimestamp: metav1.Unix(int64(name[0]), 0)},
		Spec:   v1.PodSpec{NodeName: node},
		Status: v1.PodStatus{PodIP: ip, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}}}
	c.pods.Add(pod)
	return pod
}

// sync lets the controller look at the Service, and returns its writes.
func (c *nodeNameCluster) sync() string {
	c.Helper()
	if c.stored != nil {
		c.cached.Add(c.stored.DeepCopy())
	}
	c.requests = nil
	if err := c.e.syncService("ns/web"); err != nil {
		c.requests = append(c.requests, "error")
	}
	return strings.Join(c.requests, ", ")
}

func (c *nodeNameCluster) want(what, got, want string) {
	c.Helper()
	if got != want {
		c.Errorf("%s:\n%s, want\n%s", what, got, want)
	}
}

// addresses are those of ep: the last byte, the node, "!" if it is not ready.
func addresses(ep *v1.Endpoints) string {
	all := []string{}
	each := func(list []v1.EndpointAddress, mark string) {
		for _, a := range list {
			node := "-"
			if a.NodeName != nil {
				node = *a.NodeName
			}
			all = append(all, a.IP[strings.LastIndex(a.IP, ".")+1:]+"@"+node+mark)
		}
	}
	for _, s := range ep.Subsets {
		each(s.Addresses, "")
		each(s.NotReadyAddresses, "!")
	}
	sort.Strings(all)
	return "[" + strings.Join(all, " ") + "]"
}

func nodeNameGate(t *testing.T, on bool) func() {
	return utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.EndpointsNodeName, on)
}

// A node is renamed: the old pod of the address is not ready, the new one is.
func TestHoldfastEndpointsNodeRenamed(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer nodeNameGate(t, on)()
			c := newNodeNameCluster(t)
			c.pod("a", "10.0.0.1", "n1", v1.ConditionTrue)
			gone := c.pod("b", "10.0.0.2", "n1", v1.ConditionTrue)
			c.pod("c", "10.0.0.3", "n3", v1.ConditionTrue)
			c.want("first", c.sync(), "create [1@n1 2@n1 3@n3]")
			c.pod("a", "10.0.0.1", "n1", v1.ConditionFalse)
			c.want("the node is dead", c.sync(), "update [1@n1! 2@n1 3@n3]")
			c.stored.Annotations = map[string]string{"somebody": "else"}
			c.pods.Delete(gone)
			c.pod("x", "10.0.0.1", "n2", v1.ConditionTrue)
			if !on {
				c.want("gate off", c.sync(), "update Invalid [1@n1! 1@n2 3@n3], error")
				c.want("gate off: a pod that is gone is ready", addresses(c.stored), "[1@n1! 2@n1 3@n3]")
				return
			}
			c.want("renamed", c.sync(), "update Invalid [1@n2 3@n3], update [1@- 3@n3], update [1@n2 3@n3]")
			c.want("annotation", c.stored.Annotations["somebody"], "else")
			c.want("at rest", c.sync(), "")
			c.pod("y", "10.0.0.4", "n2", v1.ConditionTrue)
			c.want("another pod", c.sync(), "update [1@n2 3@n3 4@n2]")
		}()
	}
}

// What is left is the node of the ready pod, or of the newest.
func TestHoldfastEndpointsOneNodePerAddress(t *testing.T) {
	yes, no := v1.ConditionTrue, v1.ConditionFalse
	for _, tc := range []struct {
		name string
		pods func(c *nodeNameCluster)
		want string
	}{
		{"new not ready yet", func(c *nodeNameCluster) {
			c.pod("a", "10.0.0.1", "n1", no)
			c.pod("x", "10.0.0.1", "n2", no)
		}, "[1@n2!]"},
		{"old ready still", func(c *nodeNameCluster) {
			c.pod("a", "10.0.0.1", "n1", yes)
			c.pod("x", "10.0.0.1", "n2", no)
		}, "[1@n1]"},
		{"both ready", func(c *nodeNameCluster) {
			c.pod("a", "10.0.0.1", "n1", yes)
			c.pod("x", "10.0.0.1", "n2", yes)
		}, "[1@n2]"},
		{"two of a host network", func(c *nodeNameCluster) {
			c.pod("a", "10.0.0.1", "n1", yes)
			c.pod("x", "10.0.0.1", "n1", no)
		}, "[1@n1 1@n1!]"},
		{"two of a host network, renamed", func(c *nodeNameCluster) {
			c.pod("a", "10.0.0.1", "n1", no)
			c.pod("b", "10.0.0.1", "n1", no)
			c.pod("x", "10.0.0.1", "n2", yes)
			c.pod("y", "10.0.0.1", "n2", no)
		}, "[1@n2 1@n2!]"},
		{"a newer one is being deleted", func(c *nodeNameCluster) {
			c.pod("a", "10.0.0.1", "n1", no)
			c.pod("x", "10.0.0.1", "n2", yes).DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}, "[1@n1!]"},
		{"a newer one has ended", func(c *nodeNameCluster) {
			c.pod("a", "10.0.0.1", "n1", no)
			p := c.pod("x", "10.0.0.1", "n2", no)
			p.Spec.RestartPolicy, p.Status.Phase = v1.RestartPolicyNever, v1.PodSucceeded
		}, "[1@n1!]"},
		{"no address", func(c *nodeNameCluster) {
			c.pod("a", "", "n1", no)
			c.pod("b", "10.0.0.1", "n1", yes)
			c.pod("x", "", "n2", no)
		}, "[1@n1]"},
	} {
		func() {
			defer nodeNameGate(t, true)()
			c := newNodeNameCluster(t)
			tc.pods(c)
			c.want(tc.name, c.sync(), "create "+tc.want)
		}()
	}
}

// Stock's creation stored the address with both nodes.
func TestHoldfastEndpointsStoredWithBothNodes(t *testing.T) {
	func() {
		defer nodeNameGate(t, false)()
		c := newNodeNameCluster(t)
		c.pod("a", "10.0.0.1", "n1", v1.ConditionFalse)
		c.pod("x", "10.0.0.1", "n2", v1.ConditionTrue)
		c.want("gate off", c.sync(), "create [1@n1! 1@n2]")
		c.pod("y", "10.0.0.3", "n2", v1.ConditionTrue)
		c.want("gate off", c.sync(), "update Invalid [1@n1! 1@n2 3@n2], error")
		defer nodeNameGate(t, true)()
		c.want("on", c.sync(), "update Invalid [1@n2 3@n2], update [1@- 3@n2], update [1@n2 3@n2]")
	}()
}

// Somebody else writes between the steps: nothing of it is lost.
func TestHoldfastEndpointsOtherWriterBetweenSteps(t *testing.T) {
	defer nodeNameGate(t, true)()
	for write := 2; write <= 3; write++ {
		c := newNodeNameCluster(t)
		old := c.pod("a", "10.0.0.1", "n1", v1.ConditionTrue)
		c.sync()
		c.pods.Delete(old)
		c.pod("x", "10.0.0.1", "n2", v1.ConditionTrue)
		n := 0
		c.before = func() {
			if n++; n == write {
				ep := c.stored.DeepCopy()
				ep.Annotations = map[string]string{"somebody": "else"}
				c.store(ep)
			}
		}
		got := c.sync()
		if !strings.Contains(got, "Conflict") || !strings.HasSuffix(got, "error") {
			t.Errorf("write %d: %s, want a conflict", write, got)
		}
		c.sync()
		c.want("stored", addresses(c.stored), "[1@n2]")
		c.want("annotation", c.stored.Annotations["somebody"], "else")
	}
}

// Other errors, and what is refused for something else too, stay as they are.
func TestHoldfastEndpointsRefusedForSomethingElse(t *testing.T) {
	defer nodeNameGate(t, true)()
	path := field.NewPath("subsets").Index(0)
	moved := field.Forbidden(path.Child("addresses").Index(0).Child("nodeName"), "Cannot change NodeName for 10.0.0.1 to n2")
	invalid := func(errs ...*field.Error) error { return errors.NewInvalid(api.Kind("Endpoints"), "web", errs) }
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{invalid(moved), true},
		{invalid(moved, moved), true},
		{invalid(), false},
		{invalid(moved, field.Required(path.Child("ports"), "")), false},
		{invalid(field.Invalid(path.Child("addresses").Index(0).Child("nodeName"), "N_1", "no name")), false},
		{errors.NewConflict(v1.Resource("endpoints"), "web", fmt.Errorf("nodeName")), false},
		{fmt.Errorf("Cannot change NodeName"), false},
		{&errors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid}}, false},
	} {
		if got := refusedForNodeName(tc.err); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}
