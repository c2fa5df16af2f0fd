// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

var namespacesHeld = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "holdfast_ordered_namespace_deletion_waited_total",
	Help: "Namespaces whose other content was kept until their pods were gone.",
})

func init() {
	prometheus.MustRegister(namespacesHeld)
}

// heldNamespace is a namespace that is waited for.
type heldNamespace struct {
	deletedAt metav1.Time
	looked    time.Time // when it was looked at last
}

// held are the namespaces that are waited for, by name.
var held = struct {
	sync.Mutex
	since map[string]heldNamespace
}{since: map[string]heldNamespace{}}

// heldEstimate is the estimate, in seconds, for pods that should be gone and are not. The
// controller looks again after half of it.
const heldEstimate = 60

// podsGone deletes the pods of a namespace before anything else, and says whether all of
// them are gone. If not, it returns an estimate of the time until they are, in seconds, or
// an error, as deleteAllContent does. With the feature gate off it does nothing and says yes.
func (d *namespacedResourcesDeleter) podsGone(groupVersionResources map[schema.GroupVersionResource]struct{},
	namespace string, namespaceDeletedAt metav1.Time) (bool, int64, error) {
	pods := v1.SchemeGroupVersion.WithResource("pods")
	if _, found := groupVersionResources[pods]; !found || !utilfeature.DefaultFeatureGate.Enabled(features.OrderedNamespaceDeletion) {
		return true, 0, nil
	}
	d.forgetNotSupported(pods)
	estimate, err := d.deleteAllContentForGroupVersionResource(pods, namespace, namespaceDeletedAt)
	// The estimate is of the pods that there were: they may be gone at once. It is 0 where an
	// answer 404 has just taught the controller that pods cannot be listed.
	left, listErr := d.podsLeft(namespace)
	switch {
	case err == nil && listErr != nil:
		err = listErr
	case listErr == nil && left:
		if estimate > 0 {
			// As deleteAllContent has it, with an error or without. A pod may end long before its
			// grace period, and nobody tells.
			if estimate > heldEstimate {
				estimate = heldEstimate
			}
			break
		}
		// Pods that outlive their grace period are an error, which would be tried again after a
		// longer and longer time. They are waited for instead.
		if err == nil {
			err = fmt.Errorf("namespace %s has pods, and a request to delete or list them was answered 404 or 405", namespace)
		}
		utilruntime.HandleError(err)
		estimate, err = heldEstimate, nil
	case listErr == nil:
		// Whatever the request to delete them was answered. It is sent again with the rest,
		// where its error counts.
		estimate, err = 0, nil
	}
	if err != nil || estimate > 0 {
		hold(namespace, namespaceDeletedAt, estimate)
		return false, estimate, err
	}
	held.Lock()
	delete(held.since, namespace)
	held.Unlock()
	return true, 0, nil
}

// forgetNotSupported makes the controller try again what an answer 404 or 405 has taught it
// that gvr cannot do. Discovery names pods, which can be listed and deleted in any release;
// a lesson from one such answer would keep every namespace's pods until a restart.
func (d *namespacedResourcesDeleter) forgetNotSupported(gvr schema.GroupVersionResource) {
	d.opCache.lock.Lock()
	defer d.opCache.lock.Unlock()
	for _, op := range []operation{operationDeleteCollection, operationList} {
		delete(d.opCache.m, operationKey{operation: op, gvr: gvr})
	}
}

// podsLeft says whether the namespace has pods.
func (d *namespacedResourcesDeleter) podsLeft(namespace string) (bool, error) {
	if d.podsGetter == nil || reflect.ValueOf(d.podsGetter).IsNil() {
		return true, nil
	}
	items, err := d.podsGetter.Pods(namespace).List(metav1.ListOptions{IncludeUninitialized: true})
	if err != nil {
		return true, err
	}
	return len(items.Items) > 0, nil
}

// heldFor is how long a namespace is remembered that is not looked at any more: it may have
// been finalized by hand. The controller looks at each of them every half minute.
const heldFor = time.Hour

// hold counts and logs once for each deletion of a namespace.
func hold(namespace string, deletedAt metav1.Time, estimate int64) {
	held.Lock()
	defer held.Unlock()
	was, known := held.since[namespace]
	held.since[namespace] = heldNamespace{deletedAt, time.Now()}
	if known && was.deletedAt.Equal(&deletedAt) {
		return
	}
	for name, n := range held.since {
		if time.Since(n.looked) > heldFor {
			delete(held.since, name)
		}
	}
	namespacesHeld.Inc()
	glog.Infof("Namespace %s is deleted: its other content is kept until its pods are gone, about %d s (feature gate %s)", namespace, estimate, features.OrderedNamespaceDeletion)
}
