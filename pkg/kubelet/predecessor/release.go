// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Source says where the knowledge of a Release comes from. A stronger source
// hides a weaker one; they are listed from strong to weak.
type Source string

const (
	// Operator: the file OverrideFile.
	Operator Source = "operator"
	// API: Node.status.nodeInfo.kubeletVersion, as it was before this kubelet
	// first wrote it, read by this process or by an earlier one (RecordFile).
	API Source = "api"
	// Evidence: what containers and sandbox checkpoints say of the kubelet that
	// made them. It gives a minor release at best.
	Evidence Source = "evidence"
	// Nothing: there is no knowledge.
	Nothing Source = "none"
)

// Release is the kubelet that this one replaced.
type Release struct {
	// Version is what the source says, such as "v1.8.15-gke.0".
	Version string
	// Major is 1. Patch is -1 if the source does not say it.
	Major, Minor, Patch int
	Source              Source
}

// String returns the release without "v" and suffixes, such as "1.8.15", or
// "1.8" if the patch release is not known.
func (r Release) String() string {
	if r.Patch < 0 {
		return fmt.Sprintf("%d.%d", r.Major, r.Minor)
	}
	return fmt.Sprintf("%d.%d.%d", r.Major, r.Minor, r.Patch)
}

// Before reports whether the release is older than 1.minor.patch. known is false
// if that depends on a patch release that the source does not say.
// Pre-releases count as the release that they precede.
func (r Release) Before(minor, patch int) (before, known bool) {
	if r.Minor != minor {
		return r.Minor < minor, true
	}
	return r.Patch < patch, r.Patch >= 0
}

// ours is in the version of every build of this project, in the build metadata.
const ours = "+holdfast"

var versionForm = regexp.MustCompile(`^v?1\.(0|[1-9][0-9]{0,3})(?:\.(0|[1-9][0-9]{0,5})([-+.][0-9A-Za-z.+_~-]*)?)?$`)

// parseRelease accepts "1.8", "1.8.15", "v1.8.15" and "v1.8.15-gke.0".
func parseRelease(version string, source Source) (Release, bool) {
	m := versionForm.FindStringSubmatch(version)
	if m == nil || strings.Contains(version, ours) {
		return Release{}, false
	}
	r := Release{Version: version, Major: 1, Patch: -1, Source: source}
	r.Minor, _ = strconv.Atoi(m[1])
	if m[2] != "" {
		r.Patch, _ = strconv.Atoi(m[2])
	}
	return r, true
}
