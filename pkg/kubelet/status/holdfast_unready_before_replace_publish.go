// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// publishUnready writes a status with marks to pod, which was read before it. As the manager's own
// loop it sends what was read, so that an older or newer write in between is a conflict.
func (m *manager) publishUnready(client corev1.PodInterface, _ types.UID, pod *v1.Pod, status versionedPodStatus) (*v1.Pod, error) {
	pod.Status = status.status
	return client.UpdateStatus(pod)
}
