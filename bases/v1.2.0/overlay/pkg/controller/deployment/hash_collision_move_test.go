// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/api/errors"
	"k8s.io/kubernetes/pkg/apis/extensions"
	"k8s.io/kubernetes/pkg/client/testing/core"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/runtime"
	deploymentutil "k8s.io/kubernetes/pkg/util/deployment"
)

// The release collides with an older one that has had no pods for long: also
// RollingUpdate has no use for a counted name.
func TestOldReplicaSetMakesWay(t *testing.T) {
	for _, recreate := range []bool{true, false} {
		c := newRollout(t)
		if recreate {
			c.recreate()
		}
		c.release(imageC)
		c.settle()
		c.release(imageB)
		c.expectErrors("release", c.settle())
		c.expect("release", "201703151133=0@count 1, 201703211640=2@count 0, 201703301250=0@count 0", 0)
		c.expectEvents("release", reasonNameCollision)
		defer features.SetForTest(features.HashCollision, false)()
		c.restart()
		c.expectErrors("left", c.settle())
		c.expect("left", "201703151133=0@count 1, 201703211640=2@count 0, 201703301250=0@count 0", 0)
		features.SetForTest(features.HashCollision, true)
	}
}

func TestRecreateWaitsForTheOldPods(t *testing.T) {
	c := newRollout(t)
	c.recreate()
	c.release(imageB)
	c.lag = true
	for i := 0; i < 5; i++ {
		if err := c.sync(); i > 1 && (err == nil || !strings.Contains(err.Error(), "waiting until that has no pods")) {
			t.Errorf("sync %d: got %v", i, err)
		}
	}
	c.expect("pods are there", "201703151133=0@count 0", 0)
	// The status says that they are gone, and they are not.
	old := c.rss[name(c, imageA, 0)]
	old.Status.ObservedGeneration = old.Generation
	old.Status.Replicas = 0
	c.client.PrependReactor("list", "pods", func(action core.Action) (bool, runtime.Object, error) {
		old.Status.Replicas = 2
		defer func() { old.Status.Replicas = 0 }()
		return c.react(action)
	})
	if err := c.sync(); err == nil || !strings.Contains(err.Error(), "waiting until that has no pods") {
		t.Errorf("got %v", err)
	}
	c.expect("pods are said to be gone", "201703151133=0@count 0", 0)
	c.client.ReactionChain = c.client.ReactionChain[1:]
	c.lag = false
	c.expectErrors("pods are gone", c.settle())
	c.expect("pods are gone", "201703151133=0@count 1, 201703211640=2@count 0", 0)
}

// Old pods that never came, as a quota refuses them, are not waited for: nothing but this
// scales their ReplicaSet down.
func TestRecreateWithoutOldPods(t *testing.T) {
	c := newRollout(t)
	c.recreate()
	c.refused = true
	c.runRS()
	if n := len(c.pods()); n > 0 {
		t.Fatalf("%d pods", n)
	}
	c.release(imageB)
	c.settle()
	c.expect("release", "201703151133=0@count 1, 201703211640=2@count 0", 0)
	// Pods that are there are scaled down by the strategy itself, as before.
	c = newRollout(t)
	c.recreate()
	old := c.rss[name(c, imageA, 0)]
	if err := c.controller.scaleDownWithoutPods(c.deployments["foobar"], old); err != nil || old.Spec.Replicas != 2 {
		t.Errorf("%d replicas, %v", old.Spec.Replicas, err)
	}
}

func TestHasNoPods(t *testing.T) {
	for _, x := range []struct {
		spec, status         int
		generation, observed int64
		want                 bool
	}{
		{0, 0, 1, 1, true},
		{1, 0, 1, 1, false}, // scaled up by somebody
		{0, 1, 1, 1, false}, // pods are stopped
		{0, 0, 2, 1, false}, // the ReplicaSet controller may be making pods
	} {
		c := newRollout(t)
		rs := clone(c.rss[name(c, imageA, 0)]).(*extensions.ReplicaSet)
		c.rss = nil // no pods
		rs.Spec.Replicas, rs.Status.Replicas = x.spec, x.status
		rs.Generation, rs.Status.ObservedGeneration = x.generation, x.observed
		if got, err := c.controller.hasNoPods(rs); err != nil || got != x.want {
			t.Errorf("%+v: got %v, %v", x, got, err)
		}
	}
}

// What the user wants has changed since the cache was filled: no old replica
// set moves for a release that is not wanted any more.
func TestNoMoveForAnOldRelease(t *testing.T) {
	for what, change := range map[string]func(d *extensions.Deployment){
		"paused":      func(d *extensions.Deployment) { d.Spec.Paused = true },
		"new release": func(d *extensions.Deployment) { d.Spec.Template.Spec.Containers[0].Image = imageC },
	} {
		c := newRollout(t)
		c.recreate()
		c.release(imageC)
		c.settle()
		before := c.describe()
		c.release(imageB)
		c.fillCaches()
		c.staleDeployment = true
		d := c.deployments["foobar"]
		change(d)
		d.Generation++
		c.putDeployment(d)
		for i := 0; i < 5; i++ {
			c.sync()
		}
		if now := strings.Replace(c.describe(), "201703301250=0", "201703301250=2", 1); now != before {
			t.Errorf("%s: got %s, want %s", what, now, before)
		}
	}
}

