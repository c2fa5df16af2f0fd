// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labs

import (
	_ "holdfast/tools/labs/admission-across-restart"
	_ "holdfast/tools/labs/checkpoint-compat"
	_ "holdfast/tools/labs/checks/conformance"
	_ "holdfast/tools/labs/checks/cost-at-rest"
	_ "holdfast/tools/labs/checks/cost-at-scale"
	_ "holdfast/tools/labs/checks/dropin-cluster"
	_ "holdfast/tools/labs/checks/node-swap"
	_ "holdfast/tools/labs/checks/rbd-contract"
	_ "holdfast/tools/labs/checks/rbd-kill"
	_ "holdfast/tools/labs/checks/rolling-updates"
	_ "holdfast/tools/labs/checks/security-use"
	_ "holdfast/tools/labs/checks/upgrade-runbook"
	_ "holdfast/tools/labs/container-hash-compat"
	_ "holdfast/tools/labs/docker-name-conflict"
	_ "holdfast/tools/labs/hostport-host-ip"
	_ "holdfast/tools/labs/kmem-off"
	_ "holdfast/tools/labs/node-ready-across-restart"
	_ "holdfast/tools/labs/node-upgrade"
	_ "holdfast/tools/labs/orphaned-volume-dirs"
	_ "holdfast/tools/labs/predecessor"
	_ "holdfast/tools/labs/rbd-attach"
	_ "holdfast/tools/labs/rbd-detach"
	_ "holdfast/tools/labs/rbd-legacy-lock"
	_ "holdfast/tools/labs/rbd-output"
	_ "holdfast/tools/labs/readiness-across-restart"
	_ "holdfast/tools/labs/security"
	_ "holdfast/tools/labs/subpath-rollback"
	_ "holdfast/tools/labs/unready-before-replace"
)
