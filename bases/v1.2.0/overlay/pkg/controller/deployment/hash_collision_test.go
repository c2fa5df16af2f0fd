// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/api"
	"k8s.io/kubernetes/pkg/api/errors"
	"k8s.io/kubernetes/pkg/api/unversioned"
	"k8s.io/kubernetes/pkg/apis/extensions"
	"k8s.io/kubernetes/pkg/client/clientset_generated/internalclientset/fake"
	"k8s.io/kubernetes/pkg/client/record"
	"k8s.io/kubernetes/pkg/client/testing/core"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/runtime"
	"k8s.io/kubernetes/pkg/types"
	deploymentutil "k8s.io/kubernetes/pkg/util/deployment"
	"k8s.io/kubernetes/pkg/util/intstr"
	podutil "k8s.io/kubernetes/pkg/util/pod"
)

// Images whose templates collide, whatever else is in them: those of
// kubernetes/kubernetes#43449, and more of that class.
const (
	imageA = "yce-alpha:201703151133"
	imageB = "yce-alpha:201703211640"
	imageC = "yce-alpha:201703301250" // does not collide with the others
)

// cluster is an API with the little that the controller needs of it: objects
// by name, conflicts on an old resource version, and ReplicaSets that have
// their pods, ready, at once.
type cluster struct {
	t           *testing.T
	client      *fake.Clientset
	recorder    *record.FakeRecorder
	deployments map[string]*extensions.Deployment
	rss         map[string]*extensions.ReplicaSet
	version     int
	// refuse makes updates of Deployments fail.
	refuse func(*extensions.Deployment) error
	// staleRSs and staleDeployment keep the caches as they are.
	staleRSs, staleDeployment bool
	// lag keeps the ReplicaSets' pods and status as they are.
	lag bool
	// refused is that no pod can be made, as by a quota.
	refused    bool
	controller *DeploymentController
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, deployments: map[string]*extensions.Deployment{}, rss: map[string]*extensions.ReplicaSet{}}
	c.client = &fake.Clientset{}
	c.client.AddReactor("*", "*", c.react)
	c.restart()
	return c
}

// restart puts a new controller in the place of the old one.
func (c *cluster) restart() {
	dc := NewDeploymentController(c.client, controller.NoResyncPeriodFunc)
	c.recorder = &record.FakeRecorder{}
	dc.eventRecorder = c.recorder
	dc.rsStoreSynced, dc.podStoreSynced = alwaysReady, alwaysReady
	c.controller = dc
}

func clone(obj interface{}) interface{} {
	out, err := api.Scheme.DeepCopy(obj)
	if err != nil {
		panic(err)
	}
	return out
}

func (c *cluster) next() string {
	c.version++
	return strconv.Itoa(c.version)
}

func (c *cluster) putDeployment(d *extensions.Deployment) *extensions.Deployment {
	stored := clone(d).(*extensions.Deployment)
	stored.ResourceVersion = c.next()
	c.deployments[d.Name] = stored
	return clone(stored).(*extensions.Deployment)
}

func (c *cluster) putRS(rs *extensions.ReplicaSet) *extensions.ReplicaSet {
	stored := clone(rs).(*extensions.ReplicaSet)
	stored.ResourceVersion = c.next()
	stored.Generation, stored.Status = 1, extensions.ReplicaSetStatus{}
	if old := c.rss[rs.Name]; old != nil {
		stored.UID, stored.Generation, stored.Status = old.UID, old.Generation, old.Status
		if !api.Semantic.DeepEqual(old.Spec, stored.Spec) {
			stored.Generation++
		}
	} else {
		stored.UID = types.UID("uid-" + stored.ResourceVersion)
	}
	if len(stored.Labels) == 0 { // as the API's defaults
		stored.Labels = stored.Spec.Template.Labels
	}
	c.rss[rs.Name] = stored
	c.runRS()
	return clone(c.rss[rs.Name]).(*extensions.ReplicaSet)
}

// runRS does the work of the ReplicaSet controller, unless it lags.
func (c *cluster) runRS() {
	for _, rs := range c.rss {
		if !c.lag {
			replicas := rs.Spec.Replicas
			if c.refused {
				replicas = 0
			}
			if rs.Status.Replicas == replicas && rs.Status.ObservedGeneration == rs.Generation {
				continue
			}
			rs.Status.Replicas, rs.Status.ObservedGeneration = replicas, rs.Generation
			rs.ResourceVersion = c.next()
		}
	}
}

