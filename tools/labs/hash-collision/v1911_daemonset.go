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
	"holdfast/tools/labkit/process"
)

func init() {
	labkit.Register(labkit.Lab{
		Name:    "hash-collision-daemonset-crash",
		Folder:  "hash-collision",
		Summary: "a DaemonSet update to a template of the same hash kills the controller manager",
		Plan: func(labkit.Profile) []string {
			return []string{
				"create a DaemonSet of one template of a pair with one fnv32a hash, wait for its ControllerRevision",
				"update it to the other template of the pair",
				"oracle: does the controller manager run on, and is there a second revision with collisionCount 1?",
				"if it died: start it again; oracle: does it die again?",
			}
		},
		Needs: needs(),
		Run:   runDaemonSet,
	})
}

func runDaemonSet(ctx context.Context, e *labkit.Env) (labkit.Result, error) {
	c, err := start(ctx, e)
	if err != nil {
		return labkit.Result{}, err
	}
	ds, err := c.workload("DaemonSet", "web", pairOld)
	if err != nil {
		return labkit.Result{}, err
	}
	if ds, err = c.Create(ctx, kube.DaemonSets, ns, ds); err != nil {
		return labkit.Result{}, err
	}
	revs, err := c.waitOwned(ctx, kube.ControllerRevisions, ds.GetUID(), 1, 30*time.Second)
	if err != nil {
		return labkit.Result{}, err
	}
	e.Step("update the DaemonSet from %s to %s; revision %s holds the name", pairOld, pairNew, revs[0].GetName())
	if _, err := c.PatchStrategic(ctx, kube.DaemonSets, ns, "web", tagPatch(pairNew)); err != nil {
		return labkit.Result{}, err
	}
	_, wait := c.waitOwned(ctx, kube.ControllerRevisions, ds.GetUID(), 2, 15*time.Second)
	if c.cm.Alive() {
		if wait != nil {
			return labkit.Result{}, fmt.Errorf("the controller manager runs, but %w", wait)
		}
		live, err := c.WaitFor(ctx, kube.DaemonSets, ns, "web", 10*time.Second, "collisionCount 1", func(o *kube.Object) (bool, error) {
			return kube.Int(o, "status", "collisionCount") == 1, nil
		})
		if err != nil {
			return labkit.Result{}, err
		}
		return labkit.AbsentBecause("the controller manager runs on; 2 revisions, collisionCount %d", kube.Int(live, "status", "collisionCount")), c.alive()
	}
	if !c.api.Alive() {
		return labkit.Result{}, c.alive()
	}
	how := func(p *process.Proc) (string, error) {
		if log := p.LogTail(400); !strings.Contains(log, "invalid memory address") || !strings.Contains(log, "syncDaemonSet") {
			return "", fmt.Errorf("the controller manager ended for another reason: %v; log %s", p.Err(), p.LogPath)
		}
		return fmt.Sprint(p.Err()), nil
	}
	first, err := how(c.cm.Proc)
	if err != nil {
		return labkit.Result{}, err
	}
	e.Fact("the controller manager ended: %s, nil pointer in syncDaemonSet", first)

	// It bumped the count before it died, so a restart finds a free name, as
	// soon as its cache has the count.
	e.Step("start the controller manager again")
	again, err := e.StartControllerManager(ctx, c.api, kube.ControllerManagerConfig{Program: e.UnderTest(v1911, "kube-controller-manager"), Name: "kube-controller-manager-again"})
	if err != nil {
		return labkit.Result{}, err
	}
	_, wait = c.waitOwned(ctx, kube.ControllerRevisions, ds.GetUID(), 2, 60*time.Second)
	e.Fact("after a restart: alive %t, second revision: %t", again.Alive(), wait == nil)
	return labkit.ReproducedBecause("the controller manager died in the sync of one DaemonSet"), nil
}
