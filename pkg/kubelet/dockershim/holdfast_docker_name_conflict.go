// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockershim

import (
	"regexp"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// conflictQuotedRE is conflictRE for docker 17.04 and later, which quote the ID
// (moby/moby#27510, kubernetes/kubernetes#79623). The name in the message is the one that
// the kubelet asked for: it has no quote and no space.
var conflictQuotedRE = regexp.MustCompile(`Conflict\. .+ is already in use by container "([0-9a-f]{1,64})"`)

// matchConflict is what conflictRE finds in docker's answer to a creation: the whole
// match and the ID of the container that has the name, or nothing.
func matchConflict(message string) []string {
	matches := conflictRE.FindStringSubmatch(message)
	if matches == nil && utilfeature.DefaultFeatureGate.Enabled(features.DockerNameConflictQuotedID) {
		matches = conflictQuotedRE.FindStringSubmatch(message)
	}
	return matches
}