func (c *cluster) pods() []api.Pod {
	var pods []api.Pod
	for _, rs := range c.rss {
		for i := 0; i < rs.Status.Replicas; i++ {
			pods = append(pods, api.Pod{
				ObjectMeta: api.ObjectMeta{Name: fmt.Sprintf("%s-%d", rs.Name, i), Namespace: rs.Namespace, Labels: rs.Spec.Template.Labels},
				Status: api.PodStatus{
					Phase:      api.PodRunning,
					Conditions: []api.PodCondition{{Type: api.PodReady, Status: api.ConditionTrue}},
				},
			})
		}
	}
	return pods
}

func (c *cluster) react(action core.Action) (bool, runtime.Object, error) {
	resource := unversioned.GroupResource{Group: "extensions", Resource: action.GetResource()}
	switch action.GetVerb() { // the interfaces of the actions overlap
	case "get":
		a := action.(core.GetAction)
		switch action.GetResource() {
		case "deployments":
			if d, ok := c.deployments[a.GetName()]; ok {
				return true, clone(d).(*extensions.Deployment), nil
			}
		case "replicasets":
			if rs, ok := c.rss[a.GetName()]; ok {
				return true, clone(rs).(*extensions.ReplicaSet), nil
			}
		}
		return true, nil, errors.NewNotFound(resource, a.GetName())
	case "update":
		a := action.(core.UpdateAction)
		switch obj := a.GetObject().(type) {
		case *extensions.Deployment:
			if a.GetSubresource() == "" && c.refuse != nil {
				if err := c.refuse(obj); err != nil {
					return true, nil, err
				}
			}
			if c.deployments[obj.Name].ResourceVersion != obj.ResourceVersion {
				return true, nil, errors.NewConflict(resource, obj.Name, fmt.Errorf("the object has been modified"))
			}
			if a.GetSubresource() == "status" {
				live := clone(c.deployments[obj.Name]).(*extensions.Deployment)
				live.Status = obj.Status
				obj = live
			}
			return true, c.putDeployment(obj), nil
		case *extensions.ReplicaSet:
			switch live := c.rss[obj.Name]; {
			case live == nil:
				return true, nil, errors.NewNotFound(resource, obj.Name)
			case live.ResourceVersion != obj.ResourceVersion:
				return true, nil, errors.NewConflict(resource, obj.Name, fmt.Errorf("the object has been modified"))
			}
			return true, c.putRS(obj), nil
		}
	case "create":
		if rs, ok := action.(core.CreateAction).GetObject().(*extensions.ReplicaSet); ok {
			if _, ok := c.rss[rs.Name]; ok {
				return true, nil, errors.NewAlreadyExists(resource, rs.Name)
			}
			return true, c.putRS(rs), nil
		}
	case "delete":
		name := action.(core.DeleteAction).GetName()
		if c.rss[name] == nil {
			return true, nil, errors.NewNotFound(resource, name)
		}
		delete(c.rss, name)
		c.next()
		return true, nil, nil
	case "list":
		a := action.(core.ListAction)
		switch action.GetResource() {
		case "replicasets":
			list := &extensions.ReplicaSetList{}
			for _, rs := range c.rss {
				if a.GetListRestrictions().Labels.Matches(labelSet(rs.Labels)) {
					list.Items = append(list.Items, *clone(rs).(*extensions.ReplicaSet))
				}
			}
			return true, list, nil
		case "pods":
			list := &api.PodList{}
			for _, p := range c.pods() {
				if a.GetListRestrictions().Labels.Matches(labelSet(p.Labels)) {
					list.Items = append(list.Items, p)
				}
			}
			return true, list, nil
		}
	}
	c.t.Fatalf("unexpected action %#v", action)
	return true, nil, nil
}

type labelSet map[string]string

func (l labelSet) Has(k string) bool   { _, ok := l[k]; return ok }
func (l labelSet) Get(k string) string { return l[k] }

// sync brings the caches up to date, unless they are stale, and syncs the
// deployment once.
func (c *cluster) sync() error {
	c.fillCaches()
	return c.controller.syncDeployment(api.NamespaceDefault + "/foobar")
}

