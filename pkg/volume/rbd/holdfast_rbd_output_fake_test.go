// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"bytes"
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/util/mount"
	"k8s.io/kubernetes/pkg/volume"
	volumetest "k8s.io/kubernetes/pkg/volume/testing"
	utilexec "k8s.io/utils/exec"
)

const (
	testKey  = "AQDkTh9aLm2cKRAAcJ0oPjV7pYx3xg4yJ1sVmw=="
	testPool = "rbd"
	testNode = "node1"
)

// fakeRBD is an image in a cluster, a node's kernel and the commands that know of them.
// Each command is recorded without its key and time-outs.
type fakeRBD struct {
	t   *testing.T
	dir string
	// before is asked first; what it handles is not done.
	before func(line string) (output string, err error, handled bool)

	mutex    sync.Mutex
	lines    []string
	raw      [][]string
	watchers []rbdWatcher
	locks    []rbdLock
	features string
	mapped   int
}

// ownWatcher is that of what this node has mapped.
var ownWatcher = rbdWatcher{"127.0.0.1:0/1", "client.9"}

// exit is how a command ended.
func exit(code int) error {
	return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
}

func newFakeRBD(t *testing.T) *fakeRBD {
	dir, err := ioutil.TempDir("", "rbd")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeRBD{t: t, dir: dir, features: `"layering"`}
	sysRBDDevices, devRBD = filepath.Join(dir, "sys"), filepath.Join(dir, "dev", "rbd")
	f.must(os.MkdirAll(filepath.Join(dir, "dev"), 0755))
	f.must(os.MkdirAll(sysRBDDevices, 0755))
	return f
}

func (f *fakeRBD) done() {
	sysRBDDevices, devRBD = "/sys/bus/rbd/devices", "/dev/rbd"
	os.RemoveAll(f.dir)
}

func (f *fakeRBD) must(err error) {
	if err != nil {
		f.t.Helper()
		f.t.Fatal(err)
	}
}

// device makes what the kernel shows of a mapped image, and returns its path.
func (f *fakeRBD) device(n int, pool, image, snap, namespace, config string) string {
	dir := filepath.Join(sysRBDDevices, fmt.Sprint(n))
	f.must(os.MkdirAll(dir, 0755))
	for name, text := range map[string]string{"pool": pool, "name": image, "current_snap": snap, "pool_ns": namespace, "config_info": config} {
		f.must(ioutil.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0644))
	}
	path := fmt.Sprintf("%s%d", devRBD, n)
	f.must(ioutil.WriteFile(path, nil, 0644))
	return path
}

func (f *fakeRBD) devices() []string {
	found, err := filepath.Glob(devRBD + "*")
	f.must(err)
	return found
}

// calls are the commands so far.
func (f *fakeRBD) calls() []string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return append([]string{}, f.lines...)
}

