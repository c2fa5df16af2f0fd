// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"holdfast/cmd/internal/atomicfile"
)

// sum is the SHA-256 of a file.
func sum(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// linkOrCopy makes to the same file as from, or a copy of it where it is on another file system.
func linkOrCopy(h *Host, from, to string) error {
	if err := os.Remove(to); err != nil && !os.IsNotExist(err) {
		return err
	}
	if h.Link(from, to) == nil {
		return atomicfile.SyncDir(filepath.Dir(to))
	}
	return atomicfile.Copy(from, to, 0o755)
}

// cmdline is the command line of a process.
func cmdline(h *Host, pid int) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(h.Proc, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("process %d has ended", pid)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
}

// exe is the program of a process, also if its file has another name now.
func exe(h *Host, pid int) string {
	to, _ := os.Readlink(filepath.Join(h.Proc, strconv.Itoa(pid), "exe"))
	return strings.TrimSuffix(to, " (deleted)")
}

// startedWithin is by how many seconds started may be too early: the kernel tells when it booted
// in whole seconds, rounded down, and so does it.
const startedWithin = 2

// started is when a process began, in seconds since 1970; 0 if that cannot be told.
func started(h *Host, pid int) int64 {
	text, err := os.ReadFile(filepath.Join(h.Proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text[max(strings.LastIndexByte(string(text), ')'), 0):]), " ")
	fields := strings.Fields(rest)
	since := booted(h)
	if len(fields) < 20 || since == 0 {
		return 0
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return 0
	}
	return since + ticks/100 // USER_HZ is 100 on all of Linux' machines
}

// booted is when the machine started, in seconds since 1970; 0 if that cannot be told.
func booted(h *Host) int64 {
	text, err := os.ReadFile(filepath.Join(h.Proc, "stat"))
	m := regexp.MustCompile(`(?m)^btime ([0-9]+)$`).FindSubmatch(text)
	if err != nil || m == nil {
		return 0
	}
	since, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		return 0
	}
	return since
}

// processes are the numbers in /proc.
func processes(h *Host) []int {
	entries, err := os.ReadDir(h.Proc)
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, n)
		}
	}
	return out
}

var octal = regexp.MustCompile(`\\[0-7]{3}`)

// subpaths are the mounts of subPaths below a root directory, the last mounted first.
func subpaths(h *Host, rootDir string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(h.Proc, "self/mounts"))
	if err != nil {
		return nil, err
	}
	var out []string
	form := regexp.MustCompile(`^[^/]+/volume-subpaths/[^/]+/[^/]+/[^/]+$`)
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		path := octal.ReplaceAllStringFunc(fields[1], func(s string) string {
			n, _ := strconv.ParseUint(s[1:], 8, 8)
			return string([]byte{byte(n)})
		})
		if below, ok := strings.CutPrefix(path, rootDir+"/pods/"); ok && form.MatchString(below) {
			out = append(out, path)
		}
	}
	slices.Reverse(out)
	return out, nil
}

// unmountSubpaths unmounts all subPaths below a root directory and returns those that stay, each
// with who holds it.
func unmountSubpaths(h *Host, rootDir string) (left []string, err error) {
	for range 100 { // a path may be mounted over several times
		list, err := subpaths(h, rootDir)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		list = slices.Compact(list) // one that is there twice goes in two rounds
		done := 0
		left = nil
		for _, m := range list {
			h.Step("unmount")
			if err := h.Unmount(m); err != nil {
				left = append(left, fmt.Sprintf("%s: %v%s", m, err, holders(h, m)))
				continue
			}
			done++
			// A container that docker is still starting must fail, not find an empty directory.
			if s, err := os.Lstat(m); err == nil && s.IsDir() {
				if os.Remove(m) == nil {
					_ = os.WriteFile(m, nil, 0o600)
				}
			} else if err == nil && s.Mode().IsRegular() && s.Size() == 0 {
				if os.Remove(m) == nil {
					_ = os.Mkdir(m, 0o700)
				}
			}
		}
		if done == 0 {
			return left, nil
		}
	}
	return left, nil
}

// holders names the processes that use a path or one below it.
func holders(h *Host, path string) string {
	var out []string
	for _, pid := range processes(h) {
		dir := filepath.Join(h.Proc, strconv.Itoa(pid))
		links := []string{filepath.Join(dir, "cwd"), filepath.Join(dir, "root")}
		fds, _ := os.ReadDir(filepath.Join(dir, "fd"))
		for _, fd := range fds {
			links = append(links, filepath.Join(dir, "fd", fd.Name()))
		}
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && (to == path || strings.HasPrefix(to, path+"/")) {
				comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
				out = append(out, fmt.Sprintf("%d %s", pid, strings.TrimSpace(string(comm))))
				break
			}
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "; held by process " + strings.Join(out[:min(len(out), 5)], ", ")
}
