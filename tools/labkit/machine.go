// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"
)

const (
	machineBridge = "lab0"
	envMachine    = "HOLDFAST_LAB_MACHINE" // set inside a machine
	cgroupRoot    = "/sys/fs/cgroup"
)

// hierarchy is one cgroup v1 mount: its directory below /sys/fs/cgroup and the
// options that mount it again.
type hierarchy struct{ dir, options string }

// hierarchies reads /proc/self/mountinfo.
func hierarchies() ([]hierarchy, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseHierarchies(string(b))
}

func parseHierarchies(mountinfo string) ([]hierarchy, error) {
	var hs []hierarchy
	seen := map[string]bool{}
	for _, l := range strings.Split(mountinfo, "\n") {
		left, right, ok := strings.Cut(l, " - ")
		f, g := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 5 || len(g) < 3 || g[0] != "cgroup" || filepath.Dir(f[4]) != cgroupRoot {
			continue
		}
		var opts []string
		for _, o := range strings.Split(g[2], ",") {
			switch {
			case o == "rw" || o == "ro" || strings.HasPrefix(o, "release_agent="):
			case strings.HasPrefix(o, "name="):
				opts = append(opts, "none", o)
			default:
				opts = append(opts, o)
			}
		}
		if d := filepath.Base(f[4]); !seen[d] {
			seen[d] = true
			hs = append(hs, hierarchy{d, strings.Join(opts, ",")})
		}
	}
	for _, want := range []string{"cpuset", "memory"} {
		found := false
		for _, h := range hs {
			found = found || strings.Contains(","+h.options+",", ","+want+",")
		}
		if !found {
			return nil, fmt.Errorf("no cgroup v1 hierarchy for %s below %s: a kubelet of 1.7–1.9 cannot run here", want, cgroupRoot)
		}
	}
	return hs, nil
}

// makeCgroups makes rel in every hierarchy and fills what cpuset needs.
func makeCgroups(rel string) error {
	hs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range hs {
		dir := filepath.Join(cgroupRoot, h.dir)
		for _, elem := range strings.Split(rel, "/") {
			parent := dir
			dir = filepath.Join(dir, elem)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if !strings.Contains(","+h.options+",", ",cpuset,") {
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

// enterCgroups moves this process into rel of every hierarchy.
func enterCgroups(hs []hierarchy, rel string) error {
	for _, h := range hs {
		if err := os.WriteFile(filepath.Join(cgroupRoot, h.dir, rel, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

// removeCgroups removes rel with everything below it, and says what stays.
func removeCgroups(ctx context.Context, rel string) error {
	return WaitUntil(ctx, "cgroups "+rel+" removed", 10*time.Second, func(context.Context) (bool, error) {
		left := cgroupsLeft(rel)
		for i := len(left) - 1; i >= 0; i-- {
			_ = unix.Rmdir(left[i])
		}
		if left = cgroupsLeft(rel); len(left) > 0 {
			return false, fmt.Errorf("%d left, like %s", len(left), left[len(left)-1])
		}
		return true, nil
	})
}

// sweepCgroups removes the empty cgroups of machines whose runner was killed
// more than ten minutes ago; a younger one may be about to be used.
func sweepCgroups() {
	roots, _ := filepath.Glob(filepath.Join(cgroupRoot, "memory", "holdfast-*"))
	for _, r := range roots {
		if st, err := os.Stat(r); err != nil || time.Since(st.ModTime()) < 10*time.Minute {
			continue
		}
		rel, used := filepath.Base(r), false
		left := cgroupsLeft(rel)
		for _, d := range left {
			b, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
			used = used || err == nil && len(b) > 0
		}
		for i := len(left) - 1; i >= 0 && !used; i-- {
			_ = unix.Rmdir(left[i])
		}
	}
}

// cgroupsLeft lists the directories of rel in all hierarchies, parents first.
func cgroupsLeft(rel string) []string {
	var dirs []string
	roots, _ := filepath.Glob(filepath.Join(cgroupRoot, "*", rel))
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

// hasAllCapabilities says whether this process has every capability that the
// kernel knows. runc cannot give a container what the machine does not have, and
// without CAP_SYS_RESOURCE not even dockershim's oom_score_adj of -998.
func hasAllCapabilities() bool {
	caps, err := capability.NewPid2(0)
	if err != nil || caps.Load() != nil {
		return false
	}
	supported, err := capability.ListSupported()
	return err == nil && !slices.ContainsFunc(supported, func(c capability.Cap) bool {
		return !caps.Get(capability.BOUNDING, c) || !caps.Get(capability.EFFECTIVE, c)
	})
}

func (e *Env) needMachine() error {
	if os.Getenv(envMachine) != e.ID {
		return errors.New("nodes need a machine of their own: run it as `lab NAME` does")
	}
	return nil
}

// setupMachine makes the network of a fresh machine and its cgroup.
func (e *Env) setupMachine(ctx context.Context) error {
	if err := e.needMachine(); err != nil {
		return err
	}
	e.OnStop("cgroups", func(ctx context.Context) error { return removeCgroups(ctx, "holdfast-"+e.ID) })
	for _, c := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", machineBridge, "type", "bridge"},
		{"ip", "addr", "add", MachineIP + "/24", "dev", machineBridge},
		{"ip", "link", "set", machineBridge, "up"},
		{"sysctl", "-qw", "net.ipv4.ip_forward=1"},
	} {
		if err := run(ctx, c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// kernelMade are devices that some kernels put into every new namespace.
var kernelMade = map[string]bool{"tunl0": true, "sit0": true, "gre0": true, "gretap0": true, "erspan0": true, "ip6tnl0": true, "ip6gre0": true, "ip_vti0": true, "ip6_vti0": true, "ifb0": true, "ifb1": true}

// netDevices lists this network namespace's devices (/sys shows the host's).
func netDevices() []string {
	b, _ := os.ReadFile("/proc/self/net/dev")
	var out []string
	for _, l := range strings.Split(string(b), "\n") {
		if n, _, ok := strings.Cut(l, ":"); ok {
			out = append(out, strings.TrimSpace(n))
		}
	}
	return out
}

// machineLeaks proves from the inside that nothing is left: no process but
// process 1 and this one, no mount below the directory, no network device.
func (e *Env) machineLeaks(ctx context.Context) []string {
	var leaks []string
	_ = WaitUntil(ctx, "nothing left", 5*time.Second, func(context.Context) (bool, error) {
		leaks = nil
		for _, p := range processes() {
			if p.pid != 1 && p.pid != os.Getpid() && p.state != 'Z' {
				leaks = append(leaks, fmt.Sprintf("process %d: %s", p.pid, p.cmdline))
			}
		}
		leaks = append(leaks, mountsBelow("/proc/self/mountinfo", e.Dir)...)
		for _, n := range netDevices() {
			if n != "lo" && n != machineBridge && !kernelMade[n] {
				leaks = append(leaks, "network device "+n)
			}
		}
		leaks = append(leaks, cgroupLeaks("holdfast-"+e.ID)...)
		return len(leaks) == 0, nil
	})
	return leaks
}
