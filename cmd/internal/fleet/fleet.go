// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet is the commands fleet manifests and fleet agent: the kubelets of a cluster are
// swapped as the rollout of a DaemonSet. See docs/user/fleet.md.
//
// The agent runs in a pod of each node. It takes a lock of the whole cluster, starts a unit of
// systemd on the node that does what node swap or node back does, follows it, and verifies. What
// it does on the node it does by itself in the namespaces of process 1 (onhost.go).
package fleet

import (
	"fmt"
	"regexp"
	"strings"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/node"
)

// target is the kubelet that a revision of the DaemonSet wants.
type target struct {
	// name is "original", or "holdfast-" and the end of the version: "holdfast-2".
	name string
	// attempt tells a retry from the rollout before it.
	attempt int
}

const (
	original       = "original"
	holdfastPrefix = "holdfast-"
)

func (t target) String() string { return fmt.Sprintf("%s (attempt %d)", t.name, t.attempt) }

func (t target) back() bool { return t.name == original }

// is tells whether a kubelet is of the release that the target names.
func (t target) is(k *node.Kubelet) bool {
	_, build, _ := strings.Cut(k.Release, "+holdfast.")
	return k.Holdfast && build == strings.TrimPrefix(t.name, holdfastPrefix)
}

var (
	targetName = regexp.MustCompile(`^(original|holdfast-[0-9A-Za-z]([0-9A-Za-z.-]{0,80}[0-9A-Za-z])?)$`)
	// dnsLabel is what a name of a namespace must be.
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

func parseTarget(name string, attempt int) (target, error) {
	if !targetName.MatchString(name) {
		return target{}, exit.Usagef("--target is %q: use original, or holdfast-X, where X is what the version of the image's kubelet has behind +holdfast. (holdfast-2)", name)
	}
	if attempt < 1 || attempt > 1e6 {
		return target{}, exit.Usagef("--attempt is %d: use 1, and a higher number to try again what failed", attempt)
	}
	return target{name, attempt}, nil
}

// The names of the objects, and of the files and programs that the image and the node have.
const (
	name     = "holdfast-fleet"
	lockName = "holdfast-fleet-lock"
	// container is that of the DaemonSet's pods.
	container = "agent"
	unitName  = "holdfast-fleet.service"
	// program and kubelet are in the image; on the node they are below --keep-in.
	program = "kubectl-holdfast"
	kubelet = "kubelet"
)
