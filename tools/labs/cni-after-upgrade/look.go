// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cniafterupgrade

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

// plugins writes the network: the kit's, with a folder of leases that the lab can read and the
// plugin that counts.
func (l *lab) plugins() error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	for _, p := range []string{"bridge", "host-local", "loopback", "portmap"} {
		if err := os.Symlink(filepath.Join("/usr/lib/cni", p), filepath.Join(l.dir, p)); err != nil {
			return err
		}
	}
	if err := os.Symlink(node.ToolPath(l.e.Root, "cnicount"), filepath.Join(l.dir, "cnicount")); err != nil {
		return err
	}
	conf := fmt.Sprintf(`{
  "cniVersion": "0.3.1",
  "name": "lab",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
     "ipam": {"type": "host-local", "subnet": %q, "dataDir": %q, "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": false},
    {"type": "cnicount", "dir": %q}
  ]
}
`, l.node.PodCIDR, l.dir, l.dir)
	return os.WriteFile(filepath.Join(l.dir, "10-lab.conflist"), []byte(conf), 0o644)
}

// call is a line of the plugin that counts: see tools/cmd/cnicount.
type call struct {
	Command, Sandbox, Pod string
	Failed                bool
}

func (l *lab) calls() ([]call, error) {
	f, err := os.Open(filepath.Join(l.dir, "calls.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []call
	s := bufio.NewScanner(f)
	for s.Scan() {
		var c call
		if err := json.Unmarshal(s.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		out = append(out, c)
	}
	return out, s.Err()
}

// seen is what there is after a phase.
type seen struct {
	Phase string
	// Pods are to run.
	Pods int
	// Sandboxes run; Links are on the bridge; Without have no lease.
	Sandboxes, Links, Without int
	// Stray are the pods of the leases whose sandbox does not run, one for each.
	Stray []string
	// Adds, Dels and failed calls of pods of this phase, by kind; Owed are the pods of those
	// sandboxes, of any phase, that had an ADD, do not run and had no DEL that succeeded.
	Adds, Dels, Failed map[string]int
	Owed               []string
}

// clean is whether nothing is left.
func (s seen) clean() bool {
	return s.Sandboxes == s.Pods && s.Links == s.Sandboxes && s.Without == 0 && len(s.Stray) == 0 && len(s.Owed) == 0
}

func (l *lab) look(ctx context.Context, phase string, pods ...string) error {
	if err := l.ready(ctx, pods...); err != nil {
		return err
	}
	var s seen
	// What stays is for the oracle.
	if err := wait.Until(ctx, "everything of the deleted pods is removed", settle, func(ctx context.Context) (bool, error) {
		now, err := l.see(ctx, phase)
		if err != nil {
			return false, err
		}
		now.Pods = len(pods)
		s = now
		return s.clean(), nil
	}); err != nil && (ctx.Err() != nil || s.Phase == "") {
		return err
	}
	l.e.Logf("%+v", s)
	l.e.Record(s)
	return nil
}

func (l *lab) see(ctx context.Context, phase string) (seen, error) {
	s := seen{Phase: phase, Adds: map[string]int{}, Dels: map[string]int{}, Failed: map[string]int{}}
	links, err := l.node.Output(ctx, "ip", "-o", "link", "show", "master", "cni0")
	if err != nil && !strings.Contains(links, "does not exist") { // a pod that starts makes it
		return seen{}, err
	}
	s.Links = strings.Count(links, "\n")
	cs, err := l.node.Docker.Containers(ctx, false)
	if err != nil {
		return seen{}, err
	}
	run := map[string]bool{}
	for _, c := range cs {
		if c.Labels[node.LabelType] == sandbox {
			run[c.ID] = true
		}
	}
	s.Sandboxes = len(run)
	calls, err := l.calls()
	if err != nil {
		return seen{}, err
	}
	pod, owed := map[string]string{}, map[string]string{}
	for _, c := range calls {
		pod[c.Sandbox] = c.Pod
		if kind, _, ok := strings.Cut(c.Pod, "-"+phase+"-"); ok {
			switch {
			case c.Failed:
				s.Failed[kind]++
			case c.Command == "ADD":
				s.Adds[kind]++
			default:
				s.Dels[kind]++
			}
		}
		switch {
		case c.Command == "ADD":
			owed[c.Sandbox] = c.Pod
		case !c.Failed:
			delete(owed, c.Sandbox)
		}
	}
	for id, p := range owed {
		if !run[id] {
			s.Owed = append(s.Owed, p)
		}
	}
	leases, err := l.leases()
	if err != nil {
		return seen{}, err
	}
	for _, id := range leases {
		if !run[id] {
			s.Stray = append(s.Stray, pod[id])
		}
	}
	for id := range run {
		if !slices.Contains(leases, id) {
			s.Without++
		}
	}
	slices.Sort(s.Stray)
	slices.Sort(s.Owed)
	return s, nil
}

// leases are the sandboxes of host-local's leases.
func (l *lab) leases() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(l.dir, "lab", "*.*.*.*"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		switch {
		case os.IsNotExist(err): // released meanwhile
		case err != nil:
			return nil, err
		default:
			id, _, _ := strings.Cut(string(b), "\n")
			out = append(out, strings.TrimSpace(id))
		}
	}
	return out, nil
}
