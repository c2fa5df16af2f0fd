// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package storageos

import (
	"io/ioutil"
	"os"
	"path/filepath"
	"strings"
	"testing"

	storageostypes "github.com/storageos/go-api/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/mount"
)

// answering is a StorageOS server that answers with a volume ID.
type answering struct {
	apiImplementer
	id string
}

func (a answering) Volume(string, string) (*storageostypes.Volume, error) {
	return &storageostypes.Volume{ID: a.id}, nil
}

func TestStorageOSDevicePath(t *testing.T) {
	tmp, err := ioutil.TempDir("", "storageos")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	volumes := filepath.Join(tmp, "a", "volumes")
	if err := os.MkdirAll(filepath.Join(volumes, "sub"), 0700); err != nil {
		t.Fatal(err)
	}
	const uuid = "308f14af-cf0a-08ff-c9c3-b48104318e05"
	for _, file := range []string{"outside", "a/volumes/" + uuid, "a/volumes/sub/v"} {
		if err := ioutil.WriteFile(filepath.Join(tmp, file), nil, 0600); err != nil {
			t.Fatal(err)
		}
	}
	attach := func(id string) (used []string, err error) {
		exec := mount.NewFakeExec(func(cmd string, args ...string) ([]byte, error) {
			used = append(used, args[len(args)-1])
			return []byte("/dev/loop7: []: ()"), nil
		})
		u := &storageosUtil{api: answering{id: id}}
		_, err = u.AttachVolume(mounterOf(volumes, &storageos{volName: "v", volNamespace: "ns", exec: exec}))
		return used, err
	}
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.StorageOSDevicePathCheck, on)()
			if used, err := attach(uuid); err != nil || len(used) != 1 || used[0] != filepath.Join(volumes, uuid) {
				t.Errorf("gate %v: %q: %v", on, used, err)
			}
			for _, id := range []string{"../../outside", "sub/v", "sub/../../../outside", "/../../outside"} {
				used, err := attach(id)
				if on && (err == nil || len(used) != 0 || strings.Contains(err.Error(), id)) {
					t.Errorf("ID %q: %q is attached: %v", id, used, err)
				}
				if !on && (err != nil || len(used) != 1) {
					t.Errorf("gate off, ID %q: %q: %v", id, used, err)
				}
			}
		}()
	}
	for _, id := range []string{"", ".", "..", "a\x00b", "-rf", strings.Repeat("a", 200), "a\nb", "a b"} {
		if p, err := volumePath(volumes, id); err == nil {
			t.Errorf("ID %q: %q", id, p)
		}
	}
}
