// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package labs lists every lab.
package labs

import (
	"slices"

	"holdfast/tools/labkit"
	admissionacrossrestart "holdfast/tools/labs/admission-across-restart"
	checkpointcompat "holdfast/tools/labs/checkpoint-compat"
	clustersmoke "holdfast/tools/labs/checks/cluster-smoke"
	"holdfast/tools/labs/checks/conformance"
	costatrest "holdfast/tools/labs/checks/cost-at-rest"
	costatscale "holdfast/tools/labs/checks/cost-at-scale"
	dropincluster "holdfast/tools/labs/checks/dropin-cluster"
	"holdfast/tools/labs/checks/fleet"
	kcmswap "holdfast/tools/labs/checks/kcm-swap"
	nodeswap "holdfast/tools/labs/checks/node-swap"
	packageupgrade "holdfast/tools/labs/checks/package-upgrade"
	rbdcontract "holdfast/tools/labs/checks/rbd-contract"
	rbdkill "holdfast/tools/labs/checks/rbd-kill"
	rollingupdates "holdfast/tools/labs/checks/rolling-updates"
	securityuse "holdfast/tools/labs/checks/security-use"
	upgraderunbook "holdfast/tools/labs/checks/upgrade-runbook"
	cniafterupgrade "holdfast/tools/labs/cni-after-upgrade"
	containerhashcompat "holdfast/tools/labs/container-hash-compat"
	daemonsetfailedpodrollout "holdfast/tools/labs/daemonset-failed-pod-rollout"
	deadnodepodsretry "holdfast/tools/labs/dead-node-pods-retry"
	dockernameconflict "holdfast/tools/labs/docker-name-conflict"
	endpointsbatching "holdfast/tools/labs/endpoints-batching"
	endpointsnodename "holdfast/tools/labs/endpoints-node-name"
	endpointsrules "holdfast/tools/labs/endpoints-rules"
	endpointsstalecache "holdfast/tools/labs/endpoints-stale-cache"
	hashcollision "holdfast/tools/labs/hash-collision"
	hashcollisionv120 "holdfast/tools/labs/hash-collision-v1.2.0"
	hostporthostip "holdfast/tools/labs/hostport-host-ip"
	kcmsilentconnection "holdfast/tools/labs/kcm-silent-connection"
	kmemoff "holdfast/tools/labs/kmem-off"
	leaseidentity "holdfast/tools/labs/lease-identity"
	nodereadyacrossrestart "holdfast/tools/labs/node-ready-across-restart"
	nodeupgrade "holdfast/tools/labs/node-upgrade"
	orphanedvolumedirs "holdfast/tools/labs/orphaned-volume-dirs"
	patcherrors "holdfast/tools/labs/patch-errors"
	"holdfast/tools/labs/predecessor"
	rbdattach "holdfast/tools/labs/rbd-attach"
	rbddetach "holdfast/tools/labs/rbd-detach"
	rbdlegacylock "holdfast/tools/labs/rbd-legacy-lock"
	rbdoutput "holdfast/tools/labs/rbd-output"
	readinessacrossrestart "holdfast/tools/labs/readiness-across-restart"
	reflectormonotonicrv "holdfast/tools/labs/reflector-monotonic-rv"
	"holdfast/tools/labs/security"
	statefulsetupdaterevision "holdfast/tools/labs/statefulset-update-revision"
	staticpodidentity "holdfast/tools/labs/static-pod-identity"
	subpathrollback "holdfast/tools/labs/subpath-rollback"
	unreadybeforereplace "holdfast/tools/labs/unready-before-replace"
)

// All are the labs of all folders. A new folder adds itself here.
func All() []labkit.Lab {
	return slices.Concat(
		admissionacrossrestart.Labs(),
		checkpointcompat.Labs(),
		clustersmoke.Labs(),
		conformance.Labs(),
		costatrest.Labs(),
		costatscale.Labs(),
		dropincluster.Labs(),
		fleet.Labs(),
		kcmswap.Labs(),
		nodeswap.Labs(),
		packageupgrade.Labs(),
		rbdcontract.Labs(),
		rbdkill.Labs(),
		rollingupdates.Labs(),
		securityuse.Labs(),
		upgraderunbook.Labs(),
		cniafterupgrade.Labs(),
		containerhashcompat.Labs(),
		daemonsetfailedpodrollout.Labs(),
		deadnodepodsretry.Labs(),
		dockernameconflict.Labs(),
		endpointsbatching.Labs(),
		endpointsnodename.Labs(),
		endpointsrules.Labs(),
		endpointsstalecache.Labs(),
		hashcollision.Labs(),
		hashcollisionv120.Labs(),
		hostporthostip.Labs(),
		kcmsilentconnection.Labs(),
		kmemoff.Labs(),
		leaseidentity.Labs(),
		nodereadyacrossrestart.Labs(),
		nodeupgrade.Labs(),
		orphanedvolumedirs.Labs(),
		patcherrors.Labs(),
		predecessor.Labs(),
		rbdattach.Labs(),
		rbddetach.Labs(),
		rbdlegacylock.Labs(),
		rbdoutput.Labs(),
		readinessacrossrestart.Labs(),
		reflectormonotonicrv.Labs(),
		security.Labs(),
		statefulsetupdaterevision.Labs(),
		staticpodidentity.Labs(),
		subpathrollback.Labs(),
		unreadybeforereplace.Labs(),
	)
}
