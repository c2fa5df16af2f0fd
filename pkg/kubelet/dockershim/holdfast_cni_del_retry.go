// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"fmt"

	"github.com/golang/glog"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	runtimeapi "k8s.io/kubernetes/pkg/kubelet/apis/cri/v1alpha1/runtime"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// setUpPodNetwork has the network plugin set up a sandbox. If that fails, or the sandbox is
// stopped meanwhile, the plugin is asked to take down what there may be: StopPodSandbox leaves a
// network alone that is not ready, because it may have been taken down before
// (kubernetes/kubernetes#62874, #86944).
func (ds *dockerService) setUpPodNetwork(config *runtimeapi.PodSandboxConfig, cID kubecontainer.ContainerID) error {
	namespace, name := config.GetMetadata().Namespace, config.GetMetadata().Name
	if !utilfeature.DefaultFeatureGate.Enabled(features.CNIDelRetry) {
		return ds.network.SetUpPod(namespace, name, cID, config.Annotations)
	}
	ds.beginSetUp(cID.ID)
	err := ds.network.SetUpPod(namespace, name, cID, config.Annotations)
	stopped := ds.endSetUp(cID.ID, err == nil)
	if err == nil {
		if !stopped {
			return nil
		}
		err = fmt.Errorf("sandbox %q of pod %s/%s was stopped while its network was set up", cID.ID, namespace, name)
	}
	tearDownErr := ds.network.TearDownPod(namespace, name, cID)
	if tearDownErr != nil {
		glog.Warningf("Failed to take down what the network plugin may have left of sandbox %q of pod %s/%s: %v", cID.ID, namespace, name, tearDownErr)
	}
	if tearDownErr != nil || stopped {
		// StopPodSandbox takes down a network of which nothing is known. A sandbox that was
		// stopped may be removed already, and then nobody would remove the entry.
		ds.clearNetworkReady(cID.ID)
	}
	return err
}

func (ds *dockerService) beginSetUp(podSandboxID string) {
	ds.networkReadyLock.Lock()
	defer ds.networkReadyLock.Unlock()
	if ds.networkSetUps == nil {
		ds.networkSetUps = map[string]bool{}
	}
	ds.networkSetUps[podSandboxID] = false
}

// endSetUp says whether the sandbox was stopped since beginSetUp. If it was not, and done is true,
// its network is ready from now on.
func (ds *dockerService) endSetUp(podSandboxID string, done bool) (stopped bool) {
	ds.networkReadyLock.Lock()
	defer ds.networkReadyLock.Unlock()
	stopped = ds.networkSetUps[podSandboxID]
	delete(ds.networkSetUps, podSandboxID)
	if done && !stopped {
		ds.networkReady[podSandboxID] = true
	}
	return stopped
}

// stopNetworkReady is getNetworkReady for StopPodSandbox: it remembers that the sandbox is stopped
// if its network is being set up.
func (ds *dockerService) stopNetworkReady(podSandboxID string) (ready, ok bool) {
	ds.networkReadyLock.Lock()
	defer ds.networkReadyLock.Unlock()
	if _, settingUp := ds.networkSetUps[podSandboxID]; settingUp {
		ds.networkSetUps[podSandboxID] = true
	}
	ready, ok = ds.networkReady[podSandboxID]
	return ready, ok
}

// forgetSandbox says whether StopPodSandbox may remove the checkpoint of a sandbox that docker
// does not know. Only by the checkpoint does the kubelet find the sandbox again, if its network
// could not be taken down.
func forgetSandbox(errs []error) bool {
	return len(errs) == 0 || !utilfeature.DefaultFeatureGate.Enabled(features.CNIDelRetry)
}
