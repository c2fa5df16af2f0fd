// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"fmt"
	"sort"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
)

// fakePreparer answers as it is told, and remembers what it was asked.
type fakePreparer struct {
	containertest.FakeRuntimeHelper
	answer bool
	atOnce string // a container
	asked  int
	names  []string
	block  bool
}

func (f *fakePreparer) PrepareReplacement(_ *v1.Pod, replaced []ReplacedContainer, block bool) bool {
	f.asked++
	f.block = block
	for _, r := range replaced {
		f.names = append(f.names, r.Name)
	}
	sort.Strings(f.names)
	return f.answer
}

func (f *fakePreparer) ReplaceAtOnce(_ *v1.Pod, r ReplacedContainer) bool { return r.Name == f.atOnce }

// TestHoldfastPrepareReplacement: for which containers the kubelet is asked, and what is
// left to be done if it says no.
func TestHoldfastPrepareReplacement(t *testing.T) {
	image := func(pod *v1.Pod, i int) { pod.Spec.Containers[i].Image = "other" }
	type state struct {
		m      *kubeGenericRuntimeManager
		pod    *v1.Pod
		status *kubecontainer.PodStatus
	}
	die := func(s state, i int) {
		s.status.ContainerStatuses[i].State = kubecontainer.ContainerStateExited
		s.status.ContainerStatuses[i].ExitCode = 1
	}
	liveness := func(s state, i int) {
		s.m.livenessManager.Set(s.status.ContainerStatuses[i].ID, proberesults.Failure, s.pod)
	}
	for name, tc := range map[string]struct {
		change func(state)
		atOnce string
		asked  []string // nil: not asked
		block  bool
		// What is killed and started in this sync if the answer is no; proceed: whether
		// SyncPod goes on.
		proceed        bool
		killed, starts []string
	}{
		"nothing changed": {change: func(state) {}, proceed: true},
		"one of several":  {change: func(s state) { image(s.pod, 1) }, asked: []string{"foo2"}, block: true},
		"two at once": {change: func(s state) { image(s.pod, 0); image(s.pod, 2) },
			asked: []string{"foo1", "foo3"}, block: true},
		"all": {change: func(s state) { image(s.pod, 0); image(s.pod, 1); image(s.pod, 2) },
			asked: []string{"foo1", "foo2", "foo3"}, block: true},
		"two, one of them at once": {change: func(s state) { image(s.pod, 0); image(s.pod, 2) }, atOnce: "foo1",
			asked: []string{"foo3"}, proceed: true, killed: []string{"foo1"}, starts: []string{"foo1"}},
		"one, at once": {change: func(s state) { image(s.pod, 0) }, atOnce: "foo1",
			proceed: true, killed: []string{"foo1"}, starts: []string{"foo1"}},
		"restartPolicy Never": {change: func(s state) { image(s.pod, 1); s.pod.Spec.RestartPolicy = v1.RestartPolicyNever },
			asked: []string{"foo2"}, block: true},
		"the same image under another tag": {change: func(s state) { s.pod.Spec.Containers[1].Image = "busybox:latest" },
			asked: []string{"foo2"}, block: true},
		"another one's liveness failed": {change: func(s state) { image(s.pod, 1); liveness(s, 0) },
			asked: []string{"foo2"}, proceed: true, killed: []string{"foo1"}, starts: []string{"foo1"}},
		"its own liveness failed": {change: func(s state) { image(s.pod, 1); liveness(s, 1) },
			proceed: true, killed: []string{"foo2"}, starts: []string{"foo2"}},
		"liveness failed, nothing changed": {change: func(s state) { liveness(s, 1) },
			proceed: true, killed: []string{"foo2"}, starts: []string{"foo2"}},
		"another one's liveness failed, and it is not started again": {change: func(s state) {
			image(s.pod, 1)
			liveness(s, 0)
			s.pod.Spec.RestartPolicy = v1.RestartPolicyNever
		}, asked: []string{"foo2"}, proceed: true, killed: []string{"foo1"}},
		"another one is dead": {change: func(s state) { image(s.pod, 1); die(s, 0) },
			asked: []string{"foo2"}, proceed: true, starts: []string{"foo1"}},
		"it is dead itself": {change: func(s state) { image(s.pod, 1); die(s, 1) },
			proceed: true, starts: []string{"foo2"}},
		"the sandbox is dead": {change: func(s state) {
			image(s.pod, 1)
			s.status.SandboxStatuses[0].State = sandboxNotReady
		}, proceed: true, starts: []string{"foo1", "foo2", "foo3"}},
		"an init container's image": {change: func(s state) {
			s.pod.Spec.InitContainers = []v1.Container{{Name: "init", Image: "other"}}
			s.status.ContainerStatuses = append(s.status.ContainerStatuses, &kubecontainer.ContainerStatus{
				ID: kubecontainer.ContainerID{ID: "init"}, Name: "init", State: kubecontainer.ContainerStateExited, Hash: 1})
		}, proceed: true},
	} {
		for _, answer := range []bool{true, false} {
			_, _, m, err := createTestRuntimeManager()
			require.NoError(t, err)
			helper := &fakePreparer{answer: answer, atOnce: tc.atOnce}
			m.runtimeHelper = helper
			pod, status := makeBasePodAndStatus()
			tc.change(state{m, pod, status})
			actions := m.computePodActions(pod, status)
			before := fmt.Sprintf("%+v", names(pod, actions))

			proceed := m.prepareReplacement(pod, status, &actions)
			assert.Equal(t, tc.asked, helper.names, "%s: asked", name)
			if tc.asked != nil {
				assert.Equal(t, tc.block, helper.block, "%s: block", name)
			}
			if answer || tc.asked == nil {
				assert.True(t, proceed, name)
				assert.Equal(t, before, fmt.Sprintf("%+v", names(pod, actions)), "%s: upstream's decision stands", name)
			}
			if answer {
				continue
			}
			assert.Equal(t, tc.proceed, proceed, "%s: proceed", name)
			if proceed {
				got := names(pod, actions)
				assert.Equal(t, tc.killed, got.killed, "%s: killed", name)
				assert.Equal(t, tc.starts, got.starts, "%s: started", name)
			}
		}
	}
}

