// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollision

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return append(revisionsLabs(), daemonsetLab(), ownerLab())
}

func revisionsLabs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "hash-collision-forced-conflicts",
		Folder:  "hash-collision",
		Summary: "because of a delayed cache, a StatefulSet creates its revision again and again, and a DaemonSet uses the revision of another owner",
		Needs:   needs(),
		Test:    []labkit.Variant{labkit.Ours},
		Steps: func(e *labkit.Env) []labkit.Step {
			c := &forcedConflicts{cluster: cluster{Env: e}}
			steps := []labkit.Step{
				{Text: "start etcd, kube-apiserver and, behind a proxy that delays the watch events of ControllerRevisions, the controller manager under test", Do: c.startBehindProxy},
				{Text: fmt.Sprintf("create a StatefulSet and change it until %d creations of a revision have met AlreadyExists", conflicts(e.Profile)), Do: c.touchSet},
				{Text: "delete it and let the events through", Do: c.letThrough},
			}
			for _, k := range []struct {
				kind string
				gvr  kube.GVR
			}{{"DaemonSet", kube.DaemonSets}, {"StatefulSet", kube.StatefulSets}} {
				steps = append(steps, labkit.Step{Text: "create a ControllerRevision of another owner, with the same name and data, before a new " + k.kind,
					Do: func(ctx context.Context) error { return c.foreignRevision(ctx, k.kind, k.gvr) }})
			}
			return append(steps, c.aliveStep())
		},
		Oracle: labkit.Oracle{Text: []string{"at most 2 ControllerRevisions of one template", "DaemonSet and StatefulSet each control a revision of their own, and the other owner's revision is unchanged"}, Judge: judgeConflicts},
	}, {
		Name:    "hash-collision-equal-label",
		Folder:  "hash-collision",
		Summary: "after a collision, a StatefulSet finds its revision again only if the revision's hash label is large enough",
		Needs:   needs(),
		Test:    []labkit.Variant{labkit.Ours},
		Steps: func(e *labkit.Env) []labkit.Step {
			c := &equalLabel{cluster: cluster{Env: e}}
			return []labkit.Step{c.startStep(),
				{Text: "create StatefulSets until two have hash labels below 2^31 for the collision counts 0 and 1, and two have labels above 2^31", Do: c.choose},
				{Text: "set their collisionCount to 1, as a collision does", Do: c.recount},
				c.aliveStep()}
		},
		Oracle: labkit.Oracle{Text: []string{"no template gets a second ControllerRevision, whatever the label"}, Judge: judgeEqualLabel},
	}, {
		Name:    "hash-collision-stable-order",
		Folder:  "hash-collision",
		Summary: "two revisions of equal number make a StatefulSet roll back and forth",
		Needs:   needs(),
		Test:    []labkit.Variant{labkit.Ours},
		Steps: func(e *labkit.Env) []labkit.Step {
			c := &stableOrder{cluster: cluster{Env: e}}
			return []labkit.Step{c.startStep(),
				{Text: "create a StatefulSet whose pods become ready at once", Do: c.create},
				{Text: fmt.Sprintf("create a second ControllerRevision with the same data and number, and change the StatefulSet %d times", touches), Do: c.sync},
				c.aliveStep()}
		},
		Oracle: labkit.Oracle{Text: []string{"status.updateRevision stops changing, and the pods are not replaced"}, Judge: judgeOrder},
	}}
}

// conflicts is how many AlreadyExists are forced.
func conflicts(p labkit.Profile) int {
	return labkit.Pick(p, 100, 1000)
}

// forcedConflicts is the control plane with a proxy before the controller manager.
type forcedConflicts struct {
	cluster
	proxy   *kube.Proxy
	release func()
	set     *kube.Object
}

// revisionsPath is how the path of ControllerRevisions ends.
const revisionsPath = "/controllerrevisions"

// touched is what a StatefulSet had after creations that met AlreadyExists.
type touched struct {
	Conflicts, Revisions int
	CollisionCount       int64
}

