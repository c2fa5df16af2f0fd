// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

var replacedC = []kuberuntime.ReplacedContainer{{ID: kubecontainer.ContainerID{Type: "test", ID: "c"}, Name: "c"}}

// changingRuntime says that the container c has another spec than it was started from.
type changingRuntime struct {
	*containertest.FakeRuntime
	changed []kuberuntime.ReplacedContainer
}

func (r *changingRuntime) ContainersChanged(*v1.Pod, *kubecontainer.PodStatus) []kuberuntime.ReplacedContainer {
	return r.changed
}

// replacing is a kubelet with one ready pod, published, and the API server of it.
type replacing struct {
	*testing.T
	kl        *Kubelet
	runtime   *changingRuntime
	events    *record.FakeRecorder
	workers   *podWorkers
	pod       *v1.Pod
	podStatus *kubecontainer.PodStatus
	stop      func()

	sync.Mutex
	away   error
	stored *v1.Pod
}

func newReplacing(t *testing.T, annotations map[string]string) *replacing {
	testKubelet := newTestKubelet(t, false)
	r := &replacing{T: t, kl: testKubelet.kubelet, events: record.NewFakeRecorder(100), stop: testKubelet.Cleanup}
	r.runtime = &changingRuntime{FakeRuntime: testKubelet.fakeRuntime}
	r.kl.containerRuntime = r.runtime
	r.kl.recorder = r.events
	r.pod, r.podStatus = probedPod(true, metav1.NewTime(time.Unix(1500000000, 0).UTC()))
	r.pod.Spec.Containers[0].ReadinessProbe = nil
	r.pod.Annotations = annotations
	// What was said of a pod is said once a UID, and tests share the memory.
	r.pod.UID = types.UID(fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano()))
	r.stored = r.pod.DeepCopy()
	r.kl.podManager.AddPod(r.pod)
	r.workers = newPodWorkers(func(syncPodOptions) error { return nil }, r.events, r.kl.workQueue, time.Minute, time.Minute, r.kl.podCache)
	r.workers.isWorking[r.pod.UID] = true // this test
	r.workers.podUpdates[r.pod.UID] = make(chan UpdatePodOptions, 1)
	r.kl.podWorkers = r.workers
	testKubelet.fakeKubeClient.PrependReactor("*", "pods", func(a core.Action) (bool, runtime.Object, error) {
		r.Lock()
		defer r.Unlock()
		if r.away != nil {
			return true, nil, r.away
		}
		if p := statusWritten(t, a, r.stored); p != nil {
			r.stored = p
		}
		return true, r.stored.DeepCopy(), nil
	})
	return r
}

func (r *replacing) setAway(err error) {
	r.Lock()
	defer r.Unlock()
	r.away = err
}

// publish makes a status as a sync does.
func (r *replacing) publish() {
	r.kl.settleReplacement(r.pod, r.podStatus)
	s := *r.pod.Status.DeepCopy()
	r.kl.statusManager.SetPodStatus(r.pod, s)
}

func (r *replacing) cachedReady() bool {
	s, _ := r.kl.statusManager.GetPodStatus(r.pod.UID)
	return podutil.IsPodReadyConditionTrue(s)
}

func (r *replacing) storedReady() bool {
	r.Lock()
	defer r.Unlock()
	return podutil.IsPodReady(r.stored)
}

func (r *replacing) prepare(block bool) bool { return r.kl.PrepareReplacement(r.pod, replacedC, block) }

// said counts the events with that reason so far.
func (r *replacing) said() map[string]int {
	counts := map[string]int{}
	for {
		select {
		case e := <-r.events.Events:
			counts[strings.Fields(e)[1]]++
		default:
			return counts
		}
	}
}

// shortWaits makes the bounds of the wait short.
func shortWaits(wait, most time.Duration) (restore func()) {
	w, m := unreadyWait, unreadyMaxWait
	unreadyWait, unreadyMaxWait = wait, most
	return func() { unreadyWait, unreadyMaxWait = w, m }
}

func TestHoldfastPrepareReplacement(t *testing.T) {
	r := newReplacing(t, nil)
	defer r.stop()
	r.publish()
	assert.True(t, r.prepare(true))
	assert.False(t, r.storedReady(), "killed before the API server had it not ready")
	assert.False(t, r.cachedReady())
	assert.True(t, r.prepare(true), "the next sync, if the kill failed")
	assert.Equal(t, map[string]int{unreadyEvent: 1}, r.said())

	// The container is replaced: nothing is held any more.
	r.podStatus.ContainerStatuses[0].ID.ID = "c2"
	r.pod.Status.ContainerStatuses[0].ContainerID = "test://c2"
	r.publish()
	assert.True(t, r.cachedReady())
}

