// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

const (
	// Gen110 is 1.10 and 1.11.
	Gen110 = Gen19 + 1 + iota
	// Gen112 is 1.12 and 1.13.
	Gen112

	// Native is the generation of this release: the hash that
	// kubecontainer.HashContainer computes.
	Native = Gen112
)

// firstMinors has the first minor release of each generation.
var firstMinors = [generations]int{6, 7, 8, 9, 10, 12}

// securityContext has the fields of v1.SecurityContext, see table. API servers of 1.12
// before 1.12.10 give each container with a securityContext the procMount "Default"
// (kubernetes/kubernetes#78881), with which it runs as without procMount.
const securityContext = `
		Capabilities *v1.Capabilities
		Privileged *bool
		SELinuxOptions *v1.SELinuxOptions
		RunAsUser *int64
		RunAsGroup *int64 @1.10
		RunAsNonRoot *bool
		ReadOnlyRootFilesystem *bool
		AllowPrivilegeEscalation *bool @1.8
		ProcMount *v1.ProcMountType "Default" @1.12`
