// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine gives each run a machine of its own: namespaces with a network in
// them, cgroups, ports, and the proof that nothing is left of it.
package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/capability"

	"holdfast/tools/labkit/journal"
	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

const (
	// IP is the machine's address on Bridge, Net their network. They exist in the
	// machine's network namespace only.
	IP     = "10.90.0.1"
	Net    = "10.90.0.0/24"
	Bridge = "lab0"

	envID = "HOLDFAST_LAB_MACHINE" // set inside a machine
)

// Machine is the one that this process runs in: its directory and processes, what
// it says, its ports.
type Machine struct {
	*process.Supervisor
	*journal.Journal

	mu    sync.Mutex
	ports map[int]bool
}

// New is the machine of a supervisor's directory and ID.
func New(s *process.Supervisor, j *journal.Journal) *Machine {
	return &Machine{Supervisor: s, Journal: j, ports: map[int]bool{}}
}

// Cgroup is where the cgroups of the machine of that ID are, relative to each
// hierarchy.
func Cgroup(id string) string { return "holdfast-" + id }

// Path joins elements to the run's directory.
func (m *Machine) Path(elem ...string) string {
	return filepath.Join(append([]string{m.Dir}, elem...)...)
}

// FreePort picks a TCP port that was free just now and never picks it again.
func (m *Machine) FreePort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		p := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if m.claim(p) {
			return p, nil
		}
	}
	return 0, errors.New("no free port in 100 tries")
}

// Port is want if nobody has it, else a free one.
func (m *Machine) Port(want int) (int, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", want))
	if err == nil {
		l.Close()
		if m.claim(want) {
			return want, nil
		}
	}
	return m.FreePort()
}

func (m *Machine) claim(p int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ports[p] {
		return false
	}
	m.ports[p] = true
	return true
}

// HasAllCapabilities says whether this process has every capability that the
// kernel knows. runc cannot give a container what the machine does not have, and
// without CAP_SYS_RESOURCE not even dockershim's oom_score_adj of -998.
func HasAllCapabilities() bool {
	caps, err := capability.NewPid2(0)
	if err != nil || caps.Load() != nil {
		return false
	}
	supported, err := capability.ListSupported()
	return err == nil && !slices.ContainsFunc(supported, func(c capability.Cap) bool {
		return !caps.Get(capability.BOUNDING, c) || !caps.Get(capability.EFFECTIVE, c)
	})
}

// Need is an error unless this process is in the machine.
func (m *Machine) Need() error {
	if os.Getenv(envID) != m.ID {
		return errors.New("nodes need a machine of their own: run it as `lab NAME` does")
	}
	return nil
}

// SetUp makes the network of a fresh machine and its cgroup.
func (m *Machine) SetUp(ctx context.Context) error {
	if err := m.Need(); err != nil {
		return err
	}
	m.OnStop("cgroups", func(ctx context.Context) error {
		return errors.Join(leaveControlPlane(m.ID), RemoveCgroups(ctx, Cgroup(m.ID)))
	})
	if err := enterControlPlane(m.ID); err != nil {
		return err
	}
	for _, c := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", Bridge, "type", "bridge"},
		{"ip", "addr", "add", IP + "/24", "dev", Bridge},
		{"ip", "link", "set", Bridge, "up"},
		{"sysctl", "-qw", "net.ipv4.ip_forward=1"},
	} {
		if err := Run(ctx, c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func Run(ctx context.Context, name string, args ...string) error {
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

// LeaksInside proves from the inside that nothing is left: no process but
// process 1 and this one, no mount below the directory, no network device.
func (m *Machine) LeaksInside(ctx context.Context) []string {
	var leaks []string
	_ = wait.Until(ctx, "nothing left", 5*time.Second, func(context.Context) (bool, error) {
		leaks = nil
		for _, p := range processes() {
			if p.pid != 1 && p.pid != os.Getpid() && p.state != "Z" {
				leaks = append(leaks, fmt.Sprintf("process %d: %s", p.pid, p.cmdline))
			}
		}
		leaks = append(leaks, mountsBelow(m.Dir)...)
		for _, n := range netDevices() {
			if n != "lo" && n != Bridge && !kernelMade[n] {
				leaks = append(leaks, "network device "+n)
			}
		}
		leaks = append(leaks, cgroupLeaks(Cgroup(m.ID))...)
		return len(leaks) == 0, nil
	})
	return leaks
}
