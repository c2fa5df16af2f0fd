// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"errors"
	"io/ioutil"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/clock"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/probe"
	"k8s.io/utils/exec"
)

// testBound is the bound of publishedPod, which has the API's defaults: 3 × 10 s + 10 s
// + 1 s.
const testBound = 41 * time.Second

// records are the files that this and earlier managers have left in root.
func records(t *testing.T, root string) []string {
	files, err := filepath.Glob(filepath.Join(root, "*", "*"))
	require.NoError(t, err)
	return files
}

// expired waits until the manager has given up what it keeps of the container.
func expired(t *testing.T, m *manager) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, ok := m.readinessManager.Get(testContainerID); ok {
			return
		}
	}
	t.Fatal("the readiness is still kept")
}

func TestHoldfastReadinessBound(t *testing.T) {
	for _, tc := range []struct {
		probe  v1.Probe
		expect time.Duration
	}{
		{v1.Probe{FailureThreshold: 3, PeriodSeconds: 10, TimeoutSeconds: 1}, testBound},
		{v1.Probe{FailureThreshold: 2, PeriodSeconds: 5, InitialDelaySeconds: 60}, 76 * time.Second},
		{v1.Probe{FailureThreshold: 3, PeriodSeconds: 10, TimeoutSeconds: 30}, 130 * time.Second},
		{v1.Probe{FailureThreshold: 1, PeriodSeconds: 1, SuccessThreshold: 9}, 40 * time.Second},
		{v1.Probe{FailureThreshold: 1, PeriodSeconds: 1, InitialDelaySeconds: 60}, 63 * time.Second},
		{v1.Probe{FailureThreshold: 1<<31 - 1, PeriodSeconds: 1<<31 - 1}, maxBoundSeconds * time.Second},
	} {
		pod := getTestPod()
		setTestProbe(pod, readiness, tc.probe)
		pod.Spec.Containers[0].ReadinessProbe.FailureThreshold = tc.probe.FailureThreshold
		c := &keptContainer{pod: pod, name: testContainerName}
		assert.Equal(t, tc.expect, c.bound())
	}
}

// A readiness that no probe confirms ends: one whose probe has errors, fails less
// often than its threshold, or never returns.
func TestHoldfastReadinessExpires(t *testing.T) {
	for name, result := range map[string]*fakeExecProber{
		"errors":               {probe.Failure, errors.New("docker does not answer")},
		"one failure of three": {probe.Failure, nil},
		"never runs":           nil,
	} {
		now, root := clock.NewFakeClock(testRestartedAt), t.TempDir()
		m := restartedManager(t, now, root)
		pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
		before := counter(t, readinessExpired)
		assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus), name)
		w := addWorker(m, pod)
		if result != nil {
			m.prober.exec = *result
			require.True(t, w.doProbe())
		}
		now.Step(testBound - time.Second)
		assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus), name)
		assert.Equal(t, before, counter(t, readinessExpired), name)
		now.Step(time.Second)
		expired(t, m)
		assert.Equal(t, before+1, counter(t, readinessExpired), name)
		assert.Equal(t, []bool{false}, syncOnce(m, stopNone, pm, pod, podStatus), name)
		// The worker's first look comes after that if the first probe never ran.
		m.prober.exec = fakeExecProber{probe.Failure, errors.New("still")}
		require.True(t, w.doProbe())
		assert.Equal(t, []bool{false}, syncOnce(m, stopNone, pm, pod, podStatus), name)
		// The next process finds that it was not confirmed.
		assert.Len(t, records(t, root), 1, name)
		next := restartedManager(t, now, root)
		assert.Equal(t, []bool{false}, syncOnce(next, stopNone, pm, pod, podStatus), name)
		// From here on as upstream: it takes a success.
		m.prober.exec = fakeExecProber{probe.Success, nil}
		require.True(t, w.doProbe())
		assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus), name)
		assert.Empty(t, records(t, root), name)
	}
}

// A first probe that comes late, as all begin at once, does not cost a probe with a
// short period its readiness.
func TestHoldfastReadinessSlowFirstProbe(t *testing.T) {
	now := clock.NewFakeClock(testRestartedAt)
	m := restartedManager(t, now, t.TempDir())
	pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
	setTestProbe(pod, readiness, v1.Probe{FailureThreshold: 1, PeriodSeconds: 1, TimeoutSeconds: 1})
	before := counter(t, readinessExpired)
	assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus))
	w := addWorker(m, pod)
	var during []bool
	m.prober.exec = slowProbe(func() {
		now.Step(30 * time.Second)
		time.Sleep(100 * time.Millisecond) // whatever the clock has ended happens now
		during = syncOnce(m, stopNone, pm, pod, podStatus)
	})
	require.True(t, w.doProbe())
	assert.Equal(t, []bool{true}, during, "while the first probe runs")
	assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus))
	assert.Equal(t, before, counter(t, readinessExpired))
}