func TestHoldfastPrepareReplacementPutBack(t *testing.T) {
	r := newReplacing(t, nil)
	defer r.stop()
	r.publish()
	r.setAway(fmt.Errorf("away"))
	r.runtime.changed = replacedC
	assert.False(t, r.prepare(false))
	r.publish()
	assert.False(t, r.cachedReady(), "still changed")
	r.runtime.changed = nil
	r.publish()
	assert.True(t, r.cachedReady(), "the status after the image was put back")
	r.setAway(nil)
	assert.True(t, r.prepare(true), "and changed again")
	assert.False(t, r.storedReady())
}

// TestHoldfastPrepareReplacementNews: whatever takes the reason away ends the wait for
// the API server, and the drain, at once and without a kill.
func TestHoldfastPrepareReplacementNews(t *testing.T) {
	update := func(kind kubetypes.SyncPodType) func(*replacing) {
		return func(r *replacing) {
			r.workers.UpdatePod(&UpdatePodOptions{Pod: r.pod, UpdateType: kind, KillPodOptions: &KillPodOptions{}})
		}
	}
	for name, news := range map[string]func(*replacing){
		"eviction":              update(kubetypes.SyncPodKill),
		"deleted, or put back":  update(kubetypes.SyncPodUpdate),
		"died, or not live":     update(kubetypes.SyncPodSync),
		"removed at once":       func(r *replacing) { r.kl.podManager.DeletePod(r.pod) },
		"the status is dropped": func(r *replacing) { r.kl.statusManager.RemoveOrphanedStatuses(map[types.UID]bool{}) },
	} {
		for _, draining := range []bool{false, true} {
			if draining && name == "the status is dropped" {
				continue // the first case of it
			}
			r := newReplacing(t, map[string]string{drainAnnotation: "30"})
			r.publish()
			if !draining {
				r.setAway(fmt.Errorf("away"))
			}
			result := make(chan bool)
			go func() { result <- r.prepare(true) }()
			time.Sleep(300 * time.Millisecond)
			begin := time.Now()
			news(r)
			select {
			case killable := <-result:
				assert.False(t, killable, "%s, draining %v", name, draining)
				assert.True(t, time.Since(begin) < 5*time.Second, "%s: %v", name, time.Since(begin))
				assert.Equal(t, name != "removed at once", r.workers.hasUpdate(r.pod.UID), "%s: whether the pod is synced again at once", name)
			case <-time.After(25 * time.Second):
				t.Fatalf("%s, draining %v: still waiting", name, draining)
			}
			r.stop()
		}
	}
}

// TestHoldfastPrepareReplacementNoise: a pod with news at every sync is replaced all the
// same when its wait is over.
func TestHoldfastPrepareReplacementNoise(t *testing.T) {
	r := newReplacing(t, nil)
	defer r.stop()
	r.publish()
	r.workers.UpdatePod(&UpdatePodOptions{Pod: r.pod, UpdateType: kubetypes.SyncPodSync})
	for end := time.Now().Add(5 * time.Second); !r.prepare(true); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never replaced")
		}
	}
	assert.False(t, r.storedReady())
}

func TestHoldfastPrepareReplacementDrain(t *testing.T) {
	r := newReplacing(t, map[string]string{drainAnnotation: "1"})
	defer r.stop()
	r.publish()
	begin := time.Now()
	assert.False(t, r.prepare(false), "other containers do not wait")
	assert.True(t, time.Since(begin) < 500*time.Millisecond)
	assert.True(t, r.prepare(true))
	took := time.Since(begin)
	assert.True(t, took >= time.Second && took < 30*time.Second, "%v", took)
	begin = time.Now()
	assert.True(t, r.prepare(true), "drained once")
	assert.True(t, time.Since(begin) < 500*time.Millisecond)
}

// TestHoldfastPrepareReplacementDrainsOnce: a pod is not ready from the first mark on, so the
// drain does not begin anew with each later one.
func TestHoldfastPrepareReplacementDrainsOnce(t *testing.T) {
	// The machine may stand still for seconds: the bounds are far apart.
	r := newReplacing(t, map[string]string{drainAnnotation: "6"})
	defer r.stop()
	second := kuberuntime.ReplacedContainer{ID: kubecontainer.ContainerID{Type: "test", ID: "d"}, Name: "d"}
	for _, p := range []*v1.Pod{r.pod, r.stored} {
		s := *p.Status.ContainerStatuses[0].DeepCopy()
		s.Name, s.ContainerID = "d", second.ID.String()
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
	}
	r.publish()
	begin := time.Now()
	assert.False(t, r.prepare(false))
	time.Sleep(5 * time.Second)
	both := append([]kuberuntime.ReplacedContainer{second}, replacedC...)
	assert.True(t, r.kl.PrepareReplacement(r.pod, both, true))
	took := time.Since(begin)
	assert.True(t, took >= 6*time.Second && took < 11*time.Second, "%v", took)
	r.Lock()
	for _, c := range r.stored.Status.ContainerStatuses {
		assert.False(t, c.Ready, "%s: the API server was not told", c.Name)
	}
	r.Unlock()

	// When no container waits any more, the next one has a drain of its own.
	r.publish()
	assert.True(t, r.cachedReady())
	begin = time.Now()
	assert.True(t, r.prepare(true))
	assert.True(t, time.Since(begin) >= 2*time.Second, "%v", time.Since(begin))
}

