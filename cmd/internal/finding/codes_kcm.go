// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

// kcmCodes are the codes that only kcm check and kcm manifest give.
var kcmCodes = []Code{
	{
		Code: "HF521", Level: Stop, Title: "`kubectl-holdfast kcm` cannot change this manifest", By: []string{"kcm check", "kcm manifest"},
		About: []string{
			"`kcm manifest` can change the manifest of a static pod if one of its containers runs `kube-controller-manager` or `hyperkube controller-manager`, directly or through a shell. Either no container of this manifest does so, or the mount of the new binary would conflict with something in the manifest. Nothing was changed.",
			"Edit the manifest by hand, as [the install page](install.md#kube-controller-manager-as-a-kubeadm-static-pod) describes: edit a copy outside the manifests folder, and then move the copy into that folder.",
		},
	},
	{
		Code: "HF522", Level: Stop, Title: "the file is not the expected controller manager", By: []string{"kcm check", "kcm manifest"},
		About: []string{"The new manifest mounts the file that `--binary` names over the binary in the image. This file must be Holdfast's controller manager, exist on this master under its full path, be executable, and not need libraries from the image. Otherwise the container does not start, and this master has no controller manager."},
	},
	{
		Code: "HF523", Level: Stop, Title: "the new controller manager does not support a flag or a feature gate of its manifest", By: []string{"kcm check", "kcm manifest"},
		About: []string{"The container would exit at each start. First remove the flag or gate that the finding names from the manifest. When you go back to the stock controller manager, remove Holdfast's own flags and gates."},
	},
	{
		Code: "HF524", Level: Stop, Title: "the controller manager has no permission to get Services", By: []string{"kcm check"},
		About: []string{"Holdfast's endpoints controller reads a Service from the API server (`get services`) before it deletes the Service's Endpoints. Without this permission, the Endpoints of deleted Services stay. Upstream's roles grant this permission. If you use your own role or policy, add the verb `get` on `services` ([reflector-monotonic-rv](../../patches/reflector-monotonic-rv/README.md#before-you-swap))."},
	},
	{
		Code: "HF525", Level: New, Title: "pods are replaced when the new controller manager takes over", By: []string{"kcm check"},
		About: []string{
			"When Holdfast takes over, it rolls a StatefulSet that has several revisions of the same template once to the newest revision. A Deployment that uses the ReplicaSet of another owner gets a ReplicaSet of its own, with new pods. When a stock controller manager takes over, it can replace all pods of a StatefulSet that has a collision count, or two revisions with the same number. [hash-collision](../../patches/hash-collision/README.md#going-back) explains why.",
			"To prevent this for a StatefulSet, set its `partition` to the value of its `replicas`, or its `updateStrategy` to `OnDelete`, until you are ready to replace its pods.",
		},
	},
	{
		Code: "HF526", Level: Unknown, Title: "`kubectl-holdfast kcm check` could not read something from the API server", By: []string{"kcm check"},
		About: []string{"The API server did not respond, or the user does not have the permission for the request that failed. `kcm check` needs `list` on Deployments, ReplicaSets, StatefulSets and ControllerRevisions, and `create` on `subjectaccessreviews`. The user in kubeadm's `/etc/kubernetes/admin.conf` has all these permissions."},
	},
}
