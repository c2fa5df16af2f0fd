// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/controller/garbagecollector/metaonly"
	"k8s.io/kubernetes/pkg/features"
)

// An ownerReference names its owner twice: by UID, and by apiVersion, kind and name in
// the dependent's own namespace. Stock looks the owner up by the second and believes
// the result for the first. So an object whose reference has the UID of an owner in
// another namespace makes that owner absent for all of its dependents (#65200).
//
// Here an owner that was looked up is absent under the identity that was looked up, and
// a node that only dependents have named keeps that identity until an informer brings
// the object. The UID itself is absent only when an informer, or a look under the
// identity that an informer brought, says that the object is gone.

var foreignOwners = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "holdfast_gc_foreign_owner_kept_total",
	Help: "How often the garbage collector looked for an owner where a dependent's reference points, or kept it, though nothing is where another ownerReference with the same UID points.",
})

func init() {
	prometheus.MustRegister(foreignOwners)
}

// ownerIdentity is what an owner is looked up by. namespace is "" for a kind without
// namespaces, which clusterScoped tells from an owner in no namespace: a dependent
// without a namespace may name an owner of a kind that has namespaces.
type ownerIdentity struct {
	apiVersion, kind, namespace, name string
	clusterScoped                     bool
}

func newOwnerIdentity(owner metav1.OwnerReference, namespace string, namespaced bool) ownerIdentity {
	i := ownerIdentity{apiVersion: owner.APIVersion, kind: owner.Kind, name: owner.Name}
	if namespaced {
		i.namespace = namespace
	} else {
		i.clusterScoped = true
	}
	return i
}

// maxAbsentIdentities are kept for each UID: objects can name it by any number, and the
// owner is looked up again for one that is not kept.
const maxAbsentIdentities = 20

// addOwner notes that nothing, or another UID, was found where owner's reference in
// namespace points. With the gate off the UID is absent for all, as in stock.
func (c *UIDCache) addOwner(owner metav1.OwnerReference, namespace string, namespaced bool) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.GCForeignOwnerCheck) {
		c.Add(owner.UID)
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	value, found := c.cache.Get(owner.UID)
	absent, _ := value.(map[ownerIdentity]struct{})
	if found && absent == nil {
		return // for all, by Add
	}
	if absent == nil || len(absent) >= maxAbsentIdentities {
		absent = map[ownerIdentity]struct{}{}
		c.cache.Add(owner.UID, absent)
	}
	absent[newOwnerIdentity(owner, namespace, namespaced)] = struct{}{}
}

