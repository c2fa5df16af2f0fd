// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	apps "k8s.io/api/apps/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/controller/history"
)

// The types and constants of the release's API that the tests use.
type (
	statefulSetStatus         = apps.StatefulSetStatus
	statefulSetUpdateStrategy = apps.StatefulSetUpdateStrategy
	rollingUpdateStrategy     = apps.RollingUpdateStatefulSetStrategy
)

const (
	rollingUpdateType = apps.RollingUpdateStatefulSetStrategyType
	onDeleteType      = apps.OnDeleteStatefulSetStrategyType
)

func rolloutPods(factory informers.SharedInformerFactory) *fakeStatefulPodControl {
	return newFakeStatefulPodControl(factory.Core().V1().Pods(), factory.Apps().V1().StatefulSets())
}

func rolloutControl(r *rollout, factory informers.SharedInformerFactory) StatefulSetControlInterface {
	return NewDefaultStatefulSetControl(r, r, history.NewFakeHistory(factory.Apps().V1().ControllerRevisions()), &record.FakeRecorder{})
}
