// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/cmd/internal/kubeletflags"
)

// flags are a kubelet's command line without the program.
type flags []string

// value is that of a flag of the line, the last one if it is there several times. "_" in a name
// is "-", as in the kubelet. A flag without "=" takes the next word, so value is for flags that
// are no booleans.
func (f flags) value(name string) (string, bool) {
	value, found := "", false
	for i := 0; i < len(f); i++ {
		n, v, equals := cutFlag(f[i])
		if n != name {
			continue
		}
		if !equals && i+1 < len(f) {
			v = f[i+1]
		}
		value, found = v, true
	}
	return value, found
}

// or is a flag's value, or another if the line has not the flag.
func (f flags) or(name, other string) string {
	if v, ok := f.value(name); ok {
		return v
	}
	return other
}

// is tells whether a boolean flag is true; other is its default.
func (f flags) is(name string, other bool) bool {
	for _, a := range f {
		if n, v, equals := cutFlag(a); n == name {
			b, err := strconv.ParseBool(v)
			other = !equals || err == nil && b
		}
	}
	return other
}

// cutFlag is the normal name of a flag and what is behind its "=".
func cutFlag(arg string) (name, value string, equals bool) {
	name, ok := strings.CutPrefix(arg, "--")
	if !ok {
		return "", "", false
	}
	name, value, equals = strings.Cut(name, "=")
	return strings.ReplaceAll(name, "_", "-"), value, equals
}

// without is the line without a flag and its value.
func (f flags) without(name string) flags {
	var out flags
	for i := 0; i < len(f); i++ {
		n, _, equals := cutFlag(f[i])
		if n != name {
			out = append(out, f[i])
		} else if !equals && i+1 < len(f) && !strings.HasPrefix(f[i+1], "-") {
			i++
		}
	}
	return out
}

