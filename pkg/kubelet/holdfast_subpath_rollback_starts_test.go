// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"path/filepath"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/util/mount"
)

func TestSubpathStarts(t *testing.T) {
	s := newSubpathStarts()
	k := subpathKey{"u", "c"}
	idle := func() bool {
		ok := false
		s.unlessStarting(k, func() { ok = true })
		return ok
	}
	first := s.begin(k)
	second := s.begin(k)
	first()
	first() // startContainer calls it twice
	if idle() {
		t.Error("the second start is not seen")
	}
	second()
	if !idle() || len(s.keys) != 0 {
		t.Errorf("left: %v", s.keys)
	}
}

// TestSubpathSettle: a container is late until no instance of it is left that was created
// and not started. What fails while the runtime is asked is not forgotten.
func TestSubpathSettle(t *testing.T) {
	s := newSubpathStarts()
	gone, again, starting, found := subpathKey{"u", "gone"}, subpathKey{"u", "again"}, subpathKey{"u", "starting"}, subpathKey{"u", "found"}
	s.failed(gone)
	s.failed(again)
	before := s.allLate()
	s.failed(again) // after the runtime was asked
	done := s.begin(starting)
	s.settle(before, map[subpathKey]bool{starting: true, found: true})
	for k, want := range map[subpathKey]bool{gone: false, again: true, starting: false, found: true} {
		if s.isLate(k) != want {
			t.Errorf("%s is late: %v, want %v", k.container, !want, want)
		}
	}
	done()
	s.settle(s.allLate(), map[subpathKey]bool{found: true})
	if s.isLate(again) || !s.isLate(found) || len(s.late) != 1 {
		t.Errorf("left: %v", s.late)
	}
}

// TestSubpathSweepForgetsLate: also without a bind; and a late instance beside one that runs
// has each mount point blocked.
func TestSubpathSweepForgetsLate(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	defer func(s *subpathStarts) { theSubpathStarts = s }(theSubpathStarts)
	theSubpathStarts = newSubpathStarts()
	k := subpathKey{"u1", "app"}
	pod := &kubecontainer.Pod{ID: "u1", Containers: []*kubecontainer.Container{
		{Name: "app", State: kubecontainer.ContainerStateRunning}, {Name: "app", State: kubecontainer.ContainerStateCreated}}}
	getPods := func(bool) ([]*kubecontainer.Pod, error) { return []*kubecontainer.Pod{pod}, nil }
	one, two := f.target("u1/data/app/0", true), f.target("u1/data/app/1", true)
	f.binds().sweep(f.pods, getPods)
	if len(f.mounts) != 0 || f.kind(one) != "file" || f.kind(two) != "file" || !theSubpathStarts.isLate(k) {
		t.Errorf("mounted %q, a %s and a %s, late: %v", f.mounts, f.kind(one), f.kind(two), theSubpathStarts.late)
	}
	pod.Containers = pod.Containers[:1]
	f.binds().sweep(f.pods, getPods)
	if len(theSubpathStarts.late) != 0 {
		t.Errorf("still late: %v", theSubpathStarts.late)
	}
}

// TestSubpathUnbindLate: docker may start the container although StartContainer failed, for
// the first time, and would make any mount point's path in it. So each is of the other kind.
func TestSubpathUnbindLate(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	defer func(s *subpathStarts) { theSubpathStarts = s }(theSubpathStarts)
	theSubpathStarts = newSubpathStarts()
	dir, file := f.target("u1/data/app/0", true), f.target("u1/conf/app/1f", true)
	sidecar := []string{f.target("u1/data/sidecar/0", true), f.target("u1/data/sidecar/1", true)}
	kl := &Kubelet{containerRuntimeName: kubetypes.DockerContainerRuntime, mounter: mount.New("")}
	pod := &v1.Pod{}
	pod.UID = "u1"
	restore := setSubpathGate(t, features.SubpathUnbindAfterStart, false)
	kl.StartFailed(pod, &v1.Container{Name: "app"})
	restore()
	if len(theSubpathStarts.late) != 0 {
		t.Errorf("the gate is off: %v", theSubpathStarts.late)
	}
	kl.StartFailed(pod, &v1.Container{Name: "app"})
	for _, c := range []string{"app", "sidecar"} {
		f.binds().unbind(filepath.Join(f.pods, "u1"), subpathKey{"u1", c}, c)
	}
	for path, want := range map[string]string{dir: "file", file: "dir", sidecar[0]: "file", sidecar[1]: "dir"} {
		if got := f.kind(path); got != want {
			t.Errorf("%s is a %s, want a %s", f.short(path), got, want)
		}
	}
	if len(f.mounts) != 0 {
		t.Errorf("left mounted: %q", f.mounts)
	}
}