// slowProbe succeeds after what it does.
type slowProbe func()

func (f slowProbe) Probe(exec.Cmd) (probe.Result, string, error) {
	f()
	return probe.Success, "", nil
}

// A success ends the bound, also if successThreshold asks for more of them. After
// that the readiness stands while probes have errors, as in a kubelet that runs on.
func TestHoldfastReadinessConfirmed(t *testing.T) {
	for _, successThreshold := range []int32{1, 5} {
		now, root := clock.NewFakeClock(testRestartedAt), t.TempDir()
		m := restartedManager(t, now, root)
		pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
		pod.Spec.Containers[0].ReadinessProbe.SuccessThreshold = successThreshold
		before := counter(t, readinessExpired)
		assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus))
		assert.Len(t, records(t, root), 1)
		w := addWorker(m, pod)
		require.True(t, w.doProbe())
		assert.Empty(t, records(t, root))
		m.prober.exec = fakeExecProber{probe.Failure, errors.New("docker does not answer")}
		require.True(t, w.doProbe())
		now.Step(10 * testBound)
		m.expire(pod.UID, testContainerID) // what the clock calls; here, so that it has been
		assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus))
		assert.Equal(t, before, counter(t, readinessExpired))
	}
}

// TestHoldfastReadinessBoundEnds: nothing waits for the bound of a container, which may be
// 136 years, after a success of its probe, its replacement, or the end of its pod.
func TestHoldfastReadinessBoundEnds(t *testing.T) {
	const pods = 100
	for name, end := range map[string]func(m *manager, w *worker, pod *v1.Pod){
		"confirmed": func(m *manager, w *worker, _ *v1.Pod) { require.True(t, w.doProbe()) },
		"gone":      func(m *manager, _ *worker, _ *v1.Pod) { m.CleanupPods(nil) },
		"replaced": func(m *manager, w *worker, pod *v1.Pod) {
			podStatus := runtimeStatus()
			podStatus.ContainerStatuses[0].ID.ID = "next"
			podStatus.ContainerStatuses[0].StartedAt = testRestartedAt
			syncOnce(m, stopNone, newPodManager(), pod, podStatus)
			require.True(t, w.doProbe())
		},
		"withdrawn": func(m *manager, _ *worker, pod *v1.Pod) { m.SettleReadiness(pod.UID, &v1.PodStatus{}) },
		"failed": func(m *manager, _ *worker, pod *v1.Pod) {
			m.readinessManager.Set(testContainerID, results.Failure, pod)
			syncOnce(m, stopNone, newPodManager(), pod, runtimeStatus())
		},
	} {
		before := runtime.NumGoroutine()
		for i := 0; i < pods; i++ {
			m, pod := newKeepingManager(t), publishedPod()
			pod.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 1<<31 - 1
			require.Equal(t, []bool{true}, syncOnce(m, stopNone, newPodManager(), pod, runtimeStatus()))
			end(m, addWorker(m, pod), pod)
		}
		var left int
		for stop := time.Now().Add(5 * time.Second); time.Now().Before(stop); time.Sleep(time.Millisecond) {
			if left = runtime.NumGoroutine() - before; left < pods/2 {
				break
			}
		}
		assert.True(t, left < pods/2, "%s: %d goroutines more", name, left)
	}
}

// TestHoldfastReadinessNotConfirmedByLiveness: a container's liveness says nothing of its
// readiness.
func TestHoldfastReadinessNotConfirmedByLiveness(t *testing.T) {
	now, root := clock.NewFakeClock(testRestartedAt), t.TempDir()
	m := restartedManager(t, now, root)
	pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
	pod.Spec.Containers[0].LivenessProbe = pod.Spec.Containers[0].ReadinessProbe.DeepCopy()
	assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus))
	require.True(t, newWorker(m, liveness, pod, pod.Spec.Containers[0]).doProbe())
	assert.Len(t, records(t, root), 1)
	now.Step(testBound)
	expired(t, m)
	assert.Equal(t, []bool{false}, syncOnce(m, stopNone, pm, pod, podStatus))
}

