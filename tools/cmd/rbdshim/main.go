// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command rbdshim is rbd(8) on a machine whose kernel has no rbd: it maps images by
// rbd-fuse and a loop device, with the answers and exit statuses of the kernel's driver,
// and hands everything else to the real program. A lab mounts it over /usr/bin/rbd of a
// node and a folder over /sys/bus/rbd.
//
// It reads ConfigFile, which says where the real program and its state are. Each call is
// appended to calls.log in the state's folder with its exit status and without its key.
//
// With Columns 1, or the option --columns=1 before the command, lists of locks have one
// blank between their columns, as rbd up to 14 prints them. rbd has two since 15.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ConfigFile is in the node's own /etc, which outlives a reboot.
const ConfigFile = "/etc/rbdshim.json"

// nested is set for what the program starts.
const nested = "RBDSHIM_NESTED"

// config is what the lab writes.
type config struct {
	// Real is rbd itself; State a folder of the node; Sysfs what the node sees as
	// /sys/bus/rbd/devices.
	Real, State, Sysfs string
	// First is the lowest device number: /dev is the computer's, and shared by nodes and labs.
	First int
	// Columns is the number of blanks between the columns of a list of locks: 1, or what the
	// real program prints.
	Columns int
}

func main() {
	c, err := load()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rbdshim:", err)
		os.Exit(1)
	}
	// Real must not be this program again.
	if os.Getenv(nested) != "" {
		fmt.Fprintln(os.Stderr, "rbdshim: it was started by itself: "+c.Real+" is not rbd")
		os.Exit(1)
	}
	if err := os.Setenv(nested, "1"); err != nil {
		fmt.Fprintln(os.Stderr, "rbdshim:", err)
		os.Exit(1)
	}
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--columns=1" {
		c.Columns, args = 1, args[1:]
	}
	code := 0
	switch {
	case c.Columns == 1 && len(args) > 1 && args[0] == "lock" && (args[1] == "list" || args[1] == "ls"):
		code = c.oneBlank(args)
	case len(args) > 1 && args[0] == "map":
		code = c.mapImage(args[1], args[2:])
	case len(args) > 1 && args[0] == "unmap":
		code = c.unmap(args[1])
	default:
		code = c.real(args)
	}
	c.log(args, code)
	os.Exit(code)
}

func load() (*config, error) {
	b, err := os.ReadFile(ConfigFile)
	if err != nil {
		return nil, err
	}
	c := &config{}
	return c, json.Unmarshal(b, c)
}

var keyRE = regexp.MustCompile(`--key=\S*`)

