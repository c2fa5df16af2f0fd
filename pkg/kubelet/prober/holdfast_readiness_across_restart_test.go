// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/clock"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/probe"
)

// stopNone and the like stand for the runtime's decision.
type fakeStopper func(kubecontainer.ContainerID) bool

func (f fakeStopper) ContainersToStop(*v1.Pod, *kubecontainer.PodStatus) func(kubecontainer.ContainerID) bool {
	return f
}

// stoppingRuntime is a runtime that can say what its next sync stops.
type stoppingRuntime struct {
	kubecontainer.Runtime
	fakeStopper
}

// testRestartedAt is when the kubelet under test starts.
var testRestartedAt = testStartedAt.Add(24 * time.Hour)

// newKeepingManager is a manager that keeps readiness, on a node whose last
// heartbeat is recent. Its clock is a fake one.
func newKeepingManager(t *testing.T) *manager {
	return restartedManager(t, clock.NewFakeClock(testRestartedAt), t.TempDir())
}

// restartedManager is that of a kubelet which starts now on a root directory that
// an earlier one may have used.
func restartedManager(t *testing.T, now *clock.FakeClock, root string) *manager {
	m := newTestManager()
	m.StartKeepingReadiness(ReadinessSources{
		Runtime: stoppingRuntime{fakeStopper: stopNone},
		Pods:    newPodManager(),
		PodDir: func(uid types.UID) string {
			dir := filepath.Join(root, string(uid))
			require.NoError(t, os.MkdirAll(dir, 0750))
			return dir
		},
		HeartbeatAge:    func() (time.Duration, bool) { return 12 * time.Second, true },
		MaxHeartbeatAge: 40 * time.Second,
		Clock:           now,
	})
	return m
}

func stopNone(kubecontainer.ContainerID) bool { return false }
func stopAll(kubecontainer.ContainerID) bool  { return true }

var testStartedAt = time.Date(2018, 11, 21, 10, 0, 0, 123456789, time.UTC)

// publishedPod is a pod as the API server has it: one container with a readiness
// probe (failureThreshold 3), running, and published as ready.
func publishedPod() *v1.Pod {
	pod := getTestPod()
	setTestProbe(pod, readiness, v1.Probe{FailureThreshold: 3, PeriodSeconds: 10})
	pod.Status = v1.PodStatus{
		Phase: v1.PodRunning,
		Conditions: []v1.PodCondition{
			{Type: v1.PodInitialized, Status: v1.ConditionTrue},
			{Type: v1.PodReady, Status: v1.ConditionTrue},
		},
		ContainerStatuses: []v1.ContainerStatus{{
			Name:        testContainerName,
			ContainerID: testContainerID.String(),
			Ready:       true,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{
				StartedAt: metav1.NewTime(testStartedAt).Rfc3339Copy(),
			}},
		}},
	}
	return pod
}

// runtimeStatus is what the runtime says of publishedPod.
func runtimeStatus() *kubecontainer.PodStatus {
	return &kubecontainer.PodStatus{
		ID: testPodUID,
		ContainerStatuses: []*kubecontainer.ContainerStatus{{
			ID:        testContainerID,
			Name:      testContainerName,
			State:     kubecontainer.ContainerStateRunning,
			StartedAt: testStartedAt,
		}},
	}
}

// syncOnce does what a sync of the pod does to readiness, and what the status
// manager then has in its cache. It returns the readiness of the containers.
func syncOnce(m *manager, stop fakeStopper, podManager kubepod.Manager, pod *v1.Pod, podStatus *kubecontainer.PodStatus) []bool {
	m.kept.stopper, m.kept.Pods = stop, podManager
	m.KeepReadiness(pod, podStatus)
	status := *pod.Status.DeepCopy()
	status.Conditions = nil
	status.ContainerStatuses = nil
	for _, cs := range podStatus.ContainerStatuses {
		s := v1.ContainerStatus{Name: cs.Name, ContainerID: cs.ID.String()}
		if cs.State == kubecontainer.ContainerStateRunning {
			s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(cs.StartedAt)}
		}
		status.ContainerStatuses = append(status.ContainerStatuses, s)
	}
	m.UpdatePodStatus(pod.UID, &status)
	m.statusManager.SetPodStatus(pod, status)
	var ready []bool
	for _, c := range status.ContainerStatuses {
		ready = append(ready, c.Ready)
	}
	return ready
}

