// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"io/ioutil"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/util/mount"
)

// TestSubpathSweepIsStarted: Run, which a test cannot call as it never returns, starts the sweep
// before it takes pods.
func TestSubpathSweepIsStarted(t *testing.T) {
	source, err := ioutil.ReadFile("kubelet.go")
	if err != nil {
		t.Fatal(err)
	}
	run := strings.Index(string(source), "\nfunc (kl *Kubelet) Run(")
	sweep := strings.Index(string(source), "\n\tkl.startSubpathSweep()\n")
	loop := strings.Index(string(source), "\n\tkl.syncLoop(updates, kl)\n")
	if run < 0 || sweep < run || loop < sweep {
		t.Errorf("Run is at %d, the call of startSubpathSweep at %d, that of syncLoop at %d", run, sweep, loop)
	}
}

func TestSubpathSweep(t *testing.T) {
	const running, exited, created, unknown = kubecontainer.ContainerStateRunning, kubecontainer.ContainerStateExited,
		kubecontainer.ContainerStateCreated, kubecontainer.ContainerStateUnknown
	for _, test := range []struct {
		name     string
		states   []kubecontainer.ContainerState // of container app of pod u1, newest first
		starting bool
		kept     bool
	}{
		{name: "runs", states: []kubecontainer.ContainerState{running}},
		{name: "was restarted", states: []kubecontainer.ContainerState{running, exited}},
		{name: "runs, an earlier one was never started", states: []kubecontainer.ContainerState{running, created}},
		{name: "ended", states: []kubecontainer.ContainerState{exited}},
		{name: "pod is gone"},
		{name: "is being started for an earlier kubelet", states: []kubecontainer.ContainerState{created, exited}, kept: true},
		{name: "runtime does not know", states: []kubecontainer.ContainerState{unknown}, kept: true},
		{name: "is being started", states: []kubecontainer.ContainerState{exited}, starting: true, kept: true},
		{name: "is being started again", states: []kubecontainer.ContainerState{running}, starting: true, kept: true},
	} {
		f := newFakeBinds(t)
		f.target("u1/data/app/0", true)
		done := func() {}
		if test.starting {
			done = theSubpathStarts.begin(subpathKey{"u1", "app"})
		}
		pod := &kubecontainer.Pod{ID: "u1"}
		for _, s := range test.states {
			pod.Containers = append(pod.Containers, &kubecontainer.Container{Name: "app", State: s})
		}
		pods := []*kubecontainer.Pod{pod, {ID: "u2", Containers: []*kubecontainer.Container{{Name: "app", State: created}}}}
		f.binds().sweep(f.pods, func(all bool) ([]*kubecontainer.Pod, error) {
			if !all {
				t.Errorf("%s: asked for running pods only", test.name)
			}
			return pods, nil
		})
		if kept := len(f.mounts) == 1; kept != test.kept {
			t.Errorf("%s: kept is %v, want %v", test.name, kept, test.kept)
		}
		done()
		f.done()
	}
}

// TestSubpathSweepLeavesOthers: nothing but subPath binds is unmounted, and
// nothing at all if the runtime does not answer.
func TestSubpathSweepLeavesOthers(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	bind := f.target("u1/data/app/0", true)
	deleted := f.target("u1/data/app/1", false) + `\040(deleted)`
	others := []string{
		f.pods,
		filepath.Join(f.pods, "u1", "volumes", "kubernetes.io~secret", "token"),
		filepath.Join(bind, "somebodys"),
		filepath.Dir(bind),
		f.pods + "2/u1/volume-subpaths/data/app/0",
		filepath.Join(filepath.Dir(f.pods), "plugins", "volume-subpaths", "data", "app", "0"),
	}
	f.mounts = append(append(f.mounts, deleted), others...)
	f.binds().sweep(f.pods, func(bool) ([]*kubecontainer.Pod, error) { return nil, errors.New("docker is down") })
	if len(f.log) != 0 {
		t.Fatalf("unmounted %q without knowing what runs", f.log)
	}
	f.binds().sweep(f.pods, func(bool) ([]*kubecontainer.Pod, error) { return nil, nil })
	if !reflect.DeepEqual(f.mounts, others) {
		t.Errorf("left mounted %q, want %q", f.mounts, others)
	}
}

func TestSubpathUnmountOrphaned(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	f.target("u1/data/app/0", true)
	f.target("u1/conf/app/1f", true)
	other := f.target("u2/data/app/0", true)
	if err := f.binds().unmountOrphaned(f.pods, "u1"); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(f.mounts, []string{other}) {
		t.Errorf("left mounted: %q", f.mounts)
	}
	// What is mounted in a bind may be the host's own mount and must stay.
	inside := filepath.Join(other, "nfs")
	f.mounts, f.log = append([]string{inside}, f.mounts...), nil
	if err := f.binds().unmountOrphaned(f.pods, "u2"); err == nil || len(f.log) != 0 {
		t.Errorf("a mount in a bind: %v, unmounted %q", err, f.log)
	}
	f.mounts = []string{other}
	for _, fail := range []string{"list", "u2/data/app/0"} {
		f.fail = map[string]error{fail: syscall.EBUSY}
		if err := f.binds().unmountOrphaned(f.pods, "u2"); err == nil {
			t.Errorf("%s fails: no error, so that the directory would be removed", fail)
		}
	}
}

// TestSubpathOrphanHook: cleanupOrphanedPodDirs asks before it removes, and
// leaves the directory if there still is a mount. With the gate off it removes
// as stock does.
func TestSubpathOrphanHook(t *testing.T) {
	for _, on := range []bool{true, false} {
		restore := setSubpathGate(t, features.OrphanedPodSubpathUnmount, on)
		testKubelet := newTestKubelet(t, false)
		kl := testKubelet.kubelet
		dir := filepath.Join(kl.getPodDir("orphan"), subpathsDirName, "data", "app", "0")
		if err := os.MkdirAll(dir, 0750); err != nil {
			t.Fatal(err)
		}
		kl.mounter = &mount.FakeMounter{MountPoints: []mount.MountPoint{{Path: filepath.Join(dir, "inside")}}}
		if err := kl.cleanupOrphanedPodDirs(nil, nil); err != nil {
			t.Error(err)
		}
		_, err := os.Stat(dir)
		if removed := os.IsNotExist(err); removed == on {
			t.Errorf("gate %v: removed is %v", on, removed)
		}
		// Without a mount the directory goes in both cases.
		kl.mounter = &mount.FakeMounter{}
		if err := kl.cleanupOrphanedPodDirs(nil, nil); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(kl.getPodDir("orphan")); !os.IsNotExist(err) {
			t.Errorf("gate %v: the directory is left: %v", on, err)
		}
		testKubelet.Cleanup()
		restore()
	}
}
