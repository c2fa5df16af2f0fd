// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"time"

	"github.com/golang/glog"
	cadvisorapi "github.com/google/cadvisor/info/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
	"k8s.io/kubernetes/pkg/version"
)

const (
	// predecessorWait bounds how long the start of the kubelet waits for the
	// Node. Static pods, the API server itself perhaps, start after it.
	predecessorWait = 2 * time.Second
	// predecessorTries bounds the reads after that, one each predecessorRetry.
	// Then the node status is left to do it.
	predecessorTries = 120
	predecessorRetry = time.Second
)

// learnPredecessor finds out which kubelet was here before this one, before this
// one writes anything that should depend on it. If the API server does not answer
// in time, what an earlier process saved has to do, and the read goes on.
func (kl *Kubelet) learnPredecessor(machine *cadvisorapi.MachineInfo) {
	predecessor.Default.Start(predecessor.Config{
		RootDirectory: kl.rootDirectory,
		Identity: predecessor.Identity{
			NodeName:   string(kl.nodeName),
			MachineID:  machine.MachineID,
			SystemUUID: machine.SystemUUID,
		},
		Version: version.Get().GitVersion,
	})
	defer predecessor.Default.Report()
	if kl.heartbeatClient == nil {
		return
	}
	tried := make(chan struct{})
	go func() {
		for i := 0; i < predecessorTries && !predecessor.Default.Observed(); i++ {
			if i > 0 {
				time.Sleep(predecessorRetry)
			}
			kl.observePredecessor()
			if i == 0 {
				close(tried)
			}
		}
	}()
	select {
	case <-tried:
	case <-time.After(predecessorWait):
	}
}

func (kl *Kubelet) observePredecessor() {
	// Not from the API server's cache, which can be older than our last write.
	node, err := kl.heartbeatClient.Nodes().Get(string(kl.nodeName), metav1.GetOptions{})
	switch {
	case err == nil:
		predecessor.Default.Observe(node)
	case apierrors.IsNotFound(err):
		predecessor.Default.Observe(nil)
	default:
		glog.V(2).Infof("Cannot read yet which kubelet was here before: %v", err)
	}
}
