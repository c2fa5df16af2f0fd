// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"fmt"
	"io/ioutil"
	"net"
	"os"
	"path"
	"regexp"
	dstrings "strings"

	"github.com/golang/glog"
	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/util/mount"
	"k8s.io/kubernetes/pkg/volume"
)

// mappedImage is what the kernel shows of an image that it has mapped.
type mappedImage struct {
	device, pool, image string
	// config is what was written to map it: monitors, options, pool, image and snapshot;
	// empty for kernels before 4.8.
	config string
}

// dirOf is the name of the directory of an image's mount. Two pairs of names can have one:
// "a-image-b" in pool "p" and "b" in pool "p-image-a".
func dirOf(pool, image string) string { return pool + "-image-" + image }

// sysAttribute reads a file of a device in sysfs, "" where the kernel has no such file.
func sysAttribute(n, name string) (string, error) {
	text, err := ioutil.ReadFile(path.Join(sysRBDDevices, n, name))
	if os.IsNotExist(err) {
		return "", nil
	}
	return dstrings.TrimSpace(string(text)), err
}

// readMapped reads one device; nil if it is gone, or maps a snapshot or an image of a
// namespace, which no kubelet does.
func readMapped(n string) (*mappedImage, error) {
	attributes := map[string]string{}
	for _, name := range []string{"pool", "name", "current_snap", "pool_ns", "config_info"} {
		text, err := sysAttribute(n, name)
		if err != nil && name != "config_info" {
			return nil, fmt.Errorf("rbd: cannot tell which image device %s%s is: %v", devRBD, n, err)
		}
		attributes[name] = text
	}
	if snap := attributes["current_snap"]; attributes["name"] == "" || attributes["pool_ns"] != "" || snap != "" && snap != "-" {
		return nil, nil
	}
	return &mappedImage{devRBD + n, attributes["pool"], attributes["name"], attributes["config_info"]}, nil
}

var deviceNumberRE = regexp.MustCompile(`^[0-9]+$`)

// mappedImages returns the images that this machine has mapped and match accepts.
func mappedImages(match func(pool, image string) bool) ([]mappedImage, error) {
	entries, err := ioutil.ReadDir(sysRBDDevices)
	if os.IsNotExist(err) {
		return nil, nil // the kernel's module is not loaded
	}
	if err != nil {
		return nil, err
	}
	var found []mappedImage
	for _, e := range entries {
		if !deviceNumberRE.MatchString(e.Name()) {
			continue
		}
		m, err := readMapped(e.Name())
		if err != nil {
			return nil, err
		}
		if m != nil && match(m.pool, m.image) {
			found = append(found, *m)
		}
	}
	return found, nil
}

// mappedAt returns the device whose mount belongs at a directory, "" if none is mapped.
func mappedAt(dir string) (string, error) {
	found, err := mappedImages(func(pool, image string) bool { return dirOf(pool, image) == path.Base(dir) })
	if err != nil || len(found) == 0 {
		return "", err
	}
	if len(found) > 1 {
		return "", fmt.Errorf("rbd: %s (image %s/%s) and %s (image %s/%s) both belong at %s: unmap one of them by hand",
			found[0].device, found[0].pool, found[0].image, found[1].device, found[1].pool, found[1].image, dir)
	}
	return found[0].device, nil
}

// findImageDevice is getDevFromImageAndPool, but for a mapped snapshot or an image of the
// same name in a namespace. decided is false with the gate off.
func findImageDevice(pool, image string) (device string, found, decided bool) {
	if !robustDetach() {
		return "", false, false
	}
	images, err := mappedImages(func(p, i string) bool { return p == pool && i == image })
	if err != nil {
		glog.Warning(err)
		return "", false, false
	}
	for _, m := range images {
		if _, err := os.Lstat(m.device); err == nil {
			return m.device, true, true
		}
	}
	return "", false, true
}

// imageOfDevice is what a device path maps, nil if that is not known.
func imageOfDevice(device string) (*mappedImage, error) {
	if !isNumberedDevice(device) {
		return nil, nil
	}
	return readMapped(dstrings.TrimPrefix(device, devRBD))
}

// isNumberedDevice says whether a path is one of the kernel's, /dev/rbd0.
func isNumberedDevice(device string) bool {
	n := dstrings.TrimPrefix(device, devRBD)
	return n != device && deviceNumberRE.MatchString(n)
}

// checkDevice refuses a device that maps another image than the one whose mount belongs at
// dir: device numbers are given anew as soon as a device is unmapped.
func checkDevice(device, dir string) error {
	m, err := imageOfDevice(device)
	if err != nil {
		return err
	}
	if m != nil && dirOf(m.pool, m.image) != path.Base(dir) {
		return fmt.Errorf("rbd: device %s is image %s/%s and does not belong at %s", device, m.pool, m.image, dir)
	}
	return nil
}

// checkMappedDevice refuses a device that is mapped no longer, too: its number may be given to
// another image at any moment, and a mount that fails on an empty device makes a filesystem. Where
// the kernel shows no devices at all nothing is known.
func checkMappedDevice(device, dir string) error {
	if err := checkDevice(device, dir); err != nil {
		return err
	}
	if _, err := os.Stat(sysRBDDevices); err != nil || !isNumberedDevice(device) {
		return nil
	}
	if m, err := imageOfDevice(device); err != nil {
		return err
	} else if m == nil {
		return fmt.Errorf("rbd: device %s, which is to be mounted at %s, is mapped no longer", device, dir)
	}
	return nil
}

// reconstructSpec is the volume that is mounted at a pod's directory, as far as the kernel
// knows it: pool, image, and the monitors, which are a part of the volume's name; no user and
// no key. nil if the kernel does not know it. The monitors are those that were given to rbd map
// if they are addresses with ports; host names are resolved by rbd, so that then the
// controller has another name for the volume.
func (plugin *rbdPlugin) reconstructSpec(volumeName, mountPath string) *volume.Spec {
	if !robustDetach() {
		return nil
	}
	device, _, err := mount.GetDeviceNameFromMount(plugin.host.GetMounter(rbdPluginName), mountPath)
	if err != nil {
		glog.Warningf("rbd: cannot tell what is mounted at %s: %v", mountPath, err)
		return nil
	}
	m, err := imageOfDevice(device)
	if err != nil || m == nil {
		glog.Warningf("rbd: cannot tell which image is mounted at %s from %q: %v", mountPath, device, err)
		return nil
	}
	return volume.NewSpecFromVolume(&v1.Volume{
		Name: volumeName,
		VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{
			CephMonitors: monitorsOf(m.config),
			RBDPool:      m.pool,
			RBDImage:     m.image,
		}},
	})
}

// monitorsOf are the monitors in a device's config_info, "10.0.0.1:6789,10.0.0.2:6789
// name=admin,key=client.admin pool image -"; none if one of them is not an address and port.
func monitorsOf(config string) []string {
	fields := dstrings.Fields(config)
	if len(fields) == 0 {
		return []string{}
	}
	monitors := dstrings.Split(fields[0], ",")
	for _, m := range monitors {
		host, _, err := net.SplitHostPort(m)
		if err != nil || net.ParseIP(host) == nil {
			return []string{}
		}
	}
	return monitors
}
