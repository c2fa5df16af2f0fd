// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// unit is what systemd would start now.
type unit struct {
	name string
	// files are the unit's file and its drop-ins, envFiles the environment files that exist.
	files, envFiles []string
	program         string
	args            []string // without the program
	needsReload     bool     // the files are not those that systemd has loaded
	mainPID         int      // 0: no process
	active, sub     string   // ActiveState, SubState
	killMode        string
	cgroup          string
	env             map[string]string // of the unit; its values may be secrets
}

// unitTimeout bounds one question to systemd.
const unitTimeout = 5 * time.Second

// properties asks systemd for properties of a unit. A systemd that does not know one leaves it out.
func properties(ctx context.Context, h *Host, name string, names ...string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	args := []string{"show"}
	for _, n := range names {
		args = append(args, "-p", n)
	}
	out, err := h.Run(ctx, "systemctl", append(args, name)...)
	if err != nil {
		return nil, fmt.Errorf("systemctl show %s: %w", name, err)
	}
	found := map[string]string{}
	for line := range strings.Lines(out) {
		if k, v, ok := strings.Cut(strings.TrimRight(line, "\n"), "="); ok {
			found[k] = v
		}
	}
	return found, nil
}

// readUnit expands the unit as systemd does: from its files, for "systemctl show" of older
// releases loses quotes. What it makes of them must be what systemd has loaded. An error means
// that nobody can tell what a start would start.
func readUnit(ctx context.Context, h *Host, name string) (*unit, error) {
	p, err := properties(ctx, h, name, "LoadState", "FragmentPath", "DropInPaths", "NeedDaemonReload", "MainPID",
		"ExecStart", "KillMode", "ControlGroup", "ActiveState", "SubState", "RootDirectory", "RootImage")
	if err != nil {
		return nil, err
	}
	if p["LoadState"] != "loaded" || p["FragmentPath"] == "" {
		return nil, fmt.Errorf("systemd has no unit %s (LoadState=%s)", name, p["LoadState"])
	}
	if p["RootDirectory"] != "" && p["RootDirectory"] != "/" || p["RootImage"] != "" {
		return nil, fmt.Errorf("the unit %s has its own root directory", name)
	}
	u := &unit{name: name, needsReload: p["NeedDaemonReload"] == "yes", active: p["ActiveState"], sub: p["SubState"], killMode: p["KillMode"], cgroup: p["ControlGroup"]}
	u.mainPID, _ = strconv.Atoi(p["MainPID"])
	u.files = append([]string{p["FragmentPath"]}, strings.Fields(p["DropInPaths"])...)
	if u.needsReload {
		return u, nil // what the files say is not what a start starts
	}
	settings := map[string][]string{}
	for _, f := range u.files {
		text, err := os.ReadFile(f)
		if err != nil {
			return u, err
		}
		addSettings(settings, string(text))
	}
	starts := settings["ExecStart"]
	if len(starts) != 1 {
		return u, fmt.Errorf("the unit %s has %d ExecStart= lines, not 1", name, len(starts))
	}
	words, literal, err := startWords(starts[0], name, p["ExecStart"])
	if err != nil {
		return u, err
	}
	env, err := u.environment(ctx, h, settings)
	if err != nil {
		return u, err
	}
	u.program, u.args, u.env = words[0], words[1:], env
	if !literal {
		u.args = expand(words[1:], env)
	}
	return u, nil
}

