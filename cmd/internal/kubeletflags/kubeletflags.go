// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletflags knows the flags and feature gates of the kubelets that a node may run, and of
// the controller managers of 1.9, and reads command lines as they do.
package kubeletflags

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed kubelet.txt
var table string

//go:embed kube-controller-manager.txt
var managers string

// Ours is a table's name for Holdfast; upstream's have their release, "v1.7.0".
const Ours = "ours"

// Table says which release has what.
type Table struct {
	// Releases are oldest first; the last is Ours.
	Releases []string
	flags    map[string]flagRow
	gates    map[string]string // digits
	defaults []defaultRow
}

type flagRow struct{ kind, in string }

type defaultRow struct{ flag, in, value string }

// Load returns the table of kubelets that the program carries, LoadManagers that of controller
// managers.
var (
	Load         = sync.OnceValues(func() (*Table, error) { return parse(table) })
	LoadManagers = sync.OnceValues(func() (*Table, error) { return parse(managers) })
)

func parse(text string) (*Table, error) {
	t := &Table{flags: map[string]flagRow{}, gates: map[string]string{}}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		switch {
		case len(w) == 0 || strings.HasPrefix(line, "#"):
			continue
		case w[0] == "releases" && len(w) > 1:
			t.Releases = w[1:]
			continue
		case w[0] == "flag" && len(w) == 4 && len(w[3]) == len(t.Releases):
			t.flags[w[1]] = flagRow{w[2], w[3]}
			continue
		case w[0] == "gate" && len(w) == 3 && len(w[2]) == len(t.Releases):
			t.gates[w[1]] = w[2]
			continue
		case w[0] == "default" && len(w) == 4 && len(w[2]) == len(t.Releases):
			t.defaults = append(t.defaults, defaultRow{w[1], w[2], w[3]})
			continue
		}
		return nil, fmt.Errorf("%q is no line of a table", strings.TrimSpace(line))
	}
	return t, nil
}

// Row is the release of the table by which 1.minor.patch is judged: Ours for Holdfast, else the newest
// that is not newer, or the oldest of that minor; "" if the table has none. its is the patch of the row.
func (t *Table) Row(minor, patch int, holdfast bool) (row string, its int) {
	if holdfast {
		return Ours, 0
	}
	for _, r := range t.Releases {
		rest, ok := strings.CutPrefix(r, fmt.Sprintf("v1.%d.", minor))
		if !ok {
			continue
		}
		if n, err := strconv.Atoi(rest); err == nil && (row == "" || n <= patch) {
			row, its = r, n
		}
	}
	return row, its
}

func (t *Table) at(digits, release string) bool {
	i := slices.Index(t.Releases, release)
	return i >= 0 && i < len(digits) && digits[i] == '1'
}

// HasFlag tells whether a release of the table takes a flag, given in its usual form with dashes.
func (t *Table) HasFlag(release, name string) bool {
	return name == "help" || t.at(t.flags[name].in, release)
}

// HasGate tells whether a release knows a feature gate.
func (t *Table) HasGate(release, name string) bool { return t.at(t.gates[name], release) }

// Default is a flag's default in a release, of those that the table has: "eviction-hard".
func (t *Table) Default(release, name string) string {
	for _, d := range t.defaults {
		if d.flag == name && t.at(d.in, release) {
			return d.value
		}
	}
	return ""
}

// Line is what a kubelet's command line says. It holds values, which may be secrets: print names
// only, or values of flags that are known to have none.
type Line struct {
	// Names are the flags in order, each once, with dashes.
	Names  []string
	values map[string][]string
}

// Values are what a flag was given, in order.
func (l *Line) Values(name string) []string { return l.values[name] }

// Last is what counts of a flag that is given several times; false if it is not there.
func (l *Line) Last(name string) (string, bool) {
	v := l.values[name]
	if len(v) == 0 {
		return "", false
	}
	return v[len(v)-1], true
}

// Bool is a flag that is a switch: what it is set to, or def where it is not there.
func (l *Line) Bool(name string, def bool) bool {
	v, ok := l.Last(name)
	if !ok {
		return def
	}
	switch strings.ToLower(v) {
	case "true", "1", "t":
		return true
	}
	return false
}

// Gates are the feature gates that are set, by name.
func (l *Line) Gates() map[string]bool {
	gates := map[string]bool{}
	for _, v := range l.values["feature-gates"] {
		for g := range strings.SplitSeq(v, ",") {
			name, set, _ := strings.Cut(g, "=")
			if name = strings.TrimSpace(name); name != "" {
				gates[name] = strings.EqualFold(strings.TrimSpace(set), "true")
			}
		}
	}
	return gates
}

// maxArgs bounds what of a command line is looked at.
const maxArgs = 4096

