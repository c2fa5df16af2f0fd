// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux
// +build linux

package cm

import (
	"fmt"
	"testing"

	cgroupfs "github.com/opencontainers/runc/libcontainer/cgroups/fs"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubefeatures "k8s.io/kubernetes/pkg/features"
)

// TestKernelMemoryOnRequestGate: runc asks the gate, each time.
func TestKernelMemoryOnRequestGate(t *testing.T) {
	was := utilfeature.DefaultFeatureGate.Enabled(kubefeatures.KernelMemoryOnRequest)
	if !was {
		t.Error("the gate is off by default")
	}
	set := func(on bool) {
		if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", kubefeatures.KernelMemoryOnRequest, on)); err != nil {
			t.Fatal(err)
		}
	}
	defer set(was)
	for _, on := range []bool{false, true} {
		if set(on); cgroupfs.KernelMemoryOnRequest() != on {
			t.Errorf("with the gate at %v runc hears %v", on, !on)
		}
	}
}
