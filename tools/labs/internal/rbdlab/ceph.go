// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
)

// Packages are the Debian packages that a lab with a Rig needs.
var Packages = []string{"ceph-mon", "ceph-osd", "ceph-common", "rbd-fuse", "e2fsprogs"}

// Ceph is a cluster of one monitor and one OSD on a file, at the machine's bridge, with the
// pool rbd.
type Ceph struct {
	dir string
	// Conf is its configuration, Keyring the keyring of client.admin.
	Conf, Keyring string
	// Key is client.admin's.
	Key string
}

// Monitor is its address, as volumes name it.
const Monitor = machine.IP + ":6789"

const confText = `[global]
fsid = 6b1a7d0e-5f0c-4c52-9b3e-0d6a2f1c7e11
mon host = [v2:%[1]s:3300,v1:%[1]s:6789]
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
run dir = %[2]s/out
log file = %[2]s/out/$name.log
admin socket = %[2]s/out/$name.$pid.asok
pid file = %[2]s/out/$name.pid
[mon.a]
mon data = %[2]s/mon
mon data avail crit = 1
mon data avail warn = 2
[osd]
public addr = %[1]s
cluster addr = %[1]s
osd data = %[2]s/osd
osd objectstore = bluestore
bluestore block size = 1073741824
bluestore_block_db_create = false
osd memory target = 939524096
osd class load list = *
osd class default list = *
[client]
keyring = %[2]s/keyring
rbd default features = 1
`

func startCeph(ctx context.Context, e *labkit.Env) (*Ceph, error) {
	dir := e.Path("ceph")
	for _, d := range []string{"mon", "osd", "out"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	c := &Ceph{dir: dir, Conf: filepath.Join(dir, "ceph.conf"), Keyring: filepath.Join(dir, "keyring")}
	if err := os.WriteFile(c.Conf, fmt.Appendf(nil, confText, machine.IP, dir), 0o644); err != nil {
		return nil, err
	}
	keyring, monmap := filepath.Join(dir, "keyring"), filepath.Join(dir, "monmap")
	if err := c.all(ctx, [][]string{
		{"ceph-authtool", "-C", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"},
		{"ceph-authtool", keyring, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *"},
		{"monmaptool", "--create", "--fsid", "6b1a7d0e-5f0c-4c52-9b3e-0d6a2f1c7e11", "--addv", "a", "[v2:" + machine.IP + ":3300,v1:" + Monitor + "]", monmap},
		{"ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring},
	}); err != nil {
		return nil, err
	}
	key, err := c.Run(ctx, "ceph-authtool", "-p", "-n", "client.admin", keyring)
	if err != nil {
		return nil, err
	}
	c.Key = strings.TrimSpace(key)
	if _, err := e.Start(ctx, process.Process{Name: "ceph-mon", Path: "/usr/bin/ceph-mon", Args: []string{"-f", "-c", c.Conf, "-i", "a"},
		Health: func(ctx context.Context) error {
			_, err := c.Run(ctx, "ceph", "--connect-timeout", "5", "mon", "stat")
			return err
		}}); err != nil {
		return nil, err
	}
	if err := c.osd(ctx, e, dir); err != nil {
		return nil, err
	}
	return c, c.all(ctx, [][]string{
		{"ceph", "osd", "pool", "create", "rbd", "8", "8"},
		{"ceph", "osd", "pool", "application", "enable", "rbd", "rbd"},
	})
}

func (c *Ceph) osd(ctx context.Context, e *labkit.Env, dir string) error {
	const id = "0c1f7f3a-2f5e-4e0b-8d58-6d9d0a8c4b22"
	key, err := c.Run(ctx, "ceph-authtool", "--gen-print-key")
	if err != nil {
		return err
	}
	key = strings.TrimSpace(key)
	secrets := filepath.Join(dir, "osd.json")
	if err := os.WriteFile(secrets, fmt.Appendf(nil, `{"cephx_secret":%q}`, key), 0o600); err != nil {
		return err
	}
	if err := c.all(ctx, [][]string{
		{"ceph", "osd", "new", id, "-i", secrets},
		{"ceph-authtool", "-C", filepath.Join(dir, "osd", "keyring"), "-n", "osd.0", "--add-key", key},
		{"ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", id},
	}); err != nil {
		return err
	}
	_, err = e.Start(ctx, process.Process{Name: "ceph-osd", Path: "/usr/bin/ceph-osd", Args: []string{"-f", "-c", c.Conf, "-i", "0"},
		Health: func(ctx context.Context) error {
			out, err := c.Run(ctx, "ceph", "osd", "stat")
			if err == nil && !strings.Contains(out, "1 up") {
				err = fmt.Errorf("%s", out)
			}
			return err
		}})
	return err
}

func (c *Ceph) all(ctx context.Context, commands [][]string) error {
	for _, words := range commands {
		if _, err := c.Run(ctx, words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// Run runs a command of Ceph's as admin and returns what it prints.
func (c *Ceph) Run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "CEPH_CONF="+c.Conf)
	var text strings.Builder
	cmd.Stderr = &text
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(text.String()))
	}
	return string(out), nil
}

// User makes a Ceph user with these rights ("mon", "allow r", …) and returns its key.
func (c *Ceph) User(ctx context.Context, name string, rights ...string) (string, error) {
	out, err := c.Run(ctx, "ceph", append([]string{"auth", "get-or-create-key", "client." + name}, rights...)...)
	return strings.TrimSpace(out), err
}
