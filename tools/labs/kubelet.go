// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labs

import (
	_ "holdfast/tools/labs/checkpointcompat"
	_ "holdfast/tools/labs/containerhashcompat"
	_ "holdfast/tools/labs/nodeupgrade"
	_ "holdfast/tools/labs/predecessor"
	_ "holdfast/tools/labs/readinessacrossrestart"
	_ "holdfast/tools/labs/security"
	_ "holdfast/tools/labs/subpathrollback"
)
