// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// Node is a node whose rbd is the shim.
type Node struct {
	*node.Node
	rig   *Rig
	state string // the shim's
	// first is the lowest device number, columns what the shim is told.
	first, columns int
}

// setUp gives the node its rbd.
func (n *Node) setUp(ctx context.Context) error {
	for _, d := range []string{"devices", "sysfs/rbd/devices", "work"} {
		if err := os.MkdirAll(filepath.Join(n.state, d), 0o755); err != nil {
			return err
		}
	}
	if err := n.Run(ctx, "bash", "-euc", `cp /usr/bin/rbd "$1/rbd"; mount --bind "$2" /usr/bin/rbd
mount -t overlay -o "lowerdir=/sys/bus,upperdir=$3,workdir=$1/work" none /sys/bus
# The kit binds it from the run's folder, where each mount would be seen a second time. It is
# shared again, with nothing else: where it is not, as on a host without systemd, a kubelet from
# 1.8 on binds it over itself, and the mounts of the 1.7 before it are hidden and busy for ever.
mount --make-rprivate /var/lib/kubelet
mount --make-rshared /var/lib/kubelet`,
		"-", n.state, node.ToolPath(n.rig.e.Root, "rbdshim"), filepath.Join(n.state, "sysfs")); err != nil {
		return err
	}
	return n.SetColumns(ctx, n.columns)
}

// SetColumns has rbd lock list print its columns as NodeConfig.Columns says.
func (n *Node) SetColumns(ctx context.Context, columns int) error {
	n.columns = columns
	config, err := json.Marshal(map[string]any{"Real": filepath.Join(n.state, "rbd"), "State": n.state, "Sysfs": "/sys/bus/rbd/devices",
		"First": n.first, "Columns": columns})
	if err != nil {
		return err
	}
	return n.Run(ctx, "bash", "-euc", `echo "$1" > /etc/rbdshim.json`, "-", string(config))
}

// Devices are where the node has an image mapped.
func (n *Node) Devices(image string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(n.state, "sysfs/rbd/devices/*/name"))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, f := range names {
		if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == image {
			all = append(all, "/dev/rbd"+filepath.Base(filepath.Dir(f)))
		}
	}
	return all, nil
}

// MountsOf are the mounts of an image in the node's mount table.
func (n *Node) MountsOf(image string) ([]Mount, error) {
	devices, err := n.Devices(image)
	if err != nil {
		return nil, err
	}
	table, err := n.Mounts()
	if err != nil {
		return nil, err
	}
	var all []Mount
	for _, d := range devices {
		for _, m := range table {
			if m.Source == d {
				ro := strings.HasPrefix(m.Options+",", "ro,") || strings.HasPrefix(m.VFSOptions+",", "ro,")
				all = append(all, Mount{Node: n.Name, Device: d, Path: m.Mountpoint, ReadOnly: ro})
			}
		}
	}
	return all, nil
}

// Write writes a file into an image that the node has mounted, and has it on the disk.
func (n *Node) Write(ctx context.Context, image, file, text string) error {
	all, err := n.MountsOf(image)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("node %s: image %s is not mounted", n.Name, image)
	}
	return n.Run(ctx, "bash", "-euc", `echo "$2" > "$1"; sync -f "$1"`, "-", filepath.Join(all[0].Path, file), text)
}

// Hold has a process of the node hold a device open until it is stopped.
func (n *Node) Hold(ctx context.Context, device string) (*process.Proc, error) {
	return n.rig.e.Start(ctx, process.Process{Name: n.Name + "-holder-of-" + filepath.Base(device), Path: "/bin/bash",
		Args: []string{"-c", `exec 9<"$0"; exec sleep 3600`, device}, In: n})
}

// Called waits until the node's rbd was called so ("unmap /dev/rbd7", "map img") and ended
// with that exit status, count times.
func (n *Node) Called(ctx context.Context, what, status string, count int, bound time.Duration) error {
	return wait.Until(ctx, fmt.Sprintf("%d calls of rbd %s that end with %s on %s", count, what, status, n.Name), bound, func(context.Context) (bool, error) {
		all, err := n.Calls(what, status)
		return err == nil && len(all) >= count, err
	})
}

// Calls are the lines of the shim about such calls; status "" is any.
func (n *Node) Calls(what, status string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(n.state, "calls.log"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var all []string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if strings.Contains(line+" ", " rbd "+what+" ") && (status == "" || strings.HasSuffix(line, "-> "+status)) {
			all = append(all, line)
		}
	}
	return all, err
}

// PowerOff is a power cut: nothing is unmapped, and Ceph takes the node's clients for alive
// for up to 30 s.
func (n *Node) PowerOff(ctx context.Context) error {
	if err := n.Node.PowerOff(ctx); err != nil {
		return err
	}
	if err := freeLoops(ctx, n.state); err != nil {
		return err
	}
	// No pattern ends with mnt: a filesystem whose rbd-fuse is dead cannot be looked at.
	return n.Run(ctx, "bash", "-euc", `shopt -s nullglob
for d in "$1"/devices/*; do umount -l "$d/mnt"; done
rm -rf "$1"/devices/* /sys/bus/rbd/devices/*`, "-", n.state)
}

// Reboot is PowerOff, and then dockerd and the kubelet start.
func (n *Node) Reboot(ctx context.Context, kubelet kube.Program) error {
	if err := n.PowerOff(ctx); err != nil {
		return err
	}
	if err := n.StartDocker(ctx); err != nil {
		return err
	}
	return n.StartKubelet(ctx, kubelet)
}