// foreignMet is what came of a ControllerRevision of another owner in the way of a new
// object. Was and Is are the resourceVersions of the other's.
type foreignMet struct {
	Kind           string
	Was, Is        string
	Own            int // revisions of its own
	CollisionCount int64
}

func (c *forcedConflicts) startBehindProxy(ctx context.Context) error {
	k, proxy, err := c.StartProxied(ctx, v1911)
	if err != nil {
		return err
	}
	c.k, c.Client, c.proxy = k, k.Client, proxy
	c.release = c.proxy.Hold(func(path string) bool { return strings.HasSuffix(path, revisionsPath) })
	if k.ControllerManager, err = c.StartControllerManager(ctx, c.proxy.Before(k.APIServer), kube.ControllerManagerConfig{Program: c.UnderTest(v1911, "kube-controller-manager"),
		ExtraArgs: []string{"--kube-api-qps=1000", "--kube-api-burst=1000"}}); err != nil {
		return err
	}
	return c.WaitPodsAdmitted(ctx, ns, 60*time.Second)
}

// conflicted is how many creations of a revision met AlreadyExists.
func (c *forcedConflicts) conflicted() int {
	return c.proxy.Count(func(r kube.ProxyRequest) bool {
		return r.Method == http.MethodPost && r.Status == http.StatusConflict && strings.HasSuffix(r.Path, revisionsPath)
	})
}

func (c *forcedConflicts) touchSet(ctx context.Context) error {
	o, err := c.workload("StatefulSet", "db", "v1.0.0")
	if err != nil {
		return err
	}
	if c.set, err = c.Create(ctx, kube.StatefulSets, ns, o); err != nil {
		return err
	}
	want, i := conflicts(c.Profile), 0
	if err := wait.Until(ctx, fmt.Sprintf("%d conflicts", want), 3*time.Minute, func(ctx context.Context) (bool, error) {
		began := time.Now()
		for before := c.conflicted(); c.conflicted() == before && ctx.Err() == nil; {
			if err := c.touch(ctx, kube.StatefulSets, "db", i); err != nil {
				return false, err
			}
			i++
			if time.Since(began) > cacheKnows {
				if _, err := c.PatchStrategic(ctx, kube.StatefulSets, ns, "db", tagPatch(fmt.Sprintf("v1.0.%d", i))); err != nil {
					return false, err
				}
				began = time.Now()
			}
		}
		return c.conflicted() >= want, nil
	}); err != nil {
		return err
	}
	revs, err := c.owned(ctx, kube.ControllerRevisions, c.set.GetUID())
	if err != nil {
		return err
	}
	live, err := c.Get(ctx, kube.StatefulSets, ns, "db")
	if err != nil {
		return err
	}
	c.Env.Record(touched{c.conflicted(), mostOfOne(revs), kube.Int(live, "status", "collisionCount")})
	return nil
}

// cacheKnows is how long no creation of a revision meets AlreadyExists before the StatefulSet gets
// another template: a controller manager that was started again has listed the revision.
const cacheKnows = 10 * time.Second

// mostOfOne is how many of the revisions are of one template, at most.
func mostOfOne(revs []kube.Object) int {
	of, most := map[string]int{}, 0
	for i := range revs {
		data := fmt.Sprint(kube.Field(&revs[i], "data"))
		of[data]++
		most = max(most, of[data])
	}
	return most
}

func (c *forcedConflicts) letThrough(ctx context.Context) error {
	if err := c.remove(ctx, kube.StatefulSets, c.set, kube.ControllerRevisions); err != nil {
		return err
	}
	c.release()
	return nil
}