// addSettings adds the settings of [Service] that make the command line. An empty value empties
// the list before it.
func addSettings(settings map[string][]string, text string) {
	section, line := "", ""
	for l := range strings.SplitSeq(text, "\n") {
		if t := strings.TrimSpace(l); strings.HasPrefix(t, "#") || strings.HasPrefix(t, ";") {
			continue // also between lines that are continued
		}
		if cut, ok := strings.CutSuffix(l, `\`); ok {
			line += cut + " "
			continue
		}
		line += l
		t := strings.TrimSpace(line)
		line = ""
		if strings.HasPrefix(t, "[") {
			section = t
			continue
		}
		k, v, ok := strings.Cut(t, "=")
		if k, v = strings.TrimSpace(k), strings.TrimSpace(v); !ok || section != "[Service]" {
			continue
		}
		switch k {
		case "ExecStart", "Environment", "EnvironmentFile", "PassEnvironment", "UnsetEnvironment":
			if v == "" {
				settings[k] = nil
			} else {
				settings[k] = append(settings[k], v)
			}
		}
	}
}

// startWords are the words of an ExecStart= line, not yet expanded, the program first. loaded is
// systemd's property ExecStart, with which they must agree. literal: the line has the prefix ":",
// and nothing is expanded.
func startWords(line, unitName, loaded string) (words []string, literal bool, err error) {
	rest := strings.TrimLeft(line, "-@+!:")
	prefix := line[:len(line)-len(rest)]
	if words, err = split(rest); err != nil {
		return nil, false, fmt.Errorf("ExecStart= of %s: %w", unitName, err)
	}
	for i, w := range words {
		if words[i], err = specifiers(w, unitName); err != nil {
			return nil, false, err
		}
	}
	if strings.Contains(prefix, "@") && len(words) > 1 {
		words = slices.Delete(words, 1, 2)
	}
	if len(words) == 0 {
		return nil, false, fmt.Errorf("ExecStart= of %s names no program", unitName)
	}
	_, argv, ok := strings.Cut(loaded, "argv[]=")
	argv, _, end := strings.Cut(argv, " ; ignore_errors=")
	// The name that "@" gives is not compared.
	_, argv, _ = strings.Cut(argv, " ")
	same := func(s string) string {
		return strings.Join(strings.Fields(strings.NewReplacer(`"`, "", `'`, "", `\`, "").Replace(s)), " ")
	}
	if mine := strings.Join(words[1:], " "); !ok || !end || same(mine) != same(argv) {
		return nil, false, fmt.Errorf("ExecStart= of %s differs from what systemd has loaded", unitName)
	}
	return words, strings.Contains(prefix, ":"), nil
}

// environment is the environment that systemd expands the command line with: PassEnvironment=,
// Environment=, the files, less UnsetEnvironment=. Its values are never printed.
func (u *unit) environment(ctx context.Context, h *Host, settings map[string][]string) (map[string]string, error) {
	env := map[string]string{}
	if len(settings["PassEnvironment"]) > 0 {
		out, err := h.Run(ctx, "systemctl", "show-environment")
		if err != nil {
			return nil, fmt.Errorf("systemctl show-environment: %w", err)
		}
		passed := strings.Fields(strings.Join(settings["PassEnvironment"], " "))
		for line := range strings.Lines(out) {
			if k, v, ok := strings.Cut(strings.TrimRight(line, "\n"), "="); ok && slices.Contains(passed, k) {
				env[k] = v
			}
		}
	}
	for _, line := range settings["Environment"] {
		words, err := split(line)
		if err != nil {
			return nil, fmt.Errorf("Environment= of %s: %w", u.name, err)
		}
		for _, w := range words {
			if w, err = specifiers(w, u.name); err != nil {
				return nil, err
			}
			if k, v, ok := strings.Cut(w, "="); ok {
				env[k] = v
			}
		}
	}
	for _, file := range settings["EnvironmentFile"] {
		pattern, optional := strings.CutPrefix(file, "-")
		pattern, err := specifiers(pattern, u.name)
		if err != nil {
			return nil, err
		}
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 && !optional {
			return nil, fmt.Errorf("EnvironmentFile=%s of %s does not exist: systemd would not start the unit", pattern, u.name)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil && optional {
				continue
			}
			if err != nil {
				return nil, err
			}
			u.envFiles = append(u.envFiles, f)
			envFile(env, string(text))
		}
	}
	for _, name := range strings.Fields(strings.Join(settings["UnsetEnvironment"], " ")) {
		delete(env, name)
	}
	return env, nil
}
