// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// TestHoldfastHoldUnready: what the first status of a new process says of a container
// that is to be replaced.
func TestHoldfastHoldUnready(t *testing.T) {
	for _, tc := range []struct {
		name                    string
		listed, stored, changed bool
		away, static, gateOff   bool
		mirror, optOut          bool
		expect                  bool
	}{
		{name: "nothing changed", listed: true, stored: true, expect: true},
		{name: "changed while no kubelet was there", listed: true, stored: true, changed: true, expect: true},
		{name: "made not ready by the process before", listed: false, stored: false, changed: true, expect: false},
		{name: "the same, and the kubelet's list is older", listed: true, stored: false, changed: true, expect: false},
		{name: "the list has it not ready, no answer", listed: false, changed: true, away: true, expect: false},
		{name: "the list has it ready, no answer", listed: true, changed: true, away: true, expect: true},
		{name: "static, the mirror pod is not there yet", listed: true, changed: true, away: true, static: true, expect: false},
		{name: "static, a ready mirror pod", listed: true, changed: true, away: true, static: true, mirror: true, expect: true},
		{name: "put back meanwhile", listed: false, stored: false, expect: true},
		{name: "opted out", listed: false, stored: false, changed: true, optOut: true, expect: true},
		{name: "gate off", listed: false, stored: false, changed: true, gateOff: true, expect: true},
	} {
		r := newReplacing(t, nil)
		if tc.optOut {
			r.pod.Annotations = map[string]string{optOutAnnotation: "*"}
		}
		ready := *r.pod.Status.DeepCopy()
		r.pod.Status.ContainerStatuses[0].Ready = tc.listed
		r.stored.Status.ContainerStatuses[0].Ready = tc.stored
		if tc.static {
			mirror := r.pod.DeepCopy()
			r.kl.podManager.DeletePod(r.pod)
			r.pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: "file"}
			r.kl.podManager.AddPod(r.pod)
			if tc.mirror {
				mirror.UID = "mirror"
				mirror.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: "api", kubetypes.ConfigMirrorAnnotationKey: "x"}
				r.kl.podManager.AddPod(mirror)
			}
		}
		if tc.away {
			r.setAway(fmt.Errorf("away"))
		}
		if tc.changed {
			r.runtime.changed = replacedC
		}
		if tc.gateOff {
			utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=false", features.UnreadyBeforeReplace))
		}
		r.kl.settleReplacement(r.pod, r.podStatus)
		// Without a readiness probe this is what a sync makes of it.
		r.kl.statusManager.SetPodStatus(r.pod, ready)
		utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.UnreadyBeforeReplace))
		assert.Equal(t, tc.expect, r.cachedReady(), tc.name)
		r.stop()
	}
}

// TestHoldfastHoldUnreadyEnds: a container that was found not ready does not stay so
// for ever because its replacement cannot begin; one whose replacement began does.
func TestHoldfastHoldUnreadyEnds(t *testing.T) {
	hold := unreadyMaxHold
	defer func() { unreadyMaxHold = hold }()
	for _, begun := range []bool{false, true} {
		r := newReplacing(t, nil)
		r.runtime.changed = replacedC
		r.stored.Status.ContainerStatuses[0].Ready = false
		unreadyMaxHold = 300 * time.Millisecond
		r.publish()
		putBack := waitsEnded(t, "put-back")
		r.publish()
		assert.False(t, r.cachedReady(), "held")
		if begun {
			assert.True(t, r.prepare(true))
		}
		time.Sleep(unreadyMaxHold)
		r.publish()
		assert.Equal(t, !begun, r.cachedReady(), "its replacement began: %v", begun)
		assert.Equal(t, putBack, waitsEnded(t, "put-back"))
		// When nothing stands in the way any more, the API server is told first.
		assert.True(t, r.prepare(true))
		assert.False(t, r.cachedReady())
		assert.False(t, r.storedReady())
		r.stop()
	}
}

