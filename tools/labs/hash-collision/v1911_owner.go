// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollision

import (
	"context"
	"fmt"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

func ownerLab() labkit.Lab {
	return labkit.Lab{
		Name:    "hash-collision-replicaset-owner",
		Folder:  "hash-collision",
		Summary: "a Deployment uses a ReplicaSet of the computed name as its own, although that ReplicaSet has another owner, has no owner or is being deleted",
		Needs:   needs(),
		Test:    []labkit.Variant{labkit.Ours},
		Steps: func(e *labkit.Env) []labkit.Step {
			c := &cluster{Env: e}
			steps := []labkit.Step{c.startStep(), {Text: "create Deployment other and wait for its ReplicaSet", Do: c.createOther}}
			for i, k := range inTheWay {
				steps = append(steps, labkit.Step{
					Text: "find out the name and the template of a Deployment's ReplicaSet, delete both, create a ReplicaSet of that name and template, " + k.what + ", and create the Deployment again",
					Do:   func(ctx context.Context) error { return c.preCreated(ctx, fmt.Sprintf("web%d", i), k) }})
			}
			return append(steps, labkit.Step{Text: "roll a Deployment between two templates with the same fnv32a hash, there and back, which must work in every variant", Do: c.rollPair}, c.aliveStep())
		},
		Oracle: labkit.Oracle{Text: []string{"the Deployment controls a ReplicaSet with all its replicas, and the conflicting ReplicaSet was not changed"}, Judge: judgeOwner},
	}
}

// kase is a ReplicaSet in the way.
type kase struct {
	what   string
	change func(rs *kube.Object)
	hold   bool // it is being deleted, and a finalizer holds it
}

var inTheWay = []kase{
	{what: "another Deployment's", change: func(rs *kube.Object) { rs.SetLabels(map[string]string{"app": "other"}) }},
	{what: "no owner, outside the selector", change: func(rs *kube.Object) { rs.SetLabels(map[string]string{"app": "nobody"}) }},
	{what: "no owner, being deleted", change: func(rs *kube.Object) { rs.SetFinalizers([]string{"lab.holdfast/hold"}) }, hold: true},
}

// met is what came of a ReplicaSet in the way of a new Deployment.
type met struct {
	What string
	Hold bool
	// Own is the name of the ReplicaSet that the Deployment controls, "" if there is
	// none, and Replicas its spec's; OwnLater that after the other one was let go.
	Own, OwnLater  string
	Replicas       int64
	CollisionCount int64
	// OtherReplicas and OtherGeneration are of the ReplicaSet in the way, whose were 0
	// and 1, or 2 when it is held.
	OtherReplicas, OtherGeneration int64
}

// pairRolled says that a rollout between two templates of one hash went through.
type pairRolled struct{ CollisionCount int64 }

func judgeOwner(h *history.History) labkit.Outcome {
	var bad, facts, seen []string
	for _, m := range history.Of[met](h) {
		seen = append(seen, m.What)
		before := int64(1)
		if m.Hold {
			before = 2
		}
		words := fmt.Sprintf("collisionCount %d", m.CollisionCount)
		scaled, own := m.OtherReplicas != 0 || m.OtherGeneration > before, m.Own
		if own == "" {
			own = m.OwnLater
		}
		if own == "" {
			words += ", no ReplicaSet of its own"
			if m.Hold {
				words += ", also 10 s after the conflicting ReplicaSet was gone"
			}
		} else {
			words += fmt.Sprintf(", own ReplicaSet %s with %d replicas", own, m.Replicas)
		}
		if scaled {
			words += ", and it scaled the conflicting ReplicaSet"
		}
		facts = append(facts, m.What+": "+words)
		if own == "" || scaled {
			bad = append(bad, m.What)
		}
	}
	rolled := history.One[pairRolled](h)
	facts = append(facts, "rollout between two templates with the same fnv32a hash, there and back: completed")
	if rolled.CollisionCount != 1 {
		return labkit.InconclusiveBecause("collisionCount is %d, want 1: the two templates did not collide here", rolled.CollisionCount)
	}
	for i, k := range inTheWay {
		if len(seen) != len(inTheWay) || seen[i] != k.what {
			return labkit.InconclusiveBecause("seen %q, want %d cases", seen, len(inTheWay))
		}
	}
	res := labkit.AbsentBecause("every Deployment got a ReplicaSet of its own under another name, and the conflicting ReplicaSet was not changed")
	if len(bad) > 0 {
		res = labkit.ReproducedBecause("a Deployment has no ReplicaSet of its own, or scaled the conflicting ReplicaSet: %s", strings.Join(bad, "; "))
	}
	res.Facts = facts
	res.Measure("ReplicaSets in the way", float64(len(seen)), "")
	res.Measure("Deployments without a ReplicaSet of their own, or that scaled the other", float64(len(bad)), "")
	return res
}

func (c *cluster) createOther(ctx context.Context) error {
	other, err := c.workload("Deployment", "other", "v1.0.0")
	if err != nil {
		return err
	}
	for _, path := range [][]string{{"metadata", "labels"}, {"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
		set(other, map[string]any{"app": "other"}, path...)
	}
	if other, err = c.Create(ctx, kube.Deployments, ns, other); err != nil {
		return err
	}
	_, err = c.waitOwned(ctx, kube.ReplicaSets, other.GetUID(), 1, 30*time.Second)
	return err
}

// preCreated puts a ReplicaSet in the way of a new Deployment of that name, and records
// what came of it.
func (c *cluster) preCreated(ctx context.Context, name string, k kase) error {
	d, err := c.workload("Deployment", name, "v2.0.0")
	if err != nil {
		return err
	}
	// A selector of its own, so that the cases do not meet.
	for _, path := range [][]string{{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
		set(d, map[string]any{"app": name}, path...)
	}
	set(d, int64(2), "spec", "replicas")

	first, err := c.Create(ctx, kube.Deployments, ns, d)
	if err != nil {
		return err
	}
	rss, err := c.waitOwned(ctx, kube.ReplicaSets, first.GetUID(), 1, 30*time.Second)
	if err != nil {
		return err
	}
	other := copyOf(&rss[0])
	if err := c.remove(ctx, kube.Deployments, first, kube.ReplicaSets); err != nil {
		return err
	}

	set(other, int64(0), "spec", "replicas")
	other.SetAnnotations(nil)
	k.change(other)
	if other.GetLabels()["app"] == "other" {
		owner, err := c.Get(ctx, kube.Deployments, ns, "other")
		if err != nil {
			return err
		}
		ownedBy(other, owner)
	}
	c.Step("create ReplicaSet %s, then the Deployment", other.GetName())
	if _, err := c.Create(ctx, kube.ReplicaSets, ns, other); err != nil {
		return err
	}
	if k.hold {
		if err := c.Delete(ctx, kube.ReplicaSets, ns, other.GetName()); err != nil {
			return err
		}
	}
	second, err := c.Create(ctx, kube.Deployments, ns, d)
	if err != nil {
		return err
	}
	// The Deployment is known to have been synced, past the creation, when its
	// status says so; then it has 10 seconds for the rest.
	if _, err := c.WaitFor(ctx, kube.Deployments, ns, name, 30*time.Second, "synced", func(o *kube.Object) (bool, error) {
		return kube.Int(o, "status", "observedGeneration") >= kube.Int(o, "metadata", "generation") ||
			kube.Int(o, "status", "collisionCount") > 0, nil
	}); err != nil {
		return err
	}
	m := met{What: k.what, Hold: k.hold}
	own := func() (string, error) {
		rss, err := c.waitOwned(ctx, kube.ReplicaSets, second.GetUID(), 1, 10*time.Second)
		if ctx.Err() != nil {
			return "", err
		}
		if err != nil {
			return "", nil // none is what is judged
		}
		m.Replicas = kube.Int(&rss[0], "spec", "replicas")
		return rss[0].GetName(), nil
	}
	if m.Own, err = own(); err != nil {
		return err
	}
	now, err := c.Get(ctx, kube.ReplicaSets, ns, other.GetName())
	if err != nil {
		return err
	}
	m.OtherReplicas, m.OtherGeneration = kube.Int(now, "spec", "replicas"), kube.Int(now, "metadata", "generation")
	live, err := c.Get(ctx, kube.Deployments, ns, name)
	if err != nil {
		return err
	}
	m.CollisionCount = kube.Int(live, "status", "collisionCount")
	if k.hold { // let it go, and see whether the Deployment notices
		if _, err := c.PatchMerge(ctx, kube.ReplicaSets, ns, other.GetName(), `{"metadata":{"finalizers":null}}`); err != nil {
			return err
		}
		if err := c.WaitGone(ctx, kube.ReplicaSets, ns, other.GetName(), 30*time.Second); err != nil {
			return err
		}
		if m.Own == "" {
			if m.OwnLater, err = own(); err != nil {
				return err
			}
		}
	}
	c.Env.Record(m)
	return nil
}

// rollPair rolls a Deployment from one template of the colliding pair to the
// other and back.
func (c *cluster) rollPair(ctx context.Context) error {
	d, err := c.workload("Deployment", "pair", pairOld)
	if err != nil {
		return err
	}
	if d, err = c.Create(ctx, kube.Deployments, ns, d); err != nil {
		return err
	}
	rss, err := c.waitOwned(ctx, kube.ReplicaSets, d.GetUID(), 1, 30*time.Second)
	if err != nil {
		return err
	}
	if got := rss[0].GetLabels()["pod-template-hash"]; len(got) == 0 {
		return fmt.Errorf("ReplicaSet %s has no hash label", rss[0].GetName())
	}
	for i, tag := range []string{pairNew, pairOld} {
		c.Step("roll to %s, which has the same hash as the previous template", tag)
		if _, err := c.PatchStrategic(ctx, kube.Deployments, ns, "pair", tagPatch(tag)); err != nil {
			return err
		}
		want := fmt.Sprint(i + 2)
		if err := wait.Until(ctx, "a ReplicaSet of revision "+want+" with "+tag, 30*time.Second, func(ctx context.Context) (bool, error) {
			rss, err := c.owned(ctx, kube.ReplicaSets, d.GetUID())
			if err != nil {
				return false, err
			}
			for _, rs := range rss {
				image := kube.Slice(&rs, "spec", "template", "spec", "containers")[0].(map[string]any)["image"]
				if rs.GetAnnotations()["deployment.kubernetes.io/revision"] == want && strings.HasSuffix(image.(string), ":"+tag) {
					return len(rss) == 2, nil
				}
			}
			return false, fmt.Errorf("%d ReplicaSets", len(rss))
		}); err != nil {
			return err
		}
	}
	live, err := c.Get(ctx, kube.Deployments, ns, "pair")
	if err != nil {
		return err
	}
	c.Env.Record(pairRolled{kube.Int(live, "status", "collisionCount")})
	return nil
}
