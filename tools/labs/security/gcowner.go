// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

var gcOwner = row{
	fix:     "gc-foreign-owner",
	gate:    "GCForeignOwnerCheck",
	summary: "objects of one namespace make the garbage collector delete pods of another namespace whose owner exists",
	starts:  "create a ConfigMap and a pod that it owns, and another namespace",
	does:    "create in the other namespace a ConfigMap with two owners, one that never existed and one with the UID of the first ConfigMap and another name; then a ConfigMap whose owner has the UID of the pod, and remove that owner again",
	oracle:  "the pod is deleted; absent: the first foreign ConfigMap is collected, the garbage collector processed the pod, which is counted, and kept it; the pod's owner survives in every variant",
	start:   startGCOwner,
	look:    lookGCOwner,
	judge:   judgeGCOwner,
}

// collected is what the garbage collector left.
type collected struct {
	Owner, Victim bool // are there
	Counted       int  // how often an owner was looked for again
}

const foreign = "gc-foreign"

func startGCOwner(ctx context.Context, l *lab) error {
	if err := l.pods(ctx, kube.Namespace(foreign), kube.ConfigMap("gc-owner", nil)); err != nil {
		return err
	}
	owner, err := l.c.Client.Get(ctx, kube.ConfigMaps, ns, "gc-owner")
	if err != nil {
		return err
	}
	victim := pod("gc-victim", nil)
	victim.OwnerReferences = []metav1.OwnerReference{ownedBy("ConfigMap", "gc-owner", owner.GetUID())}
	return l.pods(ctx, victim)
}

func ownedBy(kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: name, UID: uid, BlockOwnerDeletion: new(true)}
}

func lookGCOwner(ctx context.Context, l *lab) error {
	owner, err := l.c.Client.Get(ctx, kube.ConfigMaps, ns, "gc-owner")
	if err != nil {
		return err
	}
	victim, err := l.c.Client.Get(ctx, kube.Pods, ns, "gc-victim")
	if err != nil {
		return err
	}
	of := func(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
		c := kube.ConfigMap(name, nil)
		c.OwnerReferences = owners
		return c
	}
	if err := l.c.Client.Make(ctx, foreign, of("first",
		ownedBy("ConfigMap", "none", "00000000-0000-0000-0000-00000000beef"), ownedBy("ConfigMap", "nope", owner.GetUID()))); err != nil {
		return err
	}
	if err := l.c.Client.WaitGone(ctx, kube.ConfigMaps, foreign, "first", patience); err != nil {
		return err
	}
	if err := l.c.Client.Make(ctx, foreign, of("second", ownedBy("Pod", "nope", victim.GetUID()))); err != nil {
		return err
	}
	if _, err := l.c.Client.PatchMerge(ctx, kube.ConfigMaps, foreign, "second", `{"metadata":{"ownerReferences":null}}`); err != nil {
		return err
	}
	var o collected
	there := func(r kube.GVR, name string, uid types.UID) (bool, error) {
		got, err := l.c.Client.Get(ctx, r, ns, name)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && got.GetUID() == uid && got.GetDeletionTimestamp() == nil, err
	}
	// The pod goes, or is looked at and stays. On ours the counter tells which.
	if err := wait.Until(ctx, "the garbage collector processes the pod", patience, func(context.Context) (bool, error) {
		var err error
		if o.Counted, err = l.managerCounted(ctx, "holdfast_gc_foreign_owner_kept_total 0"); err != nil {
			return false, err
		}
		o.Counted = 1 - o.Counted
		if o.Victim, err = there(kube.Pods, "gc-victim", victim.GetUID()); err != nil {
			return false, err
		}
		return !o.Victim || l.e.Variant == labkit.Ours && o.Counted > 0, nil
	}); err != nil {
		return err
	}
	if o.Victim {
		// The deletion, if there is one, comes after the counted look.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(3 * time.Second):
		}
		if o.Victim, err = there(kube.Pods, "gc-victim", victim.GetUID()); err != nil {
			return err
		}
	}
	if o.Owner, err = there(kube.ConfigMaps, "gc-owner", owner.GetUID()); err != nil {
		return err
	}
	if l.e.Variant != labkit.Ours {
		o.Counted = 0
	}
	l.e.Record(o)
	return nil
}

func judgeGCOwner(h *history.History) finding {
	o := history.One[collected](h)
	if !o.Owner {
		return cannotTell("the pod's owner is gone")
	}
	saw := "the pod of an existing owner still exists"
	if !o.Victim {
		saw = "the pod of an existing owner was deleted"
	}
	return finding{happened: !o.Victim, saw: saw}.
		counting(h, "holdfast_gc_foreign_owner_kept_total", float64(o.Counted), 1).
		measure("pods of a living owner that were deleted", map[bool]float64{false: 1}[o.Victim], "")
}