// TestHoldfastPrepareReplacementLateNews: news that comes when the wait is just over is
// looked at before a kill.
func TestHoldfastPrepareReplacementLateNews(t *testing.T) {
	r := newReplacing(t, nil)
	defer r.stop()
	r.publish()
	assert.True(t, r.prepare(true))
	asked := 0
	r.kl.statusManager = &statesHook{UnreadyMarking: r.kl.statusManager.(status.UnreadyMarking), Manager: r.kl.statusManager, hook: func(s *status.UnreadyState) {
		if asked++; asked == 1 {
			s.Acknowledged = false // so it waits
			s.Since = time.Now()
		} else {
			r.workers.UpdatePod(&UpdatePodOptions{Pod: r.pod, UpdateType: kubetypes.SyncPodUpdate})
		}
	}}
	assert.False(t, r.prepare(true))
	assert.Equal(t, 2, asked)
}

func TestHoldfastPrepareReplacementBound(t *testing.T) {
	// The machine may stand still for seconds: the bounds are far apart.
	defer shortWaits(300*time.Millisecond, time.Minute)()
	r := newReplacing(t, map[string]string{drainAnnotation: "300"})
	defer r.stop()
	r.publish()
	r.setAway(fmt.Errorf("away"))
	begin := time.Now()
	assert.True(t, r.prepare(true), "goes on without the API server, and without the drain")
	took := time.Since(begin)
	assert.True(t, took >= 300*time.Millisecond && took < 30*time.Second, "%v", took)
	assert.Equal(t, map[string]int{unreadyEvent: 1, unreadyTimeoutEvent: 1}, r.said())
	assert.False(t, r.cachedReady(), "what will be written is not ready")

	// Longer while others are acknowledged, but not for ever.
	defer shortWaits(700*time.Millisecond, 2*time.Second)()
	r = newReplacing(t, nil)
	defer r.stop()
	r.publish()
	r.setAway(fmt.Errorf("away"))
	begin = time.Now()
	// Another pod was acknowledged just now.
	r.kl.statusManager = &statesHook{UnreadyMarking: r.kl.statusManager.(status.UnreadyMarking), Manager: r.kl.statusManager,
		hook: func(s *status.UnreadyState) { s.LastAcknowledged = time.Now() }}
	assert.True(t, r.prepare(true))
	took = time.Since(begin)
	assert.True(t, took >= 2*time.Second && took < 30*time.Second, "%v", took)
}

// statesHook is a status manager whose UnreadyState goes through a hook.
type statesHook struct {
	status.UnreadyMarking
	status.Manager
	hook func(*status.UnreadyState)
}

func (h *statesHook) UnreadyState(uid types.UID) status.UnreadyState {
	s := h.UnreadyMarking.UnreadyState(uid)
	h.hook(&s)
	return s
}

func TestHoldfastPrepareReplacementStandalone(t *testing.T) {
	r := newReplacing(t, nil)
	defer r.stop()
	r.publish()
	r.kl.kubeClient = nil
	begin := time.Now()
	assert.True(t, r.prepare(true))
	assert.True(t, time.Since(begin) < 500*time.Millisecond)
	assert.True(t, r.cachedReady())
	r.publish()
}

// waitsEnded is how many waits ended so, of all tests.
func waitsEnded(t *testing.T, outcome string) float64 {
	var m dto.Metric
	require.NoError(t, unreadyOutcome.WithLabelValues(outcome).Write(&m))
	return m.GetCounter().GetValue()
}

// TestHoldfastSyncPodSettles: syncPod itself lifts and holds.
func TestHoldfastSyncPodSettles(t *testing.T) {
	r := newReplacing(t, nil)
	defer r.stop()
	r.runtime.changed = replacedC
	r.stored.Status.ContainerStatuses[0].Ready = false
	r.kl.syncPod(syncPodOptions{pod: r.pod, podStatus: r.podStatus, updateType: kubetypes.SyncPodUpdate})
	s, ok := r.kl.statusManager.GetPodStatus(r.pod.UID)
	require.True(t, ok)
	require.Len(t, s.ContainerStatuses, 1)
	lifted := r.kl.statusManager.(status.UnreadyMarking).LiftUnready(r.pod.UID, func(kubecontainer.ContainerID) bool { return false })
	assert.Equal(t, []kubecontainer.ContainerID{replacedC[0].ID}, lifted)
}
