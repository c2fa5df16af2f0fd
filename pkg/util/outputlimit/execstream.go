// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package outputlimit

// ExecStream is the limit of one stream of a command in bytes, upstream's of 1.16 (#82514).
const ExecStream = 16 << 20
