// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbddetach

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// ceph is a cluster of one monitor and one OSD on a file, at the machine's bridge.
type ceph struct {
	conf string
	// key of client.admin.
	key string
}

// monitor is its address, as volumes name it.
const monitor = machine.IP + ":6789"

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

func startCeph(ctx context.Context, e *labkit.Env) (*ceph, error) {
	dir := e.Path("ceph")
	for _, d := range []string{"mon", "osd", "out"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	c := &ceph{conf: filepath.Join(dir, "ceph.conf")}
	if err := os.WriteFile(c.conf, fmt.Appendf(nil, confText, machine.IP, dir), 0o644); err != nil {
		return nil, err
	}
	keyring, monmap := filepath.Join(dir, "keyring"), filepath.Join(dir, "monmap")
	if err := c.all(ctx, [][]string{
		{"ceph-authtool", "-C", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"},
		{"ceph-authtool", keyring, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *"},
		{"monmaptool", "--create", "--fsid", "6b1a7d0e-5f0c-4c52-9b3e-0d6a2f1c7e11", "--addv", "a", "[v2:" + machine.IP + ":3300,v1:" + monitor + "]", monmap},
		{"ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring},
	}); err != nil {
		return nil, err
	}
	key, err := c.run(ctx, "ceph-authtool", "-p", "-n", "client.admin", keyring)
	if err != nil {
		return nil, err
	}
	c.key = strings.TrimSpace(key)
	if _, err := e.Start(ctx, process.Process{Name: "ceph-mon", Path: "/usr/bin/ceph-mon", Args: []string{"-f", "-c", c.conf, "-i", "a"},
		Health: func(ctx context.Context) error {
			_, err := c.run(ctx, "ceph", "--connect-timeout", "5", "mon", "stat")
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

func (c *ceph) osd(ctx context.Context, e *labkit.Env, dir string) error {
	const id = "0c1f7f3a-2f5e-4e0b-8d58-6d9d0a8c4b22"
	key, err := c.run(ctx, "ceph-authtool", "--gen-print-key")
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
	_, err = e.Start(ctx, process.Process{Name: "ceph-osd", Path: "/usr/bin/ceph-osd", Args: []string{"-f", "-c", c.conf, "-i", "0"},
		Health: func(ctx context.Context) error {
			out, err := c.run(ctx, "ceph", "osd", "stat")
			if err == nil && !strings.Contains(out, "1 up") {
				err = fmt.Errorf("%s", out)
			}
			return err
		}})
	return err
}

func (c *ceph) all(ctx context.Context, commands [][]string) error {
	for _, words := range commands {
		if _, err := c.run(ctx, words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// run runs a command of Ceph's as admin and returns what it prints.
func (c *ceph) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "CEPH_CONF="+c.conf)
	var text strings.Builder
	cmd.Stderr = &text
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(text.String()))
	}
	return string(out), nil
}

// watchers are the addresses of the clients that have an image open: the oracle.
func (c *ceph) watchers(ctx context.Context, image string) ([]string, error) {
	out, err := c.run(ctx, "rbd", "status", image, "--format", "json")
	if err != nil {
		return nil, err
	}
	var answer struct{ Watchers []struct{ Address string } }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return nil, fmt.Errorf("rbd status %s: %w", image, err)
	}
	var all []string
	for _, w := range answer.Watchers {
		all = append(all, w.Address)
	}
	return all, nil
}

// released waits until nobody has an image open, and returns for how long somebody had.
// held is the answer where that does not come; an error is none.
func (c *ceph) released(ctx context.Context, image string, bound time.Duration) (took time.Duration, held bool, err error) {
	start, last := time.Now(), 0
	err = wait.Until(ctx, "no watcher of "+image, bound, func(ctx context.Context) (bool, error) {
		w, err := c.watchers(ctx, image)
		if err == nil {
			last = len(w)
		}
		return err == nil && len(w) == 0, err
	})
	if err != nil && ctx.Err() == nil && last > 0 {
		return 0, true, nil
	}
	return time.Since(start), false, err
}