type namesOf struct{ killed, starts []string }

func names(pod *v1.Pod, actions podActions) (n namesOf) {
	for _, info := range actions.ContainersToKill {
		n.killed = append(n.killed, info.name)
	}
	sort.Strings(n.killed)
	for _, i := range actions.ContainersToStart {
		n.starts = append(n.starts, pod.Spec.Containers[i].Name)
	}
	return n
}

// TestHoldfastPrepareReplacementOff: stock's, with the gate off and for a helper that
// does not want to know.
func TestHoldfastPrepareReplacementOff(t *testing.T) {
	_, _, m, err := createTestRuntimeManager()
	require.NoError(t, err)
	pod, status := makeBasePodAndStatus()
	pod.Spec.Containers[1].Image = "other"
	actions := m.computePodActions(pod, status)
	assert.True(t, m.prepareReplacement(pod, status, &actions))

	helper := &fakePreparer{}
	m.runtimeHelper = helper
	setUnreadyGate(t, false)
	defer setUnreadyGate(t, true)
	assert.True(t, m.prepareReplacement(pod, status, &actions))
	assert.Equal(t, 0, helper.asked)
	assert.Len(t, actions.ContainersToKill, 1)
}

func setUnreadyGate(t *testing.T, on bool) {
	require.NoError(t, utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.UnreadyBeforeReplace, on)))
}

// TestHoldfastSyncPodPrepares: SyncPod kills nothing before the kubelet says so.
func TestHoldfastSyncPodPrepares(t *testing.T) {
	for _, answer := range []bool{false, true} {
		fakeRuntime, _, m, err := createTestRuntimeManager()
		require.NoError(t, err)
		helper := &fakePreparer{answer: answer}
		m.runtimeHelper = helper
		pod, _ := makeBasePodAndStatus()
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].ImagePullPolicy = v1.PullIfNotPresent
		}
		backOff := flowcontrol.NewBackOff(1, 1)
		m.SyncPod(pod, v1.PodStatus{}, &kubecontainer.PodStatus{}, nil, backOff)
		require.Equal(t, 3, len(fakeRuntime.Containers))
		assert.Equal(t, 0, helper.asked, "a new pod")

		pod.Spec.Containers[0].Image = "other"
		status, err := m.GetPodStatus(pod.UID, pod.Name, pod.Namespace)
		require.NoError(t, err)
		fakeRuntime.Called = nil
		result := m.SyncPod(pod, v1.PodStatus{}, status, nil, backOff)
		assert.NoError(t, result.Error())
		assert.Equal(t, 1, helper.asked)
		stopped := false
		for _, call := range fakeRuntime.Called {
			stopped = stopped || call == "StopContainer"
		}
		assert.Equal(t, answer, stopped)
		assert.Equal(t, map[bool]int{true: 4, false: 3}[answer], len(fakeRuntime.Containers))
		if !answer {
			assert.Empty(t, result.SyncResults)
		}
	}
}

