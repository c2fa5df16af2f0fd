// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

// Native is the generation of this release: the hash that
// kubecontainer.HashContainer computes.
const Native = Gen19

// firstMinors has the first minor release of each generation.
var firstMinors = [generations]int{6, 7, 8, 9}

// securityContext has the fields of v1.SecurityContext, see table.
const securityContext = `
		Capabilities *v1.Capabilities
		Privileged *bool
		SELinuxOptions *v1.SELinuxOptions
		RunAsUser *int64
		RunAsNonRoot *bool
		ReadOnlyRootFilesystem *bool
		AllowPrivilegeEscalation *bool @1.8`
