// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"strings"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
)

// An API server before 1.13 refuses an update of Endpoints in which an address names another
// node than before (ValidateEndpointsUpdate, kubernetes/kubernetes#66720). It looks at all
// addresses of the new version, so one pod whose node was renamed holds up the whole Service.

var endpointsNodeNameMoved = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "holdfast_endpoints_node_name_moved_total",
	Help: "Endpoints that were written in two steps because the API server refused that an address changes its node.",
})

func init() {
	prometheus.MustRegister(endpointsNodeNameMoved)
}

// oneNodePerAddress returns pods without those whose address a pod of another node has, too.
// It keeps those of the node where such a pod is ready, or else of the newest pod: an address
// is in one place, and the other pods are of a node that lost it. Pods that are in no
// Endpoints count for nothing. Unchanged pods are returned as they are.
func oneNodePerAddress(pods []*v1.Pod, tolerateUnready bool) []*v1.Pod {
	if !utilfeature.DefaultFeatureGate.Enabled(features.EndpointsNodeName) {
		return pods
	}
	byIP, several := make(map[string]*v1.Pod, len(pods)), false
	for _, pod := range pods {
		switch {
		case len(pod.Status.PodIP) == 0:
			continue
		case !tolerateUnready && (pod.DeletionTimestamp != nil || !podutil.IsPodReady(pod) && !shouldPodBeInEndpoints(pod)):
			continue
		}
		other := byIP[pod.Status.PodIP]
		if other != nil && other.Spec.NodeName != pod.Spec.NodeName {
			several = true
		}
		if other == nil || hasAddress(pod, other) {
			byIP[pod.Status.PodIP] = pod
		}
	}
	if !several {
		return pods
	}
	kept := make([]*v1.Pod, 0, len(pods))
	for _, pod := range pods {
		holder := byIP[pod.Status.PodIP]
		if holder != nil && holder.Spec.NodeName != pod.Spec.NodeName {
			glog.V(4).Infof("Pod %s/%s is left out: its address is pod %s's on another node", pod.Namespace, pod.Name, holder.Name)
			continue
		}
		kept = append(kept, pod)
	}
	return kept
}

// hasAddress says whether pod a rather than b has the address that both name.
func hasAddress(a, b *v1.Pod) bool {
	if ready := podutil.IsPodReady(a); ready != podutil.IsPodReady(b) {
		return ready
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name < b.Name
}

// endpointsWriter is the controller if it remembers its writes (endpoints-stale-cache).
type endpointsWriter interface {
	writeEndpoints(namespace string, endpoints *v1.Endpoints, send func(*v1.Endpoints) (*v1.Endpoints, error)) error
}

// moveAddresses is called with the error of a write of wanted on top of stored. If the API
// server refused it only because addresses change their node, it is written in two steps: the
// server accepts that such an address names no node, and then another. Both are made on top
// of a certain version, so nobody's write is lost, and no address is away for a moment. It
// returns nil if wanted is stored, otherwise the error of the last write.
func (e *EndpointController) moveAddresses(stored, wanted *v1.Endpoints, err error) error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.EndpointsNodeName) || !refusedForNodeName(err) {
		return err
	}
	nameless, moved := withoutMovedNodeNames(stored, wanted)
	if !moved {
		return err
	}
	glog.V(2).Infof("Endpoints %s/%s: an address has another node, writing them in two steps", stored.Namespace, stored.Name)
	written, err := e.updateEndpoints(nameless)
	if err != nil {
		return err
	}
	last := wanted.DeepCopy()
	last.ResourceVersion = written.ResourceVersion
	if _, err = e.updateEndpoints(last); err == nil {
		endpointsNodeNameMoved.Inc()
	}
	return err
}

func (e *EndpointController) updateEndpoints(endpoints *v1.Endpoints) (written *v1.Endpoints, err error) {
	send := func(endpoints *v1.Endpoints) (*v1.Endpoints, error) {
		written, err = e.client.CoreV1().Endpoints(endpoints.Namespace).Update(endpoints)
		return written, err
	}
	if w, ok := interface{}(e).(endpointsWriter); ok {
		err = w.writeEndpoints(endpoints.Namespace, endpoints, send)
	} else {
		send(endpoints)
	}
	return written, err
}

// refusedForNodeName says whether err is "Invalid", and has no other cause than addresses that
// change their node.
func refusedForNodeName(err error) bool {
	status, ok := err.(errors.APIStatus)
	if !ok || !errors.IsInvalid(err) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		// field.Forbidden; the client has no constant for its type.
		if cause.Type != metav1.CauseType("FieldValueForbidden") || !strings.HasSuffix(cause.Field, ".nodeName") {
			return false
		}
	}
	return true
}

// withoutMovedNodeNames returns wanted with no node for the addresses that have another one
// in stored, and whether there are any.
func withoutMovedNodeNames(stored, wanted *v1.Endpoints) (*v1.Endpoints, bool) {
	type place struct{ ip, node string }
	nodes, known := map[place]bool{}, map[string]int{}
	eachAddress(stored, func(a *v1.EndpointAddress) {
		if a.NodeName == nil || nodes[place{a.IP, *a.NodeName}] {
			return
		}
		nodes[place{a.IP, *a.NodeName}] = true
		known[a.IP]++
	})
	nameless, moved := wanted.DeepCopy(), false
	eachAddress(nameless, func(a *v1.EndpointAddress) {
		// With several stored nodes, the server compares with one of them.
		if a.NodeName != nil && known[a.IP] > 0 && (known[a.IP] > 1 || !nodes[place{a.IP, *a.NodeName}]) {
			a.NodeName, moved = nil, true
		}
	})
	return nameless, moved
}

func eachAddress(endpoints *v1.Endpoints, f func(*v1.EndpointAddress)) {
	for i := range endpoints.Subsets {
		s := &endpoints.Subsets[i]
		for k := range s.Addresses {
			f(&s.Addresses[k])
		}
		for k := range s.NotReadyAddresses {
			f(&s.NotReadyAddresses[k])
		}
	}
}
