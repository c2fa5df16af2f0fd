// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/clock"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	core "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
)

// startingRuntime answers after a time, like a docker of many containers, and its network
// needs a PodCIDR, as kubenet does, if it is told so.
type startingRuntime struct {
	*containertest.FakeRuntime
	slow     time.Duration
	down     error
	needCIDR bool

	sync.Mutex
	cidr string
}

func (r *startingRuntime) Status() (*kubecontainer.RuntimeStatus, error) {
	time.Sleep(r.slow)
	r.Lock()
	defer r.Unlock()
	return &kubecontainer.RuntimeStatus{Conditions: []kubecontainer.RuntimeCondition{
		{Type: kubecontainer.RuntimeReady, Status: true},
		{Type: kubecontainer.NetworkReady, Status: !r.needCIDR || r.cidr != ""},
	}}, r.down
}

func (r *startingRuntime) UpdatePodCIDR(cidr string) error {
	r.Lock()
	defer r.Unlock()
	r.cidr = cidr
	return nil
}

// TestHoldfastNodeReadyAcrossRestart: what a starting kubelet publishes of its node, which
// is Ready in the API, and when. The runtime is looked at in another goroutine, as Run does.
func TestHoldfastNodeReadyAcrossRestart(t *testing.T) {
	const a = 700 * time.Millisecond
	for name, test := range map[string]struct {
		off      bool
		slow     time.Duration
		pleg     time.Duration // healthy after
		down     error
		needCIDR bool
		podCIDR  string
		ready    bool
		// reads of the Node; the status takes from least to most.
		reads       int
		least, most time.Duration
	}{
		"fast":                    {ready: true, reads: 1, most: a},
		"slow":                    {slow: a, ready: true, reads: 1, least: a, most: 3 * a},
		"slow, gate off":          {off: true, slow: a, reads: 1, most: a},
		"PLEG after the runtime":  {pleg: a, ready: true, reads: 1, least: a, most: 3 * a},
		"down":                    {down: errors.New("no docker"), reads: 1, most: a},
		"down after a while":      {slow: a, down: errors.New("no docker"), reads: 1, least: a, most: 3 * a},
		"hangs":                   {slow: 2 * firstStatusBound, reads: 1, least: firstStatusBound, most: firstStatusBound + 3*a},
		"kubenet":                 {needCIDR: true, podCIDR: "10.1.2.0/24", ready: true, reads: 2, most: a},
		"kubenet, slow":           {slow: a, needCIDR: true, podCIDR: "10.1.2.0/24", ready: true, reads: 2, least: 2 * a, most: 4 * a},
		"kubenet without PodCIDR": {needCIDR: true, reads: 2, most: a},
		"kubenet, gate off":       {off: true, needCIDR: true, podCIDR: "10.1.2.0/24", reads: 1, most: a},
	} {
		test := test
		t.Run(name, func(t *testing.T) {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.NodeReadyAcrossRestart, !test.off)()
			testKubelet := newTestKubelet(t, false /* controllerAttachDetachEnabled */)
			defer testKubelet.Cleanup()
			kl := testKubelet.kubelet
			kl.clock = clock.RealClock{}
			r := &startingRuntime{FakeRuntime: testKubelet.fakeRuntime, slow: test.slow, down: test.down, needCIDR: test.needCIDR}
			kl.containerRuntime = r
			kl.runtimeState = newRuntimeState(maxWaitForContainerRuntime)
			begin := time.Now()
			kl.runtimeState.addHealthCheck("PLEG", func() (bool, error) {
				return time.Since(begin) >= test.pleg, errors.New("not listed yet")
			})
			kl.oneTimeInitializer.Do(func() {}) // cAdvisor and the eviction manager
			kl.nodeStatusUpdateFrequency = 10 * time.Second
			fakeMachine(testKubelet)

			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testKubeletHostname}, Spec: v1.NodeSpec{PodCIDR: test.podCIDR},
				Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}}}
			var reads int
			var published []v1.NodeCondition
			testKubelet.fakeKubeClient.PrependReactor("*", "nodes", func(action core.Action) (bool, runtime.Object, error) {
				if patch, ok := action.(core.PatchActionImpl); ok {
					var sent v1.Node
					if err := json.Unmarshal(patch.GetPatch(), &sent); err != nil {
						t.Errorf("%s: %v", patch.GetPatch(), err)
					}
					for _, c := range sent.Status.Conditions {
						if c.Type == v1.NodeReady {
							published = append(published, c)
						}
					}
					return true, node, nil
				}
				reads++
				return true, node, nil
			})

			if test.off && test.needCIDR {
				kl.updateRuntimeUp() // stock does not look again after the status has read the PodCIDR
			} else {
				go kl.updateRuntimeUp()
			}
			kl.syncNodeStatus()
			took := time.Since(begin)
			if len(published) != 1 {
				t.Fatalf("published %+v", published)
			}
			// A status that says what the API has leaves the condition's status out of the patch.
			if c := published[0]; (c.Status == "" || c.Status == v1.ConditionTrue) != test.ready {
				t.Errorf("published %q: %s", c.Status, c.Message)
			}
			if took < test.least || took > test.most {
				t.Errorf("took %v, want %v to %v", took, test.least, test.most)
			}
			if reads != test.reads {
				t.Errorf("read the Node %d times, want %d", reads, test.reads)
			}

			// The next one does not wait, whatever the runtime does.
			kl.runtimeState.setRuntimeSync(time.Time{})
			begin = begin.Add(-time.Hour) // the PLEG is healthy
			again := time.Now()
			kl.syncNodeStatus()
			if d := time.Since(again); d > a {
				t.Errorf("the second status took %v", d)
			}
		})
	}
}
