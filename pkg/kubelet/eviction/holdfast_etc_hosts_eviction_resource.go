// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

// localDisk is what usage has of bytes on the disk.
const localDisk = resourceDisk
