// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/clock"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// sentPods notes which pods are sent to their workers.
type sentPods struct{ sets.String }

func (s sentPods) UpdatePod(o *UpdatePodOptions)                   { s.Insert(string(o.Pod.UID)) }
func (s sentPods) ForgetNonExistingPodWorkers(map[types.UID]empty) {}
func (s sentPods) ForgetWorker(types.UID)                          {}

// restartedRuntime counts the lists, of which the first fail.
type restartedRuntime struct {
	*containertest.FakeRuntime
	lists, fail int
}

func (r *restartedRuntime) GetPods(all bool) ([]*kubecontainer.Pod, error) {
	r.lists++
	if r.lists <= r.fail {
		return nil, errors.New("the runtime does not answer")
	}
	return r.FakeRuntime.GetPods(all)
}

// restartedKubelet is a kubelet that has just started on a node.
type restartedKubelet struct {
	*TestKubelet
	runtime *restartedRuntime
	sent    sentPods
	// known is what the store of Nodes has.
	known nodeStore
}

// nodeStore is the kubelet's Node, nil as long as it is not known, and what comes.
type nodeStore struct {
	node *v1.Node
	next chan *v1.Node
}

func (s *nodeStore) GetNodeInfo(name string) (*v1.Node, error) {
	select {
	case s.node = <-s.next:
	default:
	}
	if s.node == nil {
		return nil, errors.New("node not found")
	}
	return s.node, nil
}

func newRestartedKubelet(t *testing.T) *restartedKubelet {
	tk := newTestKubelet(t, false)
	answerStats(tk)
	r := &restartedKubelet{TestKubelet: tk, runtime: &restartedRuntime{FakeRuntime: tk.fakeRuntime}, sent: sentPods{sets.String{}}}
	r.known.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testKubeletHostname, Labels: map[string]string{"disk": "hdd"}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourcePods: resource.MustParse("110"), v1.ResourceCPU: resource.MustParse("1")}}}
	kl := tk.kubelet
	kl.nodeInfo, kl.containerRuntime, kl.podWorkers = &r.known, r.runtime, r.sent
	kl.sourcesReady = config.NewSourcesReady(func(seen sets.String) bool { return seen.HasAll(kubetypes.FileSource, kubetypes.ApiserverSource) })
	kl.runtimeState.setRuntimeSync(time.Now())
	kl.resyncInterval = time.Hour
	return r
}

// takeOver has the sync loop handle the updates.
func (r *restartedKubelet) takeOver(updates ...kubetypes.PodUpdate) {
	ch := make(chan kubetypes.PodUpdate, len(updates))
	for _, u := range updates {
		ch <- u
	}
	close(ch)
	r.kubelet.syncLoop(ch, r.kubelet)
}

// runs adds what the last kubelet left of a pod: the states of its sandboxes and containers.
func (r *restartedKubelet) runs(uid string, sandboxes, containers []kubecontainer.ContainerState) {
	pod := &kubecontainer.Pod{ID: types.UID(uid)}
	for _, s := range sandboxes {
		pod.Sandboxes = append(pod.Sandboxes, &kubecontainer.Container{State: s})
	}
	for _, s := range containers {
		pod.Containers = append(pod.Containers, &kubecontainer.Container{State: s})
	}
	r.fakeRuntime.AllPodList = append(r.fakeRuntime.AllPodList, &containertest.FakePod{Pod: pod})
}

// reason is why the kubelet has rejected a pod; "" if it has not.
func (r *restartedKubelet) reason(uid string) string {
	s, _ := r.kubelet.statusManager.GetPodStatus(types.UID(uid))
	if s.Phase != v1.PodFailed {
		return ""
	}
	return s.Reason
}

func apiPods(pods ...*v1.Pod) kubetypes.PodUpdate {
	return kubetypes.PodUpdate{Op: kubetypes.ADD, Source: kubetypes.ApiserverSource, Pods: pods}
}

// ssdPod does not fit the Node any more.
func ssdPod(uid string) *v1.Pod {
	return podWithUIDNameNsSpec(types.UID(uid), "pod-"+uid, "ns", v1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}})
}

var (
	running = []kubecontainer.ContainerState{kubecontainer.ContainerStateRunning}
	exited  = []kubecontainer.ContainerState{kubecontainer.ContainerStateExited}
	unknown = []kubecontainer.ContainerState{kubecontainer.ContainerStateUnknown}
)

