// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/process"
)

// PowerOff ends everything on the node without notice, as a power cut does:
// kubelet, dockerd, containers. What a reboot does not bring back goes as well:
// mounts below the kubelet's and docker's directories, the contents of /run,
// network devices, packet filter rules. Files on disk stay. Boot ID and host name
// stay, too: a kubelet logs no event Rebooted.
func (n *Node) PowerOff(ctx context.Context) error {
	if n.cfg.CgroupDriver == Systemd {
		return fmt.Errorf("node %s: PowerOff does not work with Config.CgroupDriver %q", n.Name, Systemd)
	}
	if n.cfg.InMachine {
		return fmt.Errorf("node %s: PowerOff does not work with Config.InMachine: the node does not own its network", n.Name)
	}
	for _, p := range []*process.Proc{n.Kubelet, n.Dockerd} {
		if p != nil {
			if err := p.Kill(); err != nil {
				return err
			}
		}
	}
	return errors.Join(n.killRest(ctx), n.unmountRest(ctx), n.emptyRun(), n.resetNetwork(ctx))
}

// Reboot is PowerOff, and then dockerd and the kubelet start. Docker shows the
// containers of before as exited.
func (n *Node) Reboot(ctx context.Context, kubelet kube.Program, extra ...string) error {
	if err := n.PowerOff(ctx); err != nil {
		return err
	}
	if err := n.StartDocker(ctx); err != nil {
		return err
	}
	return n.StartKubelet(ctx, kubelet, extra...)
}

// Mounts is the node's mount table, the last one mounted last.
func (n *Node) Mounts() ([]*mountinfo.Info, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", n.holder.Pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mountinfo.GetMountsFromReader(f, nil)
}

func (n *Node) unmountRest(ctx context.Context) error {
	mounts, err := n.Mounts()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		for _, dir := range []string{"/var/lib/kubelet/", "/var/lib/docker/", "/run/docker/"} {
			if strings.HasPrefix(m.Mountpoint, dir) {
				// An earlier one may have taken it along: mounts are shared.
				if err := n.Run(ctx, "umount", "-l", m.Mountpoint); err != nil && !strings.Contains(err.Error(), "not mounted") &&
					!strings.Contains(err.Error(), "no mount point") {
					return err
				}
			}
		}
	}
	return nil
}

func (n *Node) emptyRun() error {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/run/*", n.holder.Pid))
	for _, f := range files {
		if filepath.Base(f) != "lock" {
			err = errors.Join(err, os.RemoveAll(f))
		}
	}
	return err
}

// resetNetwork leaves lo and eth0, which the lab made.
func (n *Node) resetNetwork(ctx context.Context) error {
	out, err := n.Output(ctx, "ip", "-o", "link")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(f[1], ":"), "@")
		if name == "lo" || name == "eth0" {
			continue
		}
		// Its peer may have taken it along.
		if err := n.Run(ctx, "ip", "link", "del", name); err != nil && !strings.Contains(err.Error(), "Cannot find device") {
			return err
		}
	}
	for _, a := range [][]string{{"-t", "nat", "-F"}, {"-t", "nat", "-X"}, {"-F"}, {"-X"}, {"-P", "FORWARD", "ACCEPT"}} {
		if err := n.Run(ctx, "iptables", append([]string{"-w"}, a...)...); err != nil {
			return err
		}
	}
	return nil
}
