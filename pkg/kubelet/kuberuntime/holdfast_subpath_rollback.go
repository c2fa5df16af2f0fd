// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"k8s.io/api/core/v1"
)

// startFailureListener is a RuntimeHelper that wants to know of failed starts.
type startFailureListener interface {
	// StartFailed is called when the runtime has answered the start of a container with an
	// error. It may start the container all the same: the error may be that of a request
	// that took too long, and the runtime goes on with it.
	StartFailed(pod *v1.Pod, container *v1.Container)
}

// startReturned is called with what StartContainer returned. It calls cleanupAction at
// once, and not only when the post start hook is done; nil is none.
func (m *kubeGenericRuntimeManager) startReturned(pod *v1.Pod, container *v1.Container, err error, cleanupAction func()) {
	if cleanupAction == nil {
		return
	}
	if l, ok := m.runtimeHelper.(startFailureListener); ok && err != nil {
		l.StartFailed(pod, container)
	}
	cleanupAction()
}
