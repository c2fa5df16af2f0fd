// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"fmt"
	"io/ioutil"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
)

// TestBindSubPathNsenter: the commands of a kubelet in a container. What is bound is
// compared with what was opened; it is taken away again if it is another file, or if that
// cannot be told.
func TestBindSubPathNsenter(t *testing.T) {
	dir, err := ioutil.TempDir("", "subpath")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	sub := volume(t, dir)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(sub.Path, link); err != nil {
		t.Fatal(err)
	}
	opened, err := doSafeOpen(sub.Path, sub.VolumePath)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(opened)
	calls := filepath.Join(dir, "calls")
	defer program(t, dir, "nsenter", "echo \"$@\" >> "+calls+"\n")()
	for _, tc := range []struct {
		on, wrong bool
		fd        int
		target    string
		other     float64
	}{
		{on: true, fd: opened, target: sub.Path},
		{on: true, fd: opened, target: filepath.Join(dir, "outside/sub"), wrong: true, other: 1},
		{on: true, fd: opened, target: link, wrong: true, other: 1},
		{on: true, fd: opened, target: filepath.Join(dir, "missing"), wrong: true},
		{on: true, fd: -1, target: sub.Path, wrong: true},
		{fd: opened, target: filepath.Join(dir, "outside/sub")},
	} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SubpathMountByFD, tc.on)()
			os.Remove(calls)
			other := raceCounted(t, subPathsOtherMounted)
			err := bindSubPath(NewNsenterMounter(), "/proc/1/fd/7", tc.fd, sub.Path, tc.target, []string{"bind"})
			if (err != nil) != tc.wrong || raceCounted(t, subPathsOtherMounted)-other != tc.other {
				t.Errorf("%+v: %v, counted %v", tc, err, raceCounted(t, subPathsOtherMounted)-other)
			}
			b, err := ioutil.ReadFile(calls)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
				words := strings.Fields(line[strings.LastIndex(line, "-- ")+3:])
				got = append(got, strings.Join(append([]string{filepath.Base(words[0])}, words[1:]...), " "))
			}
			source := "/proc/1/fd/7"
			if tc.on {
				source = sub.Path
			}
			want := []string{"mount -o bind " + source + " " + tc.target, "mount -o bind,remount " + source + " " + tc.target}
			if tc.wrong {
				want = append(want, "umount "+tc.target)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v: %q, want %q", tc, got, want)
			}
		}()
	}
}

// TestBindSubPathNsenterFails: without the bind there is no remount.
func TestBindSubPathNsenterFails(t *testing.T) {
	dir, err := ioutil.TempDir("", "subpath")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	calls := filepath.Join(dir, "calls")
	defer program(t, dir, "nsenter", "echo >> "+calls+"\nexit 32\n")()
	if err := bindSubPath(NewNsenterMounter(), "/proc/1/fd/7", -1, "/volume/sub", "/target", []string{"bind"}); err == nil {
		t.Error("no error")
	}
	if b, err := ioutil.ReadFile(calls); err != nil || string(b) != "\n" {
		t.Errorf("called %d times (%v)", len(b), err)
	}
}

