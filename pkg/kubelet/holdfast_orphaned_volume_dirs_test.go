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
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/clock"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/pkg/util/mount"
)

// syncedVolumes is a volume manager that has, or has not, looked at what is on disk.
type syncedVolumes struct {
	volumemanager.VolumeManager
	synced bool
}

func (s syncedVolumes) ReconcilerStatesHasBeenSynced() bool { return s.synced }

// put makes paths below dir: "a/" a directory, "a" an empty file, "a=b" a file with b in it
// and "a->b" a symbolic link.
func put(t *testing.T, dir string, paths ...string) {
	for _, p := range paths {
		link, data := strings.Split(p, "->"), strings.Split(p, "=")
		name := filepath.Join(dir, strings.Split(data[0], "->")[0])
		err := os.MkdirAll(filepath.Dir(name), 0755)
		switch {
		case err != nil:
		case len(link) == 2:
			err = os.Symlink(link[1], name)
		case strings.HasSuffix(p, "/"):
			err = os.MkdirAll(name, 0755)
		default:
			err = ioutil.WriteFile(name, []byte(strings.Join(data[1:], "=")), 0644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// tree returns what is below dir, sorted.
func tree(t *testing.T, dir string) []string {
	paths := []string{}
	err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		if err == nil && path != dir {
			paths = append(paths, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	sort.Strings(paths)
	return paths
}

// TestHoldfastOrphanedVolumeDirs: what a kubelet's cleanup leaves of the directory of a pod,
// a sync before and a sync after the minute.
func TestHoldfastOrphanedVolumeDirs(t *testing.T) {
	for name, test := range map[string]struct {
		off, unsynced, otherMounts  bool
		listed, running, linkedRoot bool
		paths                       []string
		removed                     bool
	}{
		"one empty directory":            {paths: []string{"volumes/kubernetes.io~nfs/pv/"}, removed: true},
		"several, and the pod's files":   {paths: []string{"volumes/kubernetes.io~nfs/a/", "volumes/kubernetes.io~nfs/b/", "volumes/kubernetes.io~secret/s/", "volumes/kubernetes.io~rbd/", "etc-hosts=x", "containers/c/log=y", "plugins/kubernetes.io~empty-dir/e/ready"}, removed: true},
		"below a symbolic link":          {linkedRoot: true, paths: []string{"volumes/kubernetes.io~nfs/pv/"}, removed: true},
		"targets of subPaths":            {paths: []string{"volumes/kubernetes.io~nfs/pv/", "volume-subpaths/pv/c/0/", "volume-subpaths/pv/c/1"}, removed: true},
		"no volume":                      {paths: []string{"volumes/kubernetes.io~nfs/", "etc-hosts=x"}, removed: true},
		"gate off":                       {off: true, paths: []string{"volumes/kubernetes.io~nfs/pv/"}},
		"volumes not looked at":          {unsynced: true, paths: []string{"volumes/kubernetes.io~nfs/pv/"}},
		"mounts of another namespace":    {otherMounts: true, paths: []string{"volumes/kubernetes.io~nfs/pv/"}},
		"the pod is there":               {listed: true, paths: []string{"volumes/kubernetes.io~nfs/pv/"}},
		"a container runs":               {running: true, paths: []string{"volumes/kubernetes.io~nfs/pv/"}},
		"a file":                         {paths: []string{"volumes/kubernetes.io~empty-dir/e/data=z"}},
		"an empty file":                  {paths: []string{"volumes/kubernetes.io~empty-dir/e/data"}},
		"one empty, one not":             {paths: []string{"volumes/kubernetes.io~empty-dir/a/", "volumes/kubernetes.io~empty-dir/e/data=z", "volumes/kubernetes.io~nfs/pv/"}},
		"an empty directory in a volume": {paths: []string{"volumes/kubernetes.io~csi/pv/mount/"}},
		"a driver's file":                {paths: []string{"volumes/kubernetes.io~csi/pv/vol_data.json={}"}},
		"a file in a volume's place":     {paths: []string{"volumes/kubernetes.io~nfs/pv=z"}},
		"a link in a volume's place":     {paths: []string{"elsewhere/", "volumes/kubernetes.io~nfs/pv->../../elsewhere"}},
		"a link in a plugin's place":     {paths: []string{"elsewhere/pv/", "volumes/kubernetes.io~nfs->../elsewhere"}},
		"a link in the volumes' place":   {paths: []string{"elsewhere/kubernetes.io~nfs/pv/", "volumes->elsewhere"}},
		"a file in a subPath's target":   {paths: []string{"volumes/kubernetes.io~nfs/pv/", "volume-subpaths/pv/c/0/data=z"}},
		"a subPath's target with data":   {paths: []string{"volumes/kubernetes.io~nfs/pv/", "volume-subpaths/pv/c/0=z"}},
		"a link among subPaths":          {paths: []string{"volumes/kubernetes.io~nfs/pv/", "volume-subpaths/pv/c/0->/etc"}},
	} {
		t.Run(name, func(t *testing.T) {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.OrphanedVolumeDirs, !test.off)()
			defer func() { theOrphanedPods = orphanedPods{} }()
			tk := newTestKubelet(t, false)
			defer tk.Cleanup()
			kl := tk.kubelet
			if !test.otherMounts {
				kl.mounter = mount.New("")
			}
			if test.linkedRoot {
				link := filepath.Join(kl.rootDirectory, "link")
				put(t, kl.rootDirectory, "real/", "link->real")
				kl.rootDirectory = link
			}
			kl.volumeManager = syncedVolumes{kl.volumeManager, !test.unsynced}
			podDir := kl.getPodDir("u1")
			put(t, podDir, test.paths...)
			before := tree(t, podDir)
			var pods []*v1.Pod
			var running []*kubecontainer.Pod
			if test.listed {
				pods = append(pods, podWithUIDNameNs("u1", "web", "ns"))
			}
			if test.running {
				running = append(running, &kubecontainer.Pod{ID: "u1"})
			}
			sync := func() {
				if err := kl.cleanupOrphanedPodDirs(pods, running); err != nil {
					t.Error(err)
				}
			}
			early := name == "no volume"
			for i := 0; i < 3; i++ {
				sync()
				if after := tree(t, podDir); !early && !reflect.DeepEqual(before, after) {
					t.Fatalf("within the minute %q became %q", before, after)
				}
				tk.fakeClock.Step(29 * time.Second)
			}
			sync()
			tk.fakeClock.Step(2 * time.Minute)
			sync()
			_, err := os.Lstat(podDir)
			if after := tree(t, podDir); test.removed != os.IsNotExist(err) || !test.removed && !reflect.DeepEqual(before, after) {
				t.Errorf("removed is %v, want %v; %q became %q", os.IsNotExist(err), test.removed, before, after)
			}
		})
	}
}

// TestHoldfastOrphanedVolumeDirsMounts: a table that has a mount in the pod's directory, or
// that cannot be trusted, keeps everything.
func TestHoldfastOrphanedVolumeDirsMounts(t *testing.T) {
	const line = "36 35 98:0 /x %s rw,noatime master:1 - ext4 /dev/root rw\n"
	changes := 0
	for name, test := range map[string]struct {
		table   func(podDir string) (string, error)
		removed bool
	}{
		"nothing in it": {func(p string) (string, error) {
			return fmt.Sprintf(line, filepath.Dir(p)) + fmt.Sprintf(line, p+"0/volumes"), nil
		}, true},
		"the volume":          {func(p string) (string, error) { return fmt.Sprintf(line, p+"/volumes/kubernetes.io~nfs/pv"), nil }, false},
		"the pod's directory": {func(p string) (string, error) { return fmt.Sprintf(line, p), nil }, false},
		"a subPath":           {func(p string) (string, error) { return fmt.Sprintf(line, p+"/volume-subpaths/pv/c/0"), nil }, false},
		"a name with a space": {func(p string) (string, error) { return fmt.Sprintf(line, p+`/plugins/a\040b`), nil }, false},
		"below an escaped path": {func(p string) (string, error) {
			return fmt.Sprintf(line, strings.Replace(p, "u", `\165`, -1)+"/x"), nil
		}, false},
		"no table":             {func(string) (string, error) { return "", errors.New("no /proc") }, false},
		"an empty table":       {func(string) (string, error) { return "", nil }, false},
		"a table that changes": {func(string) (string, error) { changes++; return fmt.Sprintf(line, fmt.Sprint("/", changes)), nil }, false},
	} {
		dir := tempDir(t)
		podDir := filepath.Join(dir, "u1")
		put(t, podDir, "volumes/kubernetes.io~nfs/pv/")
		o := volumeDirsOf(dir, "u1")
		o.mountInfo = func() ([]byte, error) { s, err := test.table(podDir); return []byte(s), err }
		removed := o.remove("u1")
		_, err := os.Stat(filepath.Join(podDir, "volumes/kubernetes.io~nfs/pv"))
		if removed != test.removed || os.IsNotExist(err) != test.removed {
			t.Errorf("%s: remove says %v, Stat %v, want %v", name, removed, err, test.removed)
		}
		if next := o.seen["u1"]; !test.removed && !next.Equal(o.now.Add(orphanedVolumeDirsAfter)) {
			t.Errorf("%s: looked at again %v", name, next)
		}
		os.RemoveAll(dir)
	}
}

// TestHoldfastOrphanedVolumeDirsRealMounts: binds of the same filesystem, which device numbers
// do not show, and a mount that comes after the last look at the table.
func TestHoldfastOrphanedVolumeDirsRealMounts(t *testing.T) {
	done := make(chan bool)
	go func() {
		defer close(done)
		// Never unlocked: the thread, and with it the mount namespace, ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			t.Logf("no mount namespace, not tested: %v", err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Errorf("mount / private: %v", err)
			return
		}
		own := func() ([]byte, error) { return ioutil.ReadFile("/proc/thread-self/mountinfo") }
		for name, table := range map[string]func() ([]byte, error){
			"seen": own,
			"late": func() ([]byte, error) { return []byte("1 1 0:1 / / rw - ext4 x rw\n"), nil },
		} {
			dir := tempDir(t)
			defer os.RemoveAll(dir)
			put(t, dir, "host/data=z", "empty/", "pods/u1/volumes/kubernetes.io~local-volume/pv/", "pods/u1/volumes/kubernetes.io~local-volume/none/")
			pv := filepath.Join(dir, "pods/u1/volumes/kubernetes.io~local-volume/pv")
			// An empty one: only the mount keeps it.
			if err := unix.Mount(filepath.Join(dir, "empty"), pv, "", unix.MS_BIND, ""); err != nil {
				t.Errorf("bind: %v", err)
				return
			}
			o := volumeDirsOf(filepath.Join(dir, "pods"), "u1")
			o.mountInfo = table
			if o.remove("u1") {
				t.Errorf("%s: a pod with a bind mount is said to be without volumes", name)
			}
			if err := unix.Unmount(pv, unix.UMOUNT_NOFOLLOW); err != nil {
				t.Errorf("%s: the mount is gone: %v", name, err)
			}
			if _, err := os.Stat(pv); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if b, err := ioutil.ReadFile(filepath.Join(dir, "host/data")); err != nil || string(b) != "z" {
				t.Errorf("%s: data is %q, %v", name, b, err)
			}
		}
	}()
	<-done
}

// TestHoldfastOrphanedVolumeDirsBounds: how much one sync reads, and that others come later.
func TestHoldfastOrphanedVolumeDirsBounds(t *testing.T) {
	dir := tempDir(t)
	defer os.RemoveAll(dir)
	var uids []types.UID
	for _, uid := range []types.UID{"u1", "u2", "u3"} {
		uids = append(uids, uid)
		for i := 0; i < 90; i++ {
			put(t, dir, fmt.Sprintf("%s/volumes/kubernetes.io~nfs/pv%d/", uid, i))
		}
	}
	for i := 0; i <= maxOrphanedVolumeDirs; i++ {
		put(t, dir, fmt.Sprintf("u0/volumes/kubernetes.io~nfs/pv%d/", i))
	}
	fake := clock.NewFakeClock(time.Unix(1500000000, 0))
	due, removed := orphanedPods{}, map[types.UID]int{}
	for sync := 1; sync <= 40; sync++ {
		o := volumeDirsOf(dir)
		o.due, o.now = due, fake.Now()
		for _, uid := range append([]types.UID{"u0"}, uids...) {
			if removed[uid] == 0 && o.remove(uid) {
				removed[uid] = sync
			}
		}
		if o.budget < -1 {
			t.Errorf("sync %d read %d directories more than it may", sync, -o.budget)
		}
		due = o.seen
		fake.Step(2 * time.Second)
	}
	// Syncs 1 to 30 are in the first minute. u0 alone is too much for
	// one sync, which shows without reading all of it.
	if want := map[types.UID]int{"u1": 31, "u2": 31, "u3": 32}; !reflect.DeepEqual(removed, want) {
		t.Errorf("removed in sync %v, want %v", removed, want)
	}
	o := volumeDirsOf(dir)
	for i := 0; i < 2*maxOrphanedPodsTracked; i++ {
		o.remove(types.UID(fmt.Sprint("x", i)))
	}
	if len(o.seen) != maxOrphanedPodsTracked {
		t.Errorf("%d orphaned pods are remembered", len(o.seen))
	}
}

// TestHoldfastOrphanedVolumeDirsForgets: a pod that came back and went again waits anew.
func TestHoldfastOrphanedVolumeDirsForgets(t *testing.T) {
	defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.OrphanedVolumeDirs, true)()
	defer func() { theOrphanedPods = orphanedPods{} }()
	tk := newTestKubelet(t, false)
	defer tk.Cleanup()
	kl := tk.kubelet
	kl.mounter, kl.volumeManager = mount.New(""), syncedVolumes{kl.volumeManager, true}
	put(t, kl.getPodDir("u1"), "volumes/kubernetes.io~nfs/pv/")
	back := []*v1.Pod{podWithUIDNameNs("u1", "web", "ns")}
	for i, pods := range [][]*v1.Pod{nil, back, nil} {
		if err := kl.cleanupOrphanedPodDirs(pods, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(kl.getPodDir("u1")); err != nil {
			t.Fatalf("sync %d: %v", i, err)
		}
		tk.fakeClock.Step(orphanedVolumeDirsAfter)
	}
}

// volumeDirsOf has the given pods due.
func volumeDirsOf(podsDir string, due ...types.UID) *orphanedVolumeDirs {
	now := time.Unix(1500000000, 0)
	o := &orphanedVolumeDirs{podsDir: podsDir, now: now, due: orphanedPods{}, seen: orphanedPods{}, budget: maxOrphanedVolumeDirs,
		mountInfo: func() ([]byte, error) { return []byte("1 1 0:1 / / rw - ext4 x rw\n"), nil }}
	for _, uid := range due {
		o.due[uid] = now
	}
	return o
}

func tempDir(t *testing.T) string {
	dir, err := ioutil.TempDir("", "orphaned")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