// A result that comes while the bound runs out has the last word.
func TestHoldfastReadinessExpiresBeforeResult(t *testing.T) {
	m := newKeepingManager(t)
	pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
	assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus))
	w := addWorker(m, pod)
	m.expire(pod.UID, testContainerID)
	require.True(t, w.doProbe())
	result, ok := m.readinessManager.Get(testContainerID)
	assert.True(t, ok && result == results.Success)
	m.expire(pod.UID, testContainerID)
	result, ok = m.readinessManager.Get(testContainerID)
	assert.True(t, ok && result == results.Success)
}

// Nothing expires of a container that has been replaced.
func TestHoldfastReadinessExpiresNotOfReplaced(t *testing.T) {
	now, root := clock.NewFakeClock(testRestartedAt), t.TempDir()
	m := restartedManager(t, now, root)
	pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
	w := addWorker(m, pod)
	assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus))
	podStatus.ContainerStatuses[0].ID.ID = "next"
	podStatus.ContainerStatuses[0].StartedAt = now.Now()
	before := counter(t, readinessExpired)
	assert.Equal(t, []bool{false}, syncOnce(m, stopNone, pm, pod, podStatus))
	require.True(t, w.doProbe())
	m.expire(pod.UID, testContainerID)
	assert.Equal(t, before, counter(t, readinessExpired))
	_, ok := m.readinessManager.Get(testContainerID)
	assert.False(t, ok, "a result of a container that is gone")
	assert.Empty(t, records(t, root))
	assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus))
}

// A kubelet that starts again and again, faster than its probes, keeps no longer
// than one that runs.
func TestHoldfastReadinessExpiresAcrossRestarts(t *testing.T) {
	for _, tc := range []struct {
		lives, down time.Duration
	}{{3 * time.Second, 0}, {time.Second, 10 * time.Second}, {5 * time.Second, 30 * time.Second}, {time.Second, 38 * time.Second}} {
		now, root := clock.NewFakeClock(testRestartedAt), t.TempDir()
		pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
		// The API server's copy stays as it is: no process lives long enough to
		// publish another.
		for i := 0; i < 60; i++ {
			ready := syncOnce(restartedManager(t, now, root), stopNone, pm, pod, podStatus)
			expect := now.Since(testRestartedAt) < testBound
			assert.Equal(t, []bool{expect}, ready, "%+v, start %d after %v", tc, i, now.Since(testRestartedAt))
			now.Step(tc.lives + tc.down)
		}
		// One that lives to see a success, and the next.
		m := restartedManager(t, now, root)
		assert.Equal(t, []bool{false}, syncOnce(m, stopNone, pm, pod, podStatus))
		require.True(t, addWorker(m, pod).doProbe())
		assert.Equal(t, []bool{true}, syncOnce(m, stopNone, pm, pod, podStatus))
		assert.Equal(t, []bool{true}, syncOnce(restartedManager(t, now, root), stopNone, pm, pod, podStatus))
	}
}

// What was left does not count where something has confirmed the readiness since,
// and what cannot be known counts against it.
func TestHoldfastReadinessRecord(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, now *clock.FakeClock, root, file string, podStatus *kubecontainer.PodStatus)
		expect bool
	}{
		{"nothing happened in between", func(_ *testing.T, now *clock.FakeClock, _, _ string, _ *kubecontainer.PodStatus) {}, true},
		{"out of time", func(_ *testing.T, now *clock.FakeClock, _, _ string, _ *kubecontainer.PodStatus) {
			now.Step(testBound)
		}, false},
		// The bound and 40 s later somebody has sent heartbeats, and so has probed.
		{"a stock kubelet in between", func(_ *testing.T, now *clock.FakeClock, _, _ string, _ *kubecontainer.PodStatus) {
			now.Step(testBound + 41*time.Second)
		}, true},
		{"the clock was set back", func(_ *testing.T, now *clock.FakeClock, _, _ string, _ *kubecontainer.PodStatus) {
			now.SetTime(testRestartedAt.Add(-time.Hour))
		}, false},
		{"not JSON", func(t *testing.T, _ *clock.FakeClock, _, file string, _ *kubecontainer.PodStatus) {
			require.NoError(t, ioutil.WriteFile(file, []byte("{\"containerID\":"), 0600))
		}, false},
		{"empty", func(t *testing.T, _ *clock.FakeClock, _, file string, _ *kubecontainer.PodStatus) {
			require.NoError(t, ioutil.WriteFile(file, nil, 0600))
		}, false},
		{"of another container", func(t *testing.T, now *clock.FakeClock, _, file string, _ *kubecontainer.PodStatus) {
			require.NoError(t, ioutil.WriteFile(file, []byte(`{"containerID":"test://other","since":"2018-11-22T09:00:00Z","lastStart":"2018-11-22T10:00:00Z"}`), 0600))
		}, true},
		{"of an earlier run", func(t *testing.T, now *clock.FakeClock, _, file string, _ *kubecontainer.PodStatus) {
			require.NoError(t, ioutil.WriteFile(file, []byte(`{"containerID":"`+testContainerID.String()+`","since":"2018-11-20T09:00:00Z","lastStart":"2018-11-22T10:00:00Z"}`), 0600))
		}, true},
		{"cannot be written", func(t *testing.T, now *clock.FakeClock, root, file string, _ *kubecontainer.PodStatus) {
			require.NoError(t, os.MkdirAll(filepath.Join(file+".tmp", "x"), 0750))
		}, false},
	} {
		now, root := clock.NewFakeClock(testRestartedAt), t.TempDir()
		pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
		assert.Equal(t, []bool{true}, syncOnce(restartedManager(t, now, root), stopNone, pm, pod, podStatus), tc.name)
		files := records(t, root)
		require.Len(t, files, 1)
		now.Step(time.Second)
		tc.change(t, now, root, files[0], podStatus)
		m := restartedManager(t, now, root)
		assert.Equal(t, []bool{tc.expect}, syncOnce(m, stopNone, pm, pod, podStatus), tc.name)
		settled := m.SettleReadiness(testPodUID, &pod.Status)
		assert.Equal(t, tc.expect, settled[testContainerID], tc.name)
		again := restartedManager(t, now, root)
		assert.Equal(t, []bool{tc.expect}, syncOnce(again, stopNone, pm, pod, podStatus), "%s, once more", tc.name)
	}
}

