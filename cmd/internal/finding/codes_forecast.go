// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

// forecastCodes are the codes of forecast. node check gives some of them, too.
var forecastCodes = []Code{
	{
		Code: "HF002", Level: Unknown, Title: "the node was not asked, or not in full", By: []string{"forecast", "doctor"},
		About: []string{
			"The node's kubelet did not answer through the API server, or not to all questions: it is down, the user may not use the node's proxy, or the kubelet runs with `--enable-debugging-handlers=false`. What could not be asked is not known to be well.",
			"The text names what failed. The user needs the verbs `get` and `create` on `nodes/proxy`, and `get` and `list` on nodes, pods, services and endpoints.",
		},
	},
	{
		Code: "HF003", Level: Unknown, Title: "the target of a node is not known", By: []string{"forecast"},
		About: []string{"With `--to back`: the node does not run Holdfast, its kubelet did not tell which one was before it, or none was. Give `--to` a release instead. Or the release is older than 1.7, whose flags are not in the table."},
	},
	{
		Code: "HF101", Level: Stop, Title: "the target refuses the command line", By: []string{"forecast", "node check"},
		About: []string{
			"The kubelet's command line has a flag or a feature gate that the target does not know. The target exits at once, and so at each restart: the node stays without a kubelet. Its pods run on, and after five minutes the controller manager begins to evict them.",
			"Take the flag or the gate out of the unit first. [The table of flags](flags-1.7-to-1.9.md) says which release has which.",
		},
	},
	{
		Code: "HF102", Level: Stop, Title: "the target would run standalone and kill every pod", By: []string{"forecast", "node check"},
		About: []string{
			"A kubelet that is told of no API server runs standalone: it knows only its static pods and **kills every other pod of the node** within seconds of its start. 1.8 and later find the API server by `--kubeconfig` or `--require-kubeconfig`. `--api-servers` is refused, and a command line from which it is merely taken out is such a command line.",
			"1.7 is the other way round: with `--kubeconfig` alone it runs standalone, and needs `--require-kubeconfig` or `--api-servers`. Give the unit `--kubeconfig=FILE --require-kubeconfig=true` before the swap: all releases from 1.7 to 1.9 take both.",
		},
	},
	{
		Code: "HF103", Level: Stop, Title: "the target and the API server are too far apart", By: []string{"forecast", "kcm check"},
		About: []string{"Upstream supports kubelets of the API server's minor release and of the two before it, and a controller manager of the API server's own minor release. A newer one uses what an older API server does not have. Upgrade the control plane first."},
	},
	{
		Code: "HF104", Level: Stop, Title: "Holdfast refuses the API server's certificate", By: []string{"forecast", "kcm check", "node check"},
		About: []string{
			"Programs built with today's Go refuse a server certificate without subjectAltName, and any signature with SHA-1 or MD5 but that of a root. The kubelet would start, never reach the API server, and the node would become NotReady; a controller manager would never lead.",
			"`forecast` looks at what the server shows it. If kubelets reach the API server by another address or load balancer, look there, too. If `forecast` cannot connect for that reason itself, it looks over a connection that carries no credentials.",
		},
	},
	{
		Code: "HF105", Level: Stop, Also: []Level{Warn}, Title: "the node is under pressure, or below a threshold of the target", By: []string{"forecast"},
		About: []string{
			"A stock kubelet that starts asks each pod of its node whether it may be admitted. Under disk pressure **every pod is failed within seconds**, under memory pressure each without requests and limits. From 1.9 on `imagefs.available<15%` is a default; before, that was no pressure.",
			"Holdfast keeps pods that run ([admission-across-restart](../../patches/admission-across-restart/README.md)), so it is a warning there: it evicts by rank, one pod at a time, while the pressure lasts. Static pods that restart with the release ([HF203](#hf203)) are new pods, and are refused there, too: with one of them it is a STOP.",
		},
	},
	{
		Code: "HF201", Level: New, Title: "a container is recreated", By: []string{"forecast"},
		About: []string{
			"The hash that is recorded for the container is not one that the target accepts for its spec. It is killed and started anew soon after the swap. The text says who recorded the hash and which field or image differs. [container-hash-compat](../../patches/container-hash-compat/README.md) has the rules.",
			"`(estimate: …)`: the kubelet did not tell the recorded hash. It is taken to be that of the kubelet that runs now.",
		},
	},
	{
		Code: "HF202", Level: New, Title: "a container is recreated on the way back", By: []string{"forecast"},
		About: []string{"As [HF201](#hf201), for the way back: with `--to back` now, with `--to holdfast` at a later way back to the kubelet that runs now."},
	},
	{
		Code: "HF203", Level: New, Title: "a static pod restarts", By: []string{"forecast"},
		About: []string{"The UID of a static pod is a hash of a dump of the release's own types. Another minor release gives it another UID, and restarts it as a whole; stock and Holdfast 1.9 have the same. A manifest with `metadata.uid` keeps its own. Take masters one at a time."},
	},
	{
		Code: "HF204", Level: Stop, Title: "a subPath on a claim whose folder has another name", By: []string{"forecast"},
		About: []string{"1.7.14–1.7.15, 1.8.9–1.8.10 and 1.9.4–1.9.6 name the folders of such mounts otherwise (kubernetes/kubernetes#61373). What is left over can take the volume's data with it (#72257). Drain the pod from the node first."},
	},
	{
		Code: "HF205", Level: Stop, Also: []Level{Warn}, Title: "the target deletes files behind subPath mounts", By: []string{"forecast"},
		About: []string{"Kubelets before 1.7.14, 1.8.9 and 1.9.4 do not know the mounts that later ones make for a `subPath`, and delete through them when the pod goes: see [subpath-rollback](../../patches/subpath-rollback/README.md). Holdfast unmounts them once the container runs, so from Holdfast it is a warning: busy ones are left."},
	},
	{
		Code: "HF206", Level: Stop, Also: []Level{Warn}, Title: "the node's labels no longer meet what a pod asks for", By: []string{"forecast"},
		About: []string{"A stock kubelet that starts fails a running pod for good if the node's labels no longer meet its `nodeSelector` or its required node affinity. Holdfast [keeps it](../../patches/admission-across-restart/README.md), so it is a warning there."},
	},
	{
		Code: "HF207", Level: Unknown, Title: "it is not known whether a container is kept", By: []string{"forecast"},
		About: []string{"The container runs, and its hash is not known, or the target's for its spec is not. The text says what is missing."},
	},
	{
		Code: "HF301", Level: Warn, Title: "a volume or a port is treated otherwise", By: []string{"forecast"},
		About: []string{
			"A `gitRepo` volume that [gitrepo-hardening](../../patches/gitrepo-hardening/README.md) refuses: the pod runs on, a new one like it does not start.",
			"Host ports of a pod that a 1.7 kubelet started: stock 1.8 and 1.9 remove its checkpoint, so with kubenet or CNI the ports are not released when the pod goes. Holdfast [reads it](../../patches/checkpoint-compat/README.md).",
		},
	},
	{
		Code: "HF302", Level: Warn, Title: "a volume that another kubelet, or the stop of this one, can harm", By: []string{"forecast"},
		About: []string{
			"An RBD volume on a kubelet up to 1.8 that becomes 1.9: old kubelets that are left mount an image that a 1.9 node has mounted. Holdfast with `--feature-gates=RBDLegacyLock=true` takes the lock that they look for: [RBD volumes](rbd.md).",
			"A GlusterFS volume under 1.7, or a FlexVolume: the volume's daemon may be in the cgroup of the kubelet's unit, and end with the kubelet. `node check` looks there ([HF507](#hf507)).",
			"Claims are known by their PersistentVolumes, for which the user needs `list` on persistentvolumes.",
		},
	},
	{
		Code: "HF401", Level: Warn, Title: "a Service has no ready address for a while", By: []string{"forecast"},
		About: []string{
			"All ready addresses of the Service are pods of one node, and all of them are unready after the swap: recreated, or with a readiness probe, which a stock kubelet takes for failed until its first result. The time is the longest until a working probe has given it.",
			"Each node is taken by itself. The batches that `forecast` prints for several nodes leave every other Service an address.",
		},
	},
	{
		Code: "HF601", Level: Stop, Title: "a container was recreated that was to be kept", By: []string{"verify"},
		About: []string{"The forecast had it as kept, and another container of that name runs, or none. Its own end, a liveness probe or a change of its image look the same: the pod's events tell."},
	},
	{
		Code: "HF602", Level: Warn, Title: "a container was kept that was to be recreated", By: []string{"verify"},
		About: []string{"The forecast was wrong, or the kubelet has not synced the pod yet, or it was not swapped."},
	},
}