func (c *config) log(args []string, code int) {
	f, err := os.OpenFile(filepath.Join(c.State, "calls.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%s rbd %s -> %d\n", time.Now().Format("15:04:05.000"), keyRE.ReplaceAllString(strings.Join(args, " "), "--key=***"), code)
}

// real runs the real program with our outputs.
func (c *config) real(args []string) int {
	cmd := exec.Command(c.Real, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return status(cmd.Run())
}

// oneBlank runs the real program and squeezes its blanks.
func (c *config) oneBlank(args []string) int {
	var text bytes.Buffer
	cmd := exec.Command(c.Real, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, &text, os.Stderr
	err := cmd.Run()
	os.Stdout.WriteString(squeeze(text.String()))
	return status(err)
}

var blanksRE = regexp.MustCompile(` +`)

// squeeze leaves one blank of several. rbd up to 14 ends each row with one, and pads a column
// to its longest value, which is not imitated: a lab's list has one lock.
func squeeze(text string) string { return blanksRE.ReplaceAllString(text, " ") }

func status(err error) int {
	var ee *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ee) && ee.ExitCode() >= 0:
		return ee.ExitCode()
	}
	return 1
}

// fail prints what rbd prints when the kernel refuses.
func fail(verb string, errno syscall.Errno) int {
	if errno != syscall.EINVAL {
		fmt.Fprintln(os.Stderr, "rbd: sysfs write failed")
		if verb == "map" {
			fmt.Fprintln(os.Stderr, `In some cases useful info is found in syslog - try "dmesg | tail".`)
		}
	}
	fmt.Fprintf(os.Stderr, "rbd: %s failed: (%d) %s\n", verb, int(errno), map[syscall.Errno]string{
		syscall.EBUSY: "Device or resource busy", syscall.EINVAL: "Invalid argument", syscall.EIO: "Input/output error"}[errno])
	return int(errno)
}

// options are those of rbd map.
func options(args []string) map[string]string {
	o := map[string]string{"--pool": "rbd", "--id": "admin"}
	for i := 0; i < len(args); i++ {
		if k, v, ok := strings.Cut(args[i], "="); ok {
			o[k] = v
		} else if i+1 < len(args) {
			o[args[i]] = args[i+1]
			i++
		}
	}
	return o
}

// questions are the options of rbd map that a question takes as well: all but the kernel's own.
func questions(args []string) []string {
	var all []string
	for i := 0; i < len(args); i++ {
		if args[i] == "-o" || args[i] == "--options" {
			i++
			continue
		}
		all = append(all, args[i])
	}
	return all
}

// locked says whether the kernel refuses an image: it has the feature exclusive-lock, and a lock
// that is not one of rbd's own.
func (c *config) locked(image string, args []string) (bool, error) {
	var answers [2][]byte
	for i, words := range [][]string{{"info", image, "--format", "json"}, {"lock", "list", image, "--format", "json"}} {
		var err error
		if answers[i], err = exec.Command(c.Real, append(words, questions(args)...)...).Output(); err != nil {
			return false, fmt.Errorf("rbd %s: %w", strings.Join(words, " "), err)
		}
	}
	var info struct{ Features []string }
	if err := json.Unmarshal(answers[0], &info); err != nil {
		return false, err
	}
	var locks []struct{ ID string }
	if err := json.Unmarshal(answers[1], &locks); err != nil {
		return false, err
	}
	return slices.Contains(info.Features, "exclusive-lock") && slices.ContainsFunc(locks, func(l struct{ ID string }) bool { return !strings.HasPrefix(l.ID, "auto ") }), nil
}

func (c *config) mapImage(image string, args []string) int {
	o := options(args)
	// The kernel's own questions: is it there, may I.
	info := exec.Command(c.Real, append([]string{"info", image}, questions(args)...)...)
	info.Stderr = os.Stderr
	if err := info.Run(); err != nil {
		return status(err)
	}
	if locked, err := c.locked(image, args); err != nil {
		fmt.Fprintln(os.Stderr, "rbdshim:", err)
		return 1
	} else if locked {
		return fail("map", syscall.EBUSY)
	}
	n, dir, err := c.number()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rbdshim:", err)
		return 1
	}
	if err := c.attach(n, dir, image, o); err != nil {
		fmt.Fprintln(os.Stderr, "rbdshim:", err)
		os.RemoveAll(dir)
		return fail("map", syscall.EIO)
	}
	fmt.Printf("/dev/rbd%d\n", n)
	return 0
}

// number takes the first free device number of the node.
func (c *config) number() (int, string, error) {
	for n := c.First; n < c.First+100; n++ {
		dir := filepath.Join(c.State, "devices", strconv.Itoa(n))
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			return n, dir, os.Mkdir(filepath.Join(dir, "mnt"), 0o755)
		}
		if !errors.Is(err, os.ErrExist) {
			return 0, "", err
		}
	}
	return 0, "", errors.New("no free device number")
}

