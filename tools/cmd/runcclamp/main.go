// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Runcclamp is an OCI runtime that raises process.oomScoreAdj to its own and
// then runs runc. Without CAP_SYS_RESOURCE the kernel refuses a lower value
// than one's own, and dockershim asks for -998 in every sandbox; runc then
// fails with "can't get final child's PID from pipe: EOF".
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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

// clampFor edits the file that runc would read for these arguments, if any.
func clampFor(args []string) error {
	self, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	least, err := strconv.Atoi(strings.TrimSpace(string(self)))
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
			return clamp(filepath.Join(bundle, "config.json"), least, "process")
		case "exec":
			if p := flagValue(args, "--process"); p != "" {
				return clamp(p, least)
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

// clamp raises oomScoreAdj of the object at path under in a JSON file to
// least. All other values are kept byte for byte.
func clamp(file string, least int, under ...string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out, changed, err := clampJSON(b, least, under...)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if !changed {
		return nil
	}
	return os.WriteFile(file, out, 0o600)
}

func clampJSON(b []byte, least int, under ...string) (out []byte, changed bool, err error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, false, err
	}
	if len(under) > 0 {
		inner, ok := m[under[0]]
		if !ok {
			return b, false, nil
		}
		inner, changed, err = clampJSON(inner, least, under[1:]...)
		if err != nil || !changed {
			return b, false, err
		}
		m[under[0]] = inner
	} else {
		var v int
		raw, ok := m["oomScoreAdj"]
		if !ok || string(raw) == "null" {
			return b, false, nil
		}
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, false, err
		}
		if v >= least {
			return b, false, nil
		}
		m["oomScoreAdj"] = json.RawMessage(strconv.Itoa(least))
	}
	out, err = json.Marshal(m)
	return out, true, err
}