func (f *fakeRBD) Run(cmd string, args ...string) ([]byte, error) {
	shown := withoutKeys(args)
	var words []string
	for i := 0; i < len(shown); i++ {
		switch {
		case strings.Contains(shown[i], "_timeout="), strings.HasPrefix(shown[i], "--key="):
		case shown[i] == "--pool", shown[i] == "--id", shown[i] == "-m", shown[i] == "-k":
			i++
		default:
			words = append(words, strings.Replace(shown[i], f.dir, "", 1))
		}
	}
	line := cmd + " " + strings.Join(words, " ")
	f.mutex.Lock()
	f.lines = append(f.lines, line)
	f.raw = append(f.raw, append([]string{cmd}, args...))
	before := f.before
	f.mutex.Unlock()
	if before != nil {
		if output, err, handled := before(line); handled {
			return []byte(output), err
		}
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	output, err := f.do(cmd, args)
	return []byte(output), err
}

func (f *fakeRBD) do(cmd string, args []string) (string, error) {
	if cmd != "rbd" {
		return "", nil
	}
	switch args[0] {
	case "status":
		if len(f.watchers) == 0 {
			return "Watchers: none\n", nil
		}
		var b bytes.Buffer
		b.WriteString("Watchers:\n")
		for _, w := range f.watchers {
			fmt.Fprintf(&b, "\twatcher=%s %s cookie=1\n", w.address, w.client)
		}
		return b.String(), nil
	case "info":
		return fmt.Sprintf(`{"name":"img","size":1073741824,"features":[%s]}`, f.features), nil
	case "lock":
		return f.lock(args[1:])
	case "map":
		f.watchers = append(f.watchers, ownWatcher)
		f.mapped++
		return f.device(f.mapped, testPool, args[1], "-", "", "10.0.0.1:6789 name=admin,key=client.admin rbd img -"), nil
	case "unmap":
		if _, err := os.Stat(args[1]); err != nil {
			return fmt.Sprintf("rbd: '%s' is not a block device\nrbd: unmap failed: (22) Invalid argument\n", args[1]), exit(22)
		}
		f.must(os.Remove(args[1]))
		f.must(os.RemoveAll(filepath.Join(sysRBDDevices, strings.TrimPrefix(args[1], devRBD))))
		var others []rbdWatcher
		for _, w := range f.watchers {
			if w != ownWatcher {
				others = append(others, w)
			}
		}
		f.watchers = others
		return "", nil
	case "create", "rm", "resize":
		return "", nil
	}
	f.t.Errorf("rbd has no command %q", args)
	return "rbd: error parsing command\n", exit(22)
}

func (f *fakeRBD) lock(args []string) (string, error) {
	switch args[0] {
	case "list":
		if len(f.locks) == 0 {
			return "", nil
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "There is %d exclusive lock on this image.\nLocker       ID                        Address\n", len(f.locks))
		for _, l := range f.locks {
			fmt.Fprintf(&b, "%s  %s  %s\n", l.locker, l.id, l.address)
		}
		return b.String(), nil
	case "add":
		if len(f.locks) > 0 {
			return "rbd: lock is already held by someone else with a different tag\n", exit(16)
		}
		f.locks = append(f.locks, rbdLock{args[2], "client.77", "127.0.0.1:0/77"})
	case "remove":
		for i, l := range f.locks {
			if l.id == args[2] && l.locker == args[3] {
				f.locks = append(f.locks[:i:i], f.locks[i+1:]...)
				return "", nil
			}
		}
		return "rbd: releasing lock failed: (2) No such file or directory\n", exit(2)
	default:
		f.t.Errorf("rbd has no command lock %q", args)
	}
	return "", nil
}

// fakeHost is a kubelet's host whose commands are a fakeRBD's.
type fakeHost struct {
	volume.VolumeHost
	rbd      *fakeRBD
	node     string
	mounter  mount.Interface
	recorder *record.FakeRecorder
}

func newFakeHost(f *fakeRBD) *fakeHost {
	h := &fakeHost{
		VolumeHost: volumetest.NewFakeVolumeHost(f.dir, nil, nil),
		rbd:        f,
		node:       testNode,
		mounter:    &mount.FakeMounter{},
		recorder:   record.NewFakeRecorder(1000),
	}
	recordersMutex.Lock()
	recorders[h] = h.recorder
	recordersMutex.Unlock()
	return h
}

func (h *fakeHost) GetExec(string) mount.Exec         { return h.rbd }
func (h *fakeHost) GetNodeName() types.NodeName       { return types.NodeName(h.node) }
func (h *fakeHost) GetMounter(string) mount.Interface { return h.mounter }

// events are those recorded so far, in one text.
func (h *fakeHost) events() string {
	var all []string
	for {
		select {
		case e := <-h.recorder.Events:
			all = append(all, e)
		default:
			return strings.Join(all, "\n")
		}
	}
}

// testMounter is an attachable volume of the image "img" of a node.
func testMounter(h *fakeHost, readOnly bool) *rbdMounter {
	plugin := &rbdPlugin{host: h}
	return &rbdMounter{
		rbd:    newRBD("", "vol", "img", testPool, readOnly, plugin, &RBDUtil{}),
		Mon:    []string{"10.0.0.1:6789"},
		Id:     "admin",
		Secret: testKey,
	}
}

// gate sets a feature gate and returns what sets it back.
func gate(t *testing.T, f utilfeature.Feature, on bool) func() {
	if !strings.Contains(strings.Join(utilfeature.DefaultFeatureGate.KnownFeatures(), " "), string(f)+"=") {
		return func() {} // its fix is left out
	}
	was := utilfeature.DefaultFeatureGate.Enabled(f)
	set := func(v bool) {
		if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", f, v)); err != nil {
			t.Fatal(err)
		}
	}
	set(on)
	return func() { set(was) }
}

func contains(t *testing.T, what, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s lacks %q: %s", what, w, text)
		}
	}
}

func sameCalls(t *testing.T, f *fakeRBD, want ...string) {
	t.Helper()
	if got := f.calls(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("commands:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// badMounter is a FakeMounter whose mounts or unmounts fail.
type badMounter struct {
	*mount.FakeMounter
	mountErr, unmountErr error
}

func (m *badMounter) Mount(source, target, fstype string, options []string) error {
	if m.mountErr != nil {
		return m.mountErr
	}
	return m.FakeMounter.Mount(source, target, fstype, options)
}

func (m *badMounter) Unmount(target string) error {
	if err := m.unmountErr; err != nil {
		m.unmountErr = nil
		return err
	}
	return m.FakeMounter.Unmount(target)
}
