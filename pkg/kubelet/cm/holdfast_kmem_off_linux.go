// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux
// +build linux

package cm

import (
	cgroupfs "github.com/opencontainers/runc/libcontainer/cgroups/fs"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubefeatures "k8s.io/kubernetes/pkg/features"
)

// The cgroups of pods are made after the flags were read.
func init() {
	cgroupfs.KernelMemoryOnRequest = func() bool {
		return utilfeature.DefaultFeatureGate.Enabled(kubefeatures.KernelMemoryOnRequest)
	}
}
