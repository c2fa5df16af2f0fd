// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"testing"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorapiv2 "github.com/google/cadvisor/info/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
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

// probedPod is a pod with a readiness probe as published, and what the runtime says
// of it. Its container runs since since.
func probedPod(ready bool, since metav1.Time) (*v1.Pod, *kubecontainer.PodStatus) {
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
	podStatus := &kubecontainer.PodStatus{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace,
		ContainerStatuses: []*kubecontainer.ContainerStatus{{ID: kubecontainer.ContainerID{Type: "test", ID: "c"}, Name: "c",
			State: kubecontainer.ContainerStateRunning, StartedAt: since.Time}}}
	return pod, podStatus
}

// nodeHeard is this kubelet's Node with a heartbeat that is age old.
func nodeHeard(kl *Kubelet, age time.Duration) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: string(kl.nodeName)}, Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
		{Type: v1.NodeDiskPressure, LastHeartbeatTime: metav1.NewTime(kl.clock.Now())},
		{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(kl.clock.Now().Add(-age))},
	}}}
}

// TestHoldfastReadinessFirstPublish: what the kubelet publishes first is what the
// API server has by then, not what the kubelet's list had, and only if somebody
// was there to keep that right.
func TestHoldfastReadinessFirstPublish(t *testing.T) {
	for _, tc := range []struct {
		name           string
		listed, stored bool
		heartbeat      time.Duration
		// errors is how many reads of the Node fail.
		errors int
		expect v1.ConditionStatus
	}{
		{"ready", true, true, time.Second, 0, v1.ConditionTrue},
		{"a stale list", true, false, time.Second, 0, v1.ConditionFalse},
		{"a list that missed it", false, true, time.Second, 0, v1.ConditionTrue},
		{"nobody was there for a while", true, true, 5 * time.Minute, 0, v1.ConditionFalse},
		{"two reads of the Node fail", true, true, time.Second, 2, v1.ConditionTrue},
		{"it cannot be read", true, true, time.Second, 1000, v1.ConditionFalse},
	} {
		testKubelet := newTestKubelet(t, false)
		kl := testKubelet.kubelet
		kl.containerRuntime = stoppingRuntime{testKubelet.fakeRuntime}
		kl.probeManager = prober.NewManager(kl.statusManager, results.NewManager(), nil, kubecontainer.NewRefManager(), &record.FakeRecorder{})
		kl.startKeepingReadiness()

		since := metav1.NewTime(time.Unix(1500000000, 0).UTC())
		pod, podStatus := probedPod(tc.listed, since)
		stored, _ := probedPod(tc.stored, since)
		kl.podManager.AddPod(pod)
		require.NoError(t, os.MkdirAll(kl.getPodDir(pod.UID), 0750))
		published := make(chan *v1.Pod, 100)
		testKubelet.fakeKubeClient.PrependReactor("get", "pods", func(core.Action) (bool, runtime.Object, error) {
			return true, stored, nil
		})
		testKubelet.fakeKubeClient.PrependReactor("get", "nodes", func(core.Action) (bool, runtime.Object, error) {
			if tc.errors--; tc.errors >= 0 {
				return true, nil, apierrors.NewTimeoutError("busy", 1)
			}
			return true, nodeHeard(kl, tc.heartbeat), nil
		})
		testKubelet.fakeKubeClient.PrependReactor("*", "pods", func(a core.Action) (bool, runtime.Object, error) {
			p := statusWritten(t, a, stored)
			if p != nil {
				published <- p
			}
			return p != nil, p, nil
		})
		kl.probeManager.AddPod(pod)
		kl.statusManager.SetPodStatus(pod, kl.generateAPIPodStatus(pod, podStatus))
		kl.statusManager.Start()
		select {
		case p := <-published:
			_, c := podutil.GetPodCondition(&p.Status, v1.PodReady)
			assert.Equal(t, tc.expect, c.Status, tc.name)
			assert.Equal(t, tc.expect == v1.ConditionTrue, p.Status.ContainerStatuses[0].Ready, tc.name)
		case <-time.After(30 * time.Second):
			t.Errorf("%s: nothing was published", tc.name)
		}
		kl.probeManager.RemovePod(pod)
		testKubelet.Cleanup()
	}
}

// statusWritten is the stored pod with the status that a request writes, nil if it writes none. Some
// releases write one by an update, others by a patch.
func statusWritten(t *testing.T, a core.Action, stored *v1.Pod) *v1.Pod {
	written := stored.DeepCopy()
	switch a := a.(type) {
	case core.UpdateAction:
		written.Status = a.GetObject().(*v1.Pod).Status
	case core.PatchAction:
		was, err := json.Marshal(stored)
		require.NoError(t, err)
		now, err := strategicpatch.StrategicMergePatch(was, a.GetPatch(), v1.Pod{})
		require.NoError(t, err)
		patched := &v1.Pod{}
		require.NoError(t, json.Unmarshal(now, patched))
		written.Status = patched.Status
	default:
		return nil
	}
	return written
}

// TestHoldfastReadinessStarted: NewMainKubelet, which no unit test can call, starts
// it, and not before there is what it needs.
func TestHoldfastReadinessStarted(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "kubelet.go", nil, 0)
	require.NoError(t, err)
	var order []string
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "NewMainKubelet" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if s, ok := n.Lhs[0].(*ast.SelectorExpr); ok {
					order = append(order, s.Sel.Name)
				}
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "startKeepingReadiness" {
					order = append(order, s.Sel.Name)
				}
			}
			return true
		})
	}
	at := func(name string) (last int) {
		last = -1
		for i := range order {
			if order[i] == name {
				last = i
			}
		}
		return last
	}
	started := at("startKeepingReadiness")
	for _, before := range []string{"kubeClient", "containerRuntime", "podManager", "statusManager", "probeManager"} {
		assert.True(t, started > at(before), "%v: %s comes later, or it is not started", order, before)
	}
}

