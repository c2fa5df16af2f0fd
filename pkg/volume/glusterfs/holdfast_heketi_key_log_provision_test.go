// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package glusterfs

import "k8s.io/api/core/v1"

func provision(p *glusterfsVolumeProvisioner) (*v1.PersistentVolume, error) { return p.Provision() }

// loggedLines are those of a provisioned volume at -v=4 that have the key on stock.
var loggedLines = []string{"Provision VolumeOptions", "creating volume with configuration", "create volume of size"}
