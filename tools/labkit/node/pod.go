// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	corev1 "k8s.io/api/core/v1"

	"holdfast/tools/labkit/kube"
)

// Pod is a pod that is bound to the node on, so that no scheduler is needed. It ends
// within a second and runs these containers.
func Pod(name, on string, containers ...corev1.Container) *corev1.Pod {
	p := kube.Pod(name)
	p.Spec = corev1.PodSpec{NodeName: on, TerminationGracePeriodSeconds: new(int64(1)), Containers: containers}
	return p
}

// Web is a container of labpod, version v1, that serves on port 8080 or, if there is a
// command, runs that of its programs.
func Web(name string, command ...string) corev1.Container {
	c := corev1.Container{Name: name, Image: WebImage("v1"), ImagePullPolicy: corev1.PullIfNotPresent}
	if len(command) > 0 {
		c.Command = append([]string{"/labpod"}, command...)
	}
	return c
}
