// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package symptoms

// told are the messages and the reasons of events. A test checks that each is on its page, and fails
// if the page words it differently or no longer has it.
var told = []Symptom{
	{Message, "Container spec hash changed", "the kubelet recreates a container because the hash of its spec differs", "patches/container-hash-compat/README.md"},
	{Message, "Checksum of checkpoint … is not valid, removing checkpoint", "a 1.8 or 1.9 kubelet deletes a sandbox checkpoint that an older kubelet wrote, so the pod's host ports are not released", "patches/checkpoint-compat/README.md"},
	{Message, "Kubenet needs a PodCIDR to tear down pods", "kubenet could not stop a sandbox, because the kubelet had just started and had not received the node's PodCIDR yet", "patches/checkpoint-compat/README.md"},
	{Message, "image is locked by other nodes", "an RBD image has a lock, or another node has it open", "patches/rbd-attach/README.md"},
	{Message, "still being used", "an RBD image has a watcher: a node has it open", "patches/rbd-attach/README.md"},
	{Message, "device is empty", "an earlier detach of an RBD volume failed half-way, and an upstream kubelet cannot complete it", "patches/rbd-detach/README.md"},
	{Message, "Multi-Attach error", "Kubernetes 1.9 treats two images with the same name in two pools as one volume", "docs/user/rbd.md"},
	{Message, "cni config uninitialized", "the node has no usable CNI configuration", "patches/cni-plugin-name/README.md"},
	{Message, "volume paths are still present", "the kubelet does not remove the directory of a pod that is gone, because it contains an empty volume directory", "patches/orphaned-volume-dirs/README.md"},
	{Message, "is already in use by container", "docker refuses the name of a new container because a dead container still has this name", "patches/docker-name-conflict/README.md"},
	{Message, "Forbidden: Cannot change NodeName for … to", "the API server refuses an update of Endpoints because a node was renamed", "patches/endpoints-node-name/README.md"},
	{Message, "Dropping service … out of the queue", "the controller manager could not update the Endpoints of a Service, and no longer tries", "patches/endpoints-stale-cache/README.md"},
	{Message, "Unable to mark all pods NotReady on node", "pods of a dead node may stay ready because a request failed", "patches/dead-node-pods-retry/README.md"},
	{Message, "container runtime is down", "if the kubelet has just started: the kubelet sent its first status before it had checked the container runtime", "patches/node-ready-across-restart/README.md"},
	{Message, "PLEG is not healthy", "if the kubelet has just started: the kubelet sent its first status before it had listed the containers", "patches/node-ready-across-restart/README.md"},
	{Message, "cannot allocate memory", "on el7 kernels, kernel memory accounting of pods has used up the kernel's memory cgroups", "patches/kmem-off/README.md"},
	{Message, "the volume plugin panicked", "Holdfast turned a panic of a volume plugin into an error of that volume", "patches/volume-plugin-panic/README.md"},
	{Message, "was there already … and is replaced", "the process replaced an existing file, FIFO or symlink that had the name of its new log file", "patches/glog-no-follow/README.md"},
	{Message, "The kubelet before this one:", "this log line says which kubelet Holdfast replaced on the node", "docs/design/differences.md"},
	{Message, "A SPDY frame of exec, attach or port-forward announces", "a client sent a frame that is larger than Holdfast accepts", "patches/spdy-frame-limits/README.md"},
	{Message, "The healthz port refuses /debug/pprof/", "a client requested a profile from the healthz port", "patches/healthz-no-pprof/README.md"},
	{Message, "Got back invalid token", "a token for Google's registry was invalid or could not be parsed; Holdfast keeps it out of the log", "patches/log-credentials/README.md"},
	{Event, "MatchNodeSelector", "when a kubelet started, it set a pod to `Failed` because the node's labels no longer match the pod's node selector or affinity", "patches/admission-across-restart/README.md"},
	{Event, "OutOfcpu", "when a kubelet started, it set a pod to `Failed` because the node reserves more CPU than before", "patches/admission-across-restart/README.md"},
	{Event, "UnexpectedAdmissionError", "when a kubelet started, it set a pod to `Failed` because it could not write a file of the device manager", "patches/admission-across-restart/README.md"},
	{Event, "FailedDaemonPod", "a DaemonSet's pod failed on one node, which can stop the DaemonSet's rolling update on all nodes", "patches/daemonset-failed-pod-rollout/README.md"},
	{Event, "NodeNotReady", "a node became NotReady; check whether its kubelet had just started", "patches/node-ready-across-restart/README.md"},
	{Event, "RevisionNameConflict", "another ControllerRevision already has the name of a DaemonSet's next revision", "patches/hash-collision/README.md"},
	{Event, "ReplicaSetNameConflict", "another ReplicaSet already has the name of a Deployment's next ReplicaSet", "patches/hash-collision/README.md"},
	{Event, "RBDLockKept", "Holdfast could not release an old lock (`kubelet_lock_magic_…`) of an RBD image", "patches/rbd-detach/README.md"},
	{Event, "RBDLockRemoved", "Holdfast removed a lock from an RBD image that no node had open", "patches/rbd-attach/README.md"},
	{Event, "RBDLeftoverKept", "an earlier kubelet left an RBD image mapped; Holdfast did not unmap it, because `RBDDetachLeftovers` is off or the device is busy", "patches/rbd-detach/README.md"},
	{Event, "RBDLeftoverDetached", "Holdfast detached an RBD image that an earlier kubelet had left mapped", "patches/rbd-detach/README.md"},
	{Event, "RBDDeviceKept", "an RBD device stays mapped after a mount that failed", "patches/rbd-detach/README.md"},
	{Event, "RBDCommandSlow", "`rbd map` or `rbd unmap` has run for a minute or more; udevd may be missing", "docs/user/rbd.md"},
	{Event, "UnreadyBeforeReplace", "Holdfast marks a container as not ready because it will replace the container", "patches/unready-before-replace/README.md"},
	{Event, "UnreadyNotAcknowledged", "the kubelet replaced a container before the API server had acknowledged that the container is not ready", "patches/unready-before-replace/README.md"},
	{Event, "InvalidReplaceAnnotation", "a pod has an annotation `holdfast/drain-seconds` or `holdfast/replace-at-once` with an invalid value, which Holdfast ignores", "patches/unready-before-replace/README.md"},
}