func judgeConflicts(h *history.History) labkit.Outcome {
	t := history.One[touched](h)
	facts := []string{fmt.Sprintf("StatefulSet: %d creations met AlreadyExists; %d ControllerRevisions of one template, collisionCount %d", t.Conflicts, t.Revisions, t.CollisionCount)}
	if want := conflicts(labkit.Profile(h.Profile)); t.Conflicts < want || t.Revisions == 0 {
		return labkit.InconclusiveBecause("%d creations of %d met AlreadyExists, and there are %d revisions", t.Conflicts, want, t.Revisions)
	}
	var bad, kinds []string
	if t.Revisions > 2 {
		bad = append(bad, fmt.Sprintf("%d conflicts left %d revisions of one template", t.Conflicts, t.Revisions))
	}
	for _, f := range history.Of[foreignMet](h) {
		kinds = append(kinds, f.Kind)
		words := fmt.Sprintf("%d revision(s) of its own, collisionCount %d", f.Own, f.CollisionCount)
		switch {
		case f.Was == "" || f.Is == "":
			return labkit.InconclusiveBecause("%s: the other owner's revision was not recorded", f.Kind)
		case f.Is != f.Was:
			words = "the other owner's revision was changed"
			bad = append(bad, f.Kind+": "+words)
		case f.Own == 0:
			words = "it has no revision of its own and uses the other owner's revision"
			bad = append(bad, f.Kind+": "+words)
		}
		facts = append(facts, fmt.Sprintf("revision of another owner before a new %s: %s", f.Kind, words))
	}
	res := labkit.AbsentBecause("%d conflicts left %d revision(s); a revision of another owner was neither used nor changed", t.Conflicts, t.Revisions)
	switch {
	case !slices.Equal(kinds, []string{"DaemonSet", "StatefulSet"}):
		res = labkit.InconclusiveBecause("a revision of another owner was created before a new %q", kinds)
	case len(bad) > 0:
		res = labkit.ReproducedBecause("%s", strings.Join(bad, "; "))
	}
	res.Measure("creations that met AlreadyExists", float64(t.Conflicts), "")
	res.Measure("revisions of one template", float64(t.Revisions), "")
	res.Facts = facts
	return res
}

// foreignRevision puts a ControllerRevision of another owner in the way of a
// new object of kind, and records what came of it.
func (c *cluster) foreignRevision(ctx context.Context, kind string, r kube.GVR) error {
	name := "foreign-" + strings.ToLower(kind)
	o, err := c.workload(kind, name, "v3.0.0")
	if err != nil {
		return err
	}
	owner, err := c.Create(ctx, kube.ConfigMaps, ns, &kube.Object{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}})
	if err != nil {
		return err
	}
	first, err := c.Create(ctx, r, ns, o)
	if err != nil {
		return err
	}
	revs, err := c.waitOwned(ctx, kube.ControllerRevisions, first.GetUID(), 1, 30*time.Second)
	if err != nil {
		return err
	}
	foreign := copyOf(&revs[0])
	if err := c.remove(ctx, r, first, kube.ControllerRevisions); err != nil {
		return err
	}
	foreign, err = c.Create(ctx, kube.ControllerRevisions, ns, ownedBy(foreign, owner))
	if err != nil {
		return err
	}
	second, err := c.Create(ctx, r, ns, o)
	if err != nil {
		return err
	}
	if _, err := c.WaitFor(ctx, r, ns, name, 30*time.Second, "synced", func(o *kube.Object) (bool, error) {
		return kube.Int(o, "status", "observedGeneration") > 0 || kube.Int(o, "status", "collisionCount") > 0, nil
	}); err != nil {
		return err
	}
	seen := foreignMet{Kind: kind, Was: foreign.GetResourceVersion()}
	err = wait.Until(ctx, "a revision of its own", 10*time.Second, func(ctx context.Context) (bool, error) {
		own, err := c.owned(ctx, kube.ControllerRevisions, second.GetUID())
		seen.Own = len(own)
		return seen.Own > 0, err
	})
	if ctx.Err() != nil {
		return err
	}
	after, err := c.Get(ctx, kube.ControllerRevisions, ns, foreign.GetName())
	if err != nil {
		return err
	}
	live, err := c.Get(ctx, r, ns, name)
	if err != nil {
		return err
	}
	seen.Is, seen.CollisionCount = after.GetResourceVersion(), kube.Int(live, "status", "collisionCount")
	c.Env.Record(seen)
	return nil
}