// TestHoldfastPutOffEnds: a container that is not ready because it was about to be replaced, and
// whose replacement was put off by news and does not begin again, is ready again after a
// while; syncs that come to it keep it not ready. So is one whose kill failed, if no sync comes
// to it again.
func TestHoldfastPutOffEnds(t *testing.T) {
	hold := unreadyMaxHold
	defer func() { unreadyMaxHold = hold }()
	unreadyMaxHold = 300 * time.Millisecond
	r := newReplacing(t, map[string]string{drainAnnotation: "300"})
	defer r.stop()
	r.publish()
	r.runtime.changed = replacedC
	for i := 0; i < 3; i++ {
		r.workers.podLock.Lock()
		r.workers.lastUndeliveredWorkUpdate[r.pod.UID] = UpdatePodOptions{}
		r.workers.podLock.Unlock()
		assert.False(t, r.prepare(true), "killed during its drain-seconds")
		time.Sleep(unreadyMaxHold / 2)
		r.publish()
		assert.False(t, r.cachedReady(), "sync %d", i)
	}
	// From now on something keeps the syncs from coming so far.
	time.Sleep(unreadyMaxHold)
	r.publish()
	assert.True(t, r.cachedReady(), "not ready without an end")

	r.workers.podLock.Lock()
	delete(r.workers.lastUndeliveredWorkUpdate, r.pod.UID)
	r.workers.podLock.Unlock()
	r.pod.Annotations = nil
	assert.True(t, r.prepare(true))
	time.Sleep(unreadyMaxHold)
	r.publish()
	assert.False(t, r.cachedReady(), "its kill has begun")
	// The kill failed, and the next sync comes so far.
	assert.True(t, r.prepare(true))
	time.Sleep(unreadyMaxHold)
	r.publish()
	assert.False(t, r.cachedReady(), "it is killed again")
	// It failed again, and from now on something keeps the syncs from coming so far.
	time.Sleep(unreadyMaxHold)
	r.publish()
	assert.True(t, r.cachedReady(), "not ready without an end after a kill that failed")
}

// TestHoldfastHoldUnreadyAsksOnce: the first sync of a pod asks the API server once for all
// its containers, and no longer than it has no news. Then the kubelet's copy counts.
func TestHoldfastHoldUnreadyAsksOnce(t *testing.T) {
	defer func(most, poll time.Duration) { unreadyMaxAsk, unreadyAskPoll = most, poll }(unreadyMaxAsk, unreadyAskPoll)
	for _, tc := range []struct {
		name       string
		most, poll time.Duration
		hang       bool
		news       bool
		optOut     string
		expect     int
	}{
		{name: "answered", most: time.Minute, poll: time.Millisecond, expect: 1},
		{name: "opted out", most: time.Minute, poll: time.Minute, optOut: "*", expect: 0},
		{name: "hangs", most: 200 * time.Millisecond, poll: time.Minute, hang: true, expect: 1},
		{name: "hangs, and there is news", most: time.Minute, poll: 50 * time.Millisecond, hang: true, news: true, expect: 1},
	} {
		unreadyMaxAsk, unreadyAskPoll = tc.most, tc.poll
		r := newReplacing(t, map[string]string{optOutAnnotation: tc.optOut})
		r.pod.Status.ContainerStatuses[0].Ready = false // in the kubelet's list
		for i := 0; i < 30; i++ {
			id := kubecontainer.ContainerID{Type: "test", ID: fmt.Sprintf("c%d", i)}
			r.runtime.changed = append(r.runtime.changed, kuberuntime.ReplacedContainer{ID: id, Name: id.ID})
		}
		goOn := make(chan struct{})
		asked, hang := make(chan bool, 100), tc.hang
		r.kl.statusManager = &askedStatus{UnreadyMarking: r.kl.statusManager.(status.UnreadyMarking), Manager: r.kl.statusManager, ask: func() {
			asked <- true
			if hang {
				<-goOn
			}
		}}
		if tc.news {
			r.workers.UpdatePod(&UpdatePodOptions{Pod: r.pod, UpdateType: kubetypes.SyncPodKill, KillPodOptions: &KillPodOptions{}})
		}
		begin := time.Now()
		r.kl.settleReplacement(r.pod, r.podStatus)
		assert.True(t, time.Since(begin) < 10*time.Second, "%s: %v", tc.name, time.Since(begin))
		assert.Len(t, asked, tc.expect, tc.name)
		close(goOn)
		r.stop()
	}
}

// askedStatus is a status manager that says when it asks for a pod.
type askedStatus struct {
	status.UnreadyMarking
	status.Manager
	ask func()
}

func (s *askedStatus) PublishedPod(namespace, name string) (*v1.Pod, error) {
	s.ask()
	return s.UnreadyMarking.PublishedPod(namespace, name)
}
