// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// sentStatus is the status that the manager's own loop sends. It sends a PATCH, which the API server
// takes whatever came in between: an older status that waits for the kubelet's limit of requests
// would make a marked container ready again after its marks were acknowledged.
type sentStatus struct {
	sync.Mutex
	podUID  types.UID
	version uint64
}

// begin notes the status and returns what ends it. It is called from that loop only, before it asks
// outdatedUnready: what does not see that a newer one is sent is seen by the writer of that.
func (s *sentStatus) begin(podUID types.UID, version uint64) (end func()) {
	s.set(podUID, version)
	return func() { s.set("", 0) }
}

func (s *sentStatus) set(podUID types.UID, version uint64) {
	s.Lock()
	defer s.Unlock()
	s.podUID, s.version = podUID, version
}

// older says whether the loop sends a status of the pod that is older than version.
func (s *sentStatus) older(podUID types.UID, version uint64) bool {
	s.Lock()
	defer s.Unlock()
	return s.podUID == podUID && s.version < version
}

// sentPoll is how often the writer of marks looks whether the loop has sent an older status.
const sentPoll = 20 * time.Millisecond

// publishUnready writes a status with marks to pod, which was read before it. It lets an older
// status that the manager's own loop sends go first; outdatedUnready lets none begin after that. Its
// own PATCH is of the resource version that was read, so that a write in between is a conflict.
func (m *manager) publishUnready(client corev1.PodInterface, podUID types.UID, pod *v1.Pod, status versionedPodStatus) (*v1.Pod, error) {
	for m.sending.older(podUID, status.version) {
		time.Sleep(sentPoll)
	}
	patch, err := unreadyPatch(pod, mergePodStatus(pod.Status, status.status))
	if err != nil {
		return nil, err
	}
	return client.Patch(pod.Name, types.StrategicMergePatchType, patch, "status")
}

// noteAnswered is noteTaken, with what the API server has since then. The loop's PATCH has what
// differs from the pod that the loop read: where the writer of marks wrote in between, that stands.
// Then the writer has not done its last write yet.
func (m *manager) noteAnswered(podUID types.UID, version uint64, answer *v1.Pod) {
	for _, c := range answer.Status.ContainerStatuses {
		if (c.Ready || podutil.IsPodReady(answer)) && m.unready.has(podUID, c.ContainerID) {
			return
		}
	}
	m.noteTaken(podUID, version)
}

// unreadyPatch is what changes the status of pod, if it is still that pod in that version.
func unreadyPatch(pod *v1.Pod, status v1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(v1.Pod{Status: pod.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID, ResourceVersion: pod.ResourceVersion}, Status: status})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, v1.Pod{})
}