// Parse reads a kubelet's arguments, the program's name first, as pflag does: --a=b, --a b, --a for
// a switch, _ for -, and -v 2. A hyperkube's word "kubelet" is skipped. A flag that no release knows
// takes the word after it unless that begins with a dash.
func (t *Table) Parse(argv []string) *Line {
	l := &Line{values: map[string][]string{}}
	if len(argv) > 0 {
		argv = argv[1:]
	}
	if len(argv) > maxArgs {
		argv = argv[:maxArgs]
	}
	if len(argv) > 0 && (argv[0] == "kubelet" || argv[0] == "/kubelet") {
		argv = argv[1:]
	}
	for i := 0; i < len(argv); i++ {
		arg := argv[i]
		if arg == "--" {
			break
		}
		var name, value string
		var has bool
		switch {
		case strings.HasPrefix(arg, "--"):
			name, value, has = strings.Cut(arg[2:], "=")
			name = strings.ReplaceAll(name, "_", "-")
		case strings.HasPrefix(arg, "-v") && len(arg) > 2:
			name, value, has = "v", strings.TrimPrefix(arg[2:], "="), true
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			name, value, has = strings.Cut(arg[1:], "=")
		default:
			continue // the kubelet ignores it
		}
		if name == "" {
			continue
		}
		if !has {
			row, known := t.flags[name]
			switch {
			case name == "help" || row.kind == "bool" || row.kind == "version":
				value = "true"
			case i+1 < len(argv) && (known || !strings.HasPrefix(argv[i+1], "-")):
				i++
				value = argv[i]
			}
		}
		if len(l.values[name]) == 0 {
			l.Names = append(l.Names, name)
		}
		l.values[name] = append(l.values[name], value)
	}
	return l
}

// Split cuts what /proc/PID/cmdline or the kubelet's debug/pprof/cmdline has.
func Split(cmdline string) []string {
	return strings.Split(strings.TrimRight(cmdline, "\x00\n"), "\x00")
}

// Refused are the flags ("--api-servers") and gates ("feature gate X") of a command line that a
// release of the table refuses.
func (t *Table) Refused(release string, l *Line) []string {
	var out []string
	for _, name := range l.Names {
		if !t.HasFlag(release, name) {
			out = append(out, "--"+name)
		}
	}
	var gates []string
	for name := range l.Gates() {
		if !t.HasGate(release, name) {
			gates = append(gates, "feature gate "+name)
		}
	}
	slices.Sort(gates)
	return append(out, gates...)
}

// plain is what a flag or a gate can be called.
var plain = regexp.MustCompile(`^(--[a-z0-9][a-z0-9.-]{0,60}|feature gate [A-Z][A-Za-z0-9]{0,60})$`)

const maxNames = 12

// Plain is what Refused names, with what has no plain name counted only: it may be a value that stands
// in the wrong place.
func Plain(refused []string) []string {
	var out []string
	other := 0
	for _, r := range refused {
		if plain.MatchString(r) && len(out) < maxNames {
			out = append(out, r)
		} else {
			other++
		}
	}
	if other > 0 {
		out = append(out, fmt.Sprintf("%d more that it does not support", other))
	}
	return out
}

// Standalone tells whether a release of this minor number would run without an API server: it kills
// each pod that it was not told of. Flags that the release refuses are taken to be out of the line.
func (l *Line) Standalone(minor int) bool {
	servers, _ := l.Last("api-servers")
	config, _ := l.Last("kubeconfig")
	return Standalone(minor, l.Bool("require-kubeconfig", false), servers, config)
}

// Standalone is the same for the values of --require-kubeconfig, --api-servers and --kubeconfig, ""
// for one that is not there.
//
// 1.7 needs --require-kubeconfig or --api-servers: --kubeconfig alone counts for nothing
// (cmd/kubelet/app/server.go, initKubeletConfigSync). From 1.8 on either --kubeconfig or
// --require-kubeconfig will do. The lab kubelet-units-standalone shows each.
func Standalone(minor int, requireKubeconfig bool, apiServers, kubeconfig string) bool {
	switch {
	case requireKubeconfig:
		return false
	case minor <= 7:
		return apiServers == ""
	}
	return kubeconfig == ""
}

// DeletesSubPaths tells whether a kubelet of upstream's release 1.minor.patch deletes files through
// the mounts of subPaths that a later one made, when it removes a pod: those without the fix of
// CVE-2017-1002101 (kubernetes/kubernetes#61045 to #61047). See patches/subpath-rollback.
func DeletesSubPaths(minor, patch int) bool {
	fixed, ok := map[int]int{7: 14, 8: 9, 9: 4}[minor]
	return minor < 7 || ok && patch < fixed
}
