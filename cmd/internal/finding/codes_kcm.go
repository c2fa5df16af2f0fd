// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

// kcmCodes are the codes that only kcm check and kcm manifest give.
var kcmCodes = []Code{
	{
		Code: "HF521", Level: Stop, Title: "kcm cannot change this manifest", By: []string{"kcm check", "kcm manifest"},
		About: []string{
			"`kcm manifest` changes a static pod's manifest in which one container runs `kube-controller-manager`, or a command that begins with `hyperkube controller-manager`, directly or through a shell. This manifest is different, or the new mount would conflict with something in it. Nothing was changed.",
			"Edit the manifest by hand, as [the install page](install.md#kube-controller-manager-as-a-kubeadm-static-pod) describes: edit a copy outside of the manifests folder, and then move the copy into that folder.",
		},
	},
	{
		Code: "HF522", Level: Stop, Title: "the file is not the expected controller manager", By: []string{"kcm check", "kcm manifest"},
		About: []string{"The manifest mounts the file of `--binary` over the binary in the image. That file must be Holdfast's controller manager, exist on this master under its full path, be executable, and not need libraries from the image. Otherwise the container does not start, and this master has no controller manager."},
	},
	{
		Code: "HF523", Level: Stop, Title: "the controller manager refuses its command line", By: []string{"kcm check", "kcm manifest"},
		About: []string{"The manifest contains a flag or a feature gate that the controller manager does not support: the container would exit at each start. Remove this flag or gate from the manifest first. When you go back, these are Holdfast's own flags and gates."},
	},
	{
		Code: "HF524", Level: Stop, Title: "the controller manager may not get Services", By: []string{"kcm check"},
		About: []string{"Holdfast's endpoints controller reads a Service from the API server (`get services`) before it deletes the Service's Endpoints. Without this permission, the Endpoints of deleted Services stay. Upstream's roles grant it. Give your own role or policy the verb `get` on `services` ([reflector-monotonic-rv](../../patches/reflector-monotonic-rv/README.md#before-you-swap))."},
	},
	{
		Code: "HF525", Level: New, Title: "pods are replaced when the new controller manager takes over", By: []string{"kcm check"},
		About: []string{
			"When Holdfast takes over, a StatefulSet that has several revisions of the same template is rolled once to the newest revision, and a Deployment that uses the ReplicaSet of another owner gets a ReplicaSet of its own, with new pods. When a stock controller manager takes over, it may roll a StatefulSet that has a collision count, or two revisions with the same number. [hash-collision](../../patches/hash-collision/README.md#going-back) explains why.",
			"Set the StatefulSet's `partition` as high as its `replicas` until its pods may be replaced, or set its `updateStrategy` to `OnDelete`.",
		},
	},
	{
		Code: "HF526", Level: Unknown, Title: "kcm could not determine something about the controller manager", By: []string{"kcm check"},
		About: []string{"The API server did not respond, or the user does not have the permission for this request. The check needs `list` on Deployments, ReplicaSets, StatefulSets and ControllerRevisions, and `create` on `subjectaccessreviews`. The user in kubeadm's `/etc/kubernetes/admin.conf` has all these permissions."},
	},
}
