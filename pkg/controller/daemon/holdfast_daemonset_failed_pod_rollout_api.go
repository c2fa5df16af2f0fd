// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"k8s.io/api/core/v1"
	extensions "k8s.io/api/extensions/v1beta1"
	"k8s.io/kubernetes/pkg/controller/daemon/util"
)

// daemonSet is the type of DaemonSets that this release's controller works with.
type daemonSet = extensions.DaemonSet

const rollingUpdateType = extensions.RollingUpdateDaemonSetStrategyType

// templateGeneration is how often the template of ds has changed.
func templateGeneration(ds *daemonSet) int64 { return ds.Spec.TemplateGeneration }

func podUpdated(ds *daemonSet, pod *v1.Pod, hash string) bool {
	return util.IsPodUpdated(ds.Spec.TemplateGeneration, pod, hash)
}