// A pod that would be rejected as a new one is kept if, and only if, something of it is
// left. What its status says decides nothing but that it has ended.
func TestAdmissionAcrossRestart(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		sandboxes, containers []kubecontainer.ContainerState
		left                  string // UID of what is left
		kept                  bool
	}{
		{"runs", running, running, "1", true},
		{"one of two runs", running, append(exited, running...), "1", true},
		{"runs without a sandbox", exited, running, "1", true},
		{"between two starts", running, exited, "1", true},
		{"has had two sandboxes", append(exited, running...), exited, "1", true},
		{"has a sandbox, nothing was ever made", running, nil, "1", false},
		{"rebooted", exited, exited, "1", false},
		{"cannot be told", unknown, unknown, "1", false},
		{"nothing is left", nil, nil, "1", false},
		{"another pod runs", running, running, "2", false},
	} {
		for _, on := range []bool{true, false} {
			for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodPending} {
				t.Run(fmt.Sprintf("%s/gate %v/%s", tc.name, on, phase), func(t *testing.T) {
					defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AdmissionAcrossRestart, on)()
					r := newRestartedKubelet(t)
					defer r.Cleanup()
					r.runs(tc.left, tc.sandboxes, tc.containers)
					pod := ssdPod("1")
					pod.Status.Phase = phase
					r.takeOver(apiPods(pod))
					if want := tc.kept && on; want {
						assert.Empty(t, r.reason("1"), "rejected")
						assert.True(t, r.sent.Has("1"), "not synced")
					} else {
						assert.Equal(t, "MatchNodeSelector", r.reason("1"))
						assert.False(t, r.sent.Has("1"), "synced")
					}
				})
			}
		}
	}
}

// refuse is pressure: no pod is admitted.
type refuse struct{}

func (refuse) Admit(*lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	return lifecycle.PodAdmitResult{Reason: "Evicted"}
}

// Whatever rejects pods, and wherever they come from: those that run stay, a new one does
// not get in, one that has ended or was rejected does not come back, one that is being
// deleted goes on to be deleted, and one that comes when all sources have told their pods
// is a new one, whatever ran at the start.
func TestAdmissionAcrossRestartUnderPressure(t *testing.T) {
	r := newRestartedKubelet(t)
	defer r.Cleanup()
	r.kubelet.admitHandlers.AddPodAdmitHandler(refuse{})
	pods := map[string]*v1.Pod{}
	for _, uid := range []string{"static", "api", "failed", "succeeded", "deleted", "later", "new"} {
		if uid != "new" {
			r.runs(uid, running, running)
		}
		pods[uid] = podWithUIDNameNs(types.UID(uid), "pod-"+uid, "ns")
		pods[uid].Status.Phase = v1.PodRunning
	}
	pods["static"].Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.FileSource
	pods["failed"].Status.Phase = v1.PodFailed
	pods["succeeded"].Status.Phase = v1.PodSucceeded
	pods["deleted"].DeletionTimestamp = &metav1.Time{Time: time.Now()}
	pods["deleted"].Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	r.takeOver(
		kubetypes.PodUpdate{Op: kubetypes.ADD, Source: kubetypes.FileSource, Pods: []*v1.Pod{pods["static"]}},
		apiPods(pods["new"], pods["failed"], pods["api"], pods["succeeded"], pods["deleted"]),
		apiPods(pods["later"]),
	)
	assert.Equal(t, []string{"api", "deleted", "static"}, r.sent.List(), "synced")
	assert.Equal(t, "Evicted", r.reason("new"))
	assert.Equal(t, "Evicted", r.reason("later"))
	assert.Equal(t, 1, r.runtime.lists, "lists of the runtime's pods")
}

// A pod that runs counts before a new one that is older is asked whether it fits.
func TestAdmissionAcrossRestartCountsPodsThatRun(t *testing.T) {
	r := newRestartedKubelet(t)
	defer r.Cleanup()
	pod := func(uid string, age time.Duration) *v1.Pod {
		p := podWithUIDNameNsSpec(types.UID(uid), "pod-"+uid, "ns", v1.PodSpec{Containers: []v1.Container{{Name: "c",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("600m")}}}}})
		p.CreationTimestamp = metav1.NewTime(time.Now().Add(-age))
		return p
	}
	r.runs("runs", running, running)
	r.runs("runs too", running, running)
	r.takeOver(apiPods(pod("new", time.Hour), pod("runs", time.Minute), pod("runs too", time.Second)))
	assert.Equal(t, []string{"runs", "runs too"}, r.sent.List(), "synced")
	assert.Equal(t, "OutOfcpu", r.reason("new"))
}

// No pod is rejected, and none is synced, as long as the runtime does not say what runs.
func TestAdmissionAcrossRestartWaitsForRuntime(t *testing.T) {
	r := newRestartedKubelet(t)
	defer r.Cleanup()
	r.runtime.fail = 3
	r.runs("1", running, running)
	start := r.fakeClock.Now()
	r.takeOver(apiPods(ssdPod("1"), ssdPod("new")))
	assert.Equal(t, []string{"1"}, r.sent.List(), "synced")
	assert.Equal(t, "MatchNodeSelector", r.reason("new"))
	assert.Equal(t, 4, r.runtime.lists)
	assert.Equal(t, 3*admissionLookPause, r.fakeClock.Since(start))
}

