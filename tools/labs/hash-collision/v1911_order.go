// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/metrics"
	"holdfast/tools/labkit/wait"
)

// equalLabel has the StatefulSets by whether their labels are below 2^31.
type equalLabel struct {
	cluster
	pods   *kube.Recorder
	chosen map[bool][]labelled
}

type labelled struct {
	name      string
	zero, one uint32
}

// recounted is a StatefulSet whose collisionCount was moved from 0 to 1: its hash
// labels for either, its revisions after that, and its pod before and after.
type recounted struct {
	Name      string
	Zero, One uint32
	Revisions int
	Was, Is   types.UID
}

// each is how many StatefulSets there are on either side of 2^31.
const each = 2

func (c *equalLabel) choose(ctx context.Context) error {
	kube.StartFakeNodes(ctx, c.Client)
	var err error
	if c.pods, err = c.Client.Record(ctx, kube.Pods, ns); err != nil {
		return err
	}
	c.chosen = map[bool][]labelled{}
	for i := 0; len(c.chosen[true]) < each || len(c.chosen[false]) < each; i++ {
		if i == 100 {
			return fmt.Errorf("100 StatefulSets and no labels on both sides of 2^31: %v", c.chosen)
		}
		name := fmt.Sprintf("db%d", i)
		o, err := c.workload("StatefulSet", name, fmt.Sprintf("v1.%d.0", i))
		if err != nil {
			return err
		}
		for _, path := range [][]string{{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
			set(o, map[string]any{"app": name}, path...)
		}
		if o, err = c.Create(ctx, kube.StatefulSets, ns, o); err != nil {
			return err
		}
		revs, err := c.waitOwned(ctx, kube.ControllerRevisions, o.GetUID(), 1, 30*time.Second)
		if err != nil {
			return err
		}
		zero, err := revisionHash(revs[0].Object["data"], 0)
		if err != nil {
			return err
		}
		one, err := revisionHash(revs[0].Object["data"], 1)
		if err != nil {
			return err
		}
		if got := revs[0].GetLabels()[hashLabel]; got != strconv.Itoa(int(zero)) {
			return fmt.Errorf("revision %s has label %s, the lab computes %d", revs[0].GetName(), got, zero)
		}
		below := zero < 1<<31 && one < 1<<31
		if above := zero >= 1<<31 && one >= 1<<31; !below && !above || len(c.chosen[below]) == each {
			continue
		}
		c.chosen[below] = append(c.chosen[below], labelled{name, zero, one})
	}
	return nil
}

func (c *equalLabel) recount(ctx context.Context) error {
	for _, below := range []bool{true, false} {
		for _, l := range c.chosen[below] {
			pod := l.name + "-0"
			if err := wait.Until(ctx, pod+" ready and the rollout complete", 60*time.Second, func(ctx context.Context) (bool, error) {
				o, err := c.Get(ctx, kube.StatefulSets, ns, l.name)
				return err == nil && kube.Int(o, "status", "readyReplicas") == 1, err
			}); err != nil {
				return err
			}
			before, err := c.Get(ctx, kube.Pods, ns, pod)
			if err != nil {
				return err
			}
			if _, err := c.PatchMerge(ctx, kube.StatefulSets, ns, l.name, `{"status":{"collisionCount":1}}`, "status"); err != nil {
				return err
			}
			o, err := c.Get(ctx, kube.StatefulSets, ns, l.name)
			if err != nil {
				return err
			}
			// Touched until the controller has seen a change that came after the count.
			if err := c.settle(ctx, l.name, 3); err != nil {
				return err
			}
			revs, err := c.owned(ctx, kube.ControllerRevisions, o.GetUID())
			if err != nil {
				return err
			}
			r := recounted{Name: l.name, Zero: l.zero, One: l.one, Revisions: len(revs), Was: before.GetUID()}
			if after := c.pods.Latest(ns, pod); after != nil {
				r.Is = after.GetUID()
			}
			c.Env.Record(r)
		}
	}
	return nil
}

func judgeEqualLabel(h *history.History) labkit.Outcome {
	var facts []string
	seen, second := map[bool]int{}, map[bool]int{} // by: below 2^31?
	for _, r := range history.Of[recounted](h) {
		below := r.Zero < 1<<31 && r.One < 1<<31
		if above := r.Zero >= 1<<31 && r.One >= 1<<31; !below && !above || r.Revisions == 0 || r.Was == "" {
			return labkit.InconclusiveBecause("%+v proves nothing", r)
		}
		seen[below]++
		if r.Revisions > 1 {
			second[below]++
		}
		facts = append(facts, fmt.Sprintf("labels %d and %d: %d revision(s), pod replaced: %t", r.Zero, r.One, r.Revisions, r.Is != r.Was))
	}
	var res labkit.Outcome
	switch {
	case seen[true] != each || seen[false] != each:
		res = labkit.InconclusiveBecause("%d StatefulSets with labels below 2^31 and %d above, want %d each", seen[true], seen[false], each)
	case second[true]+second[false] > 0:
		res = labkit.ReproducedBecause("templates got a second revision after collisionCount had changed: %d of %d with labels below 2^31, %d of %d above",
			second[true], each, second[false], each)
	default:
		res = labkit.AbsentBecause("no template got a second revision, on either side of 2^31")
	}
	res.Facts = facts
	res.Measure("StatefulSets", float64(seen[true]+seen[false]), "")
	res.Measure("templates with a second revision", float64(second[true]+second[false]), "")
	return res
}

// settle has the StatefulSet synced n times: it scales it up by a replica and
// back, which only a sync answers in the status, and touches it in between.
func (c *cluster) settle(ctx context.Context, name string, n int) error {
	for i := 0; i < n; i++ {
		for _, replicas := range []int64{2, 1} {
			if err := c.touch(ctx, kube.StatefulSets, name, i); err != nil {
				return err
			}
			if _, err := c.PatchMerge(ctx, kube.StatefulSets, ns, name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)); err != nil {
				return err
			}
			if _, err := c.WaitFor(ctx, kube.StatefulSets, ns, name, 60*time.Second, fmt.Sprintf("with %d replicas", replicas), func(o *kube.Object) (bool, error) {
				return kube.Int(o, "status", "replicas") == replicas && kube.Int(o, "status", "readyReplicas") == replicas, nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// stableOrder has a StatefulSet with two revisions of one number.
type stableOrder struct {
	cluster
	pods *kube.Recorder
	set  *kube.Object
	rev  *kube.Object
}

// touches is how often the StatefulSet is changed, so that it is synced with both.
// enoughSyncs is how often it must be synced: the controller's queue may merge some.
const (
	touches     = 50
	enoughSyncs = touches * 4 / 5
)

// synced is what was seen in the time of the syncs.
type synced struct {
	// Syncs is how much the count of the controller's queue grew of what it worked off.
	Syncs int
	// Updates is status.updateRevision in each version of the StatefulSet, in order.
	Updates []string
	// Made is how often pod db-0 was made, Gaps how often a watch was lost.
	Made, Gaps int
}

func (c *stableOrder) create(ctx context.Context) error {
	kube.StartFakeNodes(ctx, c.Client)
	var err error
	if c.pods, err = c.Client.Record(ctx, kube.Pods, ns); err != nil {
		return err
	}
	o, err := c.workload("StatefulSet", "db", "v1.0.0")
	if err != nil {
		return err
	}
	if c.set, err = c.Create(ctx, kube.StatefulSets, ns, o); err != nil {
		return err
	}
	revs, err := c.waitOwned(ctx, kube.ControllerRevisions, c.set.GetUID(), 1, 30*time.Second)
	if err != nil {
		return err
	}
	c.rev = &revs[0]
	_, err = c.WaitFor(ctx, kube.StatefulSets, ns, "db", 60*time.Second, "ready", func(o *kube.Object) (bool, error) {
		return kube.Int(o, "status", "readyReplicas") == 1, nil
	})
	return err
}

func (c *stableOrder) sync(ctx context.Context) error {
	sets, err := c.Client.Record(ctx, kube.StatefulSets, ns)
	if err != nil {
		return err
	}
	twin := copyOf(c.rev)
	twin.SetName(c.rev.GetName() + "-twin")
	c.Step("create %s, a twin of %s with the same data and Revision %d", twin.GetName(), c.rev.GetName(), kube.Int(c.rev, "revision"))
	if _, err := c.Create(ctx, kube.ControllerRevisions, ns, ownedBy(twin, c.set)); err != nil {
		return err
	}
	// The roll to the younger of the two, which both variants may do, is over
	// when the first syncs are.
	if err := c.settle(ctx, "db", 2); err != nil {
		return err
	}
	began, podsBegan := len(sets.Events()), len(c.pods.Events())
	o := synced{}
	if err := c.Sweep.Undisturbed(ctx, func() (err error) {
		o.Syncs, err = c.touchAll(ctx)
		return err
	}); err != nil {
		return err
	}
	o.Gaps = sets.Gaps() + c.pods.Gaps()
	for _, ev := range sets.Events()[began:] {
		if ev.Object != nil {
			o.Updates = append(o.Updates, kube.String(ev.Object, "status", "updateRevision"))
		}
	}
	for _, ev := range c.pods.Events()[podsBegan:] {
		if ev.Type == "ADDED" && ev.Object.GetName() == "db-0" {
			o.Made++
		}
	}
	c.Env.Record(o)
	return nil
}

// touchAll changes the StatefulSet, and says how often it was synced then.
func (c *stableOrder) touchAll(ctx context.Context) (int, error) {
	before, err := c.worked(ctx)
	if err != nil {
		return 0, err
	}
	for i := 0; i < touches; i++ {
		if err := c.touch(ctx, kube.StatefulSets, "db", 1000+i); err != nil {
			return 0, err
		}
		time.Sleep(50 * time.Millisecond) // so that the controller's queue does not merge two touches; no oracle
	}
	if err := c.settle(ctx, "db", 1); err != nil {
		return 0, err
	}
	after, err := c.worked(ctx)
	return int(after - before), err
}

// worked is how many syncs of StatefulSets the controller manager has ended.
func (c *stableOrder) worked(ctx context.Context) (float64, error) {
	page, err := metrics.Get(ctx, c.k.ControllerManager.URL+"/metrics")
	if err != nil {
		return 0, err
	}
	count, n := page.Sum("statefulset_work_duration_count")
	if n == 0 {
		err = errors.New("the controller manager has no metric statefulset_work_duration")
	}
	return count, err
}

func judgeOrder(h *history.History) labkit.Outcome {
	o := history.One[synced](h)
	changes, names := 0, map[string]bool{}
	for i, u := range o.Updates {
		if i > 0 && u != o.Updates[i-1] {
			changes++
		}
		names[u] = true
	}
	var res labkit.Outcome
	switch {
	case changes > 0 || o.Made > 0:
		res = labkit.ReproducedBecause("without a change of the template, the update revision changed %d times and the pod was replaced %d times", changes, o.Made)
	case o.Syncs < enoughSyncs || len(o.Updates) == 0 || o.Gaps > 0:
		res = labkit.InconclusiveBecause("%d syncs, %d versions of the StatefulSet, watches lost %d times", o.Syncs, len(o.Updates), o.Gaps)
	default:
		res = labkit.AbsentBecause("%d syncs, one update revision, no pod replaced", o.Syncs)
	}
	res.Measure("syncs", float64(o.Syncs), "")
	res.Measure("changes of the update revision", float64(changes), "")
	res.Measure("replacements of the pod", float64(o.Made), "")
	res.Facts = []string{fmt.Sprintf("%d syncs: status.updateRevision changed %d times between %v; pod db-0 was recreated %d times", o.Syncs, changes, slices.Sorted(maps.Keys(names)), o.Made)}
	return res
}
