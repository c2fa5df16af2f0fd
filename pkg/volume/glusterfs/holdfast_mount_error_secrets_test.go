// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package glusterfs

import (
	"io/ioutil"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/util/mount"
	volumetest "k8s.io/kubernetes/pkg/volume/testing"
	"k8s.io/utils/exec"
)

// hostExec runs commands as the exec of a mount utility's container does.
type hostExec struct{}

func (hostExec) Run(cmd string, args ...string) ([]byte, error) {
	return exec.New().Command(cmd, args...).CombinedOutput()
}

// TestMountWithoutAutoUnmount: an older client refuses auto_unmount, and the plugin mounts
// without it, also where a secret has the words that the plugin looks for.
func TestMountWithoutAutoUnmount(t *testing.T) {
	dir, err := ioutil.TempDir("", "glusterfs")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	calls := filepath.Join(dir, "calls")
	defer os.Setenv("PATH", os.Getenv("PATH"))
	os.Setenv("PATH", dir+":"+os.Getenv("PATH"))

	for _, refused := range []string{"Invalid option auto_unmount", "Invalid argument"} {
		script := "#!/bin/sh\necho \"$@\" >> " + calls + "\ncase \"$*\" in *auto_unmount*) echo '" + refused + "'; exit 1;; esac\n"
		if err := ioutil.WriteFile(filepath.Join(dir, "mount"), []byte(script), 0755); err != nil {
			t.Fatal(err)
		}
		for name, mounter := range map[string]mount.Interface{
			"Mounter":     mount.New(""),
			"execMounter": mount.NewExecMounter(hostExec{}, mount.New("")),
		} {
			for _, on := range []bool{true, false} {
				func() {
					defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.MountErrorsWithoutSecrets, on)()
					os.Remove(calls)
					b := &glusterfsMounter{
						glusterfs: &glusterfs{
							volName: "volume", mounter: mounter,
							pod:    &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}},
							plugin: &glusterfsPlugin{host: volumetest.NewFakeVolumeHost(dir, nil, nil)},
						},
						hosts:        &v1.Endpoints{Subsets: []v1.EndpointSubset{{Addresses: []v1.EndpointAddress{{IP: "127.0.0.1"}}}}},
						path:         "volume",
						mountOptions: []string{"auto_unmount", "password=Invalid", "secret=argument"},
					}
					err := b.setUpAtInternal(filepath.Join(dir, "target"))
					text, _ := ioutil.ReadFile(calls)
					lines := strings.Split(strings.TrimSpace(string(text)), "\n")
					if err != nil || len(lines) != 2 || !strings.Contains(lines[0], "auto_unmount") || strings.Contains(lines[1], "auto_unmount") {
						t.Errorf("%s, %q, gate %v: mount was called with %q: %v", name, refused, on, lines, err)
					}
				}()
			}
		}
	}
}
