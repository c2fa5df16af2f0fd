// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/kubeletflags"
)

// version is a kubelet's: "v1.8.15", "v1.9.11+holdfast.2".
type version struct {
	minor, patch int
	holdfast     bool
}

var versionForm = regexp.MustCompile(`^v?1\.([0-9]{1,4})(?:\.([0-9]{1,5}))?([-+.].*)?$`)

func parseVersion(s string) (version, bool) {
	m := versionForm.FindStringSubmatch(s)
	if m == nil {
		return version{}, false
	}
	v := version{holdfast: strings.Contains(s, "+holdfast")}
	v.minor, _ = strconv.Atoi(m[1])
	v.patch, _ = strconv.Atoi(m[2])
	return v, true
}

func (v version) String() string {
	if v.holdfast {
		return "Holdfast"
	}
	return fmt.Sprintf("1.%d.%d", v.minor, v.patch)
}

// between: the same minor number, and the patch release is from first to last.
func (v version) between(minor, first, last int) bool {
	return v.minor == minor && v.patch >= first && v.patch <= last
}

// target is the kubelet that a node would get.
type target struct {
	version
	// row is its row in the table of flags, "" if that has none.
	row string
	// back: it is the one that Holdfast replaced on the node.
	back bool
}

func holdfast() target {
	return target{version: version{minor: 9, patch: 11, holdfast: true}, row: kubeletflags.Ours}
}

// release is an upstream kubelet: "1.7", "1.8.9".
func release(s string) (target, bool) {
	v, ok := parseVersion(s)
	if !ok || v.holdfast {
		return target{}, false
	}
	table, err := kubeletflags.Load()
	if err != nil {
		return target{}, false
	}
	short := strings.Count(s, ".") == 1 // the newest that the table has
	if short {
		v.patch = math.MaxInt
	}
	row, patch := table.Row(v.minor, v.patch, false)
	if short {
		v.patch = patch
	}
	return target{version: v, row: row}, true
}

// parseTo reads --to. For "back" each node has its own target, and nil is returned.
func parseTo(to string) (*target, error) {
	switch to {
	case "":
		return nil, exit.Usagef("--to is missing: use holdfast, 1.7, 1.8, 1.9 or back")
	case "back":
		return nil, nil
	case "holdfast":
		t := holdfast()
		return &t, nil
	}
	t, ok := release(to)
	if !ok || t.row == "" {
		return nil, exit.Usagef("--to is %q: use holdfast, 1.7, 1.8, 1.9, one of their patch releases, or back", to)
	}
	return &t, nil
}

// as says by which release's flags a patch release is judged, "" for its own.
func (t target) as() string {
	if t.holdfast || "v"+t.String() == t.row {
		return ""
	}
	return " (as " + strings.TrimPrefix(t.row, "v") + ")"
}
