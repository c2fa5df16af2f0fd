// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package outputlimit

// ExecStream is the limit of one stream of a command in bytes. Both streams have to be in a message
// of 8 MiB, the most that dockershim sends: beyond that the command fails, on stock too.
const ExecStream = 4<<20 - 4<<10
