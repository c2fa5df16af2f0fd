// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"strconv"
	"testing"

	apps "k8s.io/api/apps/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/pkg/features"
)

func holdfastSetGate(t *testing.T, gate utilfeature.Feature, on bool) func() {
	was := utilfeature.DefaultFeatureGate.Enabled(gate)
	set := func(v bool) {
		if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%t", gate, v)); err != nil {
			t.Fatal(err)
		}
	}
	set(on)
	return func() { set(was) }
}

// holdfastControl is a StatefulSet control over the fake API server, and the cache of revisions that it reads. Nothing
// but the test fills that cache.
func holdfastControl(client clientset.Interface) (*defaultStatefulSetControl, cache.Indexer) {
	factory := informers.NewSharedInformerFactory(client, controller.NoResyncPeriodFunc())
	sets, revisions := factory.Apps().V1beta1().StatefulSets(), factory.Apps().V1beta1().ControllerRevisions()
	pods := newFakeStatefulPodControl(factory.Core().V1().Pods(), sets)
	return &defaultStatefulSetControl{pods, newFakeStatefulSetStatusUpdater(sets), history.NewHistory(client, revisions.Lister())},
		revisions.Informer().GetIndexer()
}

// holdfastSync is the part of a sync that decides on revisions, with the status of set carried over. It returns the
// name of the update revision.
func holdfastSync(t *testing.T, control *defaultStatefulSetControl, set *apps.StatefulSet) string {
	revisions, err := control.ListRevisions(set)
	if err != nil {
		t.Fatal(err)
	}
	current, update, count, err := control.getStatefulSetRevisions(set, revisions)
	if err != nil {
		t.Fatal(err)
	}
	set.Status.CurrentRevision, set.Status.UpdateRevision, set.Status.CollisionCount = current.Name, update.Name, &count
	return update.Name
}

