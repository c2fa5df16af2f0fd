// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"sort"
	"time"

	"github.com/golang/glog"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

const (
	// admissionLookPause is between two tries to list what the last kubelet left. Until
	// there is a list no pod is handed on. That costs nothing: PLEG asks for the same list,
	// and no pod is synced before it has an answer.
	admissionLookPause = time.Second
	// maxNodeWait is how long the API server's pods wait for its Node, which its reflector
	// asks for every second. A kubelet that may not list Nodes goes on as in stock after it.
	maxNodeWait = 30 * time.Second
	// nodeWaitPeriod is how often the store of Nodes is looked at meanwhile. No request.
	nodeWaitPeriod = 100 * time.Millisecond
	// maxHeldUpdates bounds what is held meanwhile: each write to a pod is an update.
	maxHeldUpdates = 1000
)

// takeOverPods stands between the sources of pods and the sync loop. It is called once, at
// the start. What it returns hands on nothing until it is known which pods run. Pods of the
// API server wait for the Node, and so does all that follows them from that source, so that
// the order stays. To the sync loop that is an API server that answers later.
func (kl *Kubelet) takeOverPods(updates <-chan kubetypes.PodUpdate) <-chan kubetypes.PodUpdate {
	if !utilfeature.DefaultFeatureGate.Enabled(features.AdmissionAcrossRestart) {
		return updates
	}
	out := make(chan kubetypes.PodUpdate)
	go kl.handOnPods(updates, out)
	return out
}

func (kl *Kubelet) handOnPods(updates <-chan kubetypes.PodUpdate, out chan<- kubetypes.PodUpdate) {
	defer close(out)
	// The sync loop reads it after it has received an update.
	kl.admittedBefore = kl.findAdmittedBefore()
	waits := kl.kubeClient != nil
	var held []kubetypes.PodUpdate
	var since time.Time
	var again <-chan time.Time
	for {
		select {
		case u, open := <-updates:
			if !open {
				for i := range held {
					out <- held[i]
				}
				return
			}
			// Pods of a checkpoint may be the API server itself.
			first := len(held) == 0 && len(u.Pods) > 0 && u.Op != kubetypes.RESTORE
			if !waits || u.Source != kubetypes.ApiserverSource || len(held) == 0 && !first {
				out <- u
				continue
			}
			if first {
				since = kl.clock.Now()
			}
			held = append(held, u)
		case <-again:
		}
		_, err := kl.nodeInfo.GetNodeInfo(string(kl.nodeName))
		if err != nil && kl.clock.Since(since) < maxNodeWait && len(held) < maxHeldUpdates {
			again = kl.clock.After(nodeWaitPeriod)
			continue
		}
		if err != nil {
			glog.Warningf("The Node is still not known: new pods are admitted without its labels: %v", err)
		}
		for i := range held {
			out <- held[i]
		}
		waits, held, again = false, nil, nil
	}
}

// findAdmittedBefore lists the pods that run. It returns when the runtime has answered.
func (kl *Kubelet) findAdmittedBefore() map[types.UID]bool {
	for {
		pods, err := kl.containerRuntime.GetPods(true)
		if err == nil {
			found := map[types.UID]bool{}
			for _, pod := range pods {
				if wasAdmitted(pod) {
					found[pod.ID] = true
				}
			}
			return found
		}
		glog.Errorf("Pods wait until it is known which of them run: %v", err)
		kl.clock.Sleep(admissionLookPause)
	}
}

// wasAdmitted is whether the containers of a pod show that a kubelet has admitted it and
// that something of it is left to keep: one runs, or its sandbox is ready and one has been
// made. Between two starts of a container (back-off, init containers), and when all have
// ended by themselves, only the sandbox runs. After a reboot nothing does.
func wasAdmitted(pod *kubecontainer.Pod) bool {
	for _, c := range pod.Containers {
		if c.State == kubecontainer.ContainerStateRunning {
			return true
		}
	}
	for _, s := range pod.Sandboxes {
		if s.State == kubecontainer.ContainerStateRunning {
			return len(pod.Containers) > 0
		}
	}
	return false
}

// takeAdmittedBefore returns the UIDs of those pods that ran when this kubelet started, and
// puts these pods first, so that they are there when a new one is asked whether it fits.
// Once all sources have told their first pods, the list is dropped: a pod that comes later
// is a new one.
func (kl *Kubelet) takeAdmittedBefore(pods []*v1.Pod) sets.String {
	if len(kl.admittedBefore) == 0 {
		return nil
	}
	if kl.sourcesReady.AllReady() {
		kl.admittedBefore = nil
		return nil
	}
	taken := sets.NewString()
	for _, pod := range pods {
		if kl.admittedBefore[pod.UID] {
			taken.Insert(string(pod.UID))
		}
	}
	if len(taken) > 0 {
		sort.SliceStable(pods, func(i, j int) bool {
			return taken.Has(string(pods[i].UID)) && !taken.Has(string(pods[j].UID))
		})
		glog.Infof("%d of %d pods ran before this kubelet started: they are not asked for admission again", len(taken), len(pods))
	}
	return taken
}
