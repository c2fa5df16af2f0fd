// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package symptoms

// told are the messages and the reasons of events. A test checks that each is on its page, and fails
// if the page words it differently or no longer has it.
var told = []Symptom{
	{Message, "Container spec hash changed", "the kubelet recreates a container because the hash of its spec differs", "patches/container-hash-compat/README.md"},
	{Message, "Checksum of checkpoint … is not valid, removing checkpoint", "a kubelet deletes the record of host ports that an older kubelet wrote", "patches/checkpoint-compat/README.md"},
	{Message, "Kubenet needs a PodCIDR to tear down pods", "kubenet could not stop a sandbox, because the kubelet had just started and had not received the node's PodCIDR yet", "patches/checkpoint-compat/README.md"},
	{Message, "image is locked by other nodes", "an RBD image has a lock, or another node has it open", "patches/rbd-attach/README.md"},
	{Message, "still being used", "an RBD image has a watcher: a node has it open", "patches/rbd-attach/README.md"},
	{Message, "device is empty", "a volume that is no longer mounted is never detached", "patches/rbd-detach/README.md"},
	{Message, "Multi-Attach error", "Kubernetes 1.9 treats two images with the same name in two pools as one volume", "docs/user/rbd.md"},
	{Message, "cni config uninitialized", "the node has no usable CNI configuration", "patches/cni-plugin-name/README.md"},
	{Message, "volume paths are still present", "an empty volume directory keeps the directory of a pod that is gone", "patches/orphaned-volume-dirs/README.md"},
	{Message, "is already in use by container", "docker refuses a container's name because a dead container has it", "patches/docker-name-conflict/README.md"},
	{Message, "Forbidden: Cannot change NodeName for … to", "the API server refuses an update of Endpoints because a node was renamed", "patches/endpoints-node-name/README.md"},
	{Message, "Dropping service … out of the queue", "the controller manager gave up on the Endpoints of a Service", "patches/endpoints-stale-cache/README.md"},
	{Message, "Unable to mark all pods NotReady on node", "pods of a dead node may stay ready because a request failed", "patches/dead-node-pods-retry/README.md"},
	{Message, "container runtime is down", "shortly after a kubelet's start, this means that the kubelet sent its first status before it had checked the runtime", "patches/node-ready-across-restart/README.md"},
	{Message, "PLEG is not healthy", "shortly after a kubelet's start, this means that the kubelet sent its first status before it had listed the containers", "patches/node-ready-across-restart/README.md"},
	{Message, "cannot allocate memory", "on el7 kernels, kernel memory accounting of pods has used up the kernel's memory cgroups", "patches/kmem-off/README.md"},
	{Message, "the volume plugin panicked", "Holdfast turned a panic of a volume plugin into an error of that volume", "patches/volume-plugin-panic/README.md"},
	{Message, "was there already … and is replaced", "when the process created a log file, a file of that name existed already", "patches/glog-no-follow/README.md"},
	{Message, "The kubelet before this one:", "the line says which kubelet Holdfast replaced on this node", "docs/design/differences.md"},
	{Message, "A SPDY frame of exec, attach or port-forward announces", "a client sent a frame that is larger than Holdfast accepts", "patches/spdy-frame-limits/README.md"},
	{Message, "The healthz port refuses /debug/pprof/", "a client requested a profile from the healthz port", "patches/healthz-no-pprof/README.md"},
	{Message, "Got back invalid token", "a token for a registry could not be used", "patches/log-credentials/README.md"},
	{Event, "MatchNodeSelector", "a kubelet that started failed a pod because the node's labels no longer match the pod", "patches/admission-across-restart/README.md"},
	{Event, "OutOfcpu", "a kubelet that started failed a pod because the node reserves more resources than before", "patches/admission-across-restart/README.md"},
	{Event, "UnexpectedAdmissionError", "a kubelet that started failed a pod because a file of the device manager could not be written", "patches/admission-across-restart/README.md"},
	{Event, "FailedDaemonPod", "a DaemonSet's pod failed on one node, which can stop the update on all nodes", "patches/daemonset-failed-pod-rollout/README.md"},
	{Event, "NodeNotReady", "a node was published as not ready; check whether its kubelet had just started", "patches/node-ready-across-restart/README.md"},
	{Event, "RevisionNameConflict", "another object already has the name of a DaemonSet's next revision", "patches/hash-collision/README.md"},
	{Event, "ReplicaSetNameConflict", "another object already has the name of a Deployment's next ReplicaSet", "patches/hash-collision/README.md"},
	{Event, "RBDLockKept", "an old lock of an RBD image could not be released", "patches/rbd-detach/README.md"},
	{Event, "RBDLockRemoved", "a lock without a watcher was removed from an RBD image", "patches/rbd-attach/README.md"},
	{Event, "RBDLeftoverKept", "an earlier kubelet left an RBD image mapped, and Holdfast leaves it mapped", "patches/rbd-detach/README.md"},
	{Event, "RBDLeftoverDetached", "Holdfast detached an RBD image that an earlier kubelet had left mapped", "patches/rbd-detach/README.md"},
	{Event, "RBDDeviceKept", "an RBD device stays mapped after a mount that failed", "patches/rbd-detach/README.md"},
	{Event, "RBDCommandSlow", "`rbd map` or `rbd unmap` has run for a minute or more; udevd may be missing", "docs/user/rbd.md"},
	{Event, "UnreadyBeforeReplace", "a container is made not ready because it will be replaced", "patches/unready-before-replace/README.md"},
	{Event, "UnreadyNotAcknowledged", "a container is replaced although the API server did not confirm that it is not ready", "patches/unready-before-replace/README.md"},
	{Event, "InvalidReplaceAnnotation", "an annotation of a pod that controls the replacement has an invalid value; Holdfast ignores it", "patches/unready-before-replace/README.md"},
}

