// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/features"
)

func heldNamespaces(t *testing.T) float64 {
	var m dto.Metric
	if err := namespacesHeld.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// contents is a server with pods and NetworkPolicies of one namespace.
type contents struct {
	pods    int
	deleted map[string]int // by resource: requests
	fails   bool           // each request to delete

	notFound bool // each request is answered 404
}

func (c *contents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	resource := path.Base(r.URL.Path)
	items := []string{}
	if c.notFound {
		if r.Method == http.MethodDelete {
			c.deleted[resource]++
		}
		http.NotFound(w, r)
		return
	}
	if r.Method == http.MethodDelete {
		c.deleted[resource]++
		if c.fails {
			http.Error(w, "busy", http.StatusInternalServerError)
			return
		}
	} else if resource == "pods" {
		for i := 0; i < c.pods; i++ {
			items = append(items, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod-%d"}}`, i))
		}
	}
	fmt.Fprintf(w, `{"apiVersion": "v1", "kind": "List", "items": [%s]}`, strings.Join(items, ","))
}

func TestOrderedNamespaceDeletion(t *testing.T) {
	const looked = 60 // heldEstimate: the pod may end long before its grace period
	grace := int64(3600)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "pod-0"}, Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace}}
	resources := func() ([]*metav1.APIResourceList, error) {
		verbs := []string{"get", "list", "delete", "deletecollection", "create", "update"}
		return []*metav1.APIResourceList{
			{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Namespaced: true, Kind: "Pod", Verbs: verbs}, {Name: "configmaps", Namespaced: true, Kind: "ConfigMap", Verbs: verbs}}},
			{GroupVersion: "networking.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "networkpolicies", Namespaced: true, Kind: "NetworkPolicy", Verbs: verbs}}},
		}, nil
	}
	now := metav1.Now()
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.OrderedNamespaceDeletion, on)()
			c := &contents{pods: 1, deleted: map[string]int{}}
			srv, config := testServerAndClientConfig(c.ServeHTTP)
			defer srv.Close()
			namespace := &v1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "test", ResourceVersion: "1", DeletionTimestamp: &now},
				Spec:       v1.NamespaceSpec{Finalizers: []v1.FinalizerName{"kubernetes"}},
				Status:     v1.NamespaceStatus{Phase: v1.NamespaceTerminating},
			}
			client := fake.NewSimpleClientset(namespace, pod)
			d := withClient(t, NewNamespacedResourcesDeleter(client.Core().Namespaces(), nil, client.Core(), resources, v1.FinalizerKubernetes, true).(*namespacedResourcesDeleter), config)
			before := heldNamespaces(t)
			for i := 0; i < 2; i++ {
				err := d.Delete("test")
				if remaining, ok := err.(*ResourcesRemainingError); !ok || remaining.Estimate != map[bool]int64{true: looked, false: grace}[on] {
					t.Errorf("gate %v: with a pod: %v", on, err)
				}
				if rest := c.deleted["networkpolicies"] + c.deleted["configmaps"]; c.deleted["pods"] == 0 || (rest == 0) != on {
					t.Errorf("gate %v: with a pod: deleted %v", on, c.deleted)
				}
			}
			if n := heldNamespaces(t) - before; (n == 1) != on || n > 1 {
				t.Errorf("gate %v: counted %v", on, n)
			}
			// The pod has gone since the server was asked for the estimate: nothing waits.
			c.pods = 0
			if err := client.Core().Pods("test").Delete("pod-0", nil); err != nil {
				t.Fatal(err)
			}
			if err := d.Delete("test"); err != nil {
				t.Errorf("gate %v: without a pod: %v", on, err)
			}
			if c.deleted["networkpolicies"] == 0 || c.deleted["configmaps"] == 0 {
				t.Errorf("gate %v: without a pod: deleted %v", on, c.deleted)
			}
			if len(held.since) != 0 {
				t.Errorf("gate %v: still held: %v", on, held.since)
			}
		}()
	}
}

