// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"fmt"
	"io/ioutil"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
)

// program puts a shell script of that name first in PATH and returns what undoes it.
func program(t *testing.T, dir, name, script string) func() {
	if err := ioutil.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0755); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	os.Setenv("PATH", dir+":"+path)
	return func() { os.Setenv("PATH", path) }
}

// volume makes dir/volume/parent/sub and dir/outside/sub, each with a file that says
// where it is, and the subPath of the first.
func volume(t *testing.T, dir string) Subpath {
	for _, at := range []string{"volume/parent", "outside"} {
		sub := filepath.Join(dir, at, "sub")
		if err := os.MkdirAll(sub, 0755); err != nil {
			t.Fatal(err)
		}
		if err := ioutil.WriteFile(filepath.Join(sub, "where"), []byte(at), 0644); err != nil {
			t.Fatal(err)
		}
	}
	return Subpath{Path: filepath.Join(dir, "volume/parent/sub"), VolumeName: "vol", VolumePath: filepath.Join(dir, "volume"), PodDir: filepath.Join(dir, "pod"), ContainerName: "main"}
}

const inNamespace = "HOLDFAST_TEST_SUBPATH_NAMESPACE"

// again runs the test once more in a mount namespace of its own, as root or in a user
// namespace, with inNamespace set to level.
func again(t *testing.T, level string) {
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"="+level)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestBindSubPathIsTheOpenedFile: a mount(8) that is held up between the look at the link
// and the mount, while the directory is exchanged for a symlink.
func TestBindSubPathIsTheOpenedFile(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		again(t, "1")
		return
	}
	runtime.LockOSThread()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	// The check of what was mounted is another fix's, without which this one builds too.
	if unbind := utilfeature.Feature("SubpathUnbindAfterStart"); strings.Contains(strings.Join(utilfeature.DefaultFeatureGate.KnownFeatures(), " "), string(unbind)) {
		defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, unbind, false)()
	}
	real, err := exec.LookPath("mount")
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SubpathMountByFD, on)()
			dir, err := ioutil.TempDir("", "subpath")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			sub := volume(t, dir)
			exchange := fmt.Sprintf("cd %s/volume && mv parent away && ln -s ../outside parent", dir)
			// -o bind SOURCE TARGET
			defer program(t, dir, "mount", fmt.Sprintf(`case "$1 $2" in
"-o bind") path=$(readlink "$3"); %s; exec %s -o bind "$path" "$4";;
"-n -o") shift; test -L %s/volume/parent || { %s; }; exec %s "$@";; # no line in /etc/mtab
*) exec %s "$@";;
esac
`, exchange, real, dir, exchange, real, real))()
			other, exchanged := raceCounted(t, subPathsOtherMounted), raceCounted(t, subPathsExchanged)
			target, _, err := (&Mounter{}).PrepareSafeSubpath(sub)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(target, unix.MNT_DETACH)
			got, err := ioutil.ReadFile(filepath.Join(target, "where"))
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]string{true: "volume/parent", false: "outside"}[on]; string(got) != want {
				t.Errorf("gate %v: %s is mounted, want %s", on, got, want)
			}
			other, exchanged = raceCounted(t, subPathsOtherMounted)-other, raceCounted(t, subPathsExchanged)-exchanged
			if (exchanged == 1) != on || (other == 1) == on {
				t.Errorf("gate %v: counted %v exchanged, %v other", on, exchanged, other)
			}
		}()
	}
}

func raceCounted(t *testing.T, c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// TestSafeOpenAutomount: what is mounted on demand is opened, not the directory below. The
// kernel's own example is tracefs in debugfs; there is none in a user namespace.
func TestSafeOpenAutomount(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		again(t, "1")
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	dir, err := ioutil.TempDir("", "subpath")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := unix.Mount("debugfs", dir, "debugfs", 0, ""); err != nil {
		t.Logf("not shown: no debugfs here: %v", err)
		return
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	fd, err := doSafeOpen(filepath.Join(dir, "tracing"), dir)
	if err != nil {
		t.Logf("not shown: debugfs has no tracing here: %v", err)
		return
	}
	defer unix.Close(fd)
	var opened, above unix.Stat_t
	if err := unix.Fstat(fd, &opened); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(dir, &above); err != nil {
		t.Fatal(err)
	}
	if opened.Dev == above.Dev {
		t.Error("the directory below the automount was opened")
	}
}

// TestSafeOpenKinds: a file is opened, a symlink refused, whatever it leads to.
func TestSafeOpenKinds(t *testing.T) {
	dir, err := ioutil.TempDir("", "subpath")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	sub := volume(t, dir)
	for name, to := range map[string]string{"todir": "parent", "out": "../outside", "tofile": "parent/sub/where", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(sub.VolumePath, name)); err != nil {
			t.Fatal(err)
		}
	}
	for path, ok := range map[string]bool{
		"parent/sub": true, "parent/sub/where": true,
		"todir": false, "todir/sub": false, "out": false, "out/sub": false, "tofile": false, "loop": false, "missing": false, "parent/sub/where/no": false,
	} {
		fd, err := doSafeOpen(filepath.Join(sub.VolumePath, path), sub.VolumePath)
		if (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			unix.Close(fd)
		}
	}
}

// TestBindSubPathFake: other mounters are asked as ever, with the options as they are.
func TestBindSubPathFake(t *testing.T) {
	fake := &FakeMounter{}
	if err := bindSubPath(fake, "/proc/1/fd/7", -1, "/volume/sub", "/target", []string{"bind"}); err != nil {
		t.Fatal(err)
	}
	if len(fake.Log) != 1 || fake.Log[0].Action != FakeActionMount || fake.Log[0].Source != "/proc/1/fd/7" || fake.Log[0].Target != "/target" {
		t.Errorf("%+v", fake.Log)
	}
}

func TestBindSubPathMissing(t *testing.T) {
	err := bindSubPath(&Mounter{}, "/proc/self/fd/missing", -1, "/volume/sub", "/nowhere/target", []string{"bind"})
	for _, word := range []string{"mount failed", "/volume/sub", "/nowhere/target"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not have %q: %v", word, err)
		}
	}
}