// counts says what a metric counts or shows whose page says it in a sentence and not in a table.
var counts = map[string]string{
	"holdfast_endpoints_node_name_moved_total":                 "Endpoints that were written in two steps because an address moved to another node",
	"holdfast_gc_foreign_owner_kept_total":                     "cases in which the garbage collector looked up an owner, or kept it, where upstream would have used the result for another reference",
	"holdfast_healthz_no_pprof_refused_total":                  "requests to the healthz port that Holdfast refused and upstream would have served",
	"holdfast_kcm_silent_connection_closed_total":              "connections to the API server that were closed because no ping was answered",
	"holdfast_localnet_firewall_rules_added_total":             "how often the firewall rule was missing and the kubelet added it",
	"holdfast_metrics_method_label_unknown_total":              "requests for `/metrics` with an HTTP method that is not standard",
	"holdfast_orphaned_volume_dirs_removed_total":              "empty volume directories of deleted pods that the kubelet removed",
	"holdfast_predecessor_info":                                "always 1; the labels name the release of the kubelet that Holdfast replaced, and how Holdfast found it out",
	"holdfast_predecessor_override_refused":                    "1 if the override file is invalid and ignored, otherwise 0",
	"holdfast_predecessor_save_failed_total":                   "failed attempts to write `holdfast-predecessor.json`",
	"holdfast_protobuf_decode_guard_malformed_total":           "malformed protobuf messages; each one caused only an error of its request or watch",
	"holdfast_provision_error_redaction_redacted_total":        "errors of volume plugins from which the server's answer was removed",
	"holdfast_provision_error_redaction_would_redact_total":    "with the gate off: errors from which the server's answer would have been removed",
	"holdfast_static_pod_identity_kept_total":                  "static pods that kept the UID that an older kubelet gave them",
	"holdfast_storageos_device_path_refused_directories_total": "device directories of StorageOS servers that were refused, on base v1.12.10",
	"holdfast_storageos_device_path_refused_total":             "volume IDs of StorageOS servers that were refused",
	"holdfast_volume_plugin_panic_recovered_total":             "panics of volume plugins that became an error of one volume",
}
