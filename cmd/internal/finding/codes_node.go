// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

// nodeCodes are the codes that only node check, node swap and node back give.
var nodeCodes = []Code{}
