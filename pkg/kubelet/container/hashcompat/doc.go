// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hashcompat computes the container hash that a kubelet of an older
// release would have recorded.
//
// A kubelet records with every container a hash of its spec,
// kubecontainer.HashContainer: fnv32a over a go-spew dump of v1.Container. The
// dump prints every field of every struct below it, set or not, so a release
// that adds a field changes the hash of containers that do not use it, and a
// new kubelet kills and recreates what the old one started.
//
// A Generation is a set of releases whose dump has the same fields:
//
//	1.12 all fields (the native hash of 1.12; this and 1.10 are on base v1.12.10 only)
//	1.10 without SecurityContext.ProcMount
//	1.9  also without SecurityContext.RunAsGroup (the native hash of 1.9)
//	1.8  also without Container.VolumeDevices
//	1.7  also without VolumeMount.MountPropagation and
//	     SecurityContext.AllowPrivilegeEscalation
//	1.6  also without TCPSocketAction.Host
//
// A container has a hash in a generation only if every field that the
// generation lacks is unset. That condition is what makes it safe to accept
// the hash of an older generation: an old kubelet ignores a field it does not
// know, so a container that it started from a spec with, say,
// allowPrivilegeEscalation: false runs without that setting and has to be
// recreated.
//
// The package prints the dump itself, byte for byte as go-spew does with the
// settings of k8s.io/kubernetes/pkg/util/hash, and walks a container once for
// all generations. It reads a container only: Quantity.String would fill the
// quantity's private cache, which the dump prints.
//
// The package imports the API types only, so that tools can use it as well.
package hashcompat
