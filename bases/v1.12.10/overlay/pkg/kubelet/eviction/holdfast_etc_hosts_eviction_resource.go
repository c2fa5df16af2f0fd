// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import "k8s.io/api/core/v1"

// localDisk is what usage has of bytes on the disk.
const localDisk = v1.ResourceEphemeralStorage
