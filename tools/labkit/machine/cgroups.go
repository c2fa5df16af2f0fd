// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"holdfast/tools/labkit/wait"
)

// CgroupRoot is where the cgroup v1 hierarchies are mounted.
const CgroupRoot = "/sys/fs/cgroup"

// Hierarchy is one cgroup v1 mount: its directory below /sys/fs/cgroup and the
// options that mount it again.
type Hierarchy struct{ Dir, Options string }

// Hierarchies reads /proc/self/mountinfo.
func Hierarchies() ([]Hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseHierarchies(f)
}

func parseHierarchies(info io.Reader) ([]Hierarchy, error) {
	mounts, err := mountinfo.GetMountsFromReader(info, mountinfo.FSTypeFilter("cgroup"))
	if err != nil {
		return nil, err
	}
	var hs []Hierarchy
	seen := map[string]bool{}
	for _, m := range mounts {
		if filepath.Dir(m.Mountpoint) != CgroupRoot {
			continue
		}
		var opts []string
		for _, o := range strings.Split(m.VFSOptions, ",") {
			switch {
			case o == "rw" || o == "ro" || strings.HasPrefix(o, "release_agent="):
			case strings.HasPrefix(o, "name="):
				opts = append(opts, "none", o)
			default:
				opts = append(opts, o)
			}
		}
		if d := filepath.Base(m.Mountpoint); !seen[d] {
			seen[d] = true
			hs = append(hs, Hierarchy{d, strings.Join(opts, ",")})
		}
	}
	for _, want := range []string{"cpuset", "memory"} {
		found := false
		for _, h := range hs {
			found = found || strings.Contains(","+h.Options+",", ","+want+",")
		}
		if !found {
			return nil, fmt.Errorf("no cgroup v1 hierarchy for %s below %s: a kubelet of 1.7–1.9 cannot run here", want, CgroupRoot)
		}
	}
	return hs, nil
}

// shares is the weight of a machine for the processors. The kernel weighs a group as one
// process, 1024: beside a build, a node with 40 pods would get no more than a single
// compiler, and its containers would take minutes to start.
const shares = "4096"

func (h Hierarchy) has(controller string) bool {
	return strings.Contains(","+h.Options+",", ","+controller+",")
}

// MakeCgroups makes rel in every hierarchy and fills what cpuset needs. Its first element is
// the machine's, which gets its shares of the processors.
func MakeCgroups(rel string) error {
	hs, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range hs {
		dir := filepath.Join(CgroupRoot, h.Dir)
		for i, elem := range strings.Split(rel, "/") {
			parent := dir
			dir = filepath.Join(dir, elem)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if i == 0 && h.has("cpu") {
				if err := os.WriteFile(filepath.Join(dir, "cpu.shares"), []byte(shares), 0); err != nil {
					return err
				}
			}
			if !h.has("cpuset") {
				continue
			}
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				b, err := os.ReadFile(filepath.Join(parent, f))
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(dir, f), b, 0); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// enterControlPlane moves this process, whose children the control plane's are, into a group
// beside those of the nodes. Outside of the machine it would be starved by them.
func enterControlPlane(id string) error {
	rel := filepath.Join(Cgroup(id), "control-plane")
	if err := MakeCgroups(rel); err != nil {
		return err
	}
	hs, err := processors()
	if err != nil {
		return err
	}
	return EnterCgroups(hs, rel)
}

// leaveControlPlane moves this process, and whatever a lab has left beside it, to where they
// do not hold the machine's groups. What a lab has left is reported as a process.
func leaveControlPlane(id string) error {
	hs, err := processors()
	if err != nil {
		return err
	}
	for _, h := range hs {
		b, err := os.ReadFile(filepath.Join(CgroupRoot, h.Dir, Cgroup(id), "control-plane", "cgroup.procs"))
		if err != nil {
			return err
		}
		for _, pid := range strings.Fields(string(b)) {
			// One that has just ended cannot be moved, and need not be.
			if err := enter(h, "", pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}

// processors has the hierarchy that weighs processors.
func processors() ([]Hierarchy, error) {
	hs, err := Hierarchies()
	return slices.DeleteFunc(hs, func(h Hierarchy) bool { return !h.has("cpu") }), err
}

// EnterCgroups moves this process into rel of every hierarchy.
func EnterCgroups(hs []Hierarchy, rel string) error {
	for _, h := range hs {
		if err := enter(h, rel, strconv.Itoa(os.Getpid())); err != nil {
			return err
		}
	}
	return nil
}

func enter(h Hierarchy, rel, pid string) error {
	if err := os.WriteFile(filepath.Join(CgroupRoot, h.Dir, rel, "cgroup.procs"), []byte(pid), 0); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	return nil
}

// RemoveCgroups removes rel with everything below it, and says what stays.
func RemoveCgroups(ctx context.Context, rel string) error {
	return wait.Until(ctx, "cgroups "+rel+" removed", 10*time.Second, func(context.Context) (bool, error) {
		left := Cgroups(rel)
		for i := len(left) - 1; i >= 0; i-- {
			_ = unix.Rmdir(left[i])
		}
		if left = Cgroups(rel); len(left) > 0 {
			return false, fmt.Errorf("%d left, like %s", len(left), left[len(left)-1])
		}
		return true, nil
	})
}

// SweepCgroups removes the empty cgroups of machines whose runner was killed
// more than ten minutes ago; a younger one may be about to be used.
func SweepCgroups() {
	roots, _ := filepath.Glob(filepath.Join(CgroupRoot, "memory", "holdfast-*"))
	for _, r := range roots {
		if st, err := os.Stat(r); err != nil || time.Since(st.ModTime()) < 10*time.Minute {
			continue
		}
		rel, used := filepath.Base(r), false
		left := Cgroups(rel)
		for _, d := range left {
			b, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
			used = used || err == nil && len(b) > 0
		}
		for i := len(left) - 1; i >= 0 && !used; i-- {
			_ = unix.Rmdir(left[i])
		}
	}
}

// Cgroups lists the directories of rel in all hierarchies, parents first.
func Cgroups(rel string) []string {
	var dirs []string
	roots, _ := filepath.Glob(filepath.Join(CgroupRoot, "*", rel))
	for _, r := range roots {
		_ = filepath.WalkDir(r, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
	}
	sort.Strings(dirs)
	return dirs
}
