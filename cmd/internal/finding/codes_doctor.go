// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

import "fmt"

// Alert is a metric of Holdfast that says that something needs a look. A code that has one is given
// by doctor while the metric says so, and is a rule in AlertsPage.
type Alert struct {
	// Name is the rule's.
	Name string
	// Component is kubelet or kube-controller-manager.
	Component string
	// Metric and Labels say which series counts, Gauge that it is 1 as long as it is so; else it
	// is a counter.
	Metric string
	Labels map[string]string
	Gauge  bool
	// Says is what happened, Remedy what to do; both are one sentence without an end.
	Says, Remedy string
}

// alerts are the codes HF651 to HF659. What a fix does when all is well is none.
var alerts = map[string]Alert{
	"HF651": {Name: "HoldfastSubPathMountStays", Component: "kubelet", Metric: "holdfast_subpath_rollback_failed_total",
		Says: "a subPath mount could not be removed and stays", Remedy: "do not start kubelet 1.6 or older, 1.7.0 to 1.7.13, 1.8.0 to 1.8.8 or 1.9.0 to 1.9.3 on this node: such a kubelet would delete the files in the mount"},
	"HF652": {Name: "HoldfastPredecessorOverrideRefused", Component: "kubelet", Metric: "holdfast_predecessor_override_refused", Gauge: true,
		Says: "the file holdfast-predecessor-override is invalid, so the kubelet ignores it", Remedy: "write one line into this file, with a release or the word none, and restart the kubelet"},
	"HF653": {Name: "HoldfastPredecessorNotSaved", Component: "kubelet", Metric: "holdfast_predecessor_save_failed_total",
		Says: "the file holdfast-predecessor.json, which records the kubelet that ran before Holdfast, could not be written", Remedy: "check whether the file system of the kubelet's root directory is full or read-only"},
	"HF654": {Name: "HoldfastCheckpointNotWritten", Component: "kubelet", Metric: "holdfast_checkpoint_compat_rewrite_failed_total",
		Says: "the kubelet could not rewrite a sandbox checkpoint, so the kubelet that ran before Holdfast might not accept it", Remedy: "check whether the file system of /var/lib/dockershim is full or read-only, and drain the node before you go back to 1.7"},
	"HF655": {Name: "HoldfastRBDLockKept", Component: "kubelet", Metric: "holdfast_rbd_detach_locks_kept_total",
		Says: "an old RBD lock could not be released", Remedy: "run kubectl holdfast rbd-locks"},
	"HF656": {Name: "HoldfastRBDDeviceStays", Component: "kubelet", Metric: "holdfast_rbd_detach_unused_total", Labels: map[string]string{"result": "kept"},
		Says: "an RBD device stays mapped after a failed mount, and no other node can map the image", Remedy: "unmap the device by hand, as docs/user/rbd.md describes"},
	"HF657": {Name: "HoldfastUnreadyNotAcknowledged", Component: "kubelet", Metric: "holdfast_unready_before_replace_waits_total", Labels: map[string]string{"outcome": "timeout"},
		Says: "a container was killed before the API server acknowledged that it is not ready", Remedy: "check the API server and the node's network"},
	"HF658": {Name: "HoldfastServiceCheckFails", Component: "kube-controller-manager", Metric: "holdfast_endpoints_live_service_check_checks_total", Labels: map[string]string{"result": "error"},
		Says: "the API server did not say whether a Service exists, so the Service's Endpoints stay", Remedy: "check the API server, and whether the controller manager has the permission to get Services (HF631)"},
	"HF659": {Name: "HoldfastDeadNodePodsFail", Component: "kube-controller-manager", Metric: "holdfast_dead_node_pods_retry_failed_total",
		Says: "pods of a node that no longer reports could not be marked as not ready, and the controller manager tries again", Remedy: "check the API server and etcd, and read the log of the controller manager"},
}

// AlertOf is the alert of a code, nil for a code that has none.
func AlertOf(code string) *Alert {
	a, ok := alerts[code]
	if !ok {
		return nil
	}
	return &a
}

func alertCode(code, title, page string) Code {
	a := alerts[code]
	above, since := "greater than 0", " The metric counts from the start of the process, so it is possible that this happened long ago."
	if a.Gauge {
		above, since = "1", ""
	}
	return Code{Code: code, Level: Warn, Title: title, By: []string{"doctor"}, About: []string{
		fmt.Sprintf("The %s's metric `%s` is %s: %s.%s", a.Component, a.series(), above, a.Says, since),
		fmt.Sprintf("What to do: %s. See %s. The rule `%s` in [alerts.yaml](alerts.yaml) uses the same metric.", a.Remedy, page, a.Name),
	}}
}

