// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package labs links every lab into the lab command. A new lab adds its
// import here and registers itself in its init.
package labs

import (
	_ "holdfast/tools/labs/checks/cluster-smoke"
	_ "holdfast/tools/labs/daemonset-failed-pod-rollout"
	_ "holdfast/tools/labs/dead-node-pods-retry"
	_ "holdfast/tools/labs/endpoints-batching"
	_ "holdfast/tools/labs/endpoints-node-name"
	_ "holdfast/tools/labs/endpoints-rules"
	_ "holdfast/tools/labs/endpoints-stale-cache"
	_ "holdfast/tools/labs/hash-collision"
	_ "holdfast/tools/labs/hash-collision-v1.2.0"
	_ "holdfast/tools/labs/kcm-silent-connection"
	_ "holdfast/tools/labs/lease-identity"
	_ "holdfast/tools/labs/patch-errors"
	_ "holdfast/tools/labs/reflector-monotonic-rv"
	_ "holdfast/tools/labs/statefulset-update-revision"
)
