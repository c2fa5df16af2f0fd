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
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

func daemonsetLab() labkit.Lab {
	return labkit.Lab{
		Name:    "hash-collision-daemonset-crash",
		Folder:  "hash-collision",
		Summary: "the update of a DaemonSet to a template with the same hash makes the controller manager exit",
		Needs:   needs(),
		Test:    []labkit.Variant{labkit.Ours},
		Steps: func(e *labkit.Env) []labkit.Step {
			d := &daemonSet{cluster: cluster{Env: e}}
			return []labkit.Step{d.startStep(),
				{Text: "create a DaemonSet with one of two templates that have the same fnv32a hash, and wait for its ControllerRevision", Do: d.create},
				{Text: "update it to the other template; if the controller manager exits, start it again", Do: d.update},
			}
		},
		Oracle: labkit.Oracle{Text: []string{"the controller manager keeps running, and there is a second revision with collisionCount 1"}, Judge: judgeDaemonSet},
	}
}

type daemonSet struct {
	cluster
	ds *kube.Object
}

// dsUpdated is what there was some time after the update.
type dsUpdated struct {
	ManagerAlive, APIAlive bool
	Revisions              int // of the DaemonSet
	CollisionCount         int64
	Exit                   string // of the controller manager
	NilPointer             bool   // in syncDaemonSet, in its log
}

// startedAgain is after a restart of a controller manager that died.
type startedAgain struct{ Alive, SecondRevision bool }

func (d *daemonSet) create(ctx context.Context) error {
	o, err := d.workload("DaemonSet", "web", pairOld)
	if err != nil {
		return err
	}
	if d.ds, err = d.Create(ctx, kube.DaemonSets, ns, o); err != nil {
		return err
	}
	_, err = d.waitOwned(ctx, kube.ControllerRevisions, d.ds.GetUID(), 1, 30*time.Second)
	return err
}

func (d *daemonSet) update(ctx context.Context) error {
	if _, err := d.PatchStrategic(ctx, kube.DaemonSets, ns, "web", tagPatch(pairNew)); err != nil {
		return err
	}
	cm := d.k.ControllerManager
	o := dsUpdated{}
	err := wait.Until(ctx, "a second revision and collisionCount 1", 25*time.Second, func(ctx context.Context) (bool, error) {
		if o.ManagerAlive = cm.Alive(); !o.ManagerAlive {
			return true, nil
		}
		own, err := d.owned(ctx, kube.ControllerRevisions, d.ds.GetUID())
		if err != nil {
			return false, err
		}
		live, err := d.Get(ctx, kube.DaemonSets, ns, "web")
		if err != nil {
			return false, err
		}
		o.Revisions, o.CollisionCount = len(own), kube.Int(live, "status", "collisionCount")
		return o.Revisions == 2 && o.CollisionCount == 1, nil
	})
	if ctx.Err() != nil {
		return err
	}
	o.ManagerAlive, o.APIAlive = cm.Alive(), d.k.APIServer.Alive()
	if !o.ManagerAlive {
		log := cm.LogTail(400)
		o.Exit, o.NilPointer = process.DescribeExit(cm.Err()), strings.Contains(log, "invalid memory address") && strings.Contains(log, "syncDaemonSet")
	}
	d.Env.Record(o)
	if o.ManagerAlive || !o.APIAlive {
		return nil
	}
	// It bumped the count before it died, so a restart finds a free name, as
	// soon as its cache has the count.
	d.Step("start the controller manager again")
	again, err := d.StartControllerManager(ctx, d.k.APIServer, kube.ControllerManagerConfig{Program: d.UnderTest(v1911, "kube-controller-manager"), Name: "kube-controller-manager-again"})
	if err != nil {
		return err
	}
	_, second := d.waitOwned(ctx, kube.ControllerRevisions, d.ds.GetUID(), 2, 60*time.Second)
	d.Env.Record(startedAgain{again.Alive(), second == nil})
	return nil
}

func judgeDaemonSet(h *history.History) labkit.Outcome {
	o := history.One[dsUpdated](h)
	switch {
	case !o.APIAlive:
		return labkit.InconclusiveBecause("the kube-apiserver ended")
	case o.ManagerAlive && o.Revisions == 2 && o.CollisionCount == 1:
		return labkit.AbsentBecause("the controller manager keeps running; 2 revisions, collisionCount %d", o.CollisionCount)
	case o.ManagerAlive:
		return labkit.InconclusiveBecause("the controller manager runs, but there are %d revisions and collisionCount %d", o.Revisions, o.CollisionCount)
	case !o.NilPointer:
		return labkit.InconclusiveBecause("the controller manager ended for another reason: %s", o.Exit)
	}
	res := labkit.ReproducedBecause("the controller manager exited in the sync of one DaemonSet")
	res.Facts = []string{fmt.Sprintf("the controller manager ended: %s, nil pointer in syncDaemonSet", o.Exit)}
	for _, a := range history.Of[startedAgain](h) {
		res.Facts = append(res.Facts, fmt.Sprintf("after a restart: alive %t, second revision: %t", a.Alive, a.SecondRevision))
	}
	return res
}