// doctorCodes are the codes of doctor. HF601 and HF602 are verify's. A code is printed as ? where
// doctor could not ask.
var doctorCodes = []Code{
	{
		Code: "HF603", Level: Warn, Also: []Level{Unknown}, Title: "an address left the Endpoints of a Service, came back and left again", By: []string{"doctor"},
		About: []string{
			"doctor ran with `--watch`, and during this time an address left the Endpoints of its Service, came back, and left again. Clients that follow Endpoints, such as kube-proxy, change their targets each time.",
			"Check the pod's probes first. If nothing is wrong with the pod, the cause can be an in-place update of an image ([unready-before-replace](../../patches/unready-before-replace/README.md)), a kubelet restart ([readiness-across-restart](../../patches/readiness-across-restart/README.md)), or a watch that restarts from an old resourceVersion ([HF605](#hf605)).",
		},
	},
	{
		Code: "HF604", Level: Warn, Also: []Level{Unknown}, Title: "the Endpoints of a Service do not match its pods", By: []string{"doctor"},
		About: []string{
			"A pod is ready and its Service selects it, but the pod's address is not among the ready addresses of the Endpoints. Or the Endpoints contain a ready address whose pod is gone or not ready. doctor saw the same state twice, 30 s apart.",
			"Change a label or an annotation of the Service: the endpoints controller then compares the Service's pods and Endpoints again. [endpoints-stale-cache](../../patches/endpoints-stale-cache/README.md) explains the cause. If this happens to all Services, the controller manager is not working: see [HF615](#hf615).",
			"doctor does not check Services without a selector, or Endpoints that [endpoints-rules](endpoints-rules.md) writes. If a Service also publishes the addresses of pods that are not ready, doctor does not report these addresses.",
		},
	},
	{
		Code: "HF605", Level: Warn, Also: []Level{Unknown}, Title: "the API server sends deletion events with old resourceVersions", By: []string{"doctor"},
		About: []string{
			"kube-apiserver 1.7.0–1.7.12, 1.8.0–1.8.7 and 1.9.0–1.9.2 have this fault. A client that restarts its watch after such an event continues from the old resourceVersion. A stock controller manager then deletes the Endpoints of healthy Services ([reflector-monotonic-rv](../../patches/reflector-monotonic-rv/README.md)).",
			"Upgrade the API server within its minor release, or run Holdfast's controller manager. `kubectl holdfast audit-rv` finds in the audit log the clients whose watches restarted from an old resourceVersion.",
		},
	},
	{
		Code: "HF611", Level: Warn, Also: []Level{Unknown}, Title: "a Deployment has no ReplicaSet of its own for its template, or a DaemonSet uses a ControllerRevision that it does not own", By: []string{"doctor"},
		About: []string{
			"A Deployment that is not paused does not own a ReplicaSet with its template, although the controller has seen its spec. Either its rollout is stuck, or it uses a ReplicaSet that another Deployment owns or that has no owner. In the second case two Deployments can scale the same pods. Or a DaemonSet uses a ControllerRevision that it does not own. doctor saw the same state twice, 30 s apart.",
			"If the finding names an object that already has the name of the new ReplicaSet or ControllerRevision, check this object, and delete it if it is not needed. With Holdfast's controller manager you need not do this, because it chooses another name for the new object: see [hash-collision](../../patches/hash-collision/README.md).",
		},
	},
	{
		Code: "HF613", Level: Stop, Also: []Level{Unknown}, Title: "the name of a DaemonSet's next ControllerRevision is already in use", By: []string{"doctor"},
		About: []string{
			"The DaemonSet's template has no ControllerRevision yet, and another template's ControllerRevision already has the name that the next ControllerRevision would get. This DaemonSet **crashes a stock controller manager** of 1.7 to 1.11 within seconds ([hash-collision](../../patches/hash-collision/README.md), case b). So you see this finding only while no stock controller manager runs: either it has crashed, or you have stopped it for a swap.",
			"Start Holdfast's controller manager. Or add any annotation to the DaemonSet's template: this changes the name of the next ControllerRevision.",
			"doctor checks only the template that the DaemonSet has now, not the templates of later updates. To check later updates, give `kubectl holdfast pod-template-hash collide` a list of image tags: it prints the tags that collide. `?` means that doctor cannot compute the hashes of the controller manager's release.",
		},
	},
	{
		Code: "HF614", Level: Warn, Also: []Level{Unknown}, Title: "a stock controller manager that takes over might replace the pods of a StatefulSet", By: []string{"doctor"},
		About: []string{
			"The StatefulSet has a collision count, or two ControllerRevisions with the same number. A stock controller manager that takes over might replace all pods of the StatefulSet, or roll it back and forth ([hash-collision](../../patches/hash-collision/README.md#going-back)). Holdfast does neither.",
			"Before you go back to a stock controller manager, or run one on another master beside Holdfast, set `partition` to the value of `replicas`, or the update strategy to `OnDelete`. doctor does not report StatefulSets with one of these settings.",
		},
	},
	{
		Code: "HF615", Level: Warn, Also: []Level{Unknown}, Title: "pods of a node that is gone are Ready, or the controller manager or the scheduler does not renew its lease", By: []string{"doctor"},
		About: []string{
			"A node has been Unknown for more than a minute, or its Node object does not exist, but its pods have been Ready for more than a minute: Services still send them traffic. [dead-node-pods-retry](../../patches/dead-node-pods-retry/README.md) explains the cause. To stop the traffic by hand, delete the pods with `--grace-period=0 --force`, but only if the machine is off.",
			"Or the lease of kube-controller-manager or kube-scheduler in kube-system is older than a minute, and was not renewed while doctor waited 30 s: no objects are reconciled, or no pods are scheduled. Check the process that holds the lease ([kcm-silent-connection](../../patches/kcm-silent-connection/README.md)).",
			"A component without `--leader-elect` has no lease, so doctor does not check it.",
		},
	},
	{
		Code: "HF621", Level: Warn, Also: []Level{Unknown}, Title: "an RBD image has a stale or foreign lock, is mapped on a node without a pod for it, or is open on several nodes that can write to it", By: []string{"doctor"},
		About: []string{
			"Run [`kubectl holdfast rbd-locks`](kubectl-holdfast.md#rbd-locks): it prints the image's locks and watchers, and the remedy.",
			"`?` means that there are RBD volumes, but doctor could not check them: either you did not say how to connect to Ceph (`--ceph-conf`, `--id`, `--keyring`), or a request to Ceph for an image failed.",
		},
	},
	{
		Code: "HF631", Level: Warn, Also: []Level{Unknown}, Title: "the controller manager has no permission to get Services", By: []string{"doctor"},
		About: []string{
			"Holdfast's endpoints controller reads a Service from the API server before it deletes the Service's Endpoints ([reflector-monotonic-rv](../../patches/reflector-monotonic-rv/README.md)). The controller manager's user does not have the permission to read Services. So each of these requests fails, and the Endpoints of deleted Services stay.",
			"Add the verb `get` on `services` to the user's role. doctor checks the service account `endpoint-controller` if it exists (`--use-service-account-credentials`), otherwise the user `system:kube-controller-manager`. The finding names the user. To check another user, set `--controller-manager-user`.",
		},
	},
	{
		Code: "HF641", Level: Warn, Also: []Level{Unknown}, Title: "the cluster's components are of mixed or incompatible releases, or a feature gate of Holdfast is off", By: []string{"doctor"},
		About: []string{
			"Upstream supports kubelets of the API server's minor release and of the two minor releases before it, and a controller manager of the API server's minor release or of the one before it. During an upgrade, kubelets of several releases are normal. If no upgrade is in progress, the last upgrade has missed a node.",
			"A feature gate of Holdfast that is off brings back a fault of the stock binary; the finding names the gate. Remove the gate from the unit or the manifest: all gates that doctor names are on by default.",
			"`?` means that doctor could not read the version of a component. doctor reads the version of the controller manager from its pods in kube-system. If the controller manager listens only on 127.0.0.1, as kubeadm configures it, or does not run as a pod, run doctor on its master with `--controller-manager http://127.0.0.1:10252`.",
		},
	},
	alertCode("HF651", "the kubelet could not unmount a subPath mount", "[subpath-rollback](../../patches/subpath-rollback/README.md)"),
	alertCode("HF652", "the file holdfast-predecessor-override is invalid, so the kubelet ignores it", "[predecessor](../../patches/predecessor/README.md#look-and-correct)"),
	alertCode("HF653", "the kubelet could not record which kubelet ran before Holdfast", "[predecessor](../../patches/predecessor/README.md)"),
	alertCode("HF654", "the kubelet could not rewrite a sandbox checkpoint", "[checkpoint-compat](../../patches/checkpoint-compat/README.md)"),
	alertCode("HF655", "the kubelet could not release an old lock of an RBD image", "[RBD volumes](rbd.md)"),
	alertCode("HF656", "an RBD device stays mapped after a failed mount", "[RBD volumes](rbd.md#when-a-pod-waits)"),
	alertCode("HF657", "a container was killed before the API server acknowledged that it is not ready", "[unready-before-replace](../../patches/unready-before-replace/README.md)"),
	alertCode("HF658", "the controller manager could not check whether a Service exists, so it keeps the Service's Endpoints", "[endpoints-live-service-check](../../patches/endpoints-live-service-check/README.md)"),
	alertCode("HF659", "the controller manager could not mark the pods of a dead node as not ready", "[dead-node-pods-retry](../../patches/dead-node-pods-retry/README.md)"),
	{
		Code: "HF661", Level: Warn, Also: []Level{Unknown}, Title: "the kubelet accepts requests without authentication", By: []string{"doctor"},
		About: []string{
			"`--anonymous-auth` is on and `--authorization-mode` is AlwaysAllow, which are the defaults: anyone who reaches port 10250 of the node can run commands in each of its containers. Or `--read-only-port` is open, 10255 by default: anyone who reaches this port can read the specs of all pods, with the values of their environment variables.",
			"Set `--anonymous-auth=false`, and `--authorization-mode=Webhook` with `--client-ca-file`. Set `--read-only-port=0` once no program (such as Heapster) uses the read-only port. Holdfast has the same defaults as upstream.",
			"`?` means that the kubelet uses a `--config` file, whose content doctor cannot see.",
		},
	},
}
