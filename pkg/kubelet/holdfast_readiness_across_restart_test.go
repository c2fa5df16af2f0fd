// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
)

// stoppingRuntime is a runtime that can say what its next sync stops: nothing.
type stoppingRuntime struct {
	*containertest.FakeRuntime
}

func (stoppingRuntime) ContainersToStop(*v1.Pod, *kubecontainer.PodStatus) func(kubecontainer.ContainerID) bool {
	return func(kubecontainer.ContainerID) bool { return false }
}

// TestHoldfastReadinessAcrossRestartStatus: a kubelet that has just started makes,
// of a pod that was published as ready, a status that is ready, with the old
// transition time; of one that was not, one that is not.
func TestHoldfastReadinessAcrossRestartStatus(t *testing.T) {
	for _, ready := range []bool{true, false} {
		testKubelet := newTestKubelet(t, false)
		kl := testKubelet.kubelet
		kl.containerRuntime = stoppingRuntime{testKubelet.fakeRuntime}
		kl.probeManager = prober.NewManager(kl.statusManager, results.NewManager(), nil, kubecontainer.NewRefManager(), &record.FakeRecorder{})

		since := metav1.NewTime(time.Unix(1500000000, 0).UTC())
		condition := map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[ready]
		pod := podWithUIDNameNs("12345678", "foo", "new")
		pod.Spec.Containers = []v1.Container{{Name: "c", ReadinessProbe: &v1.Probe{PeriodSeconds: 3600, FailureThreshold: 3}}}
		pod.Status = v1.PodStatus{
			Phase:      v1.PodRunning,
			StartTime:  &since,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: condition, LastTransitionTime: since}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", ContainerID: "test://c", Ready: ready,
				State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: since}}}},
		}
		kl.podManager.AddPod(pod)
		podStatus := &kubecontainer.PodStatus{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace,
			ContainerStatuses: []*kubecontainer.ContainerStatus{{ID: kubecontainer.ContainerID{Type: "test", ID: "c"}, Name: "c",
				State: kubecontainer.ContainerStateRunning, StartedAt: since.Time}}}

		for _, withWorker := range []bool{false, true} {
			if withWorker {
				kl.probeManager.AddPod(pod)
			}
			status := kl.generateAPIPodStatus(pod, podStatus)
			kl.statusManager.SetPodStatus(pod, status)
			assert.Equal(t, ready, status.ContainerStatuses[0].Ready, "worker: %v", withWorker)
			cached, _ := kl.statusManager.GetPodStatus(pod.UID)
			_, c := podutil.GetPodCondition(&cached, v1.PodReady)
			assert.Equal(t, condition, c.Status)
			assert.True(t, c.LastTransitionTime.Time.Equal(since.Time), "transition time moved to %v", c.LastTransitionTime)
		}
		kl.probeManager.RemovePod(pod)
		testKubelet.Cleanup()
	}
}