// TestBindSubPathOtherNamespace: a kubelet whose mount namespace is not the host's, as in a
// container. The first level is the host, the second the kubelet.
func TestBindSubPathOtherNamespace(t *testing.T) {
	dir := os.Getenv("HOLDFAST_TEST_SUBPATH_DIR")
	switch os.Getenv(inNamespace) {
	case "":
		again(t, "host")
		return
	case "host":
		dir, err := ioutil.TempDir("", "subpath")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("kubelet", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
			t.Fatal(err)
		}
		os.Setenv("HOLDFAST_TEST_SUBPATH_DIR", dir)
		again(t, "kubelet")
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		t.Fatal(err)
	}
	real, err := exec.LookPath("nsenter")
	if err != nil {
		t.Fatal(err)
	}
	// The command is behind -- or, with systemd-run, behind the second one. The path that
	// the kubelet found for it below /rootfs does not count.
	defer program(t, dir, "nsenter", fmt.Sprintf(`while [ "$1" != -- ]; do shift; done
shift
case "$1" in */systemd-run) while [ "$1" != -- ]; do shift; done; shift;; esac
name=${1##*/}
shift
if [ $name = mount ] && test -e %[1]s/exchange; then
  rm %[1]s/exchange
  cd %[1]s/volume && mv parent away && ln -s ../outside parent
fi
exec %[2]s --mount=/proc/%[3]d/ns/mnt -- $name "$@"
`, dir, real, os.Getppid()))()
	bind := func(sub Subpath, target string) error {
		fd, err := doSafeOpen(sub.Path, sub.VolumePath)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		source := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
		return bindSubPath(NewNsenterMounter(), source, fd, sub.Path, target, []string{"bind"})
	}
	sub := volume(t, dir)
	testHostPath(t, dir, bind)
	file := sub
	file.Path = filepath.Join(sub.Path, "where")
	target, fileTarget := filepath.Join(dir, "target"), filepath.Join(dir, "file")
	if err := os.Mkdir(target, 0700); err != nil {
		t.Fatal(err)
	}
	if err := ioutil.WriteFile(fileTarget, nil, 0600); err != nil {
		t.Fatal(err)
	}
	where := filepath.Join(target, "where")
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SubpathMountByFD, on)()
			for _, tc := range []struct {
				sub          Subpath
				target, read string
			}{{sub, target, where}, {file, fileTarget, fileTarget}} {
				if err := bind(tc.sub, tc.target); err != nil {
					t.Errorf("gate %v, %s: %v", on, tc.sub.Path, err)
					continue
				}
				if got, err := ioutil.ReadFile(tc.read); err != nil || string(got) != "volume/parent" {
					t.Errorf("gate %v: %s says %q, %v", on, tc.read, got, err)
				}
				if err := NewNsenterMounter().Unmount(tc.target); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	if err := ioutil.WriteFile(filepath.Join(dir, "exchange"), nil, 0600); err != nil {
		t.Fatal(err)
	}
	if err := bind(sub, target); err == nil || !strings.Contains(err.Error(), "is not the file that was opened") {
		t.Errorf("exchanged: %v", err)
	}
	if _, err := os.Lstat(where); !os.IsNotExist(err) {
		t.Errorf("exchanged: something is still mounted (%v)", err)
	}
}

// testHostPath: a directory that the kubelet's namespace has too, another one, is taken as
// the host's, which the kubelet sees below hostRoot.
func testHostPath(t *testing.T, dir string, bind func(Subpath, string) error) {
	host := filepath.Join(dir, "hostpath")
	sub := volume(t, host)
	target, root := filepath.Join(dir, "hosttarget"), filepath.Join(dir, "rootfs")
	for _, d := range []string{target, root} {
		if err := os.Mkdir(d, 0700); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("/", root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	// From here on the kubelet has its own files of these names.
	if err := unix.Mount("own", host, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(host, unix.MNT_DETACH)
	volume(t, host)
	where := filepath.Join(target, "where")
	if err := bind(sub, target); err == nil || !strings.Contains(err.Error(), "is not the file that was opened") {
		t.Errorf("without %s: %v", hostRoot, err)
	}
	defer func(was string) { hostRoot = was }(hostRoot)
	hostRoot = root
	hosts := filepath.Join(root, sub.Path, "where")
	if err := ioutil.WriteFile(hosts, []byte("host"), 0600); err != nil {
		t.Fatal(err)
	}
	if err := bind(sub, target); err != nil {
		t.Error(err)
	} else {
		if got, err := ioutil.ReadFile(where); err != nil || string(got) != "host" {
			t.Errorf("%s says %q, %v", where, got, err)
		}
		if err := NewNsenterMounter().Unmount(target); err != nil {
			t.Error(err)
		}
	}
	// A symlink on the host is not followed.
	parent := filepath.Join(root, host, "volume/parent")
	if err := os.Rename(parent, parent+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../outside", parent); err != nil {
		t.Fatal(err)
	}
	if err := bind(sub, target); err == nil || !strings.Contains(err.Error(), "is not the file that was opened") {
		t.Errorf("symlink: %v", err)
	}
	if _, err := os.Lstat(where); !os.IsNotExist(err) {
		t.Errorf("symlink: something is still mounted (%v)", err)
	}
}
