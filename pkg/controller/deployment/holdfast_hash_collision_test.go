// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"k8s.io/api/core/v1"
	extensions "k8s.io/api/extensions/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
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

func holdfastCount(t *testing.T, vec *prometheus.CounterVec, labels ...string) float64 {
	m := &dto.Metric{}
	if err := vec.WithLabelValues(labels...).Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// holdfastCluster is a Deployment controller whose cache is brought up to its API server by catchUp only.
type holdfastCluster struct {
	*fixture
	dc       *DeploymentController
	informer informers.SharedInformerFactory
	events   *record.FakeRecorder
}

func holdfastNewCluster(t *testing.T, d *extensions.Deployment, existing ...*extensions.ReplicaSet) *holdfastCluster {
	f := newFixture(t)
	f.objects = append(f.objects, d)
	for _, rs := range existing {
		f.objects = append(f.objects, rs)
	}
	dc, informer, err := f.newController()
	if err != nil {
		t.Fatal(err)
	}
	// What the API server does on create, and the fake does not.
	f.client.PrependReactor("create", "replicasets", func(action core.Action) (bool, runtime.Object, error) {
		rs := action.(core.CreateAction).GetObject().(*extensions.ReplicaSet)
		rs.UID = uuid.NewUUID()
		if rs.Labels == nil {
			rs.Labels = rs.Spec.Template.Labels
		}
		return false, nil, nil
	})
	c := &holdfastCluster{f, dc, informer, record.NewFakeRecorder(100)}
	dc.eventRecorder = c.events
	return c
}

func (c *holdfastCluster) catchUp() *extensions.Deployment {
	d, err := c.client.ExtensionsV1beta1().Deployments(metav1.NamespaceDefault).Get("web", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.informer.Extensions().V1beta1().Deployments().Informer().GetIndexer().Update(d.DeepCopy())
	indexer := c.informer.Extensions().V1beta1().ReplicaSets().Informer().GetIndexer()
	for _, rs := range c.replicaSets() {
		indexer.Update(rs.DeepCopy())
	}
	return d
}

func (c *holdfastCluster) replicaSets() []extensions.ReplicaSet {
	list, err := c.client.ExtensionsV1beta1().ReplicaSets(metav1.NamespaceAll).List(metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// newName is the name that d's next ReplicaSet gets.
func holdfastNewName(d *extensions.Deployment) string {
	return d.Name + "-" + rand.SafeEncodeString(fmt.Sprint(controller.ComputeHash(&d.Spec.Template, d.Status.CollisionCount)))
}

func TestHoldfastPairCollides(t *testing.T) {
	for _, image := range []string{holdfastPairOld, holdfastPairNew} {
		template := holdfastPairTemplate(image)
		if got := controller.ComputeHash(&template, nil); got != holdfastPairHash {
			t.Errorf("%s: hash %d, want %d", image, got, holdfastPairHash)
		}
	}
}

func TestHoldfastNewReplicaSetNameTaken(t *testing.T) {
	now := metav1.Now()
	outside := map[string]string{"app": "else"}
	for _, test := range []struct {
		verdict string
		change  func(rs *extensions.ReplicaSet) // from the Deployment's own
		// what a sync does
		use, bump, wait bool
		// what stock does
		stockUse bool
	}{
		{verdict: holdfastOwn, change: func(*extensions.ReplicaSet) {}, use: true, stockUse: true},
		{verdict: holdfastCollision, change: func(rs *extensions.ReplicaSet) { rs.Spec.Template = holdfastPairTemplate(holdfastPairOld) }, bump: true},
		{verdict: holdfastForeign, change: func(rs *extensions.ReplicaSet) { rs.OwnerReferences[0].UID = "other" }, bump: true, stockUse: true},
		{verdict: holdfastForeign, change: func(rs *extensions.ReplicaSet) {
			rs.OwnerReferences[0].UID, rs.DeletionTimestamp = "web-before-it-was-made-again", &now
		}, bump: true, stockUse: true},
		{verdict: holdfastForeign, change: func(rs *extensions.ReplicaSet) {
			ref, long := &rs.OwnerReferences[0], strings.Repeat("x\n", 1<<20)
			ref.Kind, ref.Name, ref.UID = long, long, types.UID(long)
		}, bump: true, stockUse: true},
		{verdict: holdfastUnowned, change: func(rs *extensions.ReplicaSet) { rs.OwnerReferences, rs.Labels = nil, outside }, bump: true, stockUse: true},
		{verdict: holdfastUnowned, change: func(rs *extensions.ReplicaSet) { rs.OwnerReferences, rs.DeletionTimestamp = nil, &now }, bump: true, stockUse: true},
		{verdict: holdfastReleased, change: func(rs *extensions.ReplicaSet) { rs.Labels = outside }, bump: true, stockUse: true},
		{verdict: holdfastAdoptable, change: func(rs *extensions.ReplicaSet) { rs.OwnerReferences = nil }, wait: true, stockUse: true},
		{verdict: holdfastDeleted, change: func(rs *extensions.ReplicaSet) { rs.DeletionTimestamp = &now }, wait: true, stockUse: true},
	} {
		for _, on := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/gate=%t", test.verdict, on), func(t *testing.T) {
				defer holdfastSetGate(t, features.DeploymentReplicaSetOwnerCheck, on)()
				d := newDeployment("web", 3, nil, nil, nil, map[string]string{"app": "web"})
				d.Spec.Template = holdfastPairTemplate(holdfastPairNew)
				existing := newReplicaSet(d, holdfastNewName(d), 3)
				existing.Labels = map[string]string{"app": "web"}
				test.change(existing)
				c := holdfastNewCluster(t, d, existing)
				d = c.catchUp()
				before := holdfastCount(t, holdfastReplicaSetConflicts, test.verdict, fmt.Sprint(on))

				// The list of claimed ReplicaSets is empty, as when it was made before the ReplicaSet appeared.
				rs, err := c.dc.getNewReplicaSet(d, nil, nil, true)

				use, bump, wait := test.use, test.bump, test.wait
				if !on {
					use, bump, wait = test.stockUse, !test.stockUse, false
				}
				if got := rs != nil; got != use || (err == nil) != use {
					t.Errorf("got replica set %v and error %v, want it used: %t", rs, err, use)
				}
				live := c.catchUp()
				if got := live.Status.CollisionCount != nil; got != bump {
					t.Errorf("collision counted: %t, want %t", got, bump)
				}
				if wait && !strings.Contains(fmt.Sprint(err), existing.Name) {
					t.Errorf("error %v does not name %s", err, existing.Name)
				}
				if events := len(c.events.Events); on && bump != (events == 1) || !on && events != 0 {
					t.Errorf("%d events", events)
				}
				if on && bump {
					if event := <-c.events.Events; len(event) > 1000 || strings.Contains(event, "\n") {
						t.Errorf("an event of %d bytes: %.300q", len(event), event)
					}
				}
				if got := holdfastCount(t, holdfastReplicaSetConflicts, test.verdict, fmt.Sprint(on)); got != before+1 {
					t.Errorf("counted %v conflicts as %s, want 1", got-before, test.verdict)
				}
				if all := c.replicaSets(); len(all) != 1 || !apiequality.Semantic.DeepEqual(all[0], *existing) {
					t.Errorf("the existing replica set was touched: %v", all)
				}
			})
		}
	}
}

// TestHoldfastNameTakenInTheCache: a ReplicaSet that only the cache takes for one that the Deployment cannot use costs
// no name. The sync is tried again until the cache knows.
func TestHoldfastNameTakenInTheCache(t *testing.T) {
	for verdict, change := range map[string]func(rs *extensions.ReplicaSet){
		holdfastForeign:  func(rs *extensions.ReplicaSet) { rs.OwnerReferences[0].UID = "other" },
		holdfastUnowned:  func(rs *extensions.ReplicaSet) { rs.OwnerReferences, rs.Labels = nil, map[string]string{"app": "else"} },
		holdfastReleased: func(rs *extensions.ReplicaSet) { rs.Labels = map[string]string{"app": "else"} },
	} {
		d := newDeployment("web", 3, nil, nil, nil, map[string]string{"app": "web"})
		own := newReplicaSet(d, holdfastNewName(d), 3)
		own.Labels = map[string]string{"app": "web"}
		c := holdfastNewCluster(t, d, own)
		d = c.catchUp()
		stale := own.DeepCopy()
		change(stale)
		c.informer.Extensions().V1beta1().ReplicaSets().Informer().GetIndexer().Update(stale)
		rs, err := c.dc.getNewReplicaSet(d, nil, nil, true)
		if rs != nil || err == nil || !strings.Contains(err.Error(), "is "+verdict+" in the cache") {
			t.Errorf("%s in the cache: %v, %v", verdict, rs, err)
		}
		if live := c.catchUp(); live.Status.CollisionCount != nil || len(c.events.Events) > 0 {
			t.Errorf("%s in the cache: a collision is counted: %v, %d events", verdict, live.Status.CollisionCount, len(c.events.Events))
		}
	}
}

// TestHoldfastRolloutPastTakenName runs whole syncs: whatever holds the name, the Deployment gets a ReplicaSet of its
// own, and what holds the name is not scaled.
func TestHoldfastRolloutPastTakenName(t *testing.T) {
	now := metav1.Now()
	for name, change := range map[string]func(rs *extensions.ReplicaSet){
		"another Deployment's":       func(rs *extensions.ReplicaSet) { rs.OwnerReferences[0].UID = "other" },
		"nobody's, outside selector": func(rs *extensions.ReplicaSet) { rs.OwnerReferences, rs.Labels = nil, map[string]string{"a": "b"} },
		"nobody's, being deleted":    func(rs *extensions.ReplicaSet) { rs.OwnerReferences, rs.DeletionTimestamp = nil, &now },
	} {
		d := newDeployment("web", 3, nil, nil, nil, map[string]string{"app": "web"})
		d.Spec.Template = holdfastPairTemplate(holdfastPairNew)
		existing := newReplicaSet(d, holdfastNewName(d), 1)
		existing.Labels = map[string]string{"app": "web"}
		change(existing)
		c := holdfastNewCluster(t, d, existing)
		for i := 0; i < 5; i++ {
			c.catchUp()
			c.dc.syncDeployment(getKey(d, t)) // the sync that counts the collision returns an error
		}
		own := 0
		for _, rs := range c.replicaSets() {
			if ref := metav1.GetControllerOf(&rs); ref != nil && ref.UID == d.UID {
				own++
				if *rs.Spec.Replicas != 3 {
					t.Errorf("%s: own replica set has %d replicas", name, *rs.Spec.Replicas)
				}
			} else if !apiequality.Semantic.DeepEqual(rs, *existing) {
				t.Errorf("%s: touched: %v", name, rs)
			}
		}
		if live := c.catchUp(); own != 1 || live.Status.CollisionCount == nil || *live.Status.CollisionCount != 1 {
			t.Errorf("%s: %d own replica sets, collision count %v", name, own, live.Status.CollisionCount)
		}
	}
}

// TestHoldfastRolloutRealCollision rolls from one template of the pair to the other and back.
func TestHoldfastRolloutRealCollision(t *testing.T) {
	d := newDeployment("web", 3, nil, nil, nil, map[string]string{"app": "web"})
	c := holdfastNewCluster(t, d)
	for i, image := range []string{holdfastPairOld, holdfastPairNew, holdfastPairOld, holdfastPairNew} {
		d = c.catchUp()
		d.Spec.Template = holdfastPairTemplate(image)
		if _, err := c.client.ExtensionsV1beta1().Deployments(d.Namespace).Update(d); err != nil {
			t.Fatal(err)
		}
		for j := 0; j < 5; j++ {
			c.catchUp()
			c.dc.syncDeployment(getKey(d, t))
		}
		all := c.replicaSets()
		if want := map[bool]int{true: 1, false: 2}[i == 0]; len(all) != want {
			t.Fatalf("release %d: %d replica sets, want %d", i, len(all), want)
		}
		newest := 0
		for _, rs := range all {
			if rs.Annotations["deployment.kubernetes.io/revision"] == fmt.Sprint(i+1) && rs.Spec.Template.Spec.Containers[0].Image == image {
				newest++
			}
		}
		if newest != 1 {
			t.Errorf("release %d: %d replica sets have revision %d and image %s", i, newest, i+1, image)
		}
	}
	if d = c.catchUp(); d.Status.CollisionCount == nil || *d.Status.CollisionCount != 1 {
		t.Errorf("collision count %v, want 1", d.Status.CollisionCount)
	}
}
