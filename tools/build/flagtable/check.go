// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package flagtable

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

var (
	unknownRE = regexp.MustCompile(`unknown flag: --(\S+)`)
	badRE     = regexp.MustCompile(`invalid argument .* for "?(?:-\w, )?--([\w-]+)`)
)

// Ask starts a release's own binary with every flag that the table says it
// takes, at its default, and with each that the table says it refuses, both
// with --version, so that it prints that and ends. It returns what the table
// has wrong. Flags of except are left out: our build of the release has other
// libraries than upstream's.
func Ask(binary string, t *Table, release string, except []string) (asked int, wrong []string, err error) {
	var args []string
	for _, n := range t.Flags {
		if n.Name == "version" || n.Name == "help" || slices.Contains(except, n.Name) {
			continue
		}
		f := n.In(release)
		if f != nil {
			args = append(args, "--"+n.Name+"="+f.Default)
			asked++
			continue
		}
		asked++
		out, ok := run(binary, "--"+n.Name+"=1")
		if m := unknownRE.FindStringSubmatch(out); ok || m == nil || m[1] != n.Name {
			wrong = append(wrong, fmt.Sprintf("%s takes --%s, the table says that it refuses it", binary, n.Name))
		}
	}
	// Some defaults are no values that the flag takes; such a flag is known too.
	for range args {
		out, ok := run(binary, args...)
		if ok {
			return asked, wrong, nil
		}
		drop := ""
		if m := unknownRE.FindStringSubmatch(out); m != nil {
			drop = m[1]
			wrong = append(wrong, fmt.Sprintf("%s refuses --%s, the table says that it takes it", binary, drop))
		} else if m := badRE.FindStringSubmatch(out); m != nil {
			drop = m[1]
		}
		before := len(args)
		args = slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, "--"+drop+"=") })
		if drop == "" || len(args) == before {
			// The help text may follow.
			return asked, wrong, fmt.Errorf("%s says something that is not understood: %.500s", binary, out)
		}
	}
	return asked, wrong, fmt.Errorf("%s refuses every flag", binary)
}

func run(binary string, args ...string) (string, bool) {
	out, err := exec.Command(binary, append(args, "--version")...).CombinedOutput()
	return string(out), err == nil
}

// except are the flags in which our build of a release differs from upstream's.
func (s source) except() []string {
	out := slices.Clone(s.without)
	for _, l := range s.with {
		out = append(out, l.flag)
	}
	return out
}
