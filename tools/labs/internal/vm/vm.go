// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vm is a virtual machine with a kernel of its own, for what the computer's kernel does not
// have. It runs Debian's kernel for clouds, which the kit unpacks and does not install, with
// programs of the computer in an initial RAM disk, and tools/cmd/vmagent as its first process.
//
//	m, err := vm.Start(ctx, e, vm.Config{Name: "vm", Address: "10.90.0.60", Programs: []string{"rbd"}, Modules: []string{"rbd"}})
//	a, err := m.Run(ctx, "rbd map …")
//	err = m.Proc.Kill() // the power is cut
package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/vmagent"
)

// Packages are the Debian packages that a lab with a virtual machine needs. It sets Kernel, too.
var Packages = []string{"qemu-system-x86", "cpio", "kmod"}

// Config is what a virtual machine is made of.
type Config struct {
	Name string
	// Address is on the lab's network.
	Address string
	// Programs are found in PATH, and taken with their libraries. bash, ip and the usual small
	// ones are there anyway.
	Programs []string
	// Modules are the kernel's, taken with those that they need.
	Modules []string
}

// Machine runs until its process ends.
type Machine struct {
	Proc    *process.Proc
	address string
}

var always = []string{"bash", "ip", "cat", "ls", "mkdir", "rmdir", "rm", "grep", "sed", "sleep", "mount", "umount", "dd", "sync", "wc", "true"}

// Start boots a virtual machine, which takes half a minute.
func Start(ctx context.Context, e *labkit.Env, c Config) (*Machine, error) {
	dir := e.Path(c.Name)
	root := filepath.Join(dir, "root")
	if err := fill(ctx, e.Root, root, c); err != nil {
		return nil, err
	}
	disk := filepath.Join(dir, "initrd")
	if err := command(ctx, "bash", "-euo", "pipefail", "-c", `cd "$1"; find . | cpio --quiet -o -H newc > "$2"`, "-", root, disk); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(root); err != nil {
		return nil, err
	}
	kernel, err := one(filepath.Join(e.Root, labkit.KernelDir, "boot", "vmlinuz-*"))
	if err != nil {
		return nil, err
	}
	tap := "tap-" + c.Name
	for _, words := range [][]string{{"tuntap", "add", "dev", tap, "mode", "tap"}, {"link", "set", tap, "master", machine.Bridge}, {"link", "set", tap, "up"}} {
		if err := command(ctx, "ip", words...); err != nil {
			return nil, err
		}
	}
	e.OnStop(tap, func(ctx context.Context) error { return command(ctx, "ip", "link", "del", tap) })
	m := &Machine{address: c.Address}
	m.Proc, err = e.Start(ctx, process.Process{
		Name: c.Name, Path: "/usr/bin/qemu-system-x86_64",
		// Not KVM: on a machine that is virtual itself its kernel may stop where it begins.
		Args: []string{"-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1024", "-smp", "1", "-display", "none", "-no-reboot",
			"-kernel", kernel, "-initrd", disk, "-append", "console=ttyS0 panic=1 net.ifnames=0 rdinit=/init holdfast.addr=" + c.Address + "/24",
			"-netdev", "tap,id=n0,ifname=" + tap + ",script=no,downscript=no", "-device", "virtio-net-pci,netdev=n0", "-device", "virtio-rng-pci",
			"-monitor", "none", "-serial", "file:" + filepath.Join(dir, "console.log")},
		StartTimeout: 3 * time.Minute,
		Health: func(ctx context.Context) error {
			_, err := m.Run(ctx, "true")
			return err
		},
	})
	return m, err
}

// Run runs a script in the machine.
func (m *Machine) Run(ctx context.Context, shell string) (vmagent.Answer, error) {
	var a vmagent.Answer
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(m.address, strconv.Itoa(vmagent.Port)))
	if err != nil {
		return a, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := json.NewEncoder(c).Encode(vmagent.Request{Shell: shell}); err != nil {
		return a, err
	}
	return a, json.NewDecoder(c).Decode(&a)
}

// fill makes the root of the machine's filesystem.
func fill(ctx context.Context, checkout, root string, c Config) error {
	for _, d := range []string{"etc", "usr/bin", "usr/sbin", "usr/lib"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+l, filepath.Join(root, l)); err != nil {
			return err
		}
	}
	if err := place(node.ToolPath(checkout, "vmagent"), filepath.Join(root, "init")); err != nil {
		return err
	}
	for _, name := range slices.Concat(always, c.Programs) {
		file, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		libraries, err := librariesOf(ctx, file)
		if err != nil {
			return err
		}
		for _, f := range append(libraries, file) {
			if err := place(f, filepath.Join(root, merged(f))); err != nil {
				return err
			}
		}
	}
	return modules(ctx, checkout, root, c.Modules)
}

// merged is the path of a file of the computer below /usr, as /bin, /sbin and /lib are there.
func merged(file string) string {
	if strings.HasPrefix(file, "/usr/") {
		return file
	}
	return "/usr" + file
}

// librariesOf are what the loader takes for a program.
func librariesOf(ctx context.Context, file string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", file).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w: %s", file, err, out)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				all = append(all, word)
			}
		}
	}
	return all, nil
}

// modules takes modules and those that they need, in the order in which they are loaded.
func modules(ctx context.Context, checkout, root string, names []string) error {
	base := filepath.Join(checkout, labkit.KernelDir)
	tree, err := one(filepath.Join(base, "lib", "modules", "*"))
	if err != nil {
		return err
	}
	release := filepath.Base(tree)
	var list []string
	for _, name := range append([]string{"virtio_pci", "virtio_net", "virtio_rng"}, names...) {
		out, err := exec.CommandContext(ctx, "modprobe", "-d", base, "-S", release, "--show-depends", name).CombinedOutput()
		if err != nil {
			return fmt.Errorf("modprobe --show-depends %s: %w: %s", name, err, out)
		}
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "insmod" {
				continue // it is a part of the kernel
			}
			rel, err := filepath.Rel(base, words[1])
			if err != nil {
				return err
			}
			inside := "/usr/" + rel
			if !slices.Contains(list, inside) {
				list = append(list, inside)
				if err := place(words[1], filepath.Join(root, inside)); err != nil {
					return err
				}
			}
		}
	}
	return os.WriteFile(filepath.Join(root, "modules"), []byte(strings.Join(list, "\n")+"\n"), 0o644)
}

// place copies a file, following links, with its mode.
func place(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, st.Mode().Perm())
}

func one(pattern string) (string, error) {
	all, err := filepath.Glob(pattern)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%d files are %s: remove %s, and the next run unpacks it again", len(all), pattern, labkit.KernelDir)
	}
	if err != nil {
		return "", err
	}
	return all[0], nil
}

func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