// stopAfter lets writes of ReplicaSets come through until there have been n,
// and then none: the controller was killed.
func (c *cluster) stopAfter(n int) (undo func()) {
	for _, verb := range []string{"create", "update", "delete"} {
		c.client.PrependReactor(verb, "replicasets", func(action core.Action) (bool, runtime.Object, error) {
			if n == 0 {
				return true, nil, errors.NewInternalError(fmt.Errorf("killed"))
			}
			_, obj, err := c.react(action)
			if err == nil {
				n--
			}
			return true, obj, err
		})
	}
	return func() { c.client.ReactionChain = c.client.ReactionChain[3:] }
}

func TestMoveIsInterrupted(t *testing.T) {
	for n := 0; n < 6; n++ {
		for _, stock := range []bool{false, true} {
			c := newRollout(t)
			c.recreate()
			c.release(imageB)
			undo := c.stopAfter(n)
			for i := 0; i < 10; i++ {
				c.sync()
			}
			undo()
			when := fmt.Sprintf("stopped after %d writes", n)
			if stock { // takes over and goes on; it may be stuck as ever, and kills nothing
				restore := features.SetForTest(features.HashCollision, false)
				c.restart()
				rolled := strings.Contains(c.describe(), "201703211640")
				for i := 0; i < 10; i++ {
					c.sync()
				}
				if now := c.describe(); rolled && !strings.Contains(now, "201703211640=2@count 0") {
					t.Errorf("%s: stock made it %s", when, now)
				}
				restore()
			}
			c.restart()
			c.settle()
			c.expect(when, "201703151133=0@count 1, 201703211640=2@count 0", 0)
		}
	}
}

func TestRecreateRollback(t *testing.T) {
	c := newRollout(t)
	c.recreate()
	c.release(imageB)
	c.settle()
	for i, want := range []string{
		"201703151133=2@count 0, 201703211640=0@count 1",
		"201703151133=0@count 1, 201703211640=2@count 0",
		"201703151133=2@count 0, 201703211640=0@count 1",
	} {
		rollbackTo(c, 0)
		c.expectErrors("undo", c.settle())
		c.expect(fmt.Sprintf("undo %d", i), want, 0)
		revision, _ := deploymentutil.Revision(c.rss[name(c, []string{imageA, imageB}[i%2], 0)])
		if d := c.deployments["foobar"].Annotations[deploymentutil.RevisionAnnotation]; d != fmt.Sprint(revision) || revision != int64(3+i) {
			t.Errorf("undo %d: revision %d, the deployment says %s", i, revision, d)
		}
	}
	defer features.SetForTest(features.HashCollision, false)()
	c.restart()
	c.expectErrors("left", c.settle())
	c.expect("left", "201703151133=2@count 0, 201703211640=0@count 1", 0)
}

// A roll-back that is asked for before the release was rolled out makes its
// replica set first; it must not wait for pods that nobody removes.
func TestRollbackOfAnUnfinishedRecreate(t *testing.T) {
	c := newRollout(t)
	c.recreate()
	c.release(imageC)
	c.settle()
	c.release(imageA)
	c.settle()
	c.release(imageB)
	revision, _ := deploymentutil.Revision(c.rss[name(c, imageC, 0)])
	rollbackTo(c, revision)
	c.settle()
	c.expect("rolled back", "201703151133=0@count 0, 201703211640=0@count 1, 201703301250=2@count 0", 1)
}

// counted returns a cluster whose Deployment runs under a counted name.
func countedRollout(t *testing.T) *cluster {
	c := newRollout(t)
	c.release(imageB)
	c.settle()
	c.expect("counted", "201703151133=0@count 0, 201703211640=2@count 1", 1)
	return c
}

// A Deployment that has a counted name with pods keeps both, also when its
// strategy changes, until it is scaled to 0 and up again.
func TestComingHome(t *testing.T) {
	for _, recreate := range []bool{true, false} {
		c := countedRollout(t)
		if recreate {
			c.recreate()
		}
		scale := func(n int) {
			d := c.deployments["foobar"]
			d.Spec.Replicas = n
			d.Generation++
			c.putDeployment(d)
			c.expectErrors(fmt.Sprintf("scaled to %d", n), c.settle())
		}
		c.restart()
		c.settle()
		c.expect("with pods", "201703151133=0@count 0, 201703211640=2@count 1", 1)
		scale(3)
		c.expect("scaled up", "201703151133=0@count 0, 201703211640=3@count 1", 1)
		scale(0)
		c.expect("scaled to 0", "201703151133=0@count 0, 201703211640=0@count 1", 1)
		scale(2)
		c.expect("home", "201703151133=0@count 1, 201703211640=2@count 0", 1)
		defer features.SetForTest(features.HashCollision, false)()
		c.restart()
		c.expectErrors("left", c.settle())
		c.expect("left", "201703151133=0@count 1, 201703211640=2@count 0", 1)
		features.SetForTest(features.HashCollision, true)
	}
}