// counts says what a metric counts or shows whose page says it in a sentence and not in a table.
var counts = map[string]string{
	"holdfast_endpoints_node_name_moved_total":                 "Endpoints objects that the controller manager wrote in two steps because an address moved to another node",
	"holdfast_gc_foreign_owner_kept_total":                     "how often the garbage collector looked up an owner, or kept an owner's dependents, although a lookup for another reference with the same UID had found nothing",
	"holdfast_healthz_no_pprof_refused_total":                  "requests to the healthz port that Holdfast refused and upstream would have served",
	"holdfast_kcm_silent_connection_closed_total":              "connections to the API server that the controller manager closed because the API server answered no ping",
	"holdfast_localnet_firewall_rules_added_total":             "how often the kubelet added the iptables rule that drops packets from elsewhere to 127.0.0.0/8, because the rule was missing",
	"holdfast_metrics_method_label_unknown_total":              "requests for `/metrics` with an HTTP method that is not standard",
	"holdfast_orphaned_volume_dirs_removed_total":              "empty volume directories of deleted pods that the kubelet removed",
	"holdfast_predecessor_info":                                "always 1; the labels name the release of the kubelet that Holdfast replaced, and how Holdfast found it out",
	"holdfast_predecessor_override_refused":                    "1 if the file `holdfast-predecessor-override` is invalid and the kubelet ignores it, otherwise 0",
	"holdfast_predecessor_save_failed_total":                   "failed attempts to write `holdfast-predecessor.json`, which records the kubelet that ran before Holdfast",
	"holdfast_protobuf_decode_guard_malformed_total":           "malformed protobuf messages that Holdfast received; each one caused only an error of its request or watch",
	"holdfast_provision_error_redaction_redacted_total":        "errors of volume plugins from which Holdfast removed the response of the storage server",
	"holdfast_provision_error_redaction_would_redact_total":    "with the gate off: errors of volume plugins from which Holdfast would have removed the response of the storage server",
	"holdfast_static_pod_identity_kept_total":                  "static pods that kept the UID that an older kubelet gave them",
	"holdfast_storageos_device_path_refused_directories_total": "device directories that a StorageOS server returned and Holdfast rejected; only on base v1.12.10",
	"holdfast_storageos_device_path_refused_total":             "volume IDs that a StorageOS server returned and Holdfast rejected",
	"holdfast_volume_plugin_panic_recovered_total":             "panics of volume plugins that Holdfast turned into an error of one volume",
}