func (c *config) attach(n int, dir, image string, o map[string]string) error {
	conf := filepath.Join(dir, "ceph.conf")
	text := fmt.Sprintf("[global]\nmon host = %s\n[client.%s]\n", o["-m"], o["--id"])
	if o["--key"] != "" {
		text += "key = " + o["--key"] + "\n"
	} else {
		text += "keyring = " + o["-k"] + "\n"
	}
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return err
	}
	mnt := filepath.Join(dir, "mnt")
	out, err := os.Create(filepath.Join(dir, "rbd-fuse.log"))
	if err != nil {
		return err
	}
	defer out.Close()
	fuse := exec.Command("rbd-fuse", "-c", conf, "--id", o["--id"], "-p", o["--pool"], "-r", image, "-f", mnt)
	fuse.Stdout, fuse.Stderr = out, out
	fuse.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := fuse.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(fuse.Process.Pid)), 0o644); err != nil {
		return err
	}
	file := filepath.Join(mnt, image)
	// rbd-fuse opens the image, and so watches it, at the first look.
	for i := 0; ; i++ {
		if _, err := os.Stat(file); err == nil {
			break
		}
		if i == 100 {
			_ = fuse.Process.Kill()
			return fmt.Errorf("rbd-fuse shows no %s", file)
		}
		time.Sleep(100 * time.Millisecond)
	}
	loop, err := exec.Command("losetup", "-f", "--show", file).Output()
	if err != nil {
		_ = fuse.Process.Kill()
		return fmt.Errorf("losetup: %w", err)
	}
	name := strings.TrimSpace(string(loop))
	if err := os.WriteFile(filepath.Join(dir, "loop"), []byte(name), 0o644); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return err
	}
	sys := filepath.Join(c.Sysfs, strconv.Itoa(n))
	if err := os.MkdirAll(sys, 0o755); err != nil {
		return err
	}
	for k, v := range map[string]string{"pool": o["--pool"], "name": image, "current_snap": "-", "pool_ns": "",
		"config_info": fmt.Sprintf("%s name=%s,key=client.%s %s %s -", o["-m"], o["--id"], o["--id"], o["--pool"], image)} {
		if err := os.WriteFile(filepath.Join(sys, k), []byte(v+"\n"), 0o644); err != nil {
			return err
		}
	}
	return unix.Mknod(fmt.Sprintf("/dev/rbd%d", n), unix.S_IFBLK|0o600, int(st.Rdev))
}

func (c *config) unmap(device string) int {
	n := strings.TrimPrefix(device, "/dev/rbd")
	dir := filepath.Join(c.State, "devices", n)
	var st unix.Stat_t
	if _, err := os.Stat(filepath.Join(dir, "loop")); n == device || err != nil || unix.Stat(device, &st) != nil {
		fmt.Fprintf(os.Stderr, "rbd: '%s' is not a block device\n", device)
		return fail("unmap", syscall.EINVAL)
	}
	if busy(device, fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))) {
		return fail("unmap", syscall.EBUSY)
	}
	if err := release(dir); err != nil {
		fmt.Fprintln(os.Stderr, "rbdshim:", err)
		return fail("unmap", syscall.EIO)
	}
	for _, p := range []string{device, filepath.Join(c.Sysfs, n), dir} {
		if err := os.RemoveAll(p); err != nil {
			fmt.Fprintln(os.Stderr, "rbdshim:", err)
			return 1
		}
	}
	return 0
}

// busy says whether anything has the device mounted or open; losetup -d does not.
func busy(device, number string) bool {
	tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, t := range tables {
		b, _ := os.ReadFile(t)
		if bytes.Contains(b, []byte(" "+number+" ")) {
			return true
		}
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == device {
			return true
		}
	}
	return false
}

// release undoes attach, and returns when rbd-fuse has ended and so watches no longer.
func release(dir string) error {
	loop, err := os.ReadFile(filepath.Join(dir, "loop"))
	if err != nil {
		return err
	}
	// The kernel's own device goes with its mapping. This one is somebody else's next, and would
	// still let nobody write if it was set read-only.
	if out, err := exec.Command("blockdev", "--setrw", string(loop)).CombinedOutput(); err != nil {
		return fmt.Errorf("blockdev --setrw %s: %w: %s", loop, err, out)
	}
	if out, err := exec.Command("losetup", "-d", string(loop)).CombinedOutput(); err != nil {
		return fmt.Errorf("losetup -d %s: %w: %s", loop, err, out)
	}
	if out, err := exec.Command("umount", filepath.Join(dir, "mnt")).CombinedOutput(); err != nil {
		return fmt.Errorf("umount: %w: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	for i := 0; i < 100 && alive(pid); i++ {
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

// alive says whether a process runs; one that nobody has waited for does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(b, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z'
}
