// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollision

import (
	"context"
	"fmt"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

func init() {
	labkit.Register(labkit.Lab{
		Name:    "hash-collision-replicaset-owner",
		Folder:  "hash-collision",
		Summary: "a ReplicaSet of the computed name that is another's, nobody's or being deleted is taken for the Deployment's own",
		Plan: func(labkit.Profile) []string {
			return []string{
				"learn the name and the template that a Deployment's ReplicaSet gets, and delete both",
				"create a ReplicaSet of that name and template: of another Deployment; of nobody, outside the selector; of nobody, held in deletion by a finalizer",
				"create the Deployment again",
				"oracle: does the Deployment control a ReplicaSet with all its replicas, and was the other one left alone?",
				"then roll a Deployment between two templates of one fnv32a hash: must work in every variant",
			}
		},
		Needs: needs(),
		Run:   runOwner,
	})
}

func runOwner(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	c, err := start(ctx, e)
	if err != nil {
		return labkit.Result{}, err
	}
	other, err := c.workload("Deployment", "other", "v1.0.0")
	if err != nil {
		return labkit.Result{}, err
	}
	for _, path := range [][]string{{"metadata", "labels"}, {"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
		set(other, map[string]any{"app": "other"}, path...)
	}
	if other, err = c.Create(ctx, kube.Deployments, ns, other); err != nil {
		return labkit.Result{}, err
	}
	if _, err = c.waitOwned(ctx, kube.ReplicaSets, other.GetUID(), 1, 30*time.Second); err != nil {
		return labkit.Result{}, err
	}

	bad := []string{}
	for i, kase := range []struct {
		what   string
		change func(rs *kube.Object)
		hold   bool
	}{
		{what: "another Deployment's", change: func(rs *kube.Object) {
			rs.SetLabels(map[string]string{"app": "other"})
			ownedBy(rs, other)
		}},
		{what: "nobody's, outside the selector", change: func(rs *kube.Object) { rs.SetLabels(map[string]string{"app": "nobody"}) }},
		{what: "nobody's, being deleted", change: func(rs *kube.Object) { rs.SetFinalizers([]string{"lab.holdfast/hold"}) }, hold: true},
	} {
		own, taken, err := c.preCreated(ctx, fmt.Sprintf("web%d", i), kase.change, kase.hold)
		if err != nil {
			return labkit.Result{}, fmt.Errorf("%s: %w", kase.what, err)
		}
		e.Fact("%s: %s", kase.what, own)
		if taken {
			bad = append(bad, kase.what)
		}
	}

	if err := c.rollPair(ctx); err != nil {
		return labkit.Result{}, fmt.Errorf("rollout between two templates of one hash: %w", err)
	}
	e.Fact("rollout between two templates of one fnv32a hash, there and back: completed")
	if err := c.alive(); err != nil {
		return labkit.Result{}, err
	}
	if len(bad) > 0 {
		return labkit.ReproducedBecause("a Deployment has no ReplicaSet of its own, or another's was scaled: %s", strings.Join(bad, "; ")), nil
	}
	return labkit.AbsentBecause("every Deployment got a ReplicaSet of its own under another name, and the one in the way was left alone"), nil
}

// preCreated puts a ReplicaSet in the way of a new Deployment of that name. It
// returns what came of it, in words, and whether that is the incident.
func (c *cluster) preCreated(ctx context.Context, name string, change func(*kube.Object), hold bool) (string, bool, error) {
	d, err := c.workload("Deployment", name, "v2.0.0")
	if err != nil {
		return "", false, err
	}
	// A selector of its own, so that the cases do not meet.
	for _, path := range [][]string{{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
		set(d, map[string]any{"app": name}, path...)
	}
	set(d, int64(2), "spec", "replicas")

	first, err := c.Create(ctx, kube.Deployments, ns, d)
	if err != nil {
		return "", false, err
	}
	rss, err := c.waitOwned(ctx, kube.ReplicaSets, first.GetUID(), 1, 30*time.Second)
	if err != nil {
		return "", false, err
	}
	inTheWay := copyOf(&rss[0])
	if err := c.remove(ctx, kube.Deployments, first, kube.ReplicaSets); err != nil {
		return "", false, err
	}

	set(inTheWay, int64(0), "spec", "replicas")
	inTheWay.SetAnnotations(nil)
	change(inTheWay)
	c.Step("create ReplicaSet %s, then the Deployment", inTheWay.GetName())
	if _, err := c.Create(ctx, kube.ReplicaSets, ns, inTheWay); err != nil {
		return "", false, err
	}
	if hold {
		if err := c.Delete(ctx, kube.ReplicaSets, ns, inTheWay.GetName()); err != nil {
			return "", false, err
		}
	}
	second, err := c.Create(ctx, kube.Deployments, ns, d)
	if err != nil {
		return "", false, err
	}
	// The Deployment is known to have been synced, past the creation, when its
	// status says so; then it has 10 seconds for the rest.
	if _, err := c.WaitFor(ctx, kube.Deployments, ns, name, 30*time.Second, "synced", func(o *kube.Object) (bool, error) {
		return kube.Int(o, "status", "observedGeneration") >= kube.Int(o, "metadata", "generation") ||
			kube.Int(o, "status", "collisionCount") > 0, nil
	}); err != nil {
		return "", false, err
	}
	own, wait := c.waitOwned(ctx, kube.ReplicaSets, second.GetUID(), 1, 10*time.Second)
	now, err := c.Get(ctx, kube.ReplicaSets, ns, inTheWay.GetName())
	if err != nil {
		return "", false, err
	}
	live, err := c.Get(ctx, kube.Deployments, ns, name)
	if err != nil {
		return "", false, err
	}
	if hold { // let it go, and see whether the Deployment notices
		if _, err := c.PatchMerge(ctx, kube.ReplicaSets, ns, inTheWay.GetName(), `{"metadata":{"finalizers":null}}`); err != nil {
			return "", false, err
		}
		if err := c.WaitGone(ctx, kube.ReplicaSets, ns, inTheWay.GetName(), 30*time.Second); err != nil {
			return "", false, err
		}
		if wait != nil {
			own, wait = c.waitOwned(ctx, kube.ReplicaSets, second.GetUID(), 1, 10*time.Second)
		}
	}
	scaled := kube.Int(now, "spec", "replicas") != 0 || kube.Int(now, "metadata", "generation") > 1+map[bool]int64{true: 1}[hold]
	words := fmt.Sprintf("collisionCount %d", kube.Int(live, "status", "collisionCount"))
	if wait != nil {
		words += ", no ReplicaSet of its own"
		if hold {
			words += ", also 10 s after the other one was gone"
		}
	}
	if scaled {
		words += ", and it scaled the other one"
	}
	if wait != nil || scaled {
		return words, true, nil
	}
	return fmt.Sprintf("%s, own ReplicaSet %s with %d replicas", words, own[0].GetName(), kube.Int(&own[0], "spec", "replicas")), false, nil
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
		c.Step("roll to %s, which has the hash of the template before", tag)
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
	if n := kube.Int(live, "status", "collisionCount"); n != 1 {
		return fmt.Errorf("collisionCount is %d, want 1: the two templates did not collide here", n)
	}
	return nil
}