func TestNotComingHome(t *testing.T) {
	for what, change := range map[string]func(*cluster){
		"paused": func(c *cluster) { c.deployments["foobar"].Spec.Paused = true },
		"gate":   func(c *cluster) { features.SetForTest(features.HashCollision, false) },
		"foreign": func(c *cluster) {
			rs := c.rss[name(c, imageA, 0)]
			rs.Labels = map[string]string{"name": "somebody-else"}
		},
		"another release's hash": func(c *cluster) {
			rs := clone(c.rss[name(c, imageB, 1)]).(*extensions.ReplicaSet)
			delete(c.rss, name(c, imageB, 1))
			rs.Name, rs.Labels = "foobar-7", nil
			rs.Spec.Selector.MatchLabels[extensions.DefaultDeploymentUniqueLabelKey] = "7"
			rs.Spec.Template.Labels[extensions.DefaultDeploymentUniqueLabelKey] = "7"
			c.putRS(rs)
		},
		"other form": func(c *cluster) {
			rs := c.rss[name(c, imageA, 0)]
			rs.Spec.Selector.MatchLabels[extensions.DefaultDeploymentUniqueLabelKey] = "7"
			rs.Spec.Template.Labels[extensions.DefaultDeploymentUniqueLabelKey] = "7"
		},
	} {
		defer features.SetForTest(features.HashCollision, true)()
		features.SetForTest(features.HashCollision, true)
		c := countedRollout(t)
		c.recreate()
		d := c.deployments["foobar"]
		d.Spec.Replicas = 0
		c.putDeployment(d)
		c.settle()
		change(c)
		rs := c.rss["foobar-7"]
		if rs == nil {
			rs = c.rss[name(c, imageB, 1)]
		}
		c.deployments["foobar"].Spec.Replicas = 2
		c.restart()
		for i := 0; i < 10; i++ {
			c.sync()
		}
		if now := c.rss[rs.Name]; now == nil || now.UID != rs.UID {
			t.Errorf("%s: %s is gone: %s", what, rs.Name, c.describe())
		} else if stands := what == "paused" || what == "gate"; !stands && now.Spec.Replicas != 2 {
			t.Errorf("%s: %s is not used: %s", what, rs.Name, c.describe())
		}
	}
}

func TestForeignReplicaSetWithRecreate(t *testing.T) {
	c := newRollout(t)
	c.recreate()
	before := c.putRS(c.foreign(imageC))
	c.release(imageC)
	c.settle()
	if now := c.rss[before.Name]; now == nil || now.UID != before.UID {
		t.Errorf("it was replaced: %+v", now)
	}
	c.expectEvents("foreign", reasonNameForeign)
	for _, e := range c.recorder.Events {
		if strings.Contains(e, reasonNameForeign) && !strings.Contains(e, "pause this deployment before") {
			t.Errorf("no warning in %q", e)
		}
	}
}

// The cache still has the old replica set under the name when the new one has
// it, and the history limit removes old ones by name.
func TestHistoryLimitWithAStaleCache(t *testing.T) {
	for _, recreate := range []bool{true, false} {
		c := newRollout(t)
		if recreate {
			c.recreate()
		}
		c.release(imageC)
		c.settle()
		limit := 0
		c.deployments["foobar"].Spec.RevisionHistoryLimit = &limit
		c.fillCaches()
		c.staleRSs = true
		c.release(imageB)
		var uid string
		for i := 0; i < 6; i++ {
			if i == 2 { // with Recreate the old one is scaled down first
				c.staleRSs = false
				c.fillCaches()
				c.staleRSs = true
			}
			c.sync()
			if rs := c.rss[name(c, imageB, 0)]; rs != nil && deploymentutil.HasTemplateOf(c.deployments["foobar"], rs) {
				if uid == "" {
					uid = string(rs.UID)
				}
				if string(rs.UID) != uid {
					t.Errorf("it was deleted and made again")
				}
			} else if uid != "" {
				t.Fatalf("sync %d deleted it: %s", i, c.describe())
			}
		}
		if uid == "" {
			t.Errorf("it was not made: %s", c.describe())
		}
		c.staleRSs = false
		c.settle()
		c.expect("caches are back", "201703211640=2@count 0", 0)
	}
}

func TestMoveNamesAreTaken(t *testing.T) {
	c := newRollout(t)
	c.recreate()
	other := c.foreign(imageC)
	other.Name = name(c, imageA, 1)
	c.putRS(other)
	c.release(imageB)
	c.settle()
	delete(c.rss, other.Name)
	c.expect("another name", "201703151133=0@count 2, 201703211640=2@count 0", 0)
}