// TestHoldfastContainersToStopPrepared: what is published of a container stands after a
// restart of the kubelet until SyncPod itself makes it not ready. Else its probe, which
// may succeed before SyncPod comes to that, would make it ready again in between.
func TestHoldfastContainersToStopPrepared(t *testing.T) {
	for name, tc := range map[string]struct {
		off    bool
		helper kubecontainer.RuntimeHelper
		change func(*kubeGenericRuntimeManager, *v1.Pod, *kubecontainer.PodStatus)
		stop   []string
	}{
		"made not ready first": {helper: &fakePreparer{}},
		"the gate is off":      {off: true, helper: &fakePreparer{}, stop: []string{"foo2"}},
		"nobody is to be told": {helper: &containertest.FakeRuntimeHelper{}, stop: []string{"foo2"}},
		"opted out":            {helper: &fakePreparer{atOnce: "foo2"}, stop: []string{"foo2"}},
		"its liveness failed": {helper: &fakePreparer{}, stop: []string{"foo2"}, change: func(m *kubeGenericRuntimeManager, p *v1.Pod, s *kubecontainer.PodStatus) {
			m.livenessManager.Set(s.ContainerStatuses[1].ID, proberesults.Failure, p)
		}},
		"another one's liveness failed": {helper: &fakePreparer{}, stop: []string{"foo3"}, change: func(m *kubeGenericRuntimeManager, p *v1.Pod, s *kubecontainer.PodStatus) {
			m.livenessManager.Set(s.ContainerStatuses[2].ID, proberesults.Failure, p)
		}},
		"the sandbox is dead": {helper: &fakePreparer{}, stop: []string{"foo1", "foo2", "foo3"}, change: func(_ *kubeGenericRuntimeManager, _ *v1.Pod, s *kubecontainer.PodStatus) {
			s.SandboxStatuses[0].State = sandboxNotReady
		}},
	} {
		_, _, m, err := createTestRuntimeManager()
		require.NoError(t, err)
		m.runtimeHelper = tc.helper
		pod, status := makeBasePodAndStatus()
		pod.Spec.Containers[1].Image = "other"
		if tc.change != nil {
			tc.change(m, pod, status)
		}
		require.NoError(t, utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.UnreadyBeforeReplace, !tc.off)))
		stops := m.ContainersToStop(pod, status)
		require.NoError(t, utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.UnreadyBeforeReplace)))
		var got []string
		for _, c := range status.ContainerStatuses {
			if stops(c.ID) {
				got = append(got, c.Name)
			}
		}
		assert.Equal(t, tc.stop, got, name)
		if helper, ok := tc.helper.(*fakePreparer); ok {
			assert.Zero(t, helper.asked, name)
		}
	}
}

// TestHoldfastContainersChanged: the same decision as SyncPod's, of running containers.
func TestHoldfastContainersChanged(t *testing.T) {
	_, _, m, err := createTestRuntimeManager()
	require.NoError(t, err)
	pod, status := makeBasePodAndStatus()
	assert.Empty(t, m.ContainersChanged(pod, status))
	pod.Spec.Containers[0].Image = "other"
	pod.Spec.Containers[2].Image = "other"
	status.ContainerStatuses[0].State = kubecontainer.ContainerStateExited
	assert.Equal(t, []ReplacedContainer{{ID: status.ContainerStatuses[2].ID, Name: "foo3"}}, m.ContainersChanged(pod, status))
}

// BenchmarkHoldfastPrepareReplacement is what the decision of an unchanged pod costs with
// the gate on and off.
func BenchmarkHoldfastPrepareReplacement(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("gate=%v", on), func(b *testing.B) {
			utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.UnreadyBeforeReplace, on))
			defer utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.UnreadyBeforeReplace))
			_, _, m, err := createTestRuntimeManager()
			require.NoError(b, err)
			m.runtimeHelper = &fakePreparer{}
			pod, status := makeBasePodAndStatus()
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				actions := m.computePodActions(pod, status)
				m.prepareReplacement(pod, status, &actions)
			}
		})
	}
}
