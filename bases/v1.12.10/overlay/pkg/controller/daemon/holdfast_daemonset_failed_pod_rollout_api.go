// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	apps "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/controller/daemon/util"
)

// daemonSet is the type of DaemonSets that this release's controller works with.
type daemonSet = apps.DaemonSet

const rollingUpdateType = apps.RollingUpdateDaemonSetStrategyType

// templateGeneration is how often the template of ds has changed. The API server enters it as an
// annotation in each DaemonSet of apps/v1. Without it, it is 0, and every node counts, as in stock.
func templateGeneration(ds *daemonSet) int64 {
	generation, err := util.GetTemplateGeneration(ds)
	if err != nil || generation == nil {
		return 0
	}
	return *generation
}

func podUpdated(ds *daemonSet, pod *v1.Pod, hash string) bool {
	generation, err := util.GetTemplateGeneration(ds)
	return err == nil && util.IsPodUpdated(pod, hash, generation)
}
