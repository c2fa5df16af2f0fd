// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

// forecastCodes are the codes of forecast. node check gives some of them, too.
var forecastCodes = []Code{
	{
		Code: "HF002", Level: Unknown, Title: "the node did not respond, or responded only to some requests", By: []string{"forecast", "doctor"},
		About: []string{
			"The node's kubelet did not respond through the API server, or not to all requests. There are three possible causes: the kubelet is down, the user is not allowed to use the node's `proxy` subresource, or the kubelet runs with `--enable-debugging-handlers=false`. There may be faults that the command could not see.",
			"The finding names what failed. The user needs the verbs `get` and `create` on `nodes/proxy`, and `get` and `list` on nodes, pods, services and endpoints.",
		},
	},
	{
		Code: "HF003", Level: Unknown, Title: "the target of a node is not known", By: []string{"forecast"},
		About: []string{"With `--to back`: the node does not run Holdfast, its kubelet does not report which kubelet Holdfast replaced, or Holdfast did not replace one. Give `--to` a release instead. Another possible reason is that the release is older than 1.7: the program has no table of flags for such releases."},
	},
	{
		Code: "HF101", Level: Stop, Title: "the target refuses the command line", By: []string{"forecast", "node check"},
		About: []string{
			"The kubelet's command line contains a flag or a feature gate that the target does not support. The target exits at once, and again at each restart, so the node has no kubelet. Its pods keep running, but after five minutes the controller manager begins to evict them.",
			"First remove the flag or the gate from the unit. [The table of flags](flags-1.7-to-1.9.md) says which release accepts which flags.",
		},
	},
	{
		Code: "HF102", Level: Stop, Title: "the target would run standalone and kill every pod", By: []string{"forecast", "node check"},
		About: []string{
			"A kubelet whose command line names no API server runs standalone: it runs only its static pods and **kills every other pod of the node** within seconds of its start. Kubelets from 1.8 on find the API server by `--kubeconfig` or `--require-kubeconfig`, and refuse `--api-servers`. If you only remove `--api-servers`, the command line names no API server.",
			"1.7 is different: with `--kubeconfig` alone it runs standalone. It needs `--require-kubeconfig` or `--api-servers`. Give the unit `--kubeconfig=FILE --require-kubeconfig=true` before the swap: all releases from 1.7 to 1.9 accept both flags.",
		},
	},
	{
		Code: "HF103", Level: Stop, Title: "the releases of the target and of the API server are too far apart", By: []string{"forecast", "kcm check"},
		About: []string{"Upstream supports kubelets of the API server's minor release and of the two minor releases before it. For a controller manager, `kcm check` requires the API server's own minor release. A newer component uses features that an older API server does not have. Upgrade the control plane first. [fleet](fleet.md) does not swap to a kubelet that is newer than the API server either."},
	},
	{
		Code: "HF104", Level: Stop, Title: "Holdfast refuses the API server's certificate", By: []string{"forecast", "kcm check", "node check"},
		About: []string{
			"Programs built with today's Go refuse a server certificate without subjectAltName, and every signature with SHA-1 or MD5 except that of a root. The kubelet would start but never reach the API server, so the node would become NotReady. A controller manager would never become leader.",
			"`forecast` checks the certificates that the server sends it. If kubelets reach the API server by another address or load balancer, check there too. If `forecast` itself cannot connect because of the certificate, it checks over a connection that carries no credentials.",
		},
	},
	{
		Code: "HF105", Level: Stop, Also: []Level{Warn}, Title: "the node is under pressure, or below a threshold of the target", By: []string{"forecast"},
		About: []string{
			"When a stock kubelet starts, it checks again whether each pod may run on its node. Under disk pressure it **sets every pod to `Failed` within seconds**; under memory pressure, each pod without requests and limits. From 1.9 on `imagefs.available<15%` is a default threshold; older releases do not have it.",
			"Holdfast keeps running pods ([admission-across-restart](../../patches/admission-across-restart/README.md)), so for Holdfast the finding is a warning: Holdfast evicts by rank, one pod at a time, while the pressure lasts. But a static pod that restarts ([HF203](#hf203)) is a new pod, and Holdfast refuses new pods too. So if there is such a static pod, the finding is a STOP.",
		},
	},
	{
		Code: "HF201", Level: New, Title: "a container is recreated", By: []string{"forecast"},
		About: []string{
			"The target does not accept the hash that is recorded for the container. It kills and recreates the container soon after the swap. The finding says which release recorded the hash and which field or image differs. [container-hash-compat](../../patches/container-hash-compat/README.md) lists the rules.",
			"`(estimate: …)` means that the kubelet did not return the recorded hash. In this case `forecast` assumes that the running kubelet recorded it.",
		},
	},
	{
		Code: "HF202", Level: New, Title: "a container is recreated when you go back", By: []string{"forecast"},
		About: []string{"This is the same as [HF201](#hf201), but for going back. With `--to back` the container is recreated in this swap. With `--to holdfast` it is recreated only if you later swap back to the kubelet that runs now."},
	},
	{
		Code: "HF203", Level: New, Title: "a static pod restarts", By: []string{"forecast"},
		About: []string{"A kubelet computes the UID of a static pod from a dump of the pod in its release's own types. So another minor release gives the pod another UID, and restarts the whole pod. A stock 1.9 kubelet gives the pod the UID of 1.9, so it restarts static pods that Holdfast keeps under an older UID. If a manifest sets `metadata.uid`, the pod keeps that UID. Swap masters one at a time.",
			"Holdfast keeps what a 1.7 or 1.8 kubelet started ([static-pod-identity](../../patches/static-pod-identity/README.md)), unless the manifest sets a field that this kubelet does not support, which `forecast` cannot see. When the kubelet that ran before Holdfast takes over again, it keeps the static pods that it started, and also those that Holdfast started. `forecast` cannot find out which UID a static pod has, so `verify` does not compare static pods."},
	},
	{
		Code: "HF204", Level: Stop, Title: "a pod has a subPath on a claim, and the target uses another directory name", By: []string{"forecast"},
		About: []string{"1.7.14–1.7.15, 1.8.9–1.8.10 and 1.9.4–1.9.6 use another name for the directories of such mounts (kubernetes/kubernetes#61373). Mounts under the old name can be left over. When a kubelet removes the pod's directory, it can delete the volume's data through such a mount (#72257). Drain the pod from the node first."},
	},
	{
		Code: "HF205", Level: Stop, Also: []Level{Warn}, Title: "the target deletes files behind subPath mounts", By: []string{"forecast"},
		About: []string{"Kubelets before 1.7.14, 1.8.9 and 1.9.4 do not handle the mounts that later kubelets make for a `subPath`. When the pod is gone, such a kubelet deletes the files in these mounts: see [subpath-rollback](../../patches/subpath-rollback/README.md). Holdfast unmounts its own mounts once the container runs. So if Holdfast runs now, the finding is a warning: only busy mounts can be left."},
	},
	{
		Code: "HF206", Level: Stop, Also: []Level{Warn}, Title: "the node's labels no longer match a pod's node selector or affinity", By: []string{"forecast"},
		About: []string{"When a stock kubelet starts, it sets a running pod to `Failed` for good if the node's labels no longer match its `nodeSelector` or its required node affinity. Holdfast [keeps such a pod](../../patches/admission-across-restart/README.md), so for Holdfast the finding is a warning."},
	},
	{
		Code: "HF207", Level: Unknown, Title: "it is not known whether a container is kept", By: []string{"forecast"},
		About: []string{"The container runs. Either `forecast` could not find out its recorded hash, or it cannot compute the hash that the target would record. The finding says which."},
	},
	{
		Code: "HF301", Level: Warn, Title: "the target treats a volume or a host port differently", By: []string{"forecast"},
		About: []string{
			"The pod has a `gitRepo` volume that [gitrepo-hardening](../../patches/gitrepo-hardening/README.md) refuses: the pod keeps running, but a new pod with this volume does not start.",
			"Or the pod has host ports, and a 1.7 kubelet started it: stock 1.8 and 1.9 remove the pod's checkpoint, so with kubenet or CNI the ports are not released when the pod is deleted. Holdfast [reads the checkpoint](../../patches/checkpoint-compat/README.md).",
		},
	},
	{
		Code: "HF302", Level: Warn, Title: "another kubelet, or stopping the running kubelet, can damage a volume", By: []string{"forecast"},
		About: []string{
			"For an RBD volume on a node that is swapped from a kubelet up to 1.8 to a 1.9 kubelet: other nodes with kubelets up to 1.8 can mount an image while a 1.9 node has it mounted. Holdfast with `--feature-gates=RBDLegacyLock=true` takes the lock that old kubelets check: [RBD volumes](rbd.md).",
			"For a GlusterFS volume under 1.7, or a FlexVolume: the volume's daemon may be in the cgroup of the kubelet's unit. Then systemd kills the daemon together with the kubelet. `node check` looks for such daemons ([HF507](#hf507)).",
			"`forecast` reads the type of a claim's volume from its PersistentVolume, so the user needs the verb `list` on persistentvolumes.",
		},
	},
	{
		Code: "HF401", Level: Warn, Title: "a Service has no ready address for a while", By: []string{"forecast"},
		About: []string{
			"All ready addresses of the Service belong to pods of one node, and all these pods are not ready after the swap. Either they are recreated, or they have a readiness probe and the target is a stock kubelet, which publishes them as not ready until the first result of the probe. The time in the finding is the longest time that a working probe needs for its first result.",
			"`forecast` considers each node separately. If you swap several nodes in the batches that it prints, every Service without an HF401 keeps a ready address.",
		},
	},
	{
		Code: "HF601", Level: Stop, Title: "a container was recreated although forecast had predicted that it would be kept", By: []string{"verify"},
		About: []string{"The forecast predicted that the container would be kept, but now another container of that name runs, or none. You also see this finding if the container exited by itself, if it failed its liveness probe, or if its image was changed: check the pod's events."},
	},
	{
		Code: "HF602", Level: Warn, Title: "a container was kept although forecast had predicted that it would be recreated", By: []string{"verify"},
		About: []string{"Either the forecast was wrong, the kubelet has not synced the pod yet, or the kubelet was not swapped."},
	},
}