func (c *cluster) fillCaches() {
	if !c.staleDeployment {
		var list []interface{}
		for _, d := range c.deployments {
			list = append(list, clone(d))
		}
		c.controller.dStore.Store.Replace(list, "")
	}
	if !c.staleRSs {
		var list []interface{}
		for _, rs := range c.rss {
			list = append(list, clone(rs))
		}
		c.controller.rsStore.Store.Replace(list, "")
	}
	var pods []interface{}
	for _, p := range c.pods() {
		p := p
		pods = append(pods, &p)
	}
	c.controller.podStore.Store.Replace(pods, "")
}

// settle syncs until nothing changes any more, and reports the errors other
// than the conflict that a sync of 1.2 ends with when it has written the
// revision: it goes on with the object as it was before.
func (c *cluster) settle() []string {
	var errs []string
	for i := 0; i < 50; i++ {
		before := c.version
		if err := c.sync(); err != nil {
			if !strings.Contains(err.Error(), "the object has been modified") {
				errs = append(errs, err.Error())
			}
		} else if c.version == before {
			return errs
		}
	}
	c.t.Fatalf("not settled after 50 syncs: %v", errs)
	return nil
}

func (c *cluster) release(image string) {
	d := c.deployments["foobar"]
	d.Spec.Template.Spec.Containers = []api.Container{{Name: "yce", Image: image}}
	d.Generation++
	c.putDeployment(d)
}