// handsOn asks for the next update that the sync loop gets, and for none with "".
func handsOn(t *testing.T, out <-chan kubetypes.PodUpdate, want string) {
	bound := 10 * time.Second
	if want == "" {
		bound = 50 * time.Millisecond
	}
	select {
	case u := <-out:
		got := u.Source
		for _, p := range u.Pods {
			got += " " + string(p.UID)
		}
		if got != want {
			t.Fatalf("handed on %q, want %q", got, want)
		}
	case <-time.After(bound):
		if want != "" {
			t.Fatalf("%q was not handed on", want)
		}
	}
}

// step lets a time pass when the kubelet waits for it.
func step(t *testing.T, c *clock.FakeClock, d time.Duration) {
	for i := 0; !c.HasWaiters(); i++ {
		if i == 1000 {
			t.Fatal("the kubelet does not wait for the Node")
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.Step(d)
}

// Pods of the API server wait for its Node, and nothing else does.
func TestAdmissionAcrossRestartWaitsForNode(t *testing.T) {
	file := func(uid string) kubetypes.PodUpdate {
		return kubetypes.PodUpdate{Op: kubetypes.ADD, Source: kubetypes.FileSource, Pods: []*v1.Pod{newPod(uid, uid)}}
	}
	update := func(op kubetypes.PodOperation, uid string) kubetypes.PodUpdate {
		u := apiPods(newPod(uid, uid))
		u.Op = op
		return u
	}
	start := func(t *testing.T, change func(*restartedKubelet)) (*restartedKubelet, chan kubetypes.PodUpdate, <-chan kubetypes.PodUpdate) {
		r := newRestartedKubelet(t)
		r.known = nodeStore{next: make(chan *v1.Node, 1)}
		change(r)
		in := make(chan kubetypes.PodUpdate, 2*maxHeldUpdates)
		return r, in, r.kubelet.takeOverPods(in)
	}
	none := func(*restartedKubelet) {}

	t.Run("until it is known", func(t *testing.T) {
		r, in, out := start(t, none)
		defer r.Cleanup()
		defer close(in)
		in <- apiPods() // no pods: the source is ready
		handsOn(t, out, "api")
		in <- apiPods(newPod("1", "1"))
		in <- file("static")
		handsOn(t, out, "file static")
		in <- update(kubetypes.REMOVE, "2")
		in <- file("static2")
		handsOn(t, out, "file static2")
		step(t, r.fakeClock, nodeWaitPeriod)
		handsOn(t, out, "")
		r.known.next <- &v1.Node{}
		step(t, r.fakeClock, nodeWaitPeriod)
		handsOn(t, out, "api 1")
		handsOn(t, out, "api 2")
		in <- apiPods(newPod("3", "3"))
		handsOn(t, out, "api 3")
	})
	t.Run("30 s", func(t *testing.T) {
		r, in, out := start(t, none)
		defer r.Cleanup()
		defer close(in)
		in <- apiPods(newPod("1", "1"))
		step(t, r.fakeClock, maxNodeWait-time.Second)
		handsOn(t, out, "")
		step(t, r.fakeClock, time.Second)
		handsOn(t, out, "api 1")
		in <- apiPods(newPod("2", "2")) // waits no more
		handsOn(t, out, "api 2")
	})
	t.Run("a thousand updates", func(t *testing.T) {
		r, in, out := start(t, none)
		defer r.Cleanup()
		defer close(in)
		for i := 0; i < maxHeldUpdates-1; i++ {
			in <- apiPods(newPod(fmt.Sprint(i), "p"))
		}
		handsOn(t, out, "")
		in <- apiPods(newPod("last", "p"))
		for i := 0; i < maxHeldUpdates-1; i++ {
			handsOn(t, out, fmt.Sprint("api ", i))
		}
		handsOn(t, out, "api last")
	})
	t.Run("not without an API server", func(t *testing.T) {
		r, in, out := start(t, func(r *restartedKubelet) { r.kubelet.kubeClient = nil })
		defer r.Cleanup()
		defer close(in)
		in <- apiPods(newPod("1", "1"))
		handsOn(t, out, "api 1")
	})
	t.Run("not from a checkpoint", func(t *testing.T) {
		r, in, out := start(t, none)
		defer r.Cleanup()
		defer close(in)
		in <- update(kubetypes.RESTORE, "1")
		handsOn(t, out, "api 1")
		in <- apiPods(newPod("2", "2"))
		handsOn(t, out, "")
	})
	t.Run("is not lost at the end", func(t *testing.T) {
		r, in, out := start(t, none)
		defer r.Cleanup()
		in <- apiPods(newPod("1", "1"))
		close(in)
		handsOn(t, out, "api 1")
		if _, open := <-out; open {
			t.Error("the sync loop does not end")
		}
	})
	t.Run("gate off", func(t *testing.T) {
		defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AdmissionAcrossRestart, false)()
		r, in, out := start(t, none)
		defer r.Cleanup()
		assert.Equal(t, (<-chan kubetypes.PodUpdate)(in), out, "stock's channel")
		assert.Zero(t, r.runtime.lists, "lists of the runtime's pods")
	})
}
