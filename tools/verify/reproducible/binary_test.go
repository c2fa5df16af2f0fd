// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package reproducible

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/base"
)

// binary is a file that was built of a base.
type binary struct {
	b       *base.Base
	variant base.Variant
	name    string
	file    string
	// script is upstream's release script, hack/lib/golang.sh of the very release.
	script []byte
}

var releasedRE = regexp.MustCompile(`(?s)(?:server_targets\(\) \{\s*local targets|KUBE_CLIENT_TARGETS)=\((.*?)\)`)

// released says whether upstream's release has the program. The others, as hollow-node and those
// of the e2e suites, are upstream's tools for tests.
func (x binary) released(t *testing.T) bool {
	lists := releasedRE.FindAllSubmatch(x.script, -1)
	if len(lists) != 2 {
		t.Fatalf("upstream's hack/lib/golang.sh has %d lists of servers and clients, want 2", len(lists))
	}
	var targets []string
	for _, m := range lists {
		targets = append(targets, strings.Fields(string(m[1]))...)
	}
	is := slices.Contains(targets, strings.TrimPrefix(x.b.Binaries[x.name].Package, "./"))
	if !is && x.b.Binaries[x.name].DropIn {
		t.Fatal("upstream's hack/lib/golang.sh does not list it, but it is a drop-in binary")
	}
	return is
}

func (x binary) saysVersion(t *testing.T) {
	args := []string{"--version"}
	if x.name == "kubectl" {
		args = []string{"version", "--client"}
	}
	cmd := exec.Command(x.file, args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := cmd.CombinedOutput()
	version := x.b.Version
	if x.variant == base.Ours {
		version = release(t, x.b)
	}
	if err != nil || !regexp.MustCompile(`(Kubernetes |GitVersion:")`+regexp.QuoteMeta(version)+`["\n]`).Match(out) {
		t.Errorf("%s %s: %v: %s, want %s", x.name, args, err, out, version)
	}
}