// fakePods is a pod manager that knows one mirror pod. Upstream's own takes other arguments in each
// release.
type fakePods struct {
	kubepod.Manager
	mirror *v1.Pod
}

func newPodManager() *fakePods { return &fakePods{} }

func (f *fakePods) GetMirrorPodByPod(*v1.Pod) (*v1.Pod, bool) { return f.mirror, f.mirror != nil }

// addWorker is AddPod without the goroutine, so that the test decides when the
// probe runs.
func addWorker(m *manager, pod *v1.Pod) *worker {
	w := newWorker(m, readiness, pod, pod.Spec.Containers[0])
	m.workers[probeKey{pod.UID, testContainerName, readiness}] = w
	return w
}

func counter(t *testing.T, c prometheus.Counter) float64 {
	var m dto.Metric
	require.NoError(t, c.Write(&m))
	return m.GetCounter().GetValue()
}

func TestHoldfastReadinessKeptUntilFirstResult(t *testing.T) {
	for _, tc := range []struct {
		name    string
		results []probe.Result
		// ready after the first sync, and then after each result
		expect []bool
	}{
		{"success", []probe.Result{probe.Success, probe.Success}, []bool{true, true, true}},
		{"failure counts from its threshold", []probe.Result{probe.Failure, probe.Failure, probe.Failure, probe.Failure},
			[]bool{true, true, true, false, false}},
		{"a success starts the count again", []probe.Result{probe.Failure, probe.Failure, probe.Success, probe.Failure, probe.Failure, probe.Failure},
			[]bool{true, true, true, true, true, true, false}},
		{"failed, then well", []probe.Result{probe.Failure, probe.Failure, probe.Failure, probe.Success},
			[]bool{true, true, true, false, true}},
	} {
		m := newKeepingManager(t)
		pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
		before := counter(t, readinessKept)
		assert.Equal(t, []bool{tc.expect[0]}, syncOnce(m, stopNone, pm, pod, podStatus), tc.name)
		w := addWorker(m, pod)
		for i, r := range tc.results {
			m.prober.exec = fakeExecProber{r, nil}
			require.True(t, w.doProbe())
			assert.Equal(t, []bool{tc.expect[i+1]}, syncOnce(m, stopNone, pm, pod, podStatus), "%s, result %d", tc.name, i)
		}
		assert.Equal(t, before+1, counter(t, readinessKept))
	}
}

// The kubelet dispatches the first sync before it adds the probe workers. Stock
// makes a container ready if the sync is faster.
func TestHoldfastReadinessFirstSyncBeforeWorker(t *testing.T) {
	for _, published := range []bool{true, false} {
		m := newKeepingManager(t)
		pod := publishedPod()
		pod.Status.ContainerStatuses[0].Ready = published
		if !published {
			pod.Status.Conditions[1].Status = v1.ConditionFalse
		}
		assert.Equal(t, []bool{published}, syncOnce(m, stopNone, newPodManager(), pod, runtimeStatus()))
	}
}

