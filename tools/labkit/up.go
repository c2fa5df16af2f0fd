// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

const upLab = "up"
