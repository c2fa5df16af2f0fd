// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

// forecastCodes are the codes of forecast. node check gives some of them, too.
var forecastCodes = []Code{
	{
		Code: "HF002", Level: Unknown, Title: "a request to the API server or to a node's kubelet failed", By: []string{"forecast", "verify", "doctor"},
		About: []string{
			"The command sends requests to the API server, and through the API server to the nodes' kubelets. At least one request failed; the finding names what the command could not read. If the request was for a kubelet, there are three possible causes: the kubelet is down, the user is not allowed to use the node's `proxy` subresource, or the kubelet runs with `--enable-debugging-handlers=false`. It is possible that there are faults that the command could not see.",
			"The user of `forecast` and `verify` needs the verbs `get` and `create` on `nodes/proxy`, and `get` and `list` on nodes, pods, endpoints and persistentvolumes. `doctor --rbac` prints the roles that doctor needs.",
		},
	},
	{
		Code: "HF003", Level: Unknown, Title: "it is not known which kubelet would run on the node after the swap, or which flags that kubelet has", By: []string{"forecast"},
		About: []string{"With `--to back`, there are three possible causes: the node does not run Holdfast, its kubelet does not report which kubelet Holdfast replaced, or Holdfast did not replace a kubelet. In these cases name a release, such as `--to v1.7.16`. With any `--to`, it is also possible that the target is a release older than 1.7: the program has no table of flags for such releases."},
	},
	{
		Code: "HF101", Level: Stop, Title: "the target kubelet does not support a flag or a feature gate on the command line of the node's kubelet", By: []string{"forecast", "node check"},
		About: []string{
			"The kubelet's command line contains a flag or a feature gate that the target does not support. The target exits at once, and again at each restart, so the node has no kubelet. The node's pods keep running, but after five minutes the controller manager begins to evict them.",
			"First remove the flag or the gate from the unit. [The table of flags](flags-1.7-to-1.9.md) says which release accepts which flags.",
		},
	},
	{
		Code: "HF102", Level: Stop, Title: "the target kubelet would run without an API server, and kill every pod that is not static", By: []string{"forecast", "node check"},
		About: []string{
			"A kubelet whose command line names no API server runs standalone: it runs only its static pods and **kills every other pod of the node** within seconds of its start. Kubelets from 1.8 on refuse `--api-servers`, and find the API server by `--kubeconfig` or `--require-kubeconfig`. If the unit has neither `--kubeconfig` nor `--require-kubeconfig`, such a kubelet runs standalone.",
			"A 1.7 kubelet uses an API server only with `--require-kubeconfig` or `--api-servers`: with `--kubeconfig` alone it also runs standalone. Give the unit `--kubeconfig=FILE --require-kubeconfig=true` before the swap: all releases from 1.7 to 1.9 accept both flags.",
		},
	},
	{
		Code: "HF103", Level: Stop, Title: "the release of the new kubelet or controller manager does not fit the API server's release", By: []string{"forecast", "kcm check"},
		About: []string{"Upstream supports kubelets of the API server's minor release and of the two minor releases before it. `kcm check` requires that the controller manager and the API server have the same minor release. A component that is newer than the API server can use features that the API server does not have. Upgrade the API server first. [fleet](fleet.md) never swaps to a kubelet whose minor release is newer than the API server's."},
	},
	{
		Code: "HF104", Level: Stop, Title: "Holdfast refuses the API server's certificate", By: []string{"forecast", "kcm check", "node check"},
		About: []string{
			"Programs built with today's Go, such as Holdfast, refuse a server certificate without subjectAltName. They also refuse a certificate that is signed with SHA-1 or MD5, unless it is a root certificate. Holdfast's kubelet would start but never reach the API server, so the node would become NotReady. Holdfast's controller manager would never become leader.",
			"`forecast` checks the certificates that it receives from the API server. If kubelets use another address or load balancer to reach the API server, check the certificate of that address too. If `forecast` itself cannot connect because of the certificate, it reads the certificate over a connection without credentials.",
		},
	},
	{
		Code: "HF105", Level: Stop, Also: []Level{Warn}, Title: "the node is short of disk or memory, so the target kubelet would evict pods or set them to `Failed`", By: []string{"forecast", "node check"},
		About: []string{
			"The node has the condition DiskPressure or MemoryPressure, or its free disk space or memory is below an eviction threshold of the target. When a stock kubelet starts, it checks again whether each pod is allowed to run on its node. Under disk pressure it **sets every pod to `Failed` within seconds**; under memory pressure, it does so with each pod without requests and limits. Release 1.9 has a default threshold that older releases do not have: `imagefs.available<15%`.",
			"Holdfast keeps running pods ([admission-across-restart](../../patches/admission-across-restart/README.md)), so if Holdfast is the target, the finding is a warning: while the pressure lasts, Holdfast evicts one pod at a time, by rank. But a static pod that restarts ([HF203](#hf203)) counts as a new pod, and under disk pressure Holdfast refuses new pods. So if the node has such a static pod, the finding is a STOP.",
		},
	},
	{
		Code: "HF201", Level: New, Title: "the swap recreates a container", By: []string{"forecast"},
		About: []string{
			"The target does not accept the hash that an earlier kubelet recorded for the container, so the target kills and recreates the container soon after the swap. The finding says which release recorded the hash and which field or image differs. [container-hash-compat](../../patches/container-hash-compat/README.md) explains which hashes Holdfast accepts.",
			"`(estimate: …)` means that the kubelet did not return the recorded hash. In this case `forecast` assumes that the running kubelet recorded it.",
		},
	},
	{
		Code: "HF202", Level: New, Title: "going back recreates a container", By: []string{"forecast"},
		About: []string{"The kubelet that you go back to does not accept the hash that is recorded for the container ([HF201](#hf201)). With `--to back`, this swap recreates the container. With `--to holdfast`, the container is recreated only if you later swap back to the kubelet that runs now."},
	},
	{
		Code: "HF203", Level: New, Title: "the swap restarts a static pod", By: []string{"forecast"},
		About: []string{"A kubelet computes the UID of a static pod from a dump of the pod, and the dump depends on the kubelet's minor release. So a kubelet of another minor release gives the pod another UID, and restarts the whole pod. A stock 1.9 kubelet gives the pod the UID of 1.9, so it also restarts static pods that Holdfast keeps under an older UID. If a manifest sets `metadata.uid`, every kubelet uses that UID. Swap masters one at a time.",
			"Holdfast keeps static pods that a 1.7 or 1.8 kubelet started ([static-pod-identity](../../patches/static-pod-identity/README.md)), unless the manifest sets a field that the older kubelet does not support. `forecast` cannot see such a field. When the kubelet that ran before Holdfast takes over again, it keeps the static pods that it started, and also those that Holdfast started. `forecast` cannot find out the UID of a static pod, so `verify` does not compare static pods."},
	},
	{
		Code: "HF204", Level: Stop, Title: "a pod mounts a subPath of a claim, and the target kubelet names such mount directories differently: it can delete the volume's data", By: []string{"forecast"},
		About: []string{"Kubelets 1.7.14–1.7.15, 1.8.9–1.8.10 and 1.9.4–1.9.6 give the mount directories of such subPaths other names than the later kubelets do (kubernetes/kubernetes#61373). So a later kubelet can leave a mount under the old name in place. When it then removes the pod's directory, it can delete the volume's data through this mount (#72257). Drain the pod from the node first."},
	},
	{
		Code: "HF205", Level: Stop, Also: []Level{Warn}, Title: "the target kubelet deletes the files in subPath mounts that the running kubelet made", By: []string{"forecast"},
		About: []string{"Kubelets 1.6 and older, 1.7.0 to 1.7.13, 1.8.0 to 1.8.8, and 1.9.0 to 1.9.3 do not unmount the bind mounts that later kubelets make for a `subPath`. When the pod is gone, such a kubelet deletes the files in these mounts: see [subpath-rollback](../../patches/subpath-rollback/README.md). Holdfast unmounts its bind mounts once the container runs. So if Holdfast runs now, the finding is a warning: only mounts that are busy can be left."},
	},
	{
		Code: "HF206", Level: Stop, Also: []Level{Warn}, Title: "the node's labels no longer match the node selector or affinity of a running pod", By: []string{"forecast"},
		About: []string{"When a stock kubelet starts, it sets a running pod to `Failed` for good if the node's labels no longer match its `nodeSelector` or its required node affinity. Holdfast [keeps such a pod](../../patches/admission-across-restart/README.md), so if Holdfast is the target, the finding is a warning."},
	},
	{
		Code: "HF207", Level: Unknown, Title: "forecast could not find out whether the target kubelet keeps a container", By: []string{"forecast"},
		About: []string{"The container runs. Either `forecast` could not read the hash that is recorded for the container, or it cannot compute the hash that the target would record. The finding says which of the two."},
	},
	{
		Code: "HF301", Level: Warn, Title: "after the swap a gitRepo volume is refused, or a host port is not released", By: []string{"forecast"},
		About: []string{
			"The pod has a `gitRepo` volume that Holdfast refuses ([gitrepo-hardening](../../patches/gitrepo-hardening/README.md)): the pod keeps running, but a new pod with this volume does not start.",
			"Or the pod has host ports, and a 1.7 kubelet started it. Stock 1.8 and 1.9 remove the sandbox checkpoint that 1.7 wrote for the pod, so with kubenet or CNI the host ports are not released when the pod is deleted. Holdfast [accepts this checkpoint](../../patches/checkpoint-compat/README.md).",
		},
	},
	{
		Code: "HF302", Level: Warn, Title: "the swap can let two nodes mount the same RBD image, or kill the daemon of a GlusterFS or FlexVolume volume", By: []string{"forecast"},
		About: []string{
			"The finding names an RBD volume if the swap replaces a kubelet up to 1.8 with a 1.9 kubelet. Afterwards, nodes that still have kubelets up to 1.8 can mount an RBD image while the 1.9 node has it mounted. With `--feature-gates=RBDLegacyLock=true`, Holdfast takes the lock that old kubelets check: see [RBD volumes](rbd.md).",
			"The finding names a GlusterFS volume of a 1.7 kubelet, or a FlexVolume, because it is possible that the volume's daemon is in the cgroup of the kubelet's unit. In this case systemd kills the daemon when it stops the kubelet. `node check` looks for such daemons ([HF507](#hf507)).",
			"`forecast` reads the type of a claim's volume from its PersistentVolume, so the user needs the verb `list` on persistentvolumes.",
		},
	},
	{
		Code: "HF401", Level: Warn, Title: "after the swap a Service has no ready address for some time", By: []string{"forecast"},
		About: []string{
			"All ready addresses of the Service belong to pods of one node, and for some time after the swap none of these pods is ready. Either the swap recreates the pods' containers, or the pods have a readiness probe and the target is a stock kubelet, which publishes the pods as not ready until the first result of the probe. The time in the finding is the longest time that a healthy pod's readiness probe can take until its first result.",
			"`forecast` considers each node separately, and prints batches of nodes that you can swap together. If you keep to these batches, every Service without an HF401 keeps a ready address.",
		},
	},
	{
		Code: "HF601", Level: Stop, Title: "a container was recreated although forecast had predicted that it would be kept", By: []string{"verify"},
		About: []string{"The forecast predicted that the swap would keep the container. Now another container of the same pod and name runs, or no container of this name runs in the pod. You also see this finding if the container exited by itself, if it failed its liveness probe, or if its image was changed: check the pod's events."},
	},
	{
		Code: "HF602", Level: Warn, Title: "a container was kept although forecast had predicted that it would be recreated", By: []string{"verify"},
		About: []string{"Either the forecast was wrong, the kubelet has not synced the pod yet, or the kubelet was not swapped."},
	},
}
