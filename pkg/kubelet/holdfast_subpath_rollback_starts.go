// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"sync"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// subpathKey names a container of a pod, whichever of its instances runs.
type subpathKey struct {
	pod       types.UID
	container string
}

// subpathStarts are the containers that this process is starting: from before
// their subPaths are bound until after the runtime has started them. The sweep
// leaves them alone.
type subpathStarts struct {
	sync.Mutex
	keys map[subpathKey]int
	// late are the containers of which the runtime may yet start an instance that nobody
	// waits for: StartContainer returned an error, as it does after
	// --runtime-request-timeout, or it was called by an earlier process. Each has the
	// number of times that this was seen.
	late map[subpathKey]int
}

// theSubpathStarts is one for the process, as there is one kubelet in it.
var theSubpathStarts = newSubpathStarts()

func newSubpathStarts() *subpathStarts {
	return &subpathStarts{keys: map[subpathKey]int{}, late: map[subpathKey]int{}}
}

// failed records that the start of a container ended with an error.
func (s *subpathStarts) failed(k subpathKey) {
	s.Lock()
	defer s.Unlock()
	s.late[k]++
}

func (s *subpathStarts) isLate(k subpathKey) bool {
	s.Lock()
	defer s.Unlock()
	return s.late[k] > 0
}

// allLate is a copy of late, for settle.
func (s *subpathStarts) allLate() map[subpathKey]int {
	s.Lock()
	defer s.Unlock()
	out := map[subpathKey]int{}
	for k, n := range s.late {
		out[k] = n
	}
	return out
}

// settle takes in which containers have an instance that is created and not started.
// before is what allLate was when the runtime was asked for that: what came since stays.
// An instance that this process is starting is not late.
func (s *subpathStarts) settle(before map[subpathKey]int, pending map[subpathKey]bool) {
	s.Lock()
	defer s.Unlock()
	for k, n := range before {
		if !pending[k] && s.late[k] == n {
			delete(s.late, k)
		}
	}
	for k := range pending {
		if s.keys[k] == 0 && s.late[k] == 0 {
			s.late[k] = 1
		}
	}
}

// begin returns the function that ends it, which may be called more than once.
func (s *subpathStarts) begin(k subpathKey) func() {
	s.Lock()
	defer s.Unlock()
	s.keys[k]++
	var once sync.Once
	return func() {
		once.Do(func() {
			s.Lock()
			defer s.Unlock()
			if s.keys[k]--; s.keys[k] == 0 {
				delete(s.keys, k)
			}
		})
	}
}

// unlessStarting calls f while no start of the container can begin, or not at
// all if one is under way.
func (s *subpathStarts) unlessStarting(k subpathKey, f func()) {
	s.Lock()
	defer s.Unlock()
	if s.keys[k] == 0 {
		f()
	}
}

// StartFailed is told by the runtime manager before it calls what makeMountsThenUnbind
// returned. docker may start the container all the same, after the kubelet has given up.
func (kl *Kubelet) StartFailed(pod *v1.Pod, container *v1.Container) {
	if kl.ownsSubpathBinds() && utilfeature.DefaultFeatureGate.Enabled(features.SubpathUnbindAfterStart) {
		theSubpathStarts.failed(subpathKey{pod.UID, container.Name})
	}
}