// describe says which ReplicaSets there are: image=replicas@hash, sorted, with
// hash "own" for the adler32 of its template and "count N" for a counted one.
func (c *cluster) describe() string {
	var out []string
	for name, rs := range c.rss {
		label := rs.Spec.Template.Labels[extensions.DefaultDeploymentUniqueLabelKey]
		template := rs.Spec.Template
		template.Labels = map[string]string{}
		for k, v := range rs.Spec.Template.Labels {
			if k != extensions.DefaultDeploymentUniqueLabelKey {
				template.Labels[k] = v
			}
		}
		hash := "?"
		for count := 0; count < 20; count++ {
			if label == fmt.Sprint(podutil.GetPodTemplateSpecHashWithCount(template, count)) {
				hash = fmt.Sprintf("count %d", count)
				break
			}
		}
		if want := "foobar-" + label; name != want {
			hash += " named " + name
		}
		if s := rs.Spec.Selector.MatchLabels[extensions.DefaultDeploymentUniqueLabelKey]; s != label {
			hash += " selecting " + s
		}
		image := strings.TrimPrefix(rs.Spec.Template.Spec.Containers[0].Image, "yce-alpha:")
		out = append(out, fmt.Sprintf("%s=%d@%s", image, rs.Spec.Replicas, hash))
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}

func (c *cluster) expect(when, rss string, count int) {
	if got := c.describe(); got != rss {
		c.t.Errorf("%s: replica sets\n got %s\nwant %s", when, got, rss)
	}
	if got := deploymentutil.CollisionCount(c.deployments["foobar"]); got != count {
		c.t.Errorf("%s: collision count %d, want %d", when, got, count)
	}
}

func (c *cluster) expectEvents(when string, reasons ...string) {
	var got []string
	for _, e := range c.recorder.Events {
		reason := strings.Fields(e)[1]
		if reason == "ScalingReplicaSet" {
			continue
		}
		got = append(got, reason)
	}
	if strings.Join(got, " ") != strings.Join(reasons, " ") {
		c.t.Errorf("%s: events %q, want %q", when, got, reasons)
	}
}

func (c *cluster) expectErrors(when string, got []string, want ...string) {
	ok := len(got) == len(want)
	for i := range got {
		ok = ok && strings.Contains(got[i], want[i])
	}
	if !ok {
		c.t.Errorf("%s: errors %q, want %q", when, got, want)
	}
}

// newRollout returns a cluster with a Deployment that has rolled out imageA.
func newRollout(t *testing.T) *cluster {
	c := newCluster(t)
	d := newDeployment(2, nil)
	d.Spec.Selector = &unversioned.LabelSelector{MatchLabels: map[string]string{"name": "foo"}}
	d.Spec.Strategy.RollingUpdate = &extensions.RollingUpdateDeployment{MaxSurge: intstr.FromInt(1), MaxUnavailable: intstr.FromInt(1)}
	c.putDeployment(d)
	c.release(imageA)
	c.settle()
	c.expect("first rollout", "201703151133=2@count 0", 0)
	return c
}

func name(c *cluster, image string, count int) string {
	template := c.deployments["foobar"].Spec.Template
	template.Spec.Containers = []api.Container{{Name: "yce", Image: image}}
	return fmt.Sprintf("foobar-%d", podutil.GetPodTemplateSpecHashWithCount(template, count))
}

func TestImagesCollide(t *testing.T) {
	c := newRollout(t)
	if a, b, other := name(c, imageA, 0), name(c, imageB, 0), name(c, imageC, 0); a != b || a == other {
		t.Errorf("names %s and %s are to be equal, and not %s", a, b, other)
	}
	if a, b := name(c, imageA, 1), name(c, imageB, 1); a == b {
		t.Errorf("both are %s with a count", a)
	}
}

func TestHashCollisionRollsOut(t *testing.T) {
	c := newRollout(t)
	old := clone(c.rss[name(c, imageA, 0)]).(*extensions.ReplicaSet)
	c.release(imageB)
	c.expectErrors("collision", c.settle(), "is taken, trying again with collision count 1")
	c.expect("collision", "201703151133=0@count 0, 201703211640=2@count 1", 1)
	c.expectEvents("collision", reasonNameCollision)

	d, rs := c.deployments["foobar"], c.rss[name(c, imageB, 1)]
	if d.Annotations[deploymentutil.RevisionAnnotation] != "2" || rs.Annotations[deploymentutil.RevisionAnnotation] != "2" {
		t.Errorf("revisions: deployment %v, replica set %v", d.Annotations, rs.Annotations)
	}
	if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != 2 || d.Status.AvailableReplicas != 2 {
		t.Errorf("status %+v of generation %d", d.Status, d.Generation)
	}
	if _, ok := rs.Annotations[deploymentutil.CollisionCountAnnotation]; ok {
		t.Errorf("the count went to the replica set: %v", rs.Annotations)
	}
	if now := c.rss[old.Name]; !api.Semantic.DeepEqual(now.Spec.Template, old.Spec.Template) || !api.Semantic.DeepEqual(now.Spec.Selector, old.Spec.Selector) {
		t.Errorf("the old replica set was changed: %+v", now.Spec)
	}

	// The next release that does not collide has the name it always had, also
	// with a count, and so has one that collides with nothing that is left.
	c.release(imageC)
	c.expectErrors("next release", c.settle())
	c.expect("next release", "201703151133=0@count 0, 201703211640=0@count 1, 201703301250=2@count 0", 1)
}

func TestHashCollisionRecreate(t *testing.T) {
	c := newRollout(t)
	c.recreate()
	old := clone(c.rss[name(c, imageA, 0)]).(*extensions.ReplicaSet)
	c.release(imageB)
	c.expectErrors("recreate", c.settle())
	c.expect("recreate", "201703151133=0@count 1, 201703211640=2@count 0", 0)
	c.expectEvents("recreate", reasonNameCollision)
	d, rs := c.deployments["foobar"], c.rss[name(c, imageB, 0)]
	if d.Annotations[deploymentutil.RevisionAnnotation] != "2" || rs.Annotations[deploymentutil.RevisionAnnotation] != "2" {
		t.Errorf("revisions: deployment %v, replica set %v", d.Annotations, rs.Annotations)
	}
	if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != 2 || d.Status.AvailableReplicas != 2 {
		t.Errorf("status %+v of generation %d", d.Status, d.Generation)
	}
	moved := c.rss[name(c, imageA, 1)]
	if !api.Semantic.DeepEqual(moved.Annotations, old.Annotations) || !deploymentutil.EqualIgnoringHash(moved.Spec.Template, old.Spec.Template) {
		t.Errorf("moved:\n%+v\nwas:\n%+v", moved, old)
	}
	if label := moved.Labels[extensions.DefaultDeploymentUniqueLabelKey]; moved.Name != "foobar-"+label || len(moved.Labels) != len(old.Labels) {
		t.Errorf("%s has the labels %v, was %v", moved.Name, moved.Labels, old.Labels)
	}
}

// recreate gives the Deployment strategy Recreate.
func (c *cluster) recreate() {
	d := c.deployments["foobar"]
	d.Spec.Strategy = extensions.DeploymentStrategy{Type: extensions.RecreateDeploymentStrategyType}
	d.Generation++
	c.putDeployment(d)
	c.settle()
}

func TestHashCollisionControllerRestarts(t *testing.T) {
	c := newRollout(t)
	c.release(imageB)
	if err := c.sync(); err == nil {
		t.Errorf("the sync that writes the count is to end")
	}
	c.expect("between count and name", "201703151133=2@count 0", 1)
	c.restart()
	c.expectErrors("after the restart", c.settle())
	c.expect("after the restart", "201703151133=0@count 0, 201703211640=2@count 1", 1)
	c.expectEvents("after the restart", reasonNameCollision)
	c.restart()
	c.expectErrors("one more restart", c.settle())
	c.expect("one more restart", "201703151133=0@count 0, 201703211640=2@count 1", 1)
	c.expectEvents("one more restart")
}

func TestHashCollisionTwice(t *testing.T) {
	c := newRollout(t)
	// Another old replica set of the Deployment has the counted name.
	taken := clone(c.rss[name(c, imageA, 0)]).(*extensions.ReplicaSet)
	taken.Name = name(c, imageB, 1)
	label := strings.TrimPrefix(taken.Name, "foobar-")
	taken.Labels = nil
	taken.Spec.Replicas = 0
	taken.Spec.Template.Spec.Containers[0].Image = "yce-alpha:something-else"
	taken.Spec.Template.Labels[extensions.DefaultDeploymentUniqueLabelKey] = label
	taken.Spec.Selector.MatchLabels[extensions.DefaultDeploymentUniqueLabelKey] = label
	c.putRS(taken)

	c.release(imageB)
	c.expectErrors("two in a row", c.settle(), "collision count 1", "collision count 2")
	c.expect("two in a row", "201703151133=0@count 0, 201703211640=2@count 2, something-else=0@?", 2)
	c.expectEvents("two in a row", reasonNameCollision)
}

// foreign is a replica set with the name that the controller wants and labels
// that the Deployment does not select.
func (c *cluster) foreign(image string) *extensions.ReplicaSet {
	labels := map[string]string{"name": "somebody-else"}
	rs := &extensions.ReplicaSet{
		ObjectMeta: api.ObjectMeta{Name: name(c, image, 0), Namespace: api.NamespaceDefault, Labels: labels},
		Spec: extensions.ReplicaSetSpec{
			Replicas: 5,
			Selector: &unversioned.LabelSelector{MatchLabels: labels},
			Template: c.deployments["foobar"].Spec.Template,
		},
	}
	rs.Spec.Template.Spec.Containers = []api.Container{{Name: "yce", Image: image}}
	return rs
}

func TestForeignReplicaSetIsLeftAlone(t *testing.T) {
	// Whether its template is another one or the very same.
	for _, image := range []string{imageC, "yce-alpha:else"} {
		c := newRollout(t)
		rs := c.foreign(imageC)
		rs.Spec.Template.Spec.Containers[0].Image = image
		before := c.putRS(rs)
		c.release(imageC)
		c.expectErrors("foreign", c.settle(), "collision count 1")
		c.expectEvents("foreign", reasonNameForeign)
		if now := c.rss[before.Name]; !api.Semantic.DeepEqual(now, before) {
			t.Errorf("it was changed:\n%+v\n%+v", before, now)
		}
		delete(c.rss, before.Name)
		c.expect("foreign", "201703151133=0@count 0, 201703301250=2@count 1", 1)
	}
}

func TestOwnReplicaSetIsAdopted(t *testing.T) {
	c := newRollout(t)
	c.fillCaches()
	c.staleRSs = true // it does not see what it creates
	c.release(imageC)
	for i := 0; i < 3; i++ {
		c.sync() // scaling from a stale cache may fail
	}
	c.staleRSs = false
	c.settle()
	c.expect("stale cache", "201703151133=0@count 0, 201703301250=2@count 0", 0)
	c.expectEvents("stale cache")

	// And a counted one.
	c = newRollout(t)
	c.fillCaches()
	c.staleRSs = true
	c.release(imageB)
	for i := 0; i < 4; i++ {
		c.sync()
	}
	c.expectEvents("stale cache, counted", reasonNameCollision)
	c.staleRSs = false
	c.settle()
	c.expect("stale cache, counted", "201703151133=0@count 0, 201703211640=2@count 1", 1)
}

func TestCountIsRefused(t *testing.T) {
	c := newRollout(t)
	c.refuse = func(d *extensions.Deployment) error {
		if _, ok := d.Annotations[deploymentutil.CollisionCountAnnotation]; !ok {
			return nil
		}
		return errors.NewForbidden(unversioned.GroupResource{Group: "extensions", Resource: "deployments"}, d.Name, fmt.Errorf("no annotations today"))
	}
	c.release(imageB)
	c.expectErrors("refused", c.settle())
	c.expect("refused", "201703151133=0@count 0, 201703211640=2@count 1", 0)
	c.expectEvents("refused", reasonCountNotSaved, reasonNameCollision)
	c.restart()
	c.expectErrors("refused, restarted", c.settle())
	c.expect("refused, restarted", "201703151133=0@count 0, 201703211640=2@count 1", 0)
}

func TestCountConflicts(t *testing.T) {
	c := newRollout(t)
	conflicts := 0
	c.refuse = func(d *extensions.Deployment) error {
		if conflicts++; conflicts > 3 {
			return nil
		}
		return errors.NewConflict(unversioned.GroupResource{Group: "extensions", Resource: "deployments"}, d.Name, fmt.Errorf("somebody was faster"))
	}
	c.release(imageB)
	c.expectErrors("conflicts", c.settle(), "somebody was faster", "somebody was faster", "somebody was faster", "collision count 1")
	c.expect("conflicts", "201703151133=0@count 0, 201703211640=2@count 1", 1)
}

func TestStaleDeploymentDoesNotRaiseTheCount(t *testing.T) {
	c := newRollout(t)
	c.release(imageB)
	c.fillCaches()
	c.staleDeployment = true
	for i := 0; i < 3; i++ {
		c.sync()
	}
	c.expect("stale deployment", "201703151133=0@count 0, 201703211640=1@count 1", 1)
	c.staleDeployment = false
	c.settle()
	c.expect("then", "201703151133=0@count 0, 201703211640=2@count 1", 1)
}

func TestDeploymentWasReplaced(t *testing.T) {
	c := newRollout(t)
	c.release(imageB)
	c.fillCaches()
	c.staleDeployment = true
	d := c.deployments["foobar"]
	d.UID = "another"
	c.putDeployment(d)
	if err := c.sync(); err == nil || !strings.Contains(err.Error(), "deleted and made again") {
		t.Errorf("got %v", err)
	}
	c.expect("replaced", "201703151133=2@count 0", 0)
}

func rollbackTo(c *cluster, revision int64) {
	d := c.deployments["foobar"]
	d.Spec.RollbackTo = &extensions.RollbackConfig{Revision: revision}
	d.Generation++
	c.putDeployment(d)
}

func TestRollback(t *testing.T) {
	c := newRollout(t)
	c.release(imageB)
	c.settle()
	for i, want := range []string{
		"201703151133=2@count 0, 201703211640=0@count 1",
		"201703151133=0@count 0, 201703211640=2@count 1",
		"201703151133=2@count 0, 201703211640=0@count 1",
	} {
		rollbackTo(c, 0) // kubectl rollout undo
		c.expectErrors("undo", c.settle())
		c.expect(fmt.Sprintf("undo %d", i), want, 1)
	}
	c.restart()
	rollbackTo(c, 0)
	c.settle()
	revision, _ := deploymentutil.Revision(c.rss[name(c, imageB, 1)])
	rollbackTo(c, revision)
	c.settle()
	c.expect("undo to the current revision", "201703151133=0@count 0, 201703211640=2@count 1", 1)
	c.expectEvents("undo to the current revision", deploymentutil.RollbackDone, deploymentutil.RollbackTemplateUnchanged)
}

func TestCountIsLost(t *testing.T) {
	// kubectl replace, or somebody who edits the annotation.
	for _, value := range []string{"", "-3", "many", "99999999999"} {
		c := newRollout(t)
		c.release(imageB)
		c.settle()
		d := c.deployments["foobar"]
		if value == "" {
			d.Annotations = nil
		} else {
			d.Annotations[deploymentutil.CollisionCountAnnotation] = value
		}
		c.putDeployment(d)
		c.restart()
		c.expectErrors("lost", c.settle())
		c.expect("lost", "201703151133=0@count 0, 201703211640=2@count 1", 0)

		// A third template with the same hash finds out by itself.
		c.release("yce-alpha:201703211640 ")
		c.settle()
	}
}

func TestOldReplicaSetIsDeleted(t *testing.T) {
	c := newRollout(t)
	c.release(imageB)
	c.settle()
	delete(c.rss, name(c, imageA, 0)) // as revisionHistoryLimit does
	c.restart()
	c.expectErrors("deleted", c.settle())
	c.expect("deleted", "201703211640=2@count 1", 1)
	// The first name of imageA is free again.
	c.release(imageA)
	c.settle()
	c.expect("released again", "201703151133=2@count 0, 201703211640=0@count 1", 1)
}

func TestCreateFailsOtherwise(t *testing.T) {
	c := newRollout(t)
	c.release(imageB)
	c.sync() // count is 1
	fails := 0
	c.client.PrependReactor("create", "replicasets", func(action core.Action) (bool, runtime.Object, error) {
		rs := action.(core.CreateAction).GetObject().(*extensions.ReplicaSet)
		if rs.Name != name(c, imageB, 1) {
			return false, nil, nil
		}
		fails++
		return true, nil, errors.NewInternalError(fmt.Errorf("etcd is away"))
	})
	for i := 0; i < 5; i++ {
		if err := c.sync(); err == nil || !strings.Contains(err.Error(), "etcd is away") {
			t.Errorf("got %v", err)
		}
	}
	c.expect("etcd is away", "201703151133=2@count 0", 1)
	if fails != 5 {
		t.Errorf("%d tries, want one a sync", fails)
	}
	c.client.ReactionChain = c.client.ReactionChain[1:]
	c.settle()
	c.expect("etcd is back", "201703151133=0@count 0, 201703211640=2@count 1", 1)
}

func TestGateOffIsStock(t *testing.T) {
	defer features.SetForTest(features.HashCollision, false)()
	c := newRollout(t)
	c.release(imageB)
	for i := 0; i < 5; i++ {
		if err := c.sync(); err == nil || !strings.Contains(err.Error(), "already exists") {
			t.Errorf("got %v", err)
		}
	}
	c.expect("gate off", "201703151133=2@count 0", 0)
	c.expectEvents("gate off")
	if c.controller.queue.Len() == 0 {
		t.Errorf("the deployment was not queued again")
	}
}

// With the gate switched off, or back at an upstream binary, a Deployment that
// runs under a counted name keeps its pods, and its next release that does not
// collide rolls out.
func TestLeaving(t *testing.T) {
	c := newRollout(t)
	c.release(imageB)
	c.settle()
	defer features.SetForTest(features.HashCollision, false)()
	c.restart()
	for i := 0; i < 5; i++ {
		if err := c.sync(); err == nil || !strings.Contains(err.Error(), "already exists") {
			t.Errorf("got %v", err)
		}
	}
	c.expect("left", "201703151133=0@count 0, 201703211640=2@count 1", 1)
	c.release(imageC)
	c.expectErrors("next release", c.settle())
	c.expect("next release", "201703151133=0@count 0, 201703211640=0@count 1, 201703301250=2@count 0", 1)
}

// One with strategy Recreate has no counted name, so that nothing of it is left
// behind.
func TestLeavingRecreate(t *testing.T) {
	c := newRollout(t)
	c.recreate()
	c.release(imageB)
	c.settle()
	before := c.describe()
	restore := features.SetForTest(features.HashCollision, false)
	c.restart()
	c.expectErrors("left", c.settle())
	c.expect("left", before, 0)
	d := c.deployments["foobar"]
	d.Spec.Replicas = 5
	c.putDeployment(d)
	c.expectErrors("scaled", c.settle())
	c.expect("scaled", "201703151133=0@count 1, 201703211640=5@count 0", 0)
	c.release(imageC)
	c.expectErrors("next release", c.settle())
	c.expect("next release", "201703151133=0@count 1, 201703211640=0@count 0, 201703301250=5@count 0", 0)
	restore()
	c.restart()
	c.expectErrors("ours again", c.settle())
	c.expect("ours again", "201703151133=0@count 1, 201703211640=0@count 0, 201703301250=5@count 0", 0)
}