// TestHoldfastHeartbeat: the heartbeat that counts is the one that this process
// found, not one that it wrote.
func TestHoldfastHeartbeat(t *testing.T) {
	for _, tc := range []struct {
		name  string
		touch func(kl *Kubelet)
		// asked: the Node is read for this alone.
		asked   bool
		found   bool
		gateOff bool
	}{
		{name: "before any write", touch: func(*Kubelet) {}, asked: true, found: true},
		{name: "after the first status of the node", touch: func(kl *Kubelet) { kl.updateNodeStatus() }, found: true},
		{name: "after registering with a node that was there", touch: func(kl *Kubelet) {
			kl.tryRegisterWithAPIServer(nodeHeard(kl, 0))
			kl.updateNodeStatus()
		}, found: true},
		{name: "after registering a new node", touch: func(kl *Kubelet) {
			kl.kubeClient.(*fake.Clientset).PrependReactor("create", "nodes", func(core.Action) (bool, runtime.Object, error) {
				return true, nodeHeard(kl, 0), nil
			})
			kl.tryRegisterWithAPIServer(nodeHeard(kl, 0))
			kl.updateNodeStatus()
		}},
		{name: "after registering a new node, and the first answer was lost", touch: func(kl *Kubelet) {
			made := false
			kl.kubeClient.(*fake.Clientset).PrependReactor("get", "nodes", func(core.Action) (bool, runtime.Object, error) {
				if made {
					node := nodeHeard(kl, 0)
					// The field has not the same name in all releases; 1.12 does not look at it.
					require.NoError(t, json.Unmarshal([]byte(fmt.Sprintf(`{"spec": {"externalID": %q}}`, kl.nodeName)), node))
					node.Labels = map[string]string{}
					return true, node, nil
				}
				return true, nil, apierrors.NewNotFound(v1.Resource("nodes"), string(kl.nodeName))
			})
			kl.kubeClient.(*fake.Clientset).PrependReactor("create", "nodes", func(core.Action) (bool, runtime.Object, error) {
				if made {
					return false, nil, nil // it is there
				}
				made = true
				return true, nil, apierrors.NewTimeoutError("no answer", 1)
			})
			done := make(chan struct{})
			go func() {
				defer close(done)
				kl.registerWithAPIServer()
			}()
			select {
			case <-done:
			case <-time.After(30 * time.Second):
				t.Fatal("the node was not registered")
			}
		}},
		{name: "gate off", gateOff: true, touch: func(kl *Kubelet) { kl.updateNodeStatus() }},
	} {
		utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.ReadinessAcrossRestart, !tc.gateOff))
		testKubelet := newTestKubelet(t, false)
		kl := testKubelet.kubelet
		kl.cadvisor = fakeCadvisor{}
		// What this kubelet writes is a heartbeat of now.
		kl.setNodeStatusFuncs = []func(*v1.Node) error{func(node *v1.Node) error {
			node.Status.Conditions = nodeHeard(kl, 0).Status.Conditions
			return nil
		}}
		heard, gets := time.Minute, 0
		testKubelet.fakeKubeClient.PrependReactor("get", "nodes", func(core.Action) (bool, runtime.Object, error) {
			gets++
			return true, nodeHeard(kl, heard), nil
		})
		testKubelet.fakeKubeClient.PrependReactor("patch", "nodes", func(core.Action) (bool, runtime.Object, error) {
			heard = 0 // from now on it is this kubelet's
			return true, nodeHeard(kl, 0), nil
		})
		testKubelet.fakeKubeClient.PrependReactor("create", "nodes", func(core.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewAlreadyExists(v1.Resource("nodes"), string(kl.nodeName))
		})
		tc.touch(kl)
		before := gets
		age, found := kl.heartbeatAge()
		assert.Equal(t, tc.found, found, tc.name)
		if tc.found {
			assert.Equal(t, time.Minute, age.Round(10*time.Second), tc.name)
		}
		assert.Equal(t, tc.asked, gets > before, tc.name)
		kl.heartbeatAge()
		assert.True(t, gets <= before+1, "%s: asked twice", tc.name)
		testKubelet.Cleanup()
	}
	utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.ReadinessAcrossRestart))
}

// fakeCadvisor is a machine, as far as a Node is made of it.
type fakeCadvisor struct{ cadvisor.Interface }

func (fakeCadvisor) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{MachineID: "m", NumCores: 2, MemoryCapacity: 1024}, nil
}
func (fakeCadvisor) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	return &cadvisorapi.VersionInfo{}, nil
}
func (fakeCadvisor) ImagesFsInfo() (cadvisorapiv2.FsInfo, error) {
	return cadvisorapiv2.FsInfo{Capacity: 1000}, nil
}
func (fakeCadvisor) RootFsInfo() (cadvisorapiv2.FsInfo, error) {
	return cadvisorapiv2.FsInfo{Capacity: 1000}, nil
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
		kl.startKeepingReadiness()

		since := metav1.NewTime(time.Unix(1500000000, 0).UTC())
		condition := map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[ready]
		pod, podStatus := probedPod(ready, since)
		kl.podManager.AddPod(pod)
		require.NoError(t, os.MkdirAll(kl.getPodDir(pod.UID), 0750))

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
