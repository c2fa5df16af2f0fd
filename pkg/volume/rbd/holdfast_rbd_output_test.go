// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"bytes"
	"flag"
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang/glog"
	"k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/util/node"
	"k8s.io/kubernetes/pkg/volume"
	volumetest "k8s.io/kubernetes/pkg/volume/testing"
)

// logOf is what is logged while do runs, at every level.
func logOf(t *testing.T, do func()) string {
	stderr := os.Stderr
	file, err := ioutil.TempFile("", "rbd-log")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file.Name())
	flag.Set("v", "10")
	flag.Set("logtostderr", "true")
	os.Stderr = file
	defer func() {
		os.Stderr = stderr
		flag.Set("v", "0")
	}()
	do()
	glog.Flush()
	log, err := ioutil.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// TestShownTexts: what a pod's author chooses, pool and image and the server that answers, makes
// no line longer than its bound, and no second line.
func TestShownTexts(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, name := range []string{"rbd", "p/o", long, "a\nE1127 forged"} {
		b := &rbdMounter{rbd: &rbd{Pool: name, Image: name}}
		l := rbdLock{name, name, name}
		for what, got := range map[string]string{"image": b.shownImage(), "lock": l.String(), "text": shownText(name)} {
			if len(got) > maxShownText+3 || strings.Contains(got, "\n") {
				t.Errorf("%s: %d bytes: %.60q", what, len(got), got)
			}
		}
	}
	if got := (&rbdMounter{rbd: &rbd{Pool: "p", Image: "i"}}).shownImage(); got != "p/i" {
		t.Errorf("the image is %q", got)
	}
	_, err := parseLockList([]byte("There are 2 exclusive locks on this image.\n" + long))
	if err == nil || len(err.Error()) > 2*maxShownOutput {
		t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
	}
}

// Every operation, with each of its commands failing in turn, says its key nowhere: not
// in the error, the log at -v=10 or an event. What rbd printed is otherwise there.
func TestNoKeyAnywhere(t *testing.T) {
	admin := func(f *fakeRBD) *rbdMounter {
		m := testMounter(newFakeHost(f), false)
		m.adminId, m.adminSecret, m.imageFormat, m.Image = "admin", testKey, rbdImageFormat2, "img"
		return m
	}
	claim := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}}}
	operations := map[string]func(*fakeRBD) error{
		"create": func(f *fakeRBD) error {
			_, _, err := (&RBDUtil{}).CreateImage(&rbdVolumeProvisioner{admin(f), volume.VolumeOptions{PVC: claim}})
			return err
		},
		"rm": func(f *fakeRBD) error { return (&RBDUtil{}).DeleteImage(&rbdVolumeDeleter{admin(f)}) },
		"resize": func(f *fakeRBD) error {
			_, err := (&RBDUtil{}).ExpandImage(&rbdVolumeExpander{admin(f)}, resource.MustParse("1Gi"), resource.MustParse("2Gi"))
			return err
		},
		"map":    func(f *fakeRBD) error { _, err := (&RBDUtil{}).AttachDisk(*admin(f)); return err },
		"unlock": func(f *fakeRBD) error { return (&RBDUtil{}).rbdUnlock(*admin(f)) },
		"unmap": func(f *fakeRBD) error {
			return (&RBDUtil{}).DetachDisk(&rbdPlugin{host: newFakeHost(f)}, f.dir, devRBD+"7")
		},
	}
	for name, operation := range operations {
		f := newFakeRBD(t)
		if err := operation(f); err != nil && name != "unmap" {
			t.Errorf("%s: %v", name, err)
		}
		lines := f.calls()
		f.done()
		if len(lines) == 0 {
			t.Errorf("%s runs nothing", name)
		}
		for n, line := range lines {
			if !strings.HasPrefix(line, "rbd ") {
				continue
			}
			f := newFakeRBD(t)
			seen := 0
			f.before = func(string) (string, error, bool) {
				seen++
				return "2018-01-01 7f -1 auth: failed to decode key '" + testKey + "'\nkey " + testKey + " rejected\nrbd: couldn't connect\n", exit(1), seen == n+1
			}
			var err error
			log := logOf(t, func() { err = operation(f) })
			f.done()
			if strings.Contains(log, testKey) {
				t.Errorf("%s, %q fails: the log has the key:\n%s", name, line, log)
			}
			if err != nil && strings.Contains(err.Error(), testKey) {
				t.Errorf("%s, %q fails: the error has the key: %v", name, line, err)
			}
			if (name == "unmap" || name == "create" || name == "map") && !strings.HasPrefix(line, "rbd lock") {
				if err == nil {
					t.Errorf("%s, %q fails: no error", name, line)
				} else {
					contains(t, name+"'s error", err.Error(), "couldn't connect", "decode key '***'", "key *** rejected")
				}
			}
		}
	}
}

