// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Rbdcalls attaches an RBD volume with the kubelet's own plugin, of the tree that it is
// built with, and records which commands it runs. The commands are fakes: an image that
// nobody has open and that has no lock, on a kernel that maps it at once. It writes one JSON
// object a line:
//
//	{"readOnly":false,"rbd":["status","map"],"other":["modprobe"]}
//
// It needs root: it has mounts of its own over /sys/bus and /dev, where the plugin looks for
// the device, in a mount namespace of its own.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/ioutil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/util/mount"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/rbd"
)

// inside is set in the process that has the mounts.
const inside = "RBDCALLS_INSIDE"

type result struct {
	ReadOnly bool     `json:"readOnly"`
	RBD      []string `json:"rbd"`
	Other    []string `json:"other"`
}

// host is a kubelet's, as far as an attach needs one. It runs the fakes.
type host struct {
	volume.VolumeHost
	dir string
	ran result
}

func (h *host) GetPluginDir(name string) string   { return filepath.Join(h.dir, name) }
func (h *host) GetExec(string) mount.Exec         { return h }
func (h *host) GetMounter(string) mount.Interface { return &mount.FakeMounter{} }
func (h *host) GetNodeName() types.NodeName       { return "" }

func (h *host) GetKubeClient() clientset.Interface { return nil }

func (h *host) GetPodVolumeDir(_ types.UID, _, name string) string {
	return filepath.Join(h.dir, "pod", name)
}

// Run is mount.Exec.
func (h *host) Run(cmd string, args ...string) ([]byte, error) {
	if cmd != "rbd" {
		h.ran.Other = append(h.ran.Other, cmd)
		return []byte("0\n"), nil
	}
	words := args[0]
	if words == "lock" {
		words += " " + args[1]
	}
	mapped := contains(h.ran.RBD, "map")
	h.ran.RBD = append(h.ran.RBD, words)
	switch words {
	case "status":
		if mapped {
			return []byte("Watchers:\n\twatcher=127.0.0.1:0/1 client.1 cookie=1\n"), nil
		}
		return []byte("Watchers: none\n"), nil
	case "info":
		return []byte(`{"size":1073741824,"features":["layering"]}`), nil
	case "map":
		return nil, device()
	}
	return nil, nil
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// device makes what the kernel shows of the mapped image.
func device() error {
	dir := "/sys/bus/rbd/devices/0"
	if err := os.MkdirAll(dir, 0755); err != nil {
		return err
	}
	for name, text := range map[string]string{"pool": "rbd", "name": "img", "current_snap": "-", "pool_ns": ""} {
		if err := ioutil.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0644); err != nil {
			return err
		}
	}
	return ioutil.WriteFile("/dev/rbd0", nil, 0600)
}

// attach runs one attach and returns what it ran.
func attach(readOnly bool) (result, error) {
	if err := os.RemoveAll("/sys/bus/rbd"); err != nil {
		return result{}, err
	}
	dir, err := ioutil.TempDir("", "rbdcalls")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	h := &host{dir: dir, ran: result{ReadOnly: readOnly}}
	plugin := rbd.ProbeVolumePlugins()[0].(volume.AttachableVolumePlugin)
	if err := plugin.Init(h); err != nil {
		return result{}, err
	}
	a, err := plugin.NewAttacher()
	if err != nil {
		return result{}, err
	}
	spec := volume.NewSpecFromVolume(&v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{
		CephMonitors: []string{"10.0.0.1:6789"}, RBDPool: "rbd", RBDImage: "img", RadosUser: "admin", Keyring: "/keyring", ReadOnly: readOnly}}})
	_, err = a.WaitForAttach(spec, "", &v1.Pod{}, time.Minute)
	return h.ran, err
}

func run(gates string) error {
	if err := utilfeature.DefaultFeatureGate.Set(gates); err != nil {
		return fmt.Errorf("--feature-gates: %v", err)
	}
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/sys/bus", "/dev"} {
		if err := syscall.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mounting at %s: %v", dir, err)
		}
	}
	for _, readOnly := range []bool{false, true} {
		r, err := attach(readOnly)
		if err != nil {
			return fmt.Errorf("the attach failed after %s: %v", strings.Join(r.RBD, ", "), err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// again runs the program once more, in a mount namespace of its own.
func again() error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	return cmd.Run()
}

func main() {
	gates := flag.String("feature-gates", "", "as the kubelet's")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "rbdcalls: it takes no arguments, and got %q\n", flag.Args())
		os.Exit(2)
	}
	var err error
	if os.Getenv(inside) == "" {
		err = again()
	} else {
		err = run(*gates)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rbdcalls:", err)
		os.Exit(1)
	}
}
