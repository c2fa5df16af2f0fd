// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	apps "k8s.io/api/apps/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"

	"k8s.io/kubernetes/pkg/features"
)

// holdfastSetGate sets a gate and returns a function that puts it back.
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

// holdfastCount reads a counter.
func holdfastCount(t *testing.T, vec *prometheus.CounterVec, labels ...string) float64 {
	m := &dto.Metric{}
	if err := vec.WithLabelValues(labels...).Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// holdfastStaleHistory is a history whose cache never sees anything, which is what makes a controller create a
// revision that exists.
func holdfastStaleHistory(client clientset.Interface) Interface {
	factory := informers.NewSharedInformerFactory(client, 0)
	return NewHistory(client, factory.Apps().V1beta1().ControllerRevisions().Lister())
}

func holdfastRevision(t *testing.T, set *apps.StatefulSet, count int32) *apps.ControllerRevision {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	rev, err := NewControllerRevision(set, parentKind, selector, rawTemplate(&set.Spec.Template), 1, &count)
	if err != nil {
		t.Fatal(err)
	}
	rev.Namespace = set.Namespace
	return rev
}

func holdfastList(t *testing.T, client clientset.Interface) []apps.ControllerRevision {
	list, err := client.AppsV1beta1().ControllerRevisions(metav1.NamespaceAll).List(metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestHoldfastCreateControllerRevision(t *testing.T) {
	now := metav1.Now()
	other := runtime.RawExtension{Raw: []byte(`{"other":"template"}`)}
	for _, test := range []struct {
		name    string
		change  func(existing *apps.ControllerRevision) // from the revision that is wanted
		verdict HoldfastExisting
	}{
		{"its own", func(*apps.ControllerRevision) {}, HoldfastOwn},
		{"its own, being deleted", func(r *apps.ControllerRevision) { r.DeletionTimestamp = &now }, HoldfastOwn},
		{"its own, other revision number", func(r *apps.ControllerRevision) { r.Revision = 7 }, HoldfastOwn},
		{"selected orphan", func(r *apps.ControllerRevision) { r.OwnerReferences = nil }, HoldfastAdoptable},
		{"orphan outside the selector", func(r *apps.ControllerRevision) {
			r.OwnerReferences, r.Labels = nil, map[string]string{"foo": "else"}
		}, HoldfastUnowned},
		{"other owner", func(r *apps.ControllerRevision) { r.OwnerReferences[0].UID = "somebody" }, HoldfastForeign},
		{"owner of the same name, deleted and made again", func(r *apps.ControllerRevision) {
			r.OwnerReferences[0].UID = "earlier-ss1"
		}, HoldfastForeign},
		{"other data", func(r *apps.ControllerRevision) { r.Data = other }, HoldfastCollision},
		{"other data and owner", func(r *apps.ControllerRevision) { r.Data, r.OwnerReferences[0].UID = other, "somebody" }, HoldfastCollision},
	} {
		t.Run(test.name, func(t *testing.T) {
			set := newStatefulSet(3, "ss1", types.UID("ss1"), map[string]string{"foo": "bar"})
			wanted := holdfastRevision(t, set, 0)
			existing := wanted.DeepCopy()
			test.change(existing)
			client := fake.NewSimpleClientset(existing)
			before := holdfastCount(t, holdfastRevisionConflicts, parentKind.Kind, string(test.verdict), "true")

			// The conflict is forced 1,000 times: the cache never shows what was created.
			history := holdfastStaleHistory(client)
			names := map[string]bool{}
			count := int32(0)
			for i := 0; i < 1000; i++ {
				got, err := history.CreateControllerRevision(set, wanted, &count)
				if err != nil {
					t.Fatal(err)
				}
				names[got.Name] = true
				if i == 0 {
					if got := holdfastCount(t, holdfastRevisionConflicts, parentKind.Kind, string(test.verdict), "true"); got != before+1 {
						t.Errorf("counted %v conflicts as %q, want 1", got-before, test.verdict)
					}
				}
			}
			if len(names) != 1 {
				t.Errorf("1,000 creates returned %d different revisions", len(names))
			}
			wantCount, wantLen := int32(0), 1
			if !test.verdict.Usable() {
				wantCount, wantLen = 1, 2
			}
			if count != wantCount {
				t.Errorf("collisionCount is %d, want %d", count, wantCount)
			}
			if all := holdfastList(t, client); len(all) != wantLen {
				t.Errorf("1,000 forced conflicts left %d revisions, want %d", len(all), wantLen)
			}
			after, err := client.AppsV1beta1().ControllerRevisions(existing.Namespace).Get(existing.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !apiequality.Semantic.DeepEqual(after, existing) {
				t.Errorf("the existing revision was changed:\n%v\n%v", existing, after)
			}
		})
	}
}

func TestHoldfastCreateControllerRevisionManyNamesTaken(t *testing.T) {
	set := newStatefulSet(3, "ss1", types.UID("ss1"), map[string]string{"foo": "bar"})
	client := fake.NewSimpleClientset()
	wanted := holdfastRevision(t, set, 0)
	for i := int32(0); i < 1000; i++ {
		taken := wanted.DeepCopy()
		taken.Name = ControllerRevisionName(set.Name, HashControllerRevision(wanted, &i))
		taken.Data.Raw = []byte(fmt.Sprintf(`{"other":%d}`, i))
		if _, err := client.AppsV1beta1().ControllerRevisions(set.Namespace).Create(taken); err != nil {
			t.Fatal(err)
		}
	}
	count := int32(0)
	created, err := holdfastStaleHistory(client).CreateControllerRevision(set, wanted, &count)
	if err != nil {
		t.Fatal(err)
	}
	if count != 1000 || created.Name != ControllerRevisionName(set.Name, HashControllerRevision(wanted, &count)) {
		t.Errorf("after 1,000 taken names: collisionCount %d, name %s", count, created.Name)
	}
	if n := len(holdfastList(t, client)); n != 1001 {
		t.Errorf("%d revisions, want the 1,000 and one more", n)
	}
}

func TestHoldfastCreateControllerRevisionErrors(t *testing.T) {
	set := newStatefulSet(3, "ss1", types.UID("ss1"), map[string]string{"foo": "bar"})
	for name, get := range map[string]error{
		"gone meanwhile": apierrors.NewNotFound(apps.Resource("controllerrevisions"), "x"),
		"server":         errors.New("no answer"),
	} {
		wanted := holdfastRevision(t, set, 0)
		client := fake.NewSimpleClientset(wanted)
		client.PrependReactor("get", "controllerrevisions", func(core.Action) (bool, runtime.Object, error) { return true, nil, get })
		count := int32(0)
		created, err := holdfastStaleHistory(client).CreateControllerRevision(set, wanted, &count)
		if err != get || created != nil || count != 0 {
			t.Errorf("%s: got %v, %v, collisionCount %d; want the error and nothing changed", name, created, err, count)
		}
	}
}

// With the gate off the stock behaviour is back: one more revision for each conflict, and no GET.
func TestHoldfastCreateControllerRevisionGateOff(t *testing.T) {
	defer holdfastSetGate(t, features.ControllerRevisionIdempotentCreate, false)()
	set := newStatefulSet(3, "ss1", types.UID("ss1"), map[string]string{"foo": "bar"})
	client := fake.NewSimpleClientset()
	history := holdfastStaleHistory(client)
	before := holdfastCount(t, holdfastRevisionConflicts, parentKind.Kind, string(HoldfastUnknown), "false")
	count := int32(0)
	for i := 0; i < 10; i++ {
		if _, err := history.CreateControllerRevision(set, holdfastRevision(t, set, 0), &count); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(holdfastList(t, client)); n != 10 || count != 9 {
		t.Errorf("%d revisions and collisionCount %d, stock has 10 and 9", n, count)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() == "get" {
			t.Errorf("stock makes no such call: %v", action)
		}
	}
	if got := holdfastCount(t, holdfastRevisionConflicts, parentKind.Kind, string(HoldfastUnknown), "false"); got != before+9 {
		t.Errorf("counted %v conflicts, want 9", got-before)
	}
}

func TestHoldfastEqualRevision(t *testing.T) {
	const max = "2147483647" // the largest that an int32 holds
	for _, test := range []struct {
		name     string
		lhs, rhs string // hash labels
		sameData bool
		want     bool
		stock    bool
	}{
		{"same label, same data", "5", "5", true, true, true},
		{"same label, other data", "5", "5", false, false, false},
		{"below 2^31, same data", "5", "6", true, true, false},
		{"below 2^31, other data", "5", "6", false, false, false},
		{"at the edge", max, "2147483648", true, true, true},
		{"above 2^31, same data", "4252813349", "4252813350", true, true, true},
		{"above 2^31, other data", "4252813349", "4252813350", false, false, false},
		{"above 2^31, same label, other data", "4252813349", "4252813349", false, false, false},
		{"one above, one below", "4252813349", "5", true, true, true},
		{"no label", "", "5", true, true, true},
	} {
		set := newStatefulSet(3, "ss1", types.UID("ss1"), map[string]string{"foo": "bar"})
		lhs, rhs := holdfastRevision(t, set, 0), holdfastRevision(t, set, 0)
		lhs.Labels[ControllerRevisionHashLabel], rhs.Labels[ControllerRevisionHashLabel] = test.lhs, test.rhs
		if !test.sameData {
			rhs.Data.Raw = []byte(`{}`)
		}
		if got := EqualRevision(lhs, rhs); got != test.want {
			t.Errorf("%s: got %t", test.name, got)
		}
		if got := EqualRevision(rhs, lhs); got != test.want {
			t.Errorf("%s, the other way round: got %t", test.name, got)
		}
		if found := FindEqualRevisions([]*apps.ControllerRevision{lhs}, rhs); (len(found) == 1) != test.want {
			t.Errorf("%s: FindEqualRevisions found %d", test.name, len(found))
		}
		func() {
			defer holdfastSetGate(t, features.ControllerRevisionEqualByData, false)()
			before := holdfastCount(t, holdfastEqualOverrides, "false")
			if got := EqualRevision(lhs, rhs); got != test.stock {
				t.Errorf("%s, gate off: got %t", test.name, got)
			}
			counted := holdfastCount(t, holdfastEqualOverrides, "false") - before
			if want := map[bool]float64{true: 1}[test.want != test.stock]; counted != want {
				t.Errorf("%s, gate off: counted %v, want %v", test.name, counted, want)
			}
		}()
	}
	if !EqualRevision(nil, nil) || EqualRevision(nil, &apps.ControllerRevision{}) {
		t.Error("nil is equal to nil only")
	}
}

// A moved collision count must not hide the revision of a template: this is what every StatefulSet that has once
// counted a collision looks like.
func TestHoldfastEqualRevisionAfterCollision(t *testing.T) {
	set := newStatefulSet(3, "ss1", types.UID("ss1"), map[string]string{"foo": "bar"})
	for i := int32(0); i < 50; i++ {
		first, later := holdfastRevision(t, set, 0), holdfastRevision(t, set, i)
		if !EqualRevision(first, later) {
			t.Errorf("collisionCount %d: label %s and label %s of one template are not equal", i,
				first.Labels[ControllerRevisionHashLabel], later.Labels[ControllerRevisionHashLabel])
		}
	}
}

func TestHoldfastSortControllerRevisions(t *testing.T) {
	rev := func(name string, revision int64, age time.Duration) *apps.ControllerRevision {
		return &apps.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: time.Unix(1e9, 0).Add(-age)}},
			Revision:   revision,
		}
	}
	want := []string{"z-old", "b", "c", "a-young", "x", "y", "a-last"}
	all := []*apps.ControllerRevision{
		rev("z-old", 1, 9*time.Hour),
		rev("b", 2, 5*time.Hour), rev("c", 2, 5*time.Hour), rev("a-young", 2, time.Hour),
		rev("x", 3, 2*time.Hour), rev("y", 3, 2*time.Hour),
		rev("a-last", 4, 3*time.Hour),
	}
	order := func() string {
		shuffled := make([]*apps.ControllerRevision, len(all))
		for i, j := range rand.Perm(len(all)) {
			shuffled[j] = all[i]
		}
		SortControllerRevisions(shuffled)
		names := []string{}
		for i := range shuffled {
			names = append(names, shuffled[i].Name)
		}
		return fmt.Sprint(names)
	}
	for i := 0; i < 200; i++ {
		if got := order(); got != fmt.Sprint(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}

	defer holdfastSetGate(t, features.ControllerRevisionStableOrder, false)()
	orders := map[string]bool{}
	for i := 0; i < 200; i++ {
		orders[order()] = true
	}
	if len(orders) < 2 {
		t.Error("gate off: always one order, which stock does not have")
	}
}