func TestMaskKeys(t *testing.T) {
	other := "AQBSdFhcGeSNFBAAbYHGKXx0VaJSnV7vq5MSPA=="
	for _, c := range []struct{ text, key, want string }{
		{"key " + testKey + " twice " + testKey, testKey, "key *** twice ***"},
		{"key " + testKey + " here", testKey + "\n", "key *** here"},
		{"from a keyring: " + other, testKey, "from a keyring: ***"},
		{"failed to decode key 'abc'", "abc", "failed to decode key '***'"},
		{"failed to decode key 'it's\nlong'", "it's\nlong-enough", "failed to decode key '***'s\nlong'"},
		{"failed to decode key 'two\nlines'\nrbd: no", "", "failed to decode key '***'\nrbd: no"},
		{"rbd: error opening image", "rbd", "rbd: error opening image"},
		{"Watchers: none", "Watchers: none", "***"},
	} {
		if got := string(maskKeys([]byte(c.text), []string{c.key})); got != c.want {
			t.Errorf("%q with key %q becomes %q, want %q", c.text, c.key, got, c.want)
		}
	}
	// A key that stands for the answer makes an error of it.
	if w, err := parseStatus(maskKeys([]byte("Watchers:\n\twatcher=1.2.3.4:0/1 client.1\n"), []string{"watcher=1.2.3.4:0/1"})); err == nil {
		t.Errorf("a masked row is read as %v", w)
	}
	if got := withoutKeys([]string{"map", "--key", "x", "--key=y", "img"}); strings.Join(got, " ") != "map --key *** --key=*** img" {
		t.Errorf("command line is shown as %q", got)
	}
}

// The commands that ask get time-outs, those that change what a kernel or an image has do
// not; create, rm and resize are left as they were.
func TestTimeouts(t *testing.T) {
	for line, want := range map[string]bool{
		"rbd status img": true, "rbd info img": true, "rbd lock list img": true, "rbd lock remove img id client.1": true,
		"rbd map img": false, "rbd unmap /dev/rbd0": false, "rbd rm img": false, "rbd create img": false, "rbd resize img": false, "modprobe rbd": false,
	} {
		f := newFakeRBD(t)
		words := strings.Fields(line)
		newRBDExec(newFakeHost(f)).Run(words[0], words[1:]...)
		got := strings.Join(f.raw[0], " ")
		f.done()
		for _, o := range []string{"--client_mount_timeout=30", "--rados_mon_op_timeout=30", "--rados_osd_op_timeout=30"} {
			if strings.Contains(got, o) != want {
				t.Errorf("%q runs as %q", line, got)
			}
		}
	}
}

// rbd map and rbd unmap that hang are waited for, and spoken of again and again.
func TestSlowCommands(t *testing.T) {
	defer func(was time.Duration) { slowCommand = was }(slowCommand)
	slowCommand = 5 * time.Millisecond
	for _, words := range [][]string{{"map", "img", "--key=" + testKey}, {"unmap", "/dev/rbd0"}} {
		f := newFakeRBD(t)
		h := newFakeHost(f)
		f.before = func(string) (string, error, bool) {
			for n := 0; n < 2; n++ {
				select {
				case e := <-h.recorder.Events:
					contains(t, "event", e, "RBDCommandSlow", "rbd "+words[0], "is waited for")
					if strings.Contains(e, testKey) {
						t.Errorf("the event has the key: %s", e)
					}
				case <-time.After(10 * time.Second):
					t.Errorf("%s: no event %d", words[0], n)
				}
			}
			return "done", nil, true
		}
		output, err := newRBDExec(h).Run("rbd", words...)
		f.done()
		if string(output) != "done" || err != nil {
			t.Errorf("%s: %q, %v", words[0], output, err)
		}
	}
	// In the controller manager there is no node to record it for.
	f := newFakeRBD(t)
	defer f.done()
	h := newFakeHost(f)
	h.node = ""
	nodeEvent(h, "Warning", "RBDCommandSlow", "x")
	if e := h.events(); e != "" {
		t.Errorf("event without a node: %s", e)
	}
}

