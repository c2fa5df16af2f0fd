// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package labs links every lab into the holdfast command. A new lab adds its
// import here and registers itself in its init.
package labs

import (
	_ "holdfast/tools/labs/clustersmoke"
	_ "holdfast/tools/labs/hashcollision"
	_ "holdfast/tools/labs/hashcollision12"
	_ "holdfast/tools/labs/reflectormonotonicrv"
)