func TestHoldfastReadinessNotKept(t *testing.T) {
	now := metav1.Now()
	for _, tc := range []struct {
		name   string
		change func(pod *v1.Pod, podStatus *kubecontainer.PodStatus)
		stop   fakeStopper
	}{
		{name: "was not ready", change: func(pod *v1.Pod, _ *kubecontainer.PodStatus) {
			pod.Status.ContainerStatuses[0].Ready = false
			pod.Status.Conditions[1].Status = v1.ConditionFalse
		}},
		{name: "another container", change: func(_ *v1.Pod, s *kubecontainer.PodStatus) {
			s.ContainerStatuses[0].ID.ID = "other"
		}},
		{name: "the same container, started again", change: func(_ *v1.Pod, s *kubecontainer.PodStatus) {
			s.ContainerStatuses[0].StartedAt = testStartedAt.Add(time.Second)
		}},
		{name: "published as not running", change: func(pod *v1.Pod, _ *kubecontainer.PodStatus) {
			pod.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
		}},
		{name: "not running any more", change: func(_ *v1.Pod, s *kubecontainer.PodStatus) {
			s.ContainerStatuses[0].State = kubecontainer.ContainerStateExited
		}},
		{name: "being deleted", change: func(pod *v1.Pod, _ *kubecontainer.PodStatus) {
			pod.DeletionTimestamp = &now
		}},
		{name: "about to be stopped, its spec changed", stop: stopAll},
		{name: "marked not ready by the node controller", change: func(pod *v1.Pod, _ *kubecontainer.PodStatus) {
			pod.Status.Conditions[1].Status = v1.ConditionFalse
		}},
		{name: "no Ready condition", change: func(pod *v1.Pod, _ *kubecontainer.PodStatus) {
			pod.Status.Conditions = nil
		}},
		{name: "never published", change: func(pod *v1.Pod, _ *kubecontainer.PodStatus) {
			pod.Status = v1.PodStatus{Phase: v1.PodPending}
		}},
	} {
		m := newKeepingManager(t)
		pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
		if tc.change != nil {
			tc.change(pod, podStatus)
		}
		stop := tc.stop
		if stop == nil {
			stop = stopNone
		}
		kept := counter(t, readinessKept)
		w := addWorker(m, pod) // as in stock, where the worker comes first
		assert.Equal(t, []bool{false}, syncOnce(m, stop, pm, pod, podStatus), tc.name)
		if podStatus.ContainerStatuses[0].State == kubecontainer.ContainerStateRunning {
			m.prober.exec = fakeExecProber{probe.Failure, nil}
			require.True(t, w.doProbe(), tc.name)
			assert.Equal(t, []bool{false}, syncOnce(m, stop, pm, pod, podStatus), "%s, after a failure", tc.name)
			m.prober.exec = fakeExecProber{probe.Success, nil}
			require.True(t, w.doProbe(), tc.name)
			assert.Equal(t, []bool{true}, syncOnce(m, stop, pm, pod, podStatus), "%s, after a success", tc.name)
		}
		assert.Equal(t, kept, counter(t, readinessKept), tc.name)
	}
}

// TestHoldfastReadinessGateOff: as stock, whose initial result is Failure, and whose first
// sync may be faster than that; nobody is asked, and no file is looked at.
func TestHoldfastReadinessGateOff(t *testing.T) {
	require.NoError(t, utilfeature.DefaultFeatureGate.Set("ReadinessAcrossRestart=false"))
	defer utilfeature.DefaultFeatureGate.Set("ReadinessAcrossRestart=true")
	m := newTestManager()
	fail := func(what string) { t.Errorf("%s with the gate off", what) }
	sources := ReadinessSources{
		Runtime:      stoppingRuntime{fakeStopper: stopNone},
		PodDir:       func(types.UID) string { fail("a file is looked for"); return "" },
		HeartbeatAge: func() (time.Duration, bool) { fail("the Node is asked for"); return 0, true },
		Clock:        clock.NewFakeClock(testRestartedAt),
	}
	m.StartKeepingReadiness(sources)
	assert.Nil(t, m.kept.stopper)
	// Nor if it was started.
	m.kept.ReadinessSources = sources
	stop := func(kubecontainer.ContainerID) bool { fail("the runtime is asked"); return false }
	pod, pm := publishedPod(), newPodManager()
	assert.Equal(t, []bool{true}, syncOnce(m, stop, pm, pod, runtimeStatus()), "no worker yet")
	w := addWorker(m, pod)
	assert.Equal(t, []bool{false}, syncOnce(m, stop, pm, pod, runtimeStatus()))
	assert.Empty(t, m.SettleReadiness(testPodUID, &pod.Status))
	require.True(t, w.doProbe())
	assert.Equal(t, []bool{true}, syncOnce(m, stop, pm, pod, runtimeStatus()))
	assert.Empty(t, m.kept.pods)
}

