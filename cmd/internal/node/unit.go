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
		return nil, fmt.Errorf("the unit %s has a root of its own", name)
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
	u.program, u.args = words[0], words[1:]
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
		return nil, false, fmt.Errorf("ExecStart= of %s reads otherwise than what systemd has loaded", unitName)
	}
	return words, strings.Contains(prefix, ":"), nil
}

// specifiers replaces what begins with %. Few make sense in a kubelet's unit; with another one
// the unit is not understood.
func specifiers(w, unitName string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(w); i++ {
		if w[i] != '%' {
			b.WriteByte(w[i])
			continue
		}
		i++
		switch {
		case i == len(w):
			b.WriteByte('%')
		case w[i] == '%':
			b.WriteByte('%')
		case w[i] == 'H':
			name, err := os.Hostname()
			if err != nil {
				return "", err
			}
			b.WriteString(name)
		case w[i] == 'n':
			b.WriteString(fullName(unitName))
		case w[i] == 'N' || w[i] == 'p':
			b.WriteString(strings.TrimSuffix(unitName, ".service"))
		default:
			return "", fmt.Errorf("the unit %s uses %%%c, which this program does not expand", unitName, w[i])
		}
	}
	return b.String(), nil
}

func fullName(unit string) string {
	if strings.Contains(unit, ".") {
		return unit
	}
	return unit + ".service"
}

// split splits a line into words as systemd does: at spaces, with both quotes and the escapes
// of C.
func split(s string) ([]string, error) {
	var words []string
	var word []byte
	in, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s):
			i++
			in = true
			if at := strings.IndexByte(`abfnrtvs\"'`, s[i]); at >= 0 {
				word = append(word, "\a\b\f\n\r\t\v \\\"'"[at])
			} else if n, err := strconv.ParseUint(s[i+1:min(i+3, len(s))], 16, 8); s[i] == 'x' && err == nil {
				word = append(word, byte(n))
				i += 2
			} else {
				return nil, fmt.Errorf("it has the escape \\%c", s[i])
			}
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word = append(word, c)
		case c == '"' || c == '\'':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if in {
				words, word, in = append(words, string(word)), nil, false
			}
		default:
			word, in = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote is not closed")
	}
	if in {
		words = append(words, string(word))
	}
	return words, nil
}

// expand replaces variables as systemd does: "$A" as a word of its own becomes words, "${A}"
// anywhere becomes its value, "$$" is "$".
func expand(words []string, env map[string]string) []string {
	out := []string{}
	for _, w := range words {
		if len(w) > 1 && w[0] == '$' && isName(w[1:]) {
			value := env[w[1:]]
			parts, err := split(value)
			if err != nil {
				parts = strings.Fields(value)
			}
			out = append(out, parts...)
			continue
		}
		var b strings.Builder
		for i := 0; i < len(w); i++ {
			if w[i] == '$' && i+1 < len(w) {
				if w[i+1] == '$' {
					b.WriteByte('$')
					i++
					continue
				}
				if end := strings.IndexByte(w[i:], '}'); w[i+1] == '{' && end > 0 && isName(w[i+2:i+end]) {
					b.WriteString(env[w[i+2:i+end]])
					i += end
					continue
				}
			}
			b.WriteByte(w[i])
		}
		out = append(out, b.String())
	}
	return out
}

func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c < '0' || c > '9' || i == 0) && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return s != ""
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
			return nil, fmt.Errorf("EnvironmentFile=%s of %s is not there: systemd would not start the unit", pattern, u.name)
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

// envFile adds the assignments of an environment file, as load_env_file of systemd reads them.
func envFile(env map[string]string, text string) {
	for i := 0; i < len(text); {
		// Blank space, then a comment or a name.
		if strings.IndexByte(" \t\r\n", text[i]) >= 0 {
			i++
			continue
		}
		end := strings.IndexByte(text[i:], '\n')
		if end < 0 {
			end = len(text) - i
		}
		eq := strings.IndexByte(text[i:i+end], '=')
		if text[i] == '#' || text[i] == ';' || eq < 0 {
			i += end
			continue
		}
		key := strings.TrimSpace(text[i : i+eq])
		i += eq + 1
		var value []byte
		keep := 0 // so much of value is not trimmed
		quote, start := byte(0), true
	value:
		for ; i < len(text); i++ {
			c := text[i]
			switch {
			case quote != 0 && c == quote:
				quote, start, keep = 0, true, len(value)
			case c == '\\' && quote != '\'':
				if i++; i == len(text) {
					break value
				}
				if quote == '"' && strings.IndexByte("\"\\`$\n", text[i]) < 0 {
					value = append(value, '\\')
				}
				if text[i] != '\n' {
					value = append(value, text[i])
					keep = len(value)
				}
				start = false
			case quote != 0:
				value = append(value, c)
			case c == '\n' || c == '\r':
				break value
			case start && (c == '"' || c == '\''):
				quote = c
			case start && (c == ' ' || c == '\t'):
			default:
				value, start = append(value, c), false
			}
		}
		n := len(value)
		for n > keep && (value[n-1] == ' ' || value[n-1] == '\t') {
			n--
		}
		if isName(key) {
			env[key] = string(value[:n])
		}
	}
}
