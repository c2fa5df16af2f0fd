// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/volume"
	volumetest "k8s.io/kubernetes/pkg/volume/testing"
)

// The operations of the controller manager: each command hangs until its time-out, or is
// killed, and the operation fails with what rbd printed; the next one succeeds.
func TestAdminEachCall(t *testing.T) {
	claim := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}}}
	admin := func(f *fakeRBD) *rbdMounter {
		m := testMounter(newFakeHost(f), false)
		m.adminId, m.adminSecret, m.imageFormat = "admin", testKey, rbdImageFormat2
		return m
	}
	for name, c := range map[string]struct {
		operation func(*fakeRBD) error
		calls     string
	}{
		"create": {func(f *fakeRBD) error {
			_, _, err := (&RBDUtil{}).CreateImage(&rbdVolumeProvisioner{admin(f), volume.VolumeOptions{PVC: claim}})
			return err
		}, "create"},
		"rm": {func(f *fakeRBD) error { return (&RBDUtil{}).DeleteImage(&rbdVolumeDeleter{admin(f)}) }, "status rm"},
		"resize": {func(f *fakeRBD) error {
			_, err := (&RBDUtil{}).ExpandImage(&rbdVolumeExpander{admin(f)}, resource.MustParse("1Gi"), resource.MustParse("2Gi"))
			return err
		}, "info resize"},
	} {
		for _, call := range strings.Fields(c.calls) {
			for _, code := range []int{110, 137} {
				f := newFakeRBD(t)
				failed := false
				f.before = func(line string) (string, error, bool) {
					if !failed && strings.HasPrefix(line, "rbd "+call) {
						failed = true
						time.Sleep(2 * time.Millisecond)
						return "(110) Connection timed out", exit(code), true
					}
					return "", nil, false
				}
				if err := c.operation(f); err == nil || !failed {
					t.Errorf("%s: %s ends with %d: %v (reached %v)", name, call, code, err, failed)
				}
				if err := c.operation(f); err != nil {
					t.Errorf("%s: %s ended with %d, again: %v", name, call, code, err)
				}
				f.done()
			}
		}
	}
	// A size that cannot be read expands nothing, and shrinks nothing.
	f := newFakeRBD(t)
	defer f.done()
	f.before = func(line string) (string, error, bool) { return "size many", nil, strings.HasPrefix(line, "rbd info") }
	if _, err := (&RBDUtil{}).ExpandImage(&rbdVolumeExpander{admin(f)}, resource.MustParse("1Gi"), resource.MustParse("2Gi")); err == nil || strings.Contains(strings.Join(f.calls(), " "), "resize") {
		t.Errorf("%v: %q", err, f.calls())
	}
}

// A list of locks that cannot be read releases none.
func TestUnlockUnreadable(t *testing.T) {
	f := newFakeRBD(t)
	defer f.done()
	f.before = func(line string) (string, error, bool) {
		return "There are 2 exclusive locks on this image.\n", nil, strings.HasPrefix(line, "rbd lock list")
	}
	if err := (&RBDUtil{}).rbdUnlock(*testMounter(newFakeHost(f), false)); err == nil {
		t.Error("no error")
	}
	sameCalls(t, f, "rbd lock list img")
}

// The recorder is made of the host's client at the first event, once, and writes events of the
// kubelet's own node and of pods.
func TestRecorder(t *testing.T) {
	f := newFakeRBD(t)
	defer f.done()
	h := newFakeHost(f)
	client := fake.NewSimpleClientset()
	h.VolumeHost = volumetest.NewFakeVolumeHost(f.dir, client, nil)
	recordersMutex.Lock()
	delete(recorders, h)
	recordersMutex.Unlock()
	if first := recorderOf(h); first == nil || !reflect.DeepEqual(first, recorderOf(h)) {
		t.Error("no recorder, or another one each time")
	}
	nodeEvent(h, v1.EventTypeWarning, "RBDLockKept", "why")
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		for _, a := range client.Actions() {
			if c, ok := a.(clienttesting.CreateAction); ok && a.GetResource().Resource == "events" {
				e := c.GetObject().(*v1.Event)
				if e.Reason != "RBDLockKept" || e.Message != "why" || e.InvolvedObject.Kind != "Node" || e.InvolvedObject.Name != testNode || e.Source.Component != "kubelet" {
					t.Errorf("%+v", e)
				}
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no event: %v", client.Actions())
		}
	}
}

// Without a client, as in a kubelet that runs alone, nothing is recorded and nothing breaks.
func TestNoRecorder(t *testing.T) {
	f := newFakeRBD(t)
	defer f.done()
	h := newFakeHost(f)
	h.VolumeHost = volumetest.NewFakeVolumeHost(f.dir, nil, nil)
	recordersMutex.Lock()
	delete(recorders, h)
	recordersMutex.Unlock()
	recordEvent(h, &v1.ObjectReference{Kind: "Node", Name: testNode, UID: types.UID(testNode)}, "Warning", "x", "y")
}

func TestExitStatus(t *testing.T) {
	for err, want := range map[error]int{exit(22): 22, errors.New("not run"): -1} {
		if got := exitStatus(err); got != want {
			t.Errorf("%v is %d", err, got)
		}
	}
	if got := fmt.Sprint(keysOf([]string{"map", "--key", "a", "--key=b", "--key"})); got != "[a b]" {
		t.Errorf("keys %s", got)
	}
}

// What of a JSON list is no lock makes no answer with fewer locks.
func TestParseUnknownJSON(t *testing.T) {
	for _, text := range []string{`[{"id":"a","locker":"client.1"},{"id":"b"}]`, `{"a":{"locker":"client.1"},"b":{}}`} {
		if got := parseLockJSON([]byte(text)); len(got) > 0 {
			t.Errorf("%s is read as %v", text, got)
		}
	}
	if got := parseLockJSON([]byte(`{"b":{"locker":"client.2"},"a":{"locker":"client.1"}}`)); len(got) != 2 || got[0].id != "a" {
		t.Errorf("%v", got)
	}
	if got, err := parseLockList([]byte("There is 1 exclusive lock on this image.\nThere is 1 exclusive lock on this image.\nclient.1 a x\n")); err == nil {
		t.Errorf("two lists are read as %v", got)
	}
	if got, err := textSize("1..2", "", ""); err == nil {
		t.Errorf("size %d", got)
	}
}