// No file is left where nothing is kept.
func TestHoldfastReadinessNoRecord(t *testing.T) {
	now, root := clock.NewFakeClock(testRestartedAt), t.TempDir()
	m := restartedManager(t, now, root)
	pod := publishedPod()
	pod.Status.ContainerStatuses[0].Ready = false
	pod.Status.Conditions[1].Status = v1.ConditionFalse
	assert.Equal(t, []bool{false}, syncOnce(m, stopNone, newPodManager(), pod, runtimeStatus()))
	assert.Empty(t, records(t, root))
	// Unless the API server says otherwise.
	assert.True(t, m.SettleReadiness(testPodUID, &publishedPod().Status)[testContainerID])
	assert.Len(t, records(t, root), 1)
}

// The API server's copy is as old as the Node's last heartbeat.
func TestHoldfastReadinessHeartbeat(t *testing.T) {
	for _, tc := range []struct {
		age    time.Duration
		known  bool
		expect bool
	}{
		{time.Second, true, true},
		{40 * time.Second, true, true},
		{41 * time.Second, true, false},
		{time.Hour, true, false},
		{-time.Second, true, true},
		{-time.Hour, true, false},
		{0, false, false},
	} {
		m := newKeepingManager(t)
		asked := 0
		m.kept.HeartbeatAge = func() (time.Duration, bool) { asked++; return tc.age, tc.known }
		pod, podStatus, pm := publishedPod(), runtimeStatus(), newPodManager()
		addWorker(m, pod)
		syncOnce(m, stopNone, pm, pod, podStatus)
		before := counter(t, readinessWithdrawn)
		assert.Equal(t, map[kubecontainer.ContainerID]bool{testContainerID: tc.expect}, m.SettleReadiness(testPodUID, &pod.Status), "%+v", tc)
		assert.Equal(t, []bool{tc.expect}, syncOnce(m, stopNone, pm, pod, podStatus), "%+v", tc)
		assert.Equal(t, map[bool]float64{true: 0, false: 1}[tc.expect], counter(t, readinessWithdrawn)-before, "%+v", tc)
		assert.Empty(t, m.SettleReadiness(testPodUID, &pod.Status))
		assert.Equal(t, 1, asked)
		assert.Empty(t, m.SettleReadiness(types.UID("another"), &pod.Status))
		assert.Equal(t, 1, asked, "asked for a pod of which nothing is kept")
	}
}

// A runtime that cannot say what it stops: as upstream, and no record.
func TestHoldfastReadinessOtherRuntime(t *testing.T) {
	m := newTestManager()
	m.StartKeepingReadiness(ReadinessSources{})
	pod := publishedPod()
	addWorker(m, pod)
	m.KeepReadiness(pod, runtimeStatus())
	status := *pod.Status.DeepCopy()
	m.UpdatePodStatus(pod.UID, &status)
	assert.False(t, status.ContainerStatuses[0].Ready)
	assert.Empty(t, m.SettleReadiness(testPodUID, &pod.Status))
}