// And so for a container whose readiness is not kept.
func TestHoldfastReadinessFirstSyncBeforeWorkerNotKept(t *testing.T) {
	now := metav1.Now()
	for _, deleted := range []bool{true, false} {
		m := newKeepingManager(t)
		pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
		stop := fakeStopper(stopAll)
		if deleted {
			pod.DeletionTimestamp, stop = &now, stopNone
		}
		assert.Equal(t, []bool{false}, syncOnce(m, stop, pm, pod, podStatus))
		assert.Empty(t, m.SettleReadiness(testPodUID, &pod.Status))
		assert.Equal(t, []bool{false}, syncOnce(m, stop, pm, pod, podStatus))
		w := addWorker(m, pod)
		m.prober.exec = fakeExecProber{probe.Failure, nil}
		require.True(t, w.doProbe())
		result, ok := m.readinessManager.Get(testContainerID)
		assert.True(t, ok && result == results.Failure, "the initial result, as in stock")
	}
}

// A container that this process started is not ready before its probe says so,
// whatever the API server says of it.
func TestHoldfastReadinessNotKeptOfOwnContainers(t *testing.T) {
	m := newKeepingManager(t)
	pod, pm := publishedPod(), newPodManager()
	empty := &kubecontainer.PodStatus{ID: testPodUID}
	published := pod.Status
	pod.Status = v1.PodStatus{Phase: v1.PodPending}
	assert.Empty(t, syncOnce(m, stopNone, pm, pod, empty))
	addWorker(m, pod)
	pod.Status = published
	assert.Equal(t, []bool{false}, syncOnce(m, stopNone, pm, pod, runtimeStatus()))
}

// After a restart of the container everything is as in stock.
func TestHoldfastReadinessContainerRestarts(t *testing.T) {
	m := newKeepingManager(t)
	pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
	w := addWorker(m, pod)
	assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus))
	m.prober.exec = fakeExecProber{probe.Failure, nil}
	require.True(t, w.doProbe())
	podStatus.ContainerStatuses[0].ID.ID = "next"
	podStatus.ContainerStatuses[0].StartedAt = testStartedAt.Add(time.Hour)
	assert.Equal(t, []bool{false}, syncOnce(m, stopNone, pm, pod, podStatus))
	require.True(t, w.doProbe())
	result, ok := m.readinessManager.Get(kubecontainer.ContainerID{Type: "test", ID: "next"})
	assert.True(t, ok)
	assert.Equal(t, results.Failure, result)
}

// With two containers the pod was not ready because of one; the other is kept.
func TestHoldfastReadinessOfTwoContainers(t *testing.T) {
	m := newKeepingManager(t)
	pod, podStatus := publishedPod(), runtimeStatus()
	second := pod.Spec.Containers[0]
	second.Name = "second"
	pod.Spec.Containers = append(pod.Spec.Containers, second)
	cs := *pod.Status.ContainerStatuses[0].DeepCopy()
	cs.Name, cs.ContainerID, cs.Ready = "second", "test://second", false
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, cs)
	pod.Status.Conditions[1].Status = v1.ConditionFalse
	podStatus.ContainerStatuses = append(podStatus.ContainerStatuses, &kubecontainer.ContainerStatus{
		ID: kubecontainer.ContainerID{Type: "test", ID: "second"}, Name: "second",
		State: kubecontainer.ContainerStateRunning, StartedAt: testStartedAt,
	})
	assert.Equal(t, []bool{true, false}, syncOnce(m, stopNone, newPodManager(), pod, podStatus))
}