func holdfastRevisions(t *testing.T, client clientset.Interface) []apps.ControllerRevision {
	list, err := client.AppsV1beta1().ControllerRevisions(metav1.NamespaceAll).List(metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// A cache that lags makes the controller create the revision that it has created in the sync before.
func TestHoldfastStaleRevisionCache(t *testing.T) {
	for on, want := range map[bool]int{true: 1, false: 1000} {
		func() {
			defer holdfastSetGate(t, features.ControllerRevisionIdempotentCreate, on)()
			client := fake.NewSimpleClientset()
			control, _ := holdfastControl(client)
			set := newStatefulSet(3)
			names := map[string]bool{}
			for i := 0; i < 1000; i++ {
				names[holdfastSync(t, control, set)] = true
			}
			if n := len(holdfastRevisions(t, client)); n != want || len(names) != want {
				t.Errorf("gate %t: 1,000 syncs left %d revisions and made the pods follow %d, want %d", on, n, len(names), want)
			}
		}()
	}
}

// holdfastLabels returns the hash labels of set's revision for collision counts 0 and 1.
func holdfastLabels(t *testing.T, set *apps.StatefulSet) (uint64, uint64) {
	var label [2]uint64
	for i := range label {
		count := int32(i)
		r, err := newRevision(set, 1, &count)
		if err != nil {
			t.Fatal(err)
		}
		if label[i], err = strconv.ParseUint(r.Labels[history.ControllerRevisionHashLabel], 10, 32); err != nil {
			t.Fatal(err)
		}
	}
	return label[0], label[1]
}

// Once the collision count has moved, the hash label of a new revision differs from that of the existing one. Stock
// then decides by the size of the labels: below 2^31 the template is "new" and every pod is replaced, above it is not.
func TestHoldfastCollisionCountMoved(t *testing.T) {
	seen := map[bool]bool{}
	for tag := 0; tag < 1000 && len(seen) < 2; tag++ {
		set := newStatefulSet(3)
		set.Spec.Template.Spec.Containers[0].Image = fmt.Sprintf("registry.example/db:%d", tag)
		zero, one := holdfastLabels(t, set)
		below := zero < 1<<31 && one < 1<<31
		if above := zero >= 1<<31 && one >= 1<<31; !below && !above || seen[below] {
			continue
		}
		seen[below] = true
		for _, on := range []bool{true, false} {
			func() {
				defer holdfastSetGate(t, features.ControllerRevisionEqualByData, on)()
				client := fake.NewSimpleClientset()
				control, indexer := holdfastControl(client)
				set := set.DeepCopy()
				first := holdfastSync(t, control, set)
				for i := 0; i < 20; i++ {
					for _, r := range holdfastRevisions(t, client) {
						indexer.Add(r.DeepCopy())
					}
					count := int32(1)
					set.Status.CollisionCount = &count
					update := holdfastSync(t, control, set)
					if changed := update != first; changed != (below && !on) {
						t.Fatalf("gate %t, labels %d and %d: update revision %s after %s", on, zero, one, update, first)
					}
				}
			}()
		}
	}
	if len(seen) < 2 {
		t.Error("found no template with both labels below, or none with both above, 2^31")
	}
}

// Two revisions of one template with one Revision: what a lagging cache leaves behind. Hash labels above 2^31, as in
// kubernetes/kubernetes#61998, and below.
func TestHoldfastEqualRevisionsDoNotAlternate(t *testing.T) {
	for _, label := range []string{"4252813349", "17"} {
		for _, on := range []bool{true, false} {
			func() {
				defer holdfastSetGate(t, features.ControllerRevisionStableOrder, on)()
				client := fake.NewSimpleClientset()
				control, indexer := holdfastControl(client)
				set := newStatefulSet(3)
				for i := 0; i < 4; i++ {
					r, err := newRevision(set, 5, new(int32))
					if err != nil {
						t.Fatal(err)
					}
					r.Namespace, r.Name = set.Namespace, fmt.Sprintf("%s-%d", set.Name, i)
					r.Labels[history.ControllerRevisionHashLabel] = label
					indexer.Add(r)
				}
				// The label that this controller computes must not matter either: without the gate of equality it does.
				names := map[string]bool{}
				for i := 0; i < 50; i++ {
					names[holdfastSync(t, control, set)] = true
				}
				if on != (len(names) == 1) {
					t.Errorf("gate %t, label %s: 50 syncs chose %v", on, label, names)
				}
				if on && !names[set.Name+"-3"] {
					t.Errorf("chose %v, want the last by name", names)
				}
				if n := len(holdfastRevisions(t, client)); n != 0 {
					t.Errorf("%d revisions were created", n)
				}
			}()
		}
	}
}

// An orphan beside a revision that is owned already: the orphan is adopted. Stock tries to adopt both, fails on the
// owned one, and never syncs the StatefulSet again.
func TestHoldfastAdoptOrphanBesideOwned(t *testing.T) {
	set := newStatefulSet(3)
	owned, err := newRevision(set, 1, new(int32))
	if err != nil {
		t.Fatal(err)
	}
	owned.Namespace = set.Namespace
	orphan := owned.DeepCopy()
	orphan.Name, orphan.Revision, orphan.OwnerReferences = set.Name+"-orphan", 2, nil
	client := fake.NewSimpleClientset(set, owned, orphan)
	control, indexer := holdfastControl(client)
	indexer.Add(owned)
	indexer.Add(orphan)
	ssc := &StatefulSetController{kubeClient: client, control: control}
	if err := ssc.adoptOrphanRevisions(set); err != nil {
		t.Error(err)
	}
	patched := []string{}
	for _, action := range client.Actions() {
		if patch, ok := action.(core.PatchAction); ok {
			patched = append(patched, patch.GetName())
		}
	}
	if len(patched) != 1 || patched[0] != orphan.Name {
		t.Errorf("patched %v, want %s alone", patched, orphan.Name)
	}
}