// gates are the names of the feature gates of the line.
func (f flags) gates() []string {
	v, _ := f.value("feature-gates")
	var names []string
	for g := range strings.SplitSeq(v, ",") {
		if name, _, _ := strings.Cut(strings.TrimSpace(g), "="); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// withoutGates is the line without these gates.
func (f flags) withoutGates(gates []string) flags {
	v, ok := f.value("feature-gates")
	if !ok || len(gates) == 0 {
		return f
	}
	var left []string
	for g := range strings.SplitSeq(v, ",") {
		if name, _, _ := strings.Cut(strings.TrimSpace(g), "="); !slices.Contains(gates, name) {
			left = append(left, g)
		}
	}
	out := f.without("feature-gates")
	if len(left) > 0 {
		out = append(out, "--feature-gates="+strings.Join(left, ","))
	}
	return out
}

// standalone tells whether a kubelet of a release has no API server on this line and would kill
// every pod of its node. --api-servers does not count: 1.8 and later refuse it, and a line that
// only names those is standalone once it is taken out.
func (f flags) standalone(v version) bool {
	return kubeletflags.Standalone(v.minor, f.is("require-kubeconfig", false), f.or("api-servers", ""), f.or("kubeconfig", ""))
}

// rootDir is the kubelet's root directory with all links resolved, so that it can be compared
// with /proc/mounts.
func (f flags) rootDir() string {
	dir := f.or("root-dir", "/var/lib/kubelet")
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return filepath.Clean(dir)
}

// dockerSocket is the path of docker's socket, "" if the kubelet uses another runtime or a docker
// that is not on this machine.
func (f flags) dockerSocket() string {
	if f.or("container-runtime", "docker") != "docker" {
		return ""
	}
	socket, ok := strings.CutPrefix(f.or("docker-endpoint", "unix:///var/run/docker.sock"), "unix://")
	if !ok {
		return ""
	}
	return socket
}

// secretFlags have values that are no matter of who reads a change ticket.
var secretFlags = regexp.MustCompile(`token|password|secret|auth-path|-key\b|master-service|api-servers|manifest-url`)

// show is the line for people. What may be a secret is not in it.
func (f flags) show() string {
	var out []string
	hide := false
	for _, a := range f {
		name, _, equals := cutFlag(a)
		switch {
		case hide && name == "":
			a = "..."
		case name != "" && secretFlags.MatchString(name):
			a = "--" + name + "=..."
		}
		hide = name != "" && !equals && secretFlags.MatchString(name)
		out = append(out, a)
	}
	return strings.Join(out, " ")
}

// differ are the names of flags that two lines do not give alike.
func differ(a, b flags) []string {
	group := func(f flags) map[string][]string {
		m := map[string][]string{}
		name := ""
		for _, w := range f {
			if n, v, equals := cutFlag(w); n != "" {
				name = n
				if equals {
					m[name] = append(m[name], v)
				} else {
					m[name] = append(m[name], "")
				}
			} else {
				m[name] = append(m[name], w)
			}
		}
		return m
	}
	ma, mb := group(a), group(b)
	var names []string
	for n := range ma {
		if !slices.Equal(ma[n], mb[n]) {
			names = append(names, "--"+n)
		}
	}
	for n := range mb {
		if _, ok := ma[n]; !ok {
			names = append(names, "--"+n)
		}
	}
	slices.Sort(names)
	if names == nil && !slices.Equal(a, b) {
		names = []string{"the order"}
	}
	return names
}

// version is a kubelet's release.
type version struct {
	text                string // "v1.7.0"
	major, minor, patch int
	holdfast            bool
}

var kubernetes = regexp.MustCompile(`(?m)^Kubernetes (v([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})([-+.][0-9A-Za-z.+_~-]*)?)$`)

func parseVersion(out string) (version, error) {
	m := kubernetes.FindStringSubmatch(out)
	if m == nil {
		return version{}, fmt.Errorf("it does not print the version of a kubelet")
	}
	v := version{text: m[1], holdfast: strings.Contains(m[5], "holdfast")}
	for i, p := range []*int{&v.major, &v.minor, &v.patch} {
		*p, _ = strconv.Atoi(m[2+i])
	}
	return v, nil
}

// deletes: see kubeletflags.DeletesSubPaths.
func (v version) deletes() bool {
	return !v.holdfast && v.major <= 1 && kubeletflags.DeletesSubPaths(v.minor, v.patch)
}

// answer is what a kubelet says to a command line.
type answer struct {
	version version
	// refused are the flags, or else the words of a refusal; gates are those that it does
	// not know.
	refused, gates []string
	// takes is the line without what is refused.
	takes flags
}

// programTimeout bounds a kubelet that prints its version or its help. On a node that starves for
// processors a program of 107 MB takes more than 5 s.
const programTimeout = 20 * time.Second

// badValue is what pflag says of a value that it does not take.
var badValue = regexp.MustCompile(`^(?:Error: )?invalid argument .* for "?(?:-., )?--([A-Za-z0-9_-]+)`)

var unknownFlag = regexp.MustCompile(`(?m)^(?:Error: )?unknown flag: --([A-Za-z0-9_-]+)`)

// ask asks a kubelet for its version, and which flags and gates of the line it refuses. A kubelet
// that is given --version parses all flags, prints, and ends.
func ask(ctx context.Context, h *Host, file string, line flags) (answer, error) {
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, programTimeout)
		defer cancel()
		return h.Run(ctx, file, args...)
	}
	a := answer{takes: line}
	h2 := make(chan string, 1)
	go func() {
		out, _ := run("--help") // 1.7 and 1.8 end with another status
		h2 <- out
	}()
	out, err := run("--version")
	help := <-h2
	if err != nil {
		return a, fmt.Errorf("%s --version: %w", file, err)
	}
	if a.version, err = parseVersion(out); err != nil {
		return a, fmt.Errorf("%s: %w", file, err)
	}
	for _, g := range line.gates() {
		if !regexp.MustCompile(`(^|[^A-Za-z0-9])`+regexp.QuoteMeta(g)+`=true\|false`).MatchString(help) && !slices.Contains(a.gates, g) {
			a.gates = append(a.gates, g)
		}
	}
	a.takes = line.withoutGates(a.gates)
	for range 20 {
		out, err = run(append(slices.Clone(a.takes), "--version")...)
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return a, err
		}
		m := unknownFlag.FindStringSubmatch(out)
		if m == nil {
			break
		}
		name := strings.ReplaceAll(m[1], "_", "-")
		left := a.takes.without(name)
		if len(left) == len(a.takes) {
			break
		}
		a.refused, a.takes = append(a.refused, "--"+name), left
	}
	// Another refusal: its first line. It may quote a value, so it is cut at the first quote.
	for l := range strings.Lines(out) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "Flag --") {
			if g := badValue.FindStringSubmatch(l); g != nil {
				l = "the value of --" + g[1]
			}
			l, _, _ = strings.Cut(l, `"`)
			a.refused = append(a.refused, strings.TrimSpace(l))
			return a, nil
		}
	}
	a.refused = append(a.refused, fmt.Sprintf("the line: %v", err))
	return a, nil
}
