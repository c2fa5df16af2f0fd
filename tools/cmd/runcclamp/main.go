// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Runcclamp is an OCI runtime that asks of runc only what this machine allows
// and then runs it. Without CAP_SYS_RESOURCE the kernel refuses a lower
// oomScoreAdj than one's own, and dockershim asks for -998 in every sandbox;
// runc then fails with "can't get final child's PID from pipe: EOF". And a
// privileged container wants every capability there is: those that the machine
// itself lacks are left out.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/sys/capability"
)

func main() {
	if err := clampFor(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "runcclamp:", err)
		os.Exit(1)
	}
	err := syscall.Exec("/usr/sbin/runc", append([]string{"runc"}, os.Args[1:]...), os.Environ())
	fmt.Fprintln(os.Stderr, "runcclamp: /usr/sbin/runc:", err)
	os.Exit(127)
}

// limits are what the machine allows a container.
type limits struct {
	oomScoreAdj int
	// capabilities by their OCI names, such as "CAP_CHOWN".
	capabilities []string
}

func ownLimits() (*limits, error) {
	self, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return nil, err
	}
	l := &limits{}
	if l.oomScoreAdj, err = strconv.Atoi(strings.TrimSpace(string(self))); err != nil {
		return nil, err
	}
	caps, err := capability.NewPid2(0)
	if err != nil {
		return nil, err
	}
	if err := caps.Load(); err != nil {
		return nil, err
	}
	for _, c := range capability.ListKnown() {
		if caps.Get(capability.BOUNDING, c) {
			l.capabilities = append(l.capabilities, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	return l, nil
}

// clampFor edits the file that runc would read for these arguments, if any.
func clampFor(args []string) error {
	l, err := ownLimits()
	if err != nil {
		return err
	}
	for _, a := range args {
		switch a {
		case "create", "run":
			bundle := flagValue(args, "--bundle")
			if bundle == "" {
				bundle = "."
			}
			return l.clamp(filepath.Join(bundle, "config.json"), "process")
		case "exec":
			if p := flagValue(args, "--process"); p != "" {
				return l.clamp(p)
			}
			return nil
		}
	}
	return nil
}

func flagValue(args []string, name string) string {
	for i, a := range args {
		if a == name && i+1 < len(args) {
			return args[i+1]
		}
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			return v
		}
	}
	return ""
}

// clamp edits the process, which is the object at path under in a JSON file. All
// other values are kept byte for byte.
func (l *limits) clamp(file string, under ...string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out, err := edit(b, l.process, under...)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if string(out) == string(b) {
		return nil
	}
	return os.WriteFile(file, out, 0o600)
}

type object map[string]json.RawMessage

// edit applies f to the object at path under of a JSON text, if it is there. The
// text stays as it is if f changes nothing.
func edit(b []byte, f func(object) (changed bool, err error), under ...string) ([]byte, error) {
	var m object
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	if len(under) > 0 {
		inner, ok := m[under[0]]
		if !ok || string(inner) == "null" {
			return b, nil
		}
		out, err := edit(inner, f, under[1:]...)
		if err != nil || string(out) == string(inner) {
			return b, err
		}
		m[under[0]] = out
		return json.Marshal(m)
	}
	if changed, err := f(m); err != nil || !changed {
		return b, err
	}
	return json.Marshal(m)
}

// process raises oomScoreAdj and leaves capabilities out.
func (l *limits) process(m object) (changed bool, err error) {
	if raw, ok := m["oomScoreAdj"]; ok && string(raw) != "null" {
		var v int
		if err := json.Unmarshal(raw, &v); err != nil {
			return false, err
		}
		if v < l.oomScoreAdj {
			m["oomScoreAdj"], changed = json.RawMessage(strconv.Itoa(l.oomScoreAdj)), true
		}
	}
	raw, ok := m["capabilities"]
	if !ok || string(raw) == "null" {
		return changed, nil
	}
	var sets map[string][]string // bounding, effective, inheritable, permitted, ambient
	if err := json.Unmarshal(raw, &sets); err != nil {
		return false, err
	}
	less := false
	for name, set := range sets {
		n := len(set)
		set = slices.DeleteFunc(set, func(c string) bool { return !slices.Contains(l.capabilities, c) })
		sets[name], less = set, less || len(set) < n
	}
	if !less {
		return changed, nil
	}
	m["capabilities"], err = json.Marshal(sets)
	return true, err
}