// The published status of a static pod is its mirror pod's, and the mirror pod
// may come after the first sync and after the first probe.
func TestHoldfastReadinessOfStaticPod(t *testing.T) {
	for _, published := range []bool{true, false} {
		m := newKeepingManager(t)
		pod := publishedPod()
		pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
		mirror := pod.DeepCopy()
		mirror.UID = "mirror"
		mirror.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.ApiserverSource, kubetypes.ConfigMirrorAnnotationKey: "x"}
		mirror.Status.ContainerStatuses[0].Ready = published
		if !published {
			mirror.Status.Conditions[1].Status = v1.ConditionFalse
		}
		pod.Status = v1.PodStatus{}
		pm := newPodManager()
		podStatus := runtimeStatus()

		w := addWorker(m, pod)
		pod.Status.Phase = v1.PodRunning // what the status manager has in its cache
		assert.Equal(t, []bool{false}, syncOnce(m, stopNone, pm, pod, podStatus), "nothing is known yet")
		m.prober.exec = fakeExecProber{probe.Failure, nil}
		require.True(t, w.doProbe())
		pm.mirror = mirror
		assert.Equal(t, []bool{published}, syncOnce(m, stopNone, pm, pod, podStatus))
		require.True(t, w.doProbe())
		assert.Equal(t, []bool{published}, syncOnce(m, stopNone, pm, pod, podStatus))
		require.True(t, w.doProbe())
		assert.Equal(t, []bool{false}, syncOnce(m, stopNone, pm, pod, podStatus), "the third failure counts")
	}
}

// What the status manager reads from the API server at the first publish wins
// over what the kubelet was given when it started, once.
func TestHoldfastReadinessSettles(t *testing.T) {
	for _, tc := range []struct{ given, fresh bool }{{true, true}, {true, false}, {false, true}, {false, false}} {
		m := newKeepingManager(t)
		set := func(pod *v1.Pod, ready bool) *v1.Pod {
			pod.Status.ContainerStatuses[0].Ready = ready
			if !ready {
				pod.Status.Conditions[1].Status = v1.ConditionFalse
			}
			return pod
		}
		pod, pm := set(publishedPod(), tc.given), newPodManager()
		w := addWorker(m, pod)
		assert.Equal(t, []bool{tc.given}, syncOnce(m, stopNone, pm, pod, runtimeStatus()))
		fresh := set(publishedPod(), tc.fresh)
		assert.Equal(t, map[kubecontainer.ContainerID]bool{testContainerID: tc.fresh}, m.SettleReadiness(testPodUID, &fresh.Status))
		assert.Equal(t, []bool{tc.fresh}, syncOnce(m, stopNone, pm, pod, runtimeStatus()))
		other := set(publishedPod(), !tc.fresh)
		assert.Empty(t, m.SettleReadiness(testPodUID, &other.Status), "settled twice")
		_, probed := m.ProbedReadiness(testContainerID)
		assert.False(t, probed)
		require.True(t, w.doProbe())
		ready, probed := m.ProbedReadiness(testContainerID)
		assert.True(t, probed && ready)
	}
}

func TestHoldfastReadinessForgets(t *testing.T) {
	m := newKeepingManager(t)
	pod := publishedPod()
	syncOnce(m, stopNone, newPodManager(), pod, runtimeStatus())
	m.CleanupPods([]*v1.Pod{pod})
	assert.Len(t, m.kept.pods, 1)
	m.CleanupPods(nil)
	assert.Len(t, m.kept.pods, 0)
	assert.Empty(t, m.SettleReadiness(types.UID(testPodUID), &pod.Status))
}

// Containers without a readiness probe are upstream's business.
func TestHoldfastReadinessWithoutProbe(t *testing.T) {
	m := newKeepingManager(t)
	pod := publishedPod()
	pod.Spec.Containers[0].ReadinessProbe = nil
	pod.Status.ContainerStatuses[0].Ready = false
	assert.Equal(t, []bool{true}, syncOnce(m, stopNone, newPodManager(), pod, runtimeStatus()))
}
