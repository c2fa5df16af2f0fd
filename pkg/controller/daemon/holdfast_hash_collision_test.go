// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"testing"

	apps "k8s.io/api/apps/v1beta1"
	"k8s.io/api/core/v1"
	extensions "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/features"
)

// Two image tags that make one hash, nil collision count, found with
// "pod-template-hash collide" on tools/labs/hash-collision/data/web.json.
const (
	holdfastPairHash = 2552054345
	holdfastPairOld  = "registry.example/web:v1.34.509"
	holdfastPairNew  = "registry.example/web:v1.342.42"
)

// holdfastPairTemplate is the template of web.json with the given image.
func holdfastPairTemplate(image string) v1.PodTemplateSpec {
	grace := int64(30)
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{
				Name:                     "web",
				Image:                    image,
				TerminationMessagePath:   "/dev/termination-log",
				TerminationMessagePolicy: v1.TerminationMessageReadFile,
				ImagePullPolicy:          v1.PullIfNotPresent,
			}},
			RestartPolicy:                 v1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: &grace,
			DNSPolicy:                     v1.DNSClusterFirst,
			SecurityContext:               &v1.PodSecurityContext{},
			SchedulerName:                 "default-scheduler",
		},
	}
}

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

// holdfastDaemonSet is a DaemonSet in the API server and in the cache, and its controller.
func holdfastDaemonSet(t *testing.T, template v1.PodTemplateSpec, existing ...*apps.ControllerRevision) (*daemonSetsController, *fake.Clientset, *extensions.DaemonSet) {
	ds := newDaemonSet("web")
	ds.Spec.Template = template
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: template.Labels}
	manager, _, client, err := newTestController(ds.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.dsStore.Add(ds); err != nil {
		t.Fatal(err)
	}
	for _, r := range existing {
		if _, err := client.AppsV1beta1().ControllerRevisions(r.Namespace).Create(r); err != nil {
			t.Fatal(err)
		}
	}
	return manager, client, ds
}

