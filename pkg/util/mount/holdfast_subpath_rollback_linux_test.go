// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// TestCheckSubPathBind: the file that was opened and the one that is mounted
// must be one. Only a real mounter mounts, and with the gate off all is as in
// stock.
func TestCheckSubPathBind(t *testing.T) {
	dir, err := ioutil.TempDir("", "subpath")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	opened, other := filepath.Join(dir, "opened"), filepath.Join(dir, "other")
	for _, d := range []string{opened, other} {
		if err := os.Mkdir(d, 0700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(opened, link); err != nil {
		t.Fatal(err)
	}
	fd, err := doSafeOpen(opened, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.SubpathUnbindAfterStart))
	for _, test := range []struct {
		mounter Interface
		gate    bool
		target  string
		wrong   bool
	}{
		{&Mounter{}, true, opened, false},
		{&Mounter{}, true, other, true},
		{&Mounter{}, true, link, true},
		{&Mounter{}, true, filepath.Join(dir, "missing"), true},
		{&Mounter{}, false, other, false},
		{&FakeMounter{}, true, other, false},
	} {
		if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.SubpathUnbindAfterStart, test.gate)); err != nil {
			t.Fatal(err)
		}
		if err := checkSubPathBind(test.mounter, fd, test.target); (err != nil) != test.wrong {
			t.Errorf("%T, gate %v, %s: %v", test.mounter, test.gate, test.target, err)
		}
	}
}
