// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"

	extensions "k8s.io/api/extensions/v1beta1"
)

// The types of the release's API that the tests use.
type (
	daemonSetUpdateStrategy = extensions.DaemonSetUpdateStrategy
	rollingUpdateDaemonSet  = extensions.RollingUpdateDaemonSet
)

func nextTemplateGeneration(ds *daemonSet) { ds.Spec.TemplateGeneration++ }

// endBackoff does nothing: 1.9 deletes failed pods without a back-off.
func endBackoff(*daemonSetsController) {}

func setUpFleet(*testing.T) {}

// schedule does nothing: 1.9's controller makes pods on their nodes.
func (f *fleet) schedule() {}