// The hooks: the locker is found in both forms of columns and by its whole ID.
func TestUnlockReadsColumns(t *testing.T) {
	own := kubeLockMagic + node.GetHostname("")
	for name, c := range map[string]struct{ list, removed string }{
		"one blank":   {"There is 1 exclusive lock on this image.\nLocker ID Address\nclient.4277 " + own + " 10.0.0.1:0/1\n", "client.4277"},
		"two blanks":  {"There is 1 exclusive lock on this image.\nLocker       ID  Address\nclient.4277  " + own + "  10.0.0.1:0/1\n", "client.4277"},
		"prefix":      {"There is 1 exclusive lock on this image.\nLocker       ID  Address\nclient.4277  " + own + "0  10.0.0.1:0/1\n", ""},
		"log between": {"There is 1 exclusive lock on this image.\n2018 -1 no keyring\nclient.4277 " + own + " 10.0.0.1:0/1\n2018 -1 x\n", "client.4277"},
	} {
		f := newFakeRBD(t)
		f.before = func(line string) (string, error, bool) { return c.list, nil, strings.HasPrefix(line, "rbd lock list") }
		f.locks = []rbdLock{{own, c.removed, "10.0.0.1:0/1"}}
		if err := (&RBDUtil{}).rbdUnlock(*testMounter(newFakeHost(f), false)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := []string{"rbd lock list img"}
		if c.removed != "" {
			want = append(want, "rbd lock remove img "+own+" "+c.removed)
		}
		sameCalls(t, f, want...)
		f.done()
	}
}

// The hooks: expansion reads today's answer, and a status that cannot be read is no
// "nobody is there".
func TestHooksReadAnswers(t *testing.T) {
	for size, want := range map[string]bool{"2 GiB": false, "1 GiB": true, "1024 MB": true} {
		f := newFakeRBD(t)
		f.before = func(line string) (string, error, bool) {
			return "rbd image 'img':\n\tsize " + size + " in 256 objects\n", nil, strings.HasPrefix(line, "rbd info")
		}
		m := testMounter(newFakeHost(f), false)
		_, err := (&RBDUtil{}).ExpandImage(&rbdVolumeExpander{m}, resource.MustParse("1Gi"), resource.MustParse("2Gi"))
		resized := strings.Contains(strings.Join(f.calls(), "\n"), "rbd resize img --size 2048")
		f.done()
		if err != nil || resized != want {
			t.Errorf("%s to 2Gi: resized %v, %v", size, resized, err)
		}
	}
	for _, answer := range []string{"", "2018-01-01 -1 no keyring found\n", "Watchers:\n"} {
		f := newFakeRBD(t)
		f.before = func(line string) (string, error, bool) { return answer, nil, strings.HasPrefix(line, "rbd status") }
		if _, err := (&RBDUtil{}).AttachDisk(*testMounter(newFakeHost(f), false)); err == nil || !strings.Contains(err.Error(), "cannot read the list of watchers") {
			t.Errorf("status %q: %v", answer, err)
		}
		for _, line := range f.calls() {
			if strings.HasPrefix(line, "rbd map") {
				t.Errorf("status %q: mapped", answer)
			}
		}
		f.done()
	}
}

// The hook in ExpandVolumeDevice, which makes its own mounter.
func TestExpanderRunsThroughMask(t *testing.T) {
	f := newFakeRBD(t)
	defer f.done()
	h := newFakeHost(f)
	client := fake.NewSimpleClientset(
		&storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Parameters: map[string]string{"adminSecretName": "s", "adminSecretNamespace": "n"}},
		&v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n"}, Type: rbdPluginName, Data: map[string][]byte{"key": []byte(testKey)}})
	h.VolumeHost = volumetest.NewFakeVolumeHost(f.dir, client, nil)
	f.before = func(line string) (string, error, bool) {
		return "no: " + testKey, exit(1), strings.HasPrefix(line, "rbd resize")
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{StorageClassName: "c",
		PersistentVolumeSource: v1.PersistentVolumeSource{RBD: &v1.RBDPersistentVolumeSource{CephMonitors: []string{"10.0.0.1:6789"}, RBDImage: "img", RBDPool: testPool}}}}
	log := logOf(t, func() {
		if _, err := (&rbdPlugin{host: h}).ExpandVolumeDevice(volume.NewSpecFromPersistentVolume(pv, false), resource.MustParse("2Gi"), resource.MustParse("1Gi")); err == nil {
			t.Error("no error")
		}
	})
	contains(t, "log", log, "no: ***")
	if strings.Contains(log, testKey) || !strings.Contains(strings.Join(f.raw[0], " "), rbdTimeouts[0]) {
		t.Errorf("commands %q, log %s", f.raw, log)
	}
}

// rbd.json that a kubelet up to 1.8 wrote is read: 1.7.0's own bytes.
func TestReadsOldFile(t *testing.T) {
	f := newFakeRBD(t)
	defer f.done()
	file := filepath.Join(f.dir, "rbd.json")
	f.must(ioutil.WriteFile(file, []byte(`{"Pool":"rbd","Image":"img","ReadOnly":false,"Mon":["10.0.0.1:6789"],"Id":"admin","Keyring":"/etc/ceph/keyring","Secret":"`+testKey+`"}`+"\n"), 0644))
	log := logOf(t, func() {
		if err := (&RBDUtil{}).cleanOldRBDFile(&rbdPlugin{host: newFakeHost(f)}, file); err != nil {
			t.Error(err)
		}
	})
	if strings.Contains(log, testKey) || !bytes.Contains([]byte(strings.Join(f.raw[0], " ")), []byte("--key="+testKey)) {
		t.Errorf("commands %q, log %s", f.raw, log)
	}
}
