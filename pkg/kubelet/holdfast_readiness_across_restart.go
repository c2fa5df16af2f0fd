// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"sync"
	"time"

	"github.com/golang/glog"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/clock"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/prober"
)

// minHeartbeatAge is the controller manager's default of
// --node-monitor-grace-period: so long after the last heartbeat it marks the pods
// of a node not ready. heartbeatsMissed is what that is in heartbeats of the
// default --node-status-update-frequency.
const (
	minHeartbeatAge  = 40 * time.Second
	heartbeatsMissed = 4
)

// One request that fails must not cost all that is kept of a pod: it is decided once.
const (
	heartbeatTries = 3
	heartbeatPause = 300 * time.Millisecond
)

// foundHeartbeat is the Node's last heartbeat as this process found it, before it
// wrote one itself. The zero value has not looked yet.
type foundHeartbeat struct {
	sync.Mutex
	looked bool
	// age is valid if found.
	found bool
	age   time.Duration
}

// startKeepingReadiness is called once, when the managers and the runtime are there.
func (kl *Kubelet) startKeepingReadiness() {
	maxAge := minHeartbeatAge
	if d := heartbeatsMissed * kl.nodeStatusUpdateFrequency; d > maxAge {
		maxAge = d
	}
	kl.probeManager.StartKeepingReadiness(prober.ReadinessSources{
		Runtime:         kl.containerRuntime,
		Pods:            kl.podManager,
		PodDir:          kl.getPodDir,
		HeartbeatAge:    kl.heartbeatAge,
		MaxHeartbeatAge: maxAge,
		Clock:           clock.RealClock{},
	})
}

// noteHeartbeat is called before each write of this kubelet to its Node, with the
// Node as it was read, or nil if there was none. The first call counts.
func (kl *Kubelet) noteHeartbeat(node *v1.Node) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ReadinessAcrossRestart) {
		return
	}
	h := &kl.foundHeartbeat
	h.Lock()
	defer h.Unlock()
	if h.looked {
		return
	}
	h.looked = true
	if node != nil {
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady && !c.LastHeartbeatTime.IsZero() {
				// The clock that wrote it is this machine's.
				h.found, h.age = true, kl.clock.Since(c.LastHeartbeatTime.Time)
			}
		}
	}
	if h.found {
		glog.Infof("The last heartbeat of node %q is %v old", kl.nodeName, h.age)
	} else {
		glog.Infof("Node %q has no heartbeat of an earlier kubelet", kl.nodeName)
	}
}

// heartbeatAge returns what noteHeartbeat noted. A status of a pod may be published
// before the first status of the Node; then it reads the Node itself.
func (kl *Kubelet) heartbeatAge() (time.Duration, bool) {
	if kl.kubeClient == nil {
		return 0, false
	}
	if err := kl.findHeartbeat(); err != nil {
		glog.Errorf("The readiness of a pod is not kept: the age of the last heartbeat of node %q: %v", kl.nodeName, err)
		return 0, false
	}
	kl.foundHeartbeat.Lock()
	defer kl.foundHeartbeat.Unlock()
	return kl.foundHeartbeat.age, kl.foundHeartbeat.found
}

// findHeartbeat reads the Node and notes its heartbeat, if nobody has yet. It is called
// before this kubelet makes its Node, too: that one's heartbeat is of no earlier kubelet.
func (kl *Kubelet) findHeartbeat() error {
	kl.foundHeartbeat.Lock()
	looked := kl.foundHeartbeat.looked
	kl.foundHeartbeat.Unlock()
	if looked || !utilfeature.DefaultFeatureGate.Enabled(features.ReadinessAcrossRestart) {
		return nil
	}
	node, err := kl.findNode()
	if err == nil {
		kl.noteHeartbeat(node)
	}
	return err
}

// findNode reads this kubelet's Node, nil if there is none.
func (kl *Kubelet) findNode() (node *v1.Node, err error) {
	for i := 0; i < heartbeatTries; i++ {
		if i > 0 {
			time.Sleep(heartbeatPause)
		}
		node, err = kl.kubeClient.CoreV1().Nodes().Get(string(kl.nodeName), metav1.GetOptions{})
		if err == nil {
			return node, nil
		}
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			break // the next answer is the same
		}
	}
	return nil, err
}