// holdfastCatchUp brings the cache of DaemonSets and revisions up to the API server.
func holdfastCatchUp(t *testing.T, manager *daemonSetsController, client *fake.Clientset, revisions bool) *extensions.DaemonSet {
	ds, err := client.ExtensionsV1beta1().DaemonSets(metav1.NamespaceDefault).Get("web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	manager.dsStore.Update(ds)
	if revisions {
		for _, r := range holdfastRevisions(t, client) {
			manager.historyStore.Add(r.DeepCopy())
		}
	}
	return ds
}

func holdfastRevisions(t *testing.T, client *fake.Clientset) []apps.ControllerRevision {
	list, err := client.AppsV1beta1().ControllerRevisions(metav1.NamespaceAll).List(metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestHoldfastPairCollides(t *testing.T) {
	for _, image := range []string{holdfastPairOld, holdfastPairNew} {
		template := holdfastPairTemplate(image)
		if got := controller.ComputeHash(&template, nil); got != holdfastPairHash {
			t.Errorf("%s: hash %d, want %d", image, got, holdfastPairHash)
		}
	}
}

// TestHoldfastSnapshotCollision is the update of a DaemonSet from one template of the pair to the other. Stock
// dereferences a nil revision here, and the controller manager dies.
func TestHoldfastSnapshotCollision(t *testing.T) {
	manager, client, ds := holdfastDaemonSet(t, holdfastPairTemplate(holdfastPairOld))
	if err := manager.syncDaemonSet(getKey(ds, t)); err != nil {
		t.Fatal(err)
	}
	ds = holdfastCatchUp(t, manager, client, true)
	ds.Spec.Template = holdfastPairTemplate(holdfastPairNew)
	if _, err := client.ExtensionsV1beta1().DaemonSets(ds.Namespace).Update(ds); err != nil {
		t.Fatal(err)
	}
	ds = holdfastCatchUp(t, manager, client, true)

	cur, _, err := manager.constructHistory(ds)
	if !errors.IsAlreadyExists(err) || cur != nil {
		t.Fatalf("got revision %v and error %v, want no revision and AlreadyExists", cur, err)
	}
	ds = holdfastCatchUp(t, manager, client, true)
	if ds.Status.CollisionCount == nil || *ds.Status.CollisionCount != 1 {
		t.Fatalf("collision count is %v, want 1", ds.Status.CollisionCount)
	}
	if err := manager.syncDaemonSet(getKey(ds, t)); err != nil {
		t.Fatal(err)
	}
	all := holdfastRevisions(t, client)
	if len(all) != 2 {
		t.Fatalf("%d revisions, want 2", len(all))
	}
	for _, r := range all {
		if match, err := Match(ds, &r); err != nil || match != (r.Revision == 2) {
			t.Errorf("revision %d: matches the new template %t, %v", r.Revision, match, err)
		}
	}
}

func holdfastOwnRevision(t *testing.T, ds *extensions.DaemonSet) *apps.ControllerRevision {
	patch, err := getPatch(ds)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleClientset()
	scratch := &DaemonSetsController{kubeClient: client}
	r, err := scratch.snapshot(ds, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.Data.Raw = patch
	return r
}

func TestHoldfastSnapshotExisting(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*apps.ControllerRevision)
		usable bool
	}{
		{"its own", func(*apps.ControllerRevision) {}, true},
		{"selected orphan", func(r *apps.ControllerRevision) { r.OwnerReferences = nil }, true},
		{"orphan outside the selector", func(r *apps.ControllerRevision) { r.OwnerReferences, r.Labels = nil, nil }, false},
		{"other owner", func(r *apps.ControllerRevision) { r.OwnerReferences[0].UID = "somebody" }, false},
		{"other data", func(r *apps.ControllerRevision) { r.Data.Raw = []byte(`{}`) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			manager, client, ds := holdfastDaemonSet(t, holdfastPairTemplate(holdfastPairOld))
			existing := holdfastOwnRevision(t, ds)
			test.change(existing)
			if _, err := client.AppsV1beta1().ControllerRevisions(ds.Namespace).Create(existing); err != nil {
				t.Fatal(err)
			}
			// 1,000 forced conflicts: the cache of revisions stays empty, that of DaemonSets follows.
			failed := 0
			for i := 0; i < 1000; i++ {
				r, err := manager.snapshot(ds, 1)
				if err != nil {
					failed++
				} else if r.Name == existing.Name != test.usable {
					t.Fatalf("got revision %s", r.Name)
				}
				ds = holdfastCatchUp(t, manager, client, false)
			}
			want, bumps := 1, int32(0)
			if !test.usable {
				want, bumps = 2, 1
			}
			if n := len(holdfastRevisions(t, client)); n != want {
				t.Errorf("1,000 forced conflicts left %d revisions, want %d", n, want)
			}
			if failed != int(bumps) {
				t.Errorf("%d syncs failed, want %d", failed, bumps)
			}
			if bumps > 0 && (ds.Status.CollisionCount == nil || *ds.Status.CollisionCount != bumps) {
				t.Errorf("collision count %v, want %d", ds.Status.CollisionCount, bumps)
			}
			if events := len(manager.fakeRecorder.Events); events != int(bumps) {
				t.Errorf("%d events, want %d", events, bumps)
			}
		})
	}
}

// A DaemonSet cache that has not seen the last bump must not cause another.
func TestHoldfastSnapshotStaleCollisionCount(t *testing.T) {
	for _, on := range []bool{true, false} {
		restore := holdfastSetGate(t, features.ControllerRevisionIdempotentCreate, on)
		manager, client, ds := holdfastDaemonSet(t, holdfastPairTemplate(holdfastPairOld))
		existing := holdfastOwnRevision(t, ds)
		existing.Data.Raw = []byte(`{}`)
		if _, err := client.AppsV1beta1().ControllerRevisions(ds.Namespace).Create(existing); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < 5; i++ { // ds is never refreshed
			if r, err := manager.snapshot(ds, 1); err == nil {
				t.Errorf("gate %t: no error, revision %v", on, r)
			}
		}
		want := map[bool]int32{true: 1, false: 5}[on]
		if live := holdfastCatchUp(t, manager, client, false); *live.Status.CollisionCount != want {
			t.Errorf("gate %t: collision count %d, want %d", on, *live.Status.CollisionCount, want)
		}
		// "taking another name" is said only when it is done.
		if events, want := len(manager.fakeRecorder.Events), map[bool]int{true: 1, false: 0}[on]; events != want {
			t.Errorf("gate %t: %d events, want %d", on, events, want)
		}
		restore()
	}
}

// With the gate off, identical data is enough, whoever owns the revision.
func TestHoldfastSnapshotGateOff(t *testing.T) {
	defer holdfastSetGate(t, features.ControllerRevisionIdempotentCreate, false)()
	manager, client, ds := holdfastDaemonSet(t, holdfastPairTemplate(holdfastPairOld))
	existing := holdfastOwnRevision(t, ds)
	existing.OwnerReferences[0].UID = "somebody"
	if _, err := client.AppsV1beta1().ControllerRevisions(ds.Namespace).Create(existing); err != nil {
		t.Fatal(err)
	}
	if r, err := manager.snapshot(ds, 1); err != nil || r.Name != existing.Name {
		t.Errorf("got %v, %v", r, err)
	}
}

// A DaemonSet looks at the revisions of its own namespace only: it must not adopt an orphan of another one.
func TestHoldfastHistoriesOfOwnNamespace(t *testing.T) {
	manager, client, ds := holdfastDaemonSet(t, holdfastPairTemplate(holdfastPairOld))
	orphan := holdfastOwnRevision(t, ds)
	orphan.Namespace, orphan.OwnerReferences = "elsewhere", nil
	if err := manager.historyStore.Add(orphan); err != nil {
		t.Fatal(err)
	}
	histories, err := manager.controlledHistories(ds)
	if err != nil || len(histories) != 0 {
		t.Errorf("claimed %v, %v", histories, err)
	}
	for _, action := range client.Actions() {
		if patch, ok := action.(core.PatchAction); ok {
			t.Errorf("patched %s/%s", patch.GetNamespace(), patch.GetName())
		}
	}
}

// Revisions of equal number are cleaned up oldest name first, whatever order the cache returns.
func TestHoldfastCleanupOrder(t *testing.T) {
	for i := 0; i < 20; i++ {
		manager, client, ds := holdfastDaemonSet(t, holdfastPairTemplate(holdfastPairOld))
		old := []*apps.ControllerRevision{}
		for _, name := range []string{"d", "b", "c", "a"} {
			r := &apps.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ds.Namespace}, Revision: 3}
			if _, err := client.AppsV1beta1().ControllerRevisions(ds.Namespace).Create(r); err != nil {
				t.Fatal(err)
			}
			old = append(old, r)
		}
		if err := manager.cleanupHistory(ds, old); err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, r := range holdfastRevisions(t, client) {
			names[r.Name] = true
		}
		if len(names) != 2 || !names["c"] || !names["d"] {
			t.Fatalf("kept %v, want c and d", names)
		}
	}
}