// hasOwner is whether the UID of owner is known to be gone, or is not where owner's
// reference in namespace points.
func (c *UIDCache) hasOwner(owner metav1.OwnerReference, namespace string) bool {
	if !utilfeature.DefaultFeatureGate.Enabled(features.GCForeignOwnerCheck) {
		return c.Has(owner.UID)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	value, found := c.cache.Get(owner.UID)
	absent, some := value.(map[ownerIdentity]struct{})
	if !some {
		return found
	}
	for _, namespaced := range []bool{true, false} {
		if _, ok := absent[newOwnerIdentity(owner, namespace, namespaced)]; ok {
			return true
		}
	}
	// Stock would take the dependent for garbage.
	foreignOwners.Inc()
	return false
}

// newAbsentIdentities is the absentIdentities of a node whose identity is a dependent's
// word, and nil with the gate off.
func newAbsentIdentities() map[ownerIdentity]struct{} {
	if !utilfeature.DefaultFeatureGate.Enabled(features.GCForeignOwnerCheck) {
		return nil
	}
	return map[ownerIdentity]struct{}{}
}

// identify is the identity by which a dependent in namespace names owner.
func (gb *GraphBuilder) identify(owner metav1.OwnerReference, namespace string) ownerIdentity {
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	mapping, err := gb.restMapper.RESTMapping(kind.GroupKind(), kind.Version)
	// An unknown kind is looked for as one with namespaces.
	return newOwnerIdentity(owner, namespace, err != nil || mapping.Scope == meta.RESTScopeNamespace)
}

// observe is the node of the object that an informer brought, with the object's
// identity. Workers read a node's identity without a lock, so a node that has another
// one is replaced; whoever still has it from the queue finds nothing under it, which
// forget then leaves out.
func (gb *GraphBuilder) observe(e *event, object metav1.Object, n *node) *node {
	if n.absentIdentities == nil || e.eventType == deleteEvent {
		return n
	}
	identity := objectReference{
		OwnerReference: metav1.OwnerReference{APIVersion: e.gvk.GroupVersion().String(), Kind: e.gvk.Kind, UID: object.GetUID(), Name: object.GetName()},
		Namespace:      object.GetNamespace(),
	}
	if sameIdentity(identity, n.identity) {
		n.absentIdentities = nil
		return n
	}
	kept(identity, n.identity)
	observed := gb.copyNode(n)
	observed.identity = identity
	gb.uidToNode.Write(observed)
	return observed
}

// forget processes the news that nothing was found under the identity of object. It is
// false where stock's removal of the node is right: the identity came from an informer.
func (gb *GraphBuilder) forget(object interface{}, n *node) bool {
	o, ok := object.(*metaonly.MetadataOnlyObject)
	if !ok || !utilfeature.DefaultFeatureGate.Enabled(features.GCForeignOwnerCheck) {
		return false
	}
	looked := objectReference{
		OwnerReference: metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, UID: o.UID, Name: o.Name},
		Namespace:      o.Namespace,
	}
	if !sameIdentity(looked, n.identity) {
		// Somebody else's word: the node has got another identity since.
		return true
	}
	if n.absentIdentities == nil {
		return false
	}
	absent := gb.identify(looked.OwnerReference, looked.Namespace)
	// No more than the identities that objects in the cluster name.
	n.absentIdentities[absent] = struct{}{}
	var next *objectReference
	for _, dep := range n.getDependents() {
		for _, owner := range dep.owners {
			if owner.UID != looked.UID {
				continue
			}
			identity := gb.identify(owner, dep.identity.Namespace)
			if identity == absent {
				gb.attemptToDelete.Add(dep)
			} else if _, known := n.absentIdentities[identity]; !known && next == nil {
				next = &objectReference{OwnerReference: owner, Namespace: dep.identity.Namespace}
			}
		}
	}
	if next == nil {
		// Each dependent looks for its owner itself, and is deleted where nothing is.
		gb.removeNode(n)
		for _, dep := range n.getDependents() {
			gb.attemptToDelete.Add(dep)
		}
		return true
	}
	kept(*next, looked)
	other := gb.copyNode(n)
	other.identity = *next
	other.virtual = true
	other.absentIdentities = n.absentIdentities
	gb.uidToNode.Write(other)
	gb.attemptToDelete.Add(other)
	return true
}

// copyNode is n without its identity, seen by an informer.
func (gb *GraphBuilder) copyNode(n *node) *node {
	c := &node{
		dependents:         make(map[*node]struct{}),
		deletingDependents: n.isDeletingDependents(),
		beingDeleted:       n.isBeingDeleted(),
		owners:             n.owners,
	}
	for _, dep := range n.getDependents() {
		c.dependents[dep] = struct{}{}
	}
	return c
}

func sameIdentity(a, b objectReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.Namespace == b.Namespace
}

// kept notes that owner stays in the graph though nothing was found under the identity
// foreign, or would have been. Another version of the same object is not foreign, nor is
// a dependent's namespace where the owner has none.
func kept(owner, foreign objectReference) {
	if owner.Kind == foreign.Kind && owner.Name == foreign.Name && (owner.Namespace == foreign.Namespace || owner.Namespace == "") {
		return
	}
	foreignOwners.Inc()
	glog.Warningf("the dependents of %.100q %.100q in namespace %q (UID %q) are kept: an ownerReference names it %.100q %.100q in namespace %q (feature gate %s)",
		owner.Kind, owner.Name, owner.Namespace, owner.UID, foreign.Kind, foreign.Name, foreign.Namespace, features.GCForeignOwnerCheck)
}
