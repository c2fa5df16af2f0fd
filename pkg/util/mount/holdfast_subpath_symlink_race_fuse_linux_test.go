// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"encoding/binary"
	"fmt"
	"io/ioutil"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
)

// serveFUSE answers the kernel for a file system in which each name is a directory, whose inode
// has another number each time that somebody asks.
func serveFUSE(dev int) {
	ino := uint64(1000)
	in := make([]byte, 1<<17)
	for {
		n, err := unix.Read(dev, in)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		ino++
		attr := make([]byte, 88)
		binary.LittleEndian.PutUint64(attr, ino)
		binary.LittleEndian.PutUint32(attr[60:], unix.S_IFDIR|0755)
		binary.LittleEndian.PutUint32(attr[64:], 2)
		var body []byte
		code := int32(0)
		switch binary.LittleEndian.Uint32(in[4:]) {
		case 1: // LOOKUP: node 2, and nothing of it may be remembered
			body = append([]byte{2, 39: 0}, attr...)
		case 2, 42: // FORGET, BATCH_FORGET
			continue
		case 3: // GETATTR
			body = append(make([]byte, 16), attr...)
		case 17: // STATFS
			body = make([]byte, 80)
		case 26: // INIT, version 7.23
			body = []byte{7, 4: 23, 63: 0}
			binary.LittleEndian.PutUint32(body[20:], 4096)
		default:
			code = -int32(unix.ENOSYS)
		}
		out := make([]byte, 16, 16+len(body))
		binary.LittleEndian.PutUint32(out, uint32(16+len(body)))
		binary.LittleEndian.PutUint32(out[4:], uint32(code))
		copy(out[8:], in[8:16])
		unix.Write(dev, append(out, body...))
	}
}

// TestSubPathOnFUSE: a subPath of a file system whose inodes have no lasting number is bound, and
// another file system is refused there as everywhere.
func TestSubPathOnFUSE(t *testing.T) {
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR, 0)
	if err != nil {
		t.Skipf("no FUSE: %v", err)
	}
	defer unix.Close(dev)
	if os.Getenv(inNamespace) == "" {
		again(t, "1")
		return
	}
	runtime.LockOSThread()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	dir, err := ioutil.TempDir("", "subpath")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	volume := filepath.Join(dir, "volume")
	if err := os.Mkdir(volume, 0755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("fuse", volume, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", dev, os.Getuid(), os.Getgid())); err != nil {
		t.Skipf("no FUSE: %v", err)
	}
	defer unix.Unmount(volume, unix.MNT_DETACH)
	go serveFUSE(dev)
	sub := filepath.Join(volume, "sub")
	var first, second unix.Stat_t
	if err := unix.Lstat(sub, &first); err != nil {
		t.Fatal(err)
	}
	if err := unix.Lstat(sub, &second); err != nil || first.Ino == second.Ino {
		t.Fatalf("%v: the number of the inode is %d and stays", err, first.Ino)
	}
	fd, err := doSafeOpen(sub, volume)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	real, err := exec.LookPath("mount")
	if err != nil {
		t.Fatal(err)
	}
	prepare := func() (string, error) {
		target, _, err := (&Mounter{}).PrepareSafeSubpath(Subpath{Path: sub, VolumeName: "vol", VolumePath: volume, PodDir: filepath.Join(dir, "pod"), ContainerName: "main"})
		return target, err
	}
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SubpathMountByFD, on)()
			other, exchanged := raceCounted(t, subPathsOtherMounted), raceCounted(t, subPathsExchanged)
			target, err := prepare()
			if err != nil {
				t.Fatalf("gate %v: %v", on, err)
			}
			defer unix.Unmount(target, unix.MNT_DETACH)
			if same, err := compareFile(fd, target); !same || err != nil {
				t.Errorf("gate %v: what is bound is another file: %v", on, err)
			}
			if same, err := compareFile(fd, dir); same || err != nil {
				t.Errorf("gate %v: a directory of another file system is the same file: %v", on, err)
			}
			other, exchanged = raceCounted(t, subPathsOtherMounted)-other, raceCounted(t, subPathsExchanged)-exchanged
			if other != 0 || exchanged != 0 {
				t.Errorf("gate %v: counted %v other, %v exchanged", on, other, exchanged)
			}
		}()
	}
	// subpath-rollback's check, if it is built: a mount(8) that was led out of the volume.
	unbind := utilfeature.Feature("SubpathUnbindAfterStart")
	if !strings.Contains(strings.Join(utilfeature.DefaultFeatureGate.KnownFeatures(), " "), string(unbind)) {
		return
	}
	defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, unbind, true)()
	defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SubpathMountByFD, false)()
	defer program(t, dir, "mount", fmt.Sprintf("for target; do :; done\nexec %s --bind %s $target\n", real, dir))()
	if target, err := prepare(); err == nil {
		unix.Unmount(target, unix.MNT_DETACH)
		t.Error("a directory of another file system is bound for the subPath")
	}
}
