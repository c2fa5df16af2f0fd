// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/glog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/util"
)

// firstStatusBound is how long the first node status waits for the runtime. The node
// controller takes a node for lost 40 s after its last heartbeat (by default). That is up
// to 10 s old when a kubelet ends, and the next one needs some seconds to come here.
const firstStatusBound = 10 * time.Second

// firstStatusPoll is how often the wait looks.
const firstStatusPoll = 50 * time.Millisecond

// firstRuntimeCheck is what a starting kubelet knows about its first look at the runtime.
type firstRuntimeCheck struct {
	// waited: the first node status waits, later ones do not.
	waited sync.Once
	// ended is 1 when updateRuntimeUp has returned, whatever it found.
	ended int32
}

// end is called when updateRuntimeUp returns.
func (c *firstRuntimeCheck) end() {
	atomic.StoreInt32(&c.ended, 1)
}

// runtimeDown: the runtime was looked at, and did not answer or is not ready.
func (s *runtimeState) runtimeDown() bool {
	s.RLock()
	defer s.RUnlock()
	return atomic.LoadInt32(&s.firstCheck.ended) == 1 && s.lastBaseRuntimeSync.IsZero()
}

// awaitRuntimeUp is called before each node status, in the goroutine that writes them. It
// holds back the first one until the kubelet knows whether the runtime is up and has seen
// its containers (the PLEG), for firstStatusBound at most: Run starts that at the same time
// as this. If the runtime says that it is down, there is nothing to wait for.
func (kl *Kubelet) awaitRuntimeUp() {
	if !utilfeature.DefaultFeatureGate.Enabled(features.NodeReadyAcrossRestart) {
		return
	}
	kl.runtimeState.firstCheck.waited.Do(func() {
		begin := time.Now()
		for len(kl.runtimeState.runtimeErrors()) > 0 {
			if kl.runtimeState.runtimeDown() {
				return
			}
			if time.Since(begin) > firstStatusBound {
				glog.Warningf("The container runtime of node %q has not answered after %v, its first status is published without: %v",
					kl.nodeName, firstStatusBound, kl.runtimeState.runtimeErrors())
				return
			}
			time.Sleep(firstStatusPoll)
		}
		kl.awaitPodCIDR(firstStatusBound - time.Since(begin))
	})
}

// awaitPodCIDR is for kubenet, whose network is not ready until the kubelet has read the
// PodCIDR from the Node. Upstream does that right before it writes the first status, and
// asks kubenet again 5 s later. One request to the API server's cache, and one to the
// runtime, only if the network is not ready.
func (kl *Kubelet) awaitPodCIDR(bound time.Duration) {
	if len(kl.runtimeState.networkErrors()) == 0 || kl.runtimeState.podCIDR() != "" {
		return
	}
	opts := metav1.GetOptions{}
	util.FromApiserverCache(&opts)
	node, err := kl.heartbeatNodes().Get(string(kl.nodeName), opts)
	if err != nil || node == nil || node.Spec.PodCIDR == "" {
		return // a new node, or the status cannot be written either
	}
	kl.updatePodCIDR(node.Spec.PodCIDR)
	done := make(chan struct{})
	go func() {
		defer close(done)
		kl.updateRuntimeUp()
	}()
	select {
	case <-done:
	case <-time.After(bound):
	}
}