// TestOrderedNamespaceDeletionForgets: a namespace that never came to be without pods is not
// remembered for ever.
func TestOrderedNamespaceDeletionForgets(t *testing.T) {
	defer func() { held.since = map[string]heldNamespace{} }()
	held.since["old"] = heldNamespace{metav1.Now(), time.Now().Add(-2 * heldFor)}
	ago := metav1.NewTime(time.Now().Add(-100 * heldFor))
	before := heldNamespaces(t)
	hold("stays", ago, 60)
	hold("new", metav1.Now(), 60)
	hold("stays", ago, 60)
	if _, known := held.since["old"]; known || len(held.since) != 2 || heldNamespaces(t)-before != 2 {
		t.Errorf("held: %v, counted %v", held.since, heldNamespaces(t)-before)
	}
}

// TestOrderedNamespaceDeletionPodGoesAtOnce: a pod that no node has is gone when it is
// deleted, so that nothing waits for its grace period.
func TestOrderedNamespaceDeletionPodGoesAtOnce(t *testing.T) {
	defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.OrderedNamespaceDeletion, true)()
	grace := int64(30)
	client := fake.NewSimpleClientset(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "pod-0"}, Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace}})
	c := &contents{deleted: map[string]int{}}
	srv, config := testServerAndClientConfig(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			client.Core().Pods("test").Delete("pod-0", nil)
		}
		c.ServeHTTP(w, r)
	})
	defer srv.Close()
	d := withClient(t, &namespacedResourcesDeleter{
		podsGetter: client.Core(), opCache: &operationNotSupportedCache{m: make(map[operationKey]bool)}}, config)
	pods := v1.SchemeGroupVersion.WithResource("pods")
	gone, estimate, err := d.podsGone(map[schema.GroupVersionResource]struct{}{pods: {}}, "test", metav1.Now())
	if !gone || estimate != 0 || err != nil || c.deleted["pods"] != 1 {
		t.Errorf("%v, %d, %v, deleted %v", gone, estimate, err, c.deleted)
	}
}

// TestOrderedNamespaceDeletionPodStays: pods that outlive their grace period, and pods whose
// list or deletion was once not found, are deleted and waited for, and looked at in the same
// time again and again.
func TestOrderedNamespaceDeletionPodStays(t *testing.T) {
	defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.OrderedNamespaceDeletion, true)()
	for _, notFound := range []bool{false, true} {
		grace := int64(30)
		client := fake.NewSimpleClientset(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "pod-0"}, Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace}})
		c := &contents{pods: 1, deleted: map[string]int{}}
		srv, config := testServerAndClientConfig(c.ServeHTTP)
		defer srv.Close()
		d := withClient(t, &namespacedResourcesDeleter{
			podsGetter: client.Core(), opCache: &operationNotSupportedCache{m: make(map[operationKey]bool)}}, config)
		pods := v1.SchemeGroupVersion.WithResource("pods")
		c.notFound = notFound
		ago := metav1.NewTime(time.Now().Add(-10 * time.Minute))
		for i := 0; i < 2; i++ {
			if gone, estimate, err := d.podsGone(map[schema.GroupVersionResource]struct{}{pods: {}}, "test", ago); gone || estimate != heldEstimate || err != nil {
				t.Errorf("not found %v: %v, %d, %v", notFound, gone, estimate, err)
			}
			if c.deleted["pods"] != i+1 {
				t.Errorf("not found %v: round %d: deleted %v", notFound, i, c.deleted)
			}
			c.notFound = false
		}
		// What fails is tried again at once, whatever the grace period is.
		c.fails = true
		if gone, _, err := d.podsGone(map[schema.GroupVersionResource]struct{}{pods: {}}, "test", metav1.Now()); gone || err == nil {
			t.Errorf("not found %v, delete fails: %v, %v", notFound, gone, err)
		}
		// Not so where no pod is left: the rest is not to wait for a request that nobody needs.
		c.pods = 0
		if err := client.Core().Pods("test").Delete("pod-0", nil); err != nil {
			t.Fatal(err)
		}
		if gone, estimate, err := d.podsGone(map[schema.GroupVersionResource]struct{}{pods: {}}, "test", ago); !gone || estimate != 0 || err != nil {
			t.Errorf("not found %v, delete fails, without a pod: %v, %d, %v", notFound, gone, estimate, err)
		}
		c.fails = false
		if gone, estimate, err := d.podsGone(map[schema.GroupVersionResource]struct{}{pods: {}}, "test", ago); !gone || estimate != 0 || err != nil {
			t.Errorf("not found %v, without a pod: %v, %d, %v", notFound, gone, estimate, err)
		}
	}
}
