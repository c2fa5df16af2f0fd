// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package symptoms

// told are the messages and the reasons of events. A test holds that each is on its page: a page
// that says it otherwise, or no more, makes the test fail.
var told = []Symptom{
	{Message, "Container spec hash changed", "the kubelet recreates a container because the hash of its spec differs", "patches/container-hash-compat/README.md"},
	{Message, "Checksum of checkpoint … is not valid, removing checkpoint", "a kubelet deletes the host ports that an older one recorded", "patches/checkpoint-compat/README.md"},
	{Message, "Kubenet needs a PodCIDR to tear down pods", "a sandbox was stopped in the first second after the kubelet's start", "patches/checkpoint-compat/README.md"},
	{Message, "image is locked by other nodes", "an RBD image has a lock, or another node has it open", "patches/rbd-attach/README.md"},
	{Message, "still being used", "an RBD image has a watcher: a node has it open", "patches/rbd-attach/README.md"},
	{Message, "device is empty", "a volume that is no longer mounted is never detached", "patches/rbd-detach/README.md"},
	{Message, "Multi-Attach error", "two images of one name in two pools are one volume for Kubernetes 1.9", "docs/user/rbd.md"},
	{Message, "cni config uninitialized", "the node has no usable CNI configuration", "patches/cni-plugin-name/README.md"},
	{Message, "volume paths are still present", "an empty volume directory keeps the directory of a pod that is gone", "patches/orphaned-volume-dirs/README.md"},
	{Message, "is already in use by container", "docker refuses a container's name because a dead container has it", "patches/docker-name-conflict/README.md"},
	{Message, "Forbidden: Cannot change NodeName for … to", "the API server refuses an update of Endpoints because a node was renamed", "patches/endpoints-node-name/README.md"},
	{Message, "Dropping service … out of the queue", "the controller manager gave up on the Endpoints of a Service", "patches/endpoints-stale-cache/README.md"},
	{Message, "Unable to mark all pods NotReady on node", "pods of a dead node may stay ready because a request failed", "patches/dead-node-pods-retry/README.md"},
	{Message, "container runtime is down", "shortly after a kubelet's start: the first status was sent before the runtime was asked", "patches/node-ready-across-restart/README.md"},
	{Message, "PLEG is not healthy", "shortly after a kubelet's start: the first status was sent before the containers were listed", "patches/node-ready-across-restart/README.md"},
	{Message, "cannot allocate memory", "on el7 kernels: kernel memory accounting of pods has used up the node's groups", "patches/kmem-off/README.md"},
	{Message, "the volume plugin panicked", "Holdfast turned a panic of a volume plugin into an error of that volume", "patches/volume-plugin-panic/README.md"},
	{Message, "was there already … and is replaced", "a log file's name was taken when the process created it", "patches/glog-no-follow/README.md"},
	{Message, "The kubelet before this one:", "which kubelet Holdfast replaced on this node", "docs/design/differences.md"},
	{Message, "A SPDY frame of exec, attach or port-forward announces", "a client sent a frame that is larger than Holdfast accepts", "patches/spdy-frame-limits/README.md"},
	{Message, "The healthz port refuses /debug/pprof/", "somebody asked the healthz port for a profile", "patches/healthz-no-pprof/README.md"},
	{Message, "Got back invalid token", "a token for a registry could not be used", "patches/log-credentials/README.md"},
	{Event, "MatchNodeSelector", "a kubelet start failed a pod whose node has other labels now", "patches/admission-across-restart/README.md"},
	{Event, "OutOfcpu", "a kubelet start failed a pod that no longer fits the node's reserves", "patches/admission-across-restart/README.md"},
	{Event, "UnexpectedAdmissionError", "a kubelet start failed a pod because a file of the device manager could not be written", "patches/admission-across-restart/README.md"},
	{Event, "FailedDaemonPod", "a node fails its pod of a DaemonSet, which can stop the update of all nodes", "patches/daemonset-failed-pod-rollout/README.md"},
	{Event, "NodeNotReady", "a node was published as not ready; look whether its kubelet had just started", "patches/node-ready-across-restart/README.md"},
	{Event, "RevisionNameConflict", "the name of a DaemonSet's next revision is taken by something else", "patches/hash-collision/README.md"},
	{Event, "ReplicaSetNameConflict", "the name of a Deployment's next ReplicaSet is taken by something else", "patches/hash-collision/README.md"},
	{Event, "RBDLockKept", "an old lock of an RBD image could not be released", "patches/rbd-detach/README.md"},
	{Event, "RBDLockRemoved", "a lock without a watcher was removed from an RBD image", "patches/rbd-attach/README.md"},
	{Event, "RBDLeftoverKept", "an earlier kubelet left an RBD image mapped, and it stays so", "patches/rbd-detach/README.md"},
	{Event, "RBDLeftoverDetached", "Holdfast detached what an earlier kubelet had left mapped", "patches/rbd-detach/README.md"},
	{Event, "RBDDeviceKept", "a device stays mapped after a mount that failed", "patches/rbd-detach/README.md"},
	{Event, "RBDCommandSlow", "`rbd map` or `rbd unmap` has run for a minute or more; udevd may be missing", "docs/user/rbd.md"},
	{Event, "UnreadyBeforeReplace", "a container is made not ready because it will be replaced", "patches/unready-before-replace/README.md"},
	{Event, "UnreadyNotAcknowledged", "a container is replaced although the API server did not confirm that it is not ready", "patches/unready-before-replace/README.md"},
	{Event, "InvalidReplaceAnnotation", "a pod's annotation for replacements has a value that is ignored", "patches/unready-before-replace/README.md"},
}
