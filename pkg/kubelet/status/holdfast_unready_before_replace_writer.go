// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"net/http"
	"time"

	"github.com/golang/glog"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/format"
)

// The limit of the requests that write marks. A status takes two, a GET and a write. The
// kubelet's own limit is 5 a second with a burst of 10 by default, for everything that
// it asks: with it the last of 20 pods would be acknowledged after 6 s.
const (
	unreadyQPS   = 50
	unreadyBurst = 50

	// After a conflict, and after any other error, the writer tries again so much later.
	unreadyConflictRetry = 100 * time.Millisecond
	unreadyErrorRetry    = time.Second
)

// unreadyRequestTimeout bounds one request. It is a variable for tests.
var unreadyRequestTimeout = 10 * time.Second

// podsGetter is the client that writes marks: the kubelet's own connections and credentials,
// its own limit of requests.
func (u *unreadyMarks) podsGetter(base corev1.CoreV1Interface) corev1.PodsGetter {
	u.clientOnce.Do(func() {
		u.client = base
		own, ok := base.RESTClient().(*rest.RESTClient)
		if !ok || own == nil { // a test's
			return
		}
		limited := *own
		limited.Throttle = flowcontrol.NewTokenBucketRateLimiter(unreadyQPS, unreadyBurst)
		bounded := http.Client{}
		if own.Client != nil {
			bounded = *own.Client
		}
		bounded.Timeout = unreadyRequestTimeout
		bounded.Transport = answerAtOnce{bounded.Transport}
		limited.Client = &bounded
		u.client = corev1.New(&limited)
	})
	return u.client
}

// answerAtOnce takes from an answer when to come again: rest.Request would sleep for that,
// up to ten times, and see neither that marks are gone nor that a status is newer.
type answerAtOnce struct{ http.RoundTripper }

func (a answerAtOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := a.RoundTripper
	if transport == nil {
		transport = http.DefaultTransport
	}
	response, err := transport.RoundTrip(r)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// writeUnready sends the newest status of a pod until the API server has acknowledged
// its marks, or until there are none. One goroutine a pod runs it. It knows its marks,
// as the pod's status may be dropped and made anew while a request is under way: what it
// has sent by then says nothing of the versions of the new one.
func (m *manager) writeUnready(podUID types.UID, marks *podMarks) {
	for {
		status, send := m.nextUnready(podUID, marks)
		if !send {
			return
		}
		send, err := m.sendUnready(podUID, marks, status.podNamespace, status.podName)
		switch {
		case !send:
			return
		case errors.IsConflict(err):
			glog.V(2).Infof("Status of pod %q that makes a container not ready before it is replaced: %v; trying again",
				format.PodDesc(status.podName, status.podNamespace, podUID), err)
			time.Sleep(unreadyConflictRetry)
		case err != nil:
			glog.Warningf("Failed to update status for pod %q, whose container is to be replaced: %v",
				format.PodDesc(status.podName, status.podNamespace, podUID), err)
			time.Sleep(unreadyErrorRetry)
		}
	}
}

// nextUnready returns the newest status of the pod, and whether the writer is to send it;
// if not, the writer is over.
func (m *manager) nextUnready(podUID types.UID, marks *podMarks) (status versionedPodStatus, send bool) {
	m.podStatusesLock.RLock()
	defer m.podStatusesLock.RUnlock()
	status, found := m.podStatuses[podUID]
	// A later status shares the start time of this one, and normalises it in place.
	status.status = *status.status.DeepCopy()
	return status, m.unready.next(podUID, marks, status.version, found)
}

// sendUnready sends the newest status, as manager.syncPod does, and reports whether the
// writer is to go on. A pod that is not there needs no status: nobody can have its address.
//
// The status is taken after the GET. One that is newer, and that the manager's own loop
// writes, is then written after the GET too, so that the write of this one is a conflict.
func (m *manager) sendUnready(podUID types.UID, marks *podMarks, namespace, name string) (goOn bool, err error) {
	client := m.unready.podsGetter(m.kubeClient.CoreV1()).Pods(namespace)
	pod, err := client.Get(name, metav1.GetOptions{})
	status, send := m.nextUnready(podUID, marks)
	if !send {
		return false, nil
	}
	if errors.IsNotFound(err) {
		m.unready.sent(marks, status.version, "")
		return true, nil
	}
	if err != nil {
		return true, err
	}
	translated := m.podManager.TranslatePodUID(pod.UID)
	if _, mirror := pod.Annotations[kubetypes.ConfigMirrorAnnotationKey]; mirror && translated == kubetypes.ResolvedPodUID(pod.UID) {
		// The static pod of this mirror pod is known once the kubelet's list of pods has come.
		return true, fmt.Errorf("the kubelet does not know the mirror pod %q yet", pod.UID)
	}
	if len(translated) > 0 && translated != kubetypes.ResolvedPodUID(podUID) {
		m.unready.sent(marks, status.version, "") // deleted, and created again
		return true, nil
	}
	if m.resettle(podUID, &pod.Status, &status.status) {
		return true, nil // another readiness was put right: there is a newer status
	}
	pod, err = m.publishUnready(client, podUID, pod, status)
	if err != nil {
		return true, err
	}
	glog.V(3).Infof("Status for pod %q updated successfully, before a container is replaced: (%d, %+v)", format.Pod(pod), status.version, status.status)
	m.unready.sent(marks, status.version, pod.UID)
	return true, nil
}

// next says whether the version is to be sent; if not, the writer of p is over.
func (u *unreadyMarks) next(podUID types.UID, p *podMarks, version uint64, found bool) bool {
	u.Lock()
	defer u.Unlock()
	if u.pods[podUID] != p {
		return false
	}
	if !found || p.version == 0 || p.acknowledged() {
		p.writing = false
		return false
	}
	p.sending = version
	return true
}

// sent notes that the API server has taken the version that the writer of p sent, and keeps for
// the manager's own loop to whom it was sent; apiUID is "" if there was nobody to send it to.
func (u *unreadyMarks) sent(p *podMarks, version uint64, apiUID types.UID) {
	u.Lock()
	defer u.Unlock()
	u.tookLocked(p, version)
	if apiUID != "" && p.taken == version {
		p.sentTo = apiUID
	}
}

// PublishedPod implements UnreadyMarking.
func (m *manager) PublishedPod(namespace, name string) (*v1.Pod, error) {
	pod, err := m.unready.podsGetter(m.kubeClient.CoreV1()).Pods(namespace).Get(name, metav1.GetOptions{})
	if errors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return pod, nil
}
