// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labs

import (
	_ "holdfast/tools/labs/readinessacrossrestart"
)
