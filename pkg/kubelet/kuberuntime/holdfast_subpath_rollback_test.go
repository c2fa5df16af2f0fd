// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"errors"
	"reflect"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitest "k8s.io/kubernetes/pkg/kubelet/apis/cri/testing"
	runtimeapi "k8s.io/kubernetes/pkg/kubelet/apis/cri/v1alpha1/runtime"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// cleanupHelper returns a function to call after the start.
type cleanupHelper struct {
	kubecontainer.RuntimeHelper
	err error
	say func(string)
}

func (h *cleanupHelper) GenerateRunContainerOptions(pod *v1.Pod, container *v1.Container, podIP string) (*kubecontainer.RunContainerOptions, func(), error) {
	opts, _, _ := h.RuntimeHelper.GenerateRunContainerOptions(pod, container, podIP)
	return opts, func() { h.say("cleanup") }, h.err
}

func (h *cleanupHelper) StartFailed(*v1.Pod, *v1.Container) { h.say("failed") }

// cleanupRuntime tells what the runtime was asked for.
type cleanupRuntime struct {
	*apitest.FakeRuntimeService
	say    func(string)
	create error
	start  error
}

func (r *cleanupRuntime) CreateContainer(sandbox string, c *runtimeapi.ContainerConfig, s *runtimeapi.PodSandboxConfig) (string, error) {
	r.say("create")
	if r.create != nil {
		return "", r.create
	}
	return r.FakeRuntimeService.CreateContainer(sandbox, c, s)
}

func (r *cleanupRuntime) StartContainer(id string) error {
	r.say("start")
	if r.start != nil {
		return r.start
	}
	return r.FakeRuntimeService.StartContainer(id)
}

type cleanupRunner struct{ say func(string) }

func (r cleanupRunner) Run(kubecontainer.ContainerID, *v1.Pod, *v1.Container, *v1.Handler) (string, error) {
	r.say("hook")
	return "", nil
}

// TestSubpathCleanupAction: what makeMounts left is cleaned up when the runtime
// has started the container, before a postStart hook that may take long, and on
// every way out on which it was not started. The kubelet is told of a failed start first.
func TestSubpathCleanupAction(t *testing.T) {
	boom := errors.New("boom")
	for _, test := range []struct {
		name                 string
		options, create, run error
		fails                bool
		want                 []string
	}{
		{name: "started", want: []string{"create", "start", "cleanup", "hook", "cleanup"}},
		{name: "options", options: boom, fails: true, want: []string{"cleanup"}},
		{name: "create", create: boom, fails: true, want: []string{"create", "cleanup"}},
		{name: "start", run: boom, fails: true, want: []string{"create", "start", "failed", "cleanup", "cleanup"}},
	} {
		fakeRuntime, _, m, err := createTestRuntimeManager()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		say := func(s string) { got = append(got, s) }
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "12345678", Name: "bar", Namespace: "new"}}
		pod.Spec.Containers = []v1.Container{{Name: "foo", Image: "busybox", ImagePullPolicy: v1.PullIfNotPresent,
			Lifecycle: &v1.Lifecycle{PostStart: &v1.Handler{Exec: &v1.ExecAction{Command: []string{"x"}}}}}}
		m.runtimeHelper = &cleanupHelper{m.runtimeHelper, test.options, say}
		m.runtimeService = &cleanupRuntime{fakeRuntime, say, test.create, test.run}
		m.runner = cleanupRunner{say}
		_, err = m.startContainer("sandbox", &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "bar", Namespace: "new", Uid: "12345678"}},
			&pod.Spec.Containers[0], pod, &kubecontainer.PodStatus{}, nil, "")
		if (err != nil) != test.fails {
			t.Errorf("%s: error %v", test.name, err)
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
