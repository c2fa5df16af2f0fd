// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

// forecastCodes are the codes of forecast. node check gives some of them, too.
var forecastCodes = []Code{
	{
		Code: "HF002", Level: Unknown, Title: "the node did not answer, or answered only some questions", By: []string{"forecast", "doctor"},
		About: []string{
			"The node's kubelet did not answer through the API server, or did not answer all questions: it is down, the user may not use the node's proxy, or the kubelet runs with `--enable-debugging-handlers=false`. There may be faults that the command could not see.",
			"The text names what failed. The user needs the verbs `get` and `create` on `nodes/proxy`, and `get` and `list` on nodes, pods, services and endpoints.",
		},
	},
	{
		Code: "HF003", Level: Unknown, Title: "the target of a node is not known", By: []string{"forecast"},
		About: []string{"With `--to back`: the node does not run Holdfast, its kubelet does not say which kubelet ran before it, or none did. Give `--to` a release instead. Or the release is older than 1.7; the program has no table of its flags."},
	},
	{
		Code: "HF101", Level: Stop, Title: "the target refuses the command line", By: []string{"forecast", "node check"},
		About: []string{
			"The kubelet's command line has a flag or a feature gate that the target does not know. The target exits at once, and again at each restart, so the node has no kubelet. Its pods keep running, but after five minutes the controller manager begins to evict them.",
			"First remove the flag or the gate from the unit. [The table of flags](flags-1.7-to-1.9.md) says which release has which.",
		},
	},
	{
		Code: "HF102", Level: Stop, Title: "the target would run standalone and kill every pod", By: []string{"forecast", "node check"},
		About: []string{
			"A kubelet whose command line names no API server runs standalone: it knows only its static pods and **kills every other pod of the node** within seconds of its start. 1.8 and later find the API server by `--kubeconfig` or `--require-kubeconfig`. They refuse `--api-servers`. If you only remove that flag, the command line names no API server.",
			"1.7 differs: with `--kubeconfig` alone it runs standalone. It needs `--require-kubeconfig` or `--api-servers`. Give the unit `--kubeconfig=FILE --require-kubeconfig=true` before the swap: all releases from 1.7 to 1.9 accept both.",
		},
	},
	{
		Code: "HF103", Level: Stop, Title: "the target and the API server are too far apart", By: []string{"forecast", "kcm check"},
		About: []string{"Upstream supports kubelets of the API server's minor release and of the two before it, and a controller manager of the API server's own minor release. A newer component uses features that an older API server does not have. Upgrade the control plane first."},
	},
	{
		Code: "HF104", Level: Stop, Title: "Holdfast refuses the API server's certificate", By: []string{"forecast", "kcm check", "node check"},
		About: []string{
			"Programs built with today's Go refuse a server certificate without subjectAltName, and every signature with SHA-1 or MD5 except that of a root. The kubelet would start, never reach the API server, and the node would become NotReady; a controller manager would never lead.",
			"`forecast` checks the certificates that the server sends it. If kubelets reach the API server by another address or load balancer, check there too. If `forecast` itself cannot connect because of the certificate, it checks over a connection that carries no credentials.",
		},
	},
	{
		Code: "HF105", Level: Stop, Also: []Level{Warn}, Title: "the node is under pressure, or below a threshold of the target", By: []string{"forecast"},
		About: []string{
			"A stock kubelet that starts checks for each pod of its node whether it may be admitted. Under disk pressure it **fails every pod within seconds**; under memory pressure it fails each pod without requests and limits. From 1.9 on `imagefs.available<15%` is a default threshold; older releases do not have it.",
			"Holdfast keeps pods that run ([admission-across-restart](../../patches/admission-across-restart/README.md)), so for Holdfast it is a warning: Holdfast evicts by rank, one pod at a time, while the pressure lasts. Static pods that restart ([HF203](#hf203)) are new pods, and Holdfast refuses them too. So with such a static pod it is a STOP.",
		},
	},
	{
		Code: "HF201", Level: New, Title: "a container is recreated", By: []string{"forecast"},
		About: []string{
			"The target does not accept the hash that is recorded for the container. It kills and recreates the container soon after the swap. The text says who recorded the hash and which field or image differs. [container-hash-compat](../../patches/container-hash-compat/README.md) has the rules.",
			"`(estimate: …)`: the kubelet did not return the recorded hash. `forecast` assumes that the kubelet that runs now recorded it.",
		},
	},
	{
		Code: "HF202", Level: New, Title: "a container is recreated on the way back", By: []string{"forecast"},
		About: []string{"As [HF201](#hf201), but for going back. With `--to back` that is this swap. With `--to holdfast` it is a later swap back to the kubelet that runs now."},
	},
	{
		Code: "HF203", Level: New, Title: "a static pod restarts", By: []string{"forecast"},
		About: []string{"The UID of a static pod is a hash of a dump of the release's own types. Another minor release gives it another UID, and restarts it as a whole. Stock 1.9 gives the UID of 1.9, and so restarts what Holdfast keeps under an older UID. A manifest with `metadata.uid` keeps its own. Take masters one at a time.",
			"Holdfast keeps what a 1.7 or 1.8 kubelet started ([static-pod-identity](../../patches/static-pod-identity/README.md)), unless the manifest sets a field that this kubelet does not know, which `forecast` cannot see. The kubelet that started a pod keeps it when it comes back, and that which was on the node before Holdfast also keeps what Holdfast started. `forecast` cannot tell which UID a pod has, so `verify` does not compare these."},
	},
	{
		Code: "HF204", Level: Stop, Title: "a pod has a subPath on a claim, and the target uses another directory name", By: []string{"forecast"},
		About: []string{"1.7.14–1.7.15, 1.8.9–1.8.10 and 1.9.4–1.9.6 use another name for the directories of such mounts (kubernetes/kubernetes#61373). Mounts under the old name can be left over. When the pod's directory is removed, the volume's data can be deleted through them (#72257). Drain the pod from the node first."},
	},
	{
		Code: "HF205", Level: Stop, Also: []Level{Warn}, Title: "the target deletes files behind subPath mounts", By: []string{"forecast"},
		About: []string{"Kubelets before 1.7.14, 1.8.9 and 1.9.4 do not know the mounts that later kubelets make for a `subPath`. When the pod is gone, they delete the files behind these mounts: see [subpath-rollback](../../patches/subpath-rollback/README.md). Holdfast unmounts them once the container runs. So if Holdfast runs now, it is a warning: only busy mounts can be left."},
	},
	{
		Code: "HF206", Level: Stop, Also: []Level{Warn}, Title: "the node's labels no longer meet what a pod asks for", By: []string{"forecast"},
		About: []string{"A stock kubelet that starts fails a running pod for good if the node's labels no longer meet its `nodeSelector` or its required node affinity. Holdfast [keeps such a pod](../../patches/admission-across-restart/README.md), so for Holdfast it is a warning."},
	},
	{
		Code: "HF207", Level: Unknown, Title: "it is not known whether a container is kept", By: []string{"forecast"},
		About: []string{"The container runs. Either its recorded hash is not known, or the hash that the target computes for its spec. The text says which."},
	},
	{
		Code: "HF301", Level: Warn, Title: "the target treats a volume or a host port differently", By: []string{"forecast"},
		About: []string{
			"A `gitRepo` volume that [gitrepo-hardening](../../patches/gitrepo-hardening/README.md) refuses: the pod keeps running, but a new pod with this volume does not start.",
			"Host ports of a pod that a 1.7 kubelet started: stock 1.8 and 1.9 remove the pod's checkpoint, so with kubenet or CNI the ports are not released when the pod is deleted. Holdfast [reads the checkpoint](../../patches/checkpoint-compat/README.md).",
		},
	},
	{
		Code: "HF302", Level: Warn, Title: "another kubelet, or stopping the present one, can harm a volume", By: []string{"forecast"},
		About: []string{
			"An RBD volume on a node that goes from a kubelet up to 1.8 to 1.9: other nodes with kubelets up to 1.8 also mount an image that a 1.9 node has mounted. Holdfast with `--feature-gates=RBDLegacyLock=true` takes the lock that old kubelets check: [RBD volumes](rbd.md).",
			"A GlusterFS volume under 1.7, or a FlexVolume: the volume's daemon may be in the cgroup of the kubelet's unit, and is ended together with the kubelet. `node check` looks for such daemons ([HF507](#hf507)).",
			"`forecast` knows the kind of a claim's volume from its PersistentVolume, so the user needs `list` on persistentvolumes.",
		},
	},
	{
		Code: "HF401", Level: Warn, Title: "a Service has no ready address for a while", By: []string{"forecast"},
		About: []string{
			"All ready addresses of the Service belong to pods of one node, and all these pods are not ready after the swap. Either they are recreated, or they have a readiness probe and the target is a stock kubelet, which publishes them as not ready until the first result of the probe. The time in the text is the longest that a working probe needs for its first result.",
			"`forecast` looks at each node separately. The batches that it prints for several nodes leave every Service that has no HF401 an address.",
		},
	},
	{
		Code: "HF601", Level: Stop, Title: "a container was recreated although the forecast said kept", By: []string{"verify"},
		About: []string{"The forecast said that the container is kept, but now another container of that name runs, or none. If the container ended by itself, failed its liveness probe, or its image was changed, it looks the same: see the pod's events."},
	},
	{
		Code: "HF602", Level: Warn, Title: "a container was kept although the forecast said recreated", By: []string{"verify"},
		About: []string{"The forecast was wrong, or the kubelet has not synced the pod yet, or the kubelet was not swapped."},
	},
}
