// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/network/dns"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/util/mount"
)

func setSubpathGate(t *testing.T, f utilfeature.Feature, on bool) func() {
	was := utilfeature.DefaultFeatureGate.Enabled(f)
	set := func(v bool) {
		if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", f, v)); err != nil {
			t.Fatal(err)
		}
	}
	set(on)
	return func() { set(was) }
}

func subpathCounter(t *testing.T, c prometheus.Counter) float64 {
	m := &dto.Metric{}
	if err := c.Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// fakeBinds is a mount table. A mount point is an ordinary file or directory of
// a temporary folder.
type fakeBinds struct {
	t    *testing.T
	pods string // as the table has it
	link string // a symbolic link to it
	// mounts in the order of mounting.
	mounts []string
	fail   map[string]error
	log    []string
}

func newFakeBinds(t *testing.T) *fakeBinds {
	dir, err := ioutil.TempDir("", "subpath")
	if err != nil {
		t.Fatal(err)
	}
	link := dir + "-link"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	return &fakeBinds{t: t, pods: dir, link: link, fail: map[string]error{}}
}

func (f *fakeBinds) done() {
	os.Remove(f.link)
	os.RemoveAll(f.pods)
}

func (f *fakeBinds) binds() subpathBinds {
	return subpathBinds{
		list: func() ([]mount.MountPoint, error) {
			var out []mount.MountPoint
			for _, m := range append([]string{"/", "/proc"}, f.mounts...) {
				out = append(out, mount.MountPoint{Path: m})
			}
			return out, f.fail["list"]
		},
		unmount: func(path string) error {
			f.log = append(f.log, f.short(path))
			if err := f.fail[f.short(path)]; err != nil {
				return err
			}
			for i := len(f.mounts) - 1; i >= 0; i-- {
				if strings.TrimSuffix(f.mounts[i], `\040(deleted)`) == path {
					f.mounts = append(f.mounts[:i], f.mounts[i+1:]...)
					return nil
				}
			}
			return syscall.EINVAL
		},
	}
}

// short is uid/volume/container/n of a path below volume-subpaths.
func (f *fakeBinds) short(path string) string {
	return strings.Replace(strings.TrimPrefix(path, f.pods+"/"), "/"+subpathsDirName, "", 1)
}

func (f *fakeBinds) path(short string) string {
	p := strings.SplitN(short, "/", 2)
	return filepath.Join(f.pods, p[0], subpathsDirName, p[1])
}

// target makes uid/volume/container/n, a directory or, with a trailing "f", an
// empty file; mounted or not.
func (f *fakeBinds) target(short string, mounted bool) string {
	p := f.path(strings.TrimSuffix(short, "f"))
	var err error
	if err = os.MkdirAll(filepath.Dir(p), 0750); err == nil {
		if strings.HasSuffix(short, "f") {
			err = ioutil.WriteFile(p, nil, 0640)
		} else {
			err = os.Mkdir(p, 0750)
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
	if mounted {
		f.mounts = append(f.mounts, p)
	}
	return p
}

// kind is "dir", "file" or "gone".
func (f *fakeBinds) kind(path string) string {
	info, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return "gone"
	case err != nil:
		f.t.Fatal(err)
	case info.IsDir():
		return "dir"
	}
	return "file"
}

func TestSubpathGatesAreOn(t *testing.T) {
	for _, f := range []utilfeature.Feature{features.SubpathUnbindAfterStart, features.OrphanedPodSubpathUnmount} {
		if !utilfeature.DefaultFeatureGate.Enabled(f) {
			t.Errorf("%s is off by default", f)
		}
	}
}

// TestSubpathUnbind: only the binds of the one container go, and one of what
// docker would mount by the same paths later, the first, is of the other kind.
func TestSubpathUnbind(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	dir, file := f.target("u1/data/app/0", true), f.target("u1/conf/app/1f", true)
	other, pod2 := f.target("u1/data/sidecar/0", true), f.target("u2/data/app/0", true)
	idle := f.target("u1/data/app/2", false)
	f.mounts = append(f.mounts, dir) // twice
	before := subpathCounter(t, subpathsUnbound)
	f.binds().unbind(filepath.Join(f.pods, "u1"), subpathKey{"u1", "app"}, "app")
	sort.Strings(f.log)
	if want := []string{"u1/conf/app/1", "u1/data/app/0", "u1/data/app/0"}; !reflect.DeepEqual(f.log, want) {
		t.Errorf("unmounted %q, want %q", f.log, want)
	}
	if want := []string{other, pod2}; !reflect.DeepEqual(f.mounts, want) {
		t.Errorf("left mounted %q, want %q", f.mounts, want)
	}
	for path, want := range map[string]string{dir: "dir", file: "dir", other: "dir", pod2: "dir", idle: "dir"} {
		if got := f.kind(path); got != want {
			t.Errorf("%s is a %s, want a %s", f.short(path), got, want)
		}
	}
	if n := subpathCounter(t, subpathsUnbound) - before; n != 3 {
		t.Errorf("counted %v, want 3", n)
	}
}

// TestSubpathUnbindFails: a bind that is busy stays as it is and is counted.
func TestSubpathUnbindFails(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	busy, free := f.target("u1/data/app/0", true), f.target("u1/data/app/1", true)
	f.fail["u1/data/app/0"] = syscall.EBUSY
	before := subpathCounter(t, subpathsUnbindFailed)
	f.binds().unbind(filepath.Join(f.pods, "u1"), subpathKey{"u1", "app"}, "app")
	if !reflect.DeepEqual(f.mounts, []string{busy}) || f.kind(busy) != "dir" || f.kind(free) != "file" {
		t.Errorf("mounted %q, busy one a %s, the other a %s", f.mounts, f.kind(busy), f.kind(free))
	}
	if n := subpathCounter(t, subpathsUnbindFailed) - before; n != 1 {
		t.Errorf("counted %v failures, want 1", n)
	}
	// Somebody else unmounted it between the look and the call.
	delete(f.fail, "u1/data/app/0")
	b := f.binds()
	b.unmount = func(string) error { return syscall.EINVAL }
	b.unbind(filepath.Join(f.pods, "u1"), subpathKey{"u1", "app"}, "app")
	if f.kind(busy) != "dir" {
		t.Errorf("what somebody else unmounted is blocked")
	}
	// A table that cannot be read leaves all as it is.
	f.log, f.fail["list"] = nil, errors.New("too many changes")
	f.binds().unbind(filepath.Join(f.pods, "u1"), subpathKey{"u1", "app"}, "app")
	if len(f.log) != 0 {
		t.Errorf("unmounted %q without a table", f.log)
	}
}

// TestSubpathUnbindCopy: the table lists a mount twice, and the second goes with
// the first.
func TestSubpathUnbindCopy(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	dir := f.target("u1/data/app/0", true)
	b := f.binds()
	b.list = func() ([]mount.MountPoint, error) { return []mount.MountPoint{{Path: dir}, {Path: dir}}, nil }
	before := subpathCounter(t, subpathsUnbound)
	b.unbind(filepath.Join(f.pods, "u1"), subpathKey{"u1", "app"}, "app")
	if n := subpathCounter(t, subpathsUnbound) - before; n != 1 || f.kind(dir) != "file" {
		t.Errorf("counted %v, want 1; the mount point is a %s", n, f.kind(dir))
	}
}

// TestSubpathSymlink: the kubelet's root directory is a symbolic link, and the table has
// the paths that the kernel resolved.
func TestSubpathSymlink(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	dir := f.target("u1/data/app/0", true)
	b := f.binds()
	b.unblock(filepath.Join(f.link, "u1"), "app")
	if f.kind(dir) != "dir" {
		t.Errorf("a bind's mount point was removed")
	}
	b.unbind(filepath.Join(f.link, "u1"), subpathKey{"u1", "app"}, "app")
	if len(f.mounts) != 0 || f.kind(dir) != "file" {
		t.Errorf("after the start: %q is mounted, the mount point is a %s", f.mounts, f.kind(dir))
	}
	f.target("u2/data/app/0", true)
	b.sweep(f.link, func(bool) ([]*kubecontainer.Pod, error) { return nil, nil })
	if len(f.mounts) != 0 {
		t.Errorf("after the sweep: %q is mounted", f.mounts)
	}
	f.target("u3/data/app/0", true)
	if err := b.unmountOrphaned(f.link, "u3"); err != nil || len(f.mounts) != 0 {
		t.Errorf("orphan: %v, %q is mounted", err, f.mounts)
	}
	// Where a directory cannot be resolved, nothing says that there is no bind in it.
	loop := filepath.Join(f.pods, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	if err := b.unmountOrphaned(loop, "u3"); err == nil {
		t.Error("an orphan's directory may be removed, wherever it is")
	}
}

// TestSubpathSweepLate: a start ends while the sweep asks the runtime. It has blocked its
// mount point, which the sweep's table still has as mounted.
func TestSubpathSweepLate(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	dir := f.target("u1/data/app/0", true)
	b := f.binds()
	b.sweep(f.pods, func(bool) ([]*kubecontainer.Pod, error) {
		b.unbind(filepath.Join(f.pods, "u1"), subpathKey{"u1", "app"}, "app")
		return nil, nil
	})
	if f.kind(dir) != "file" {
		t.Errorf("the mount point is a %s, want the file that blocks it", f.kind(dir))
	}
}

// TestSubpathBlockKeepsData: what somebody wrote below a mount point is never
// removed.
func TestSubpathBlockKeepsData(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	dir, file := f.target("u1/data/app/0", true), f.target("u1/data/app/1f", true)
	for path, text := range map[string]string{filepath.Join(dir, "precious"): "a", file: "b"} {
		if err := ioutil.WriteFile(path, []byte(text), 0600); err != nil {
			t.Fatal(err)
		}
	}
	b := f.binds()
	b.unbind(filepath.Join(f.pods, "u1"), subpathKey{"u1", "app"}, "app")
	b.unblock(filepath.Join(f.pods, "u1"), "app")
	for path, text := range map[string]string{filepath.Join(dir, "precious"): "a", file: "b"} {
		if got, err := ioutil.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

// TestSubpathUnblock: before the next start the mount points are free for
// doBindSubPath, but for those that are mounted.
func TestSubpathUnblock(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	dir, file := f.target("u1/data/app/0", true), f.target("u1/data/app/1f", true)
	podDir := filepath.Join(f.pods, "u1")
	b := f.binds()
	b.unbind(podDir, subpathKey{"u1", "app"}, "app")
	mounted, other := f.target("u1/data/app/2", true), f.target("u1/data/sidecar/0f", false)
	b.unblock(podDir, "app")
	for path, want := range map[string]string{dir: "gone", file: "gone", mounted: "dir", other: "file"} {
		if got := f.kind(path); got != want {
			t.Errorf("%s is %s, want %s", f.short(path), got, want)
		}
	}
}

// TestSubpathCleanSubPaths: upstream's own clean-up, which a stock kubelet has
// too, removes what is left of an unbound container.
func TestSubpathCleanSubPaths(t *testing.T) {
	f := newFakeBinds(t)
	defer f.done()
	f.target("u1/data/app/0", true)
	f.target("u1/data/app/1f", true)
	podDir := filepath.Join(f.pods, "u1")
	f.binds().unbind(podDir, subpathKey{"u1", "app"}, "app")
	if err := mount.New("").CleanSubPaths(podDir, "data"); err != nil {
		t.Fatal(err)
	}
	if got := f.kind(filepath.Join(podDir, subpathsDirName)); got != "gone" {
		t.Errorf("volume-subpaths is %s", got)
	}
}

// TestSubpathHooks: GenerateRunContainerOptions returns something to call for a
// container with a subPath under docker, and as stock nothing with the gate off,
// without a subPath, or for another runtime.
func TestSubpathHooks(t *testing.T) {
	for _, test := range []struct {
		name, runtime string
		subPath       bool
		gate          bool
		want          bool
	}{
		{"docker", kubetypes.DockerContainerRuntime, true, true, true},
		{"gate off", kubetypes.DockerContainerRuntime, true, false, false},
		{"no subPath", kubetypes.DockerContainerRuntime, false, true, false},
		{"rkt", kubetypes.RktContainerRuntime, true, true, false},
		{"remote", kubetypes.RemoteContainerRuntime, true, true, false},
	} {
		restore := setSubpathGate(t, features.SubpathUnbindAfterStart, test.gate)
		testKubelet := newTestKubelet(t, false)
		kl := testKubelet.kubelet
		kl.mounter, kl.containerRuntimeName = mount.New(""), test.runtime
		kl.dnsConfigurer = &dns.Configurer{}
		m := v1.VolumeMount{Name: "missing", MountPath: "/v"}
		if test.subPath {
			m.SubPath = "app"
		}
		pod := &v1.Pod{}
		pod.UID = types.UID("u-" + test.name)
		c := &v1.Container{Name: "app", VolumeMounts: []v1.VolumeMount{m}}
		would := subpathCounter(t, subpathsWouldUnbind)
		// The volume is missing, so that nothing is mounted: the error comes in any case.
		_, cleanup, err := kl.GenerateRunContainerOptions(pod, c, "")
		if err == nil {
			t.Errorf("%s: no error for a missing volume", test.name)
		}
		if got := cleanup != nil; got != test.want {
			t.Errorf("%s: there is a function to call: %v, want %v", test.name, got, test.want)
		}
		// Whoever gets an error may not call the function: it was called.
		if n := len(theSubpathStarts.keys); n != 0 {
			t.Errorf("%s: %d starts after the error", test.name, n)
		}
		if cleanup != nil {
			cleanup()
		}
		if n := len(theSubpathStarts.keys); n != 0 {
			t.Errorf("%s: %d starts left", test.name, n)
		}
		if got := subpathCounter(t, subpathsWouldUnbind) - would; (got == 1) != (test.name == "gate off") {
			t.Errorf("%s: counted %v that it would have unbound", test.name, got)
		}
		testKubelet.Cleanup()
		restore()
	}
}
