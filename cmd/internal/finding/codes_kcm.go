// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

// kcmCodes are the codes that only kcm check and kcm manifest give.
var kcmCodes = []Code{
	{
		Code: "HF521", Level: Stop, Title: "kcm cannot change this manifest", By: []string{"kcm check", "kcm manifest"},
		About: []string{
			"`kcm manifest` changes a static pod's manifest in which one container runs `kube-controller-manager`, or a command that begins with `hyperkube controller-manager`, directly or by a shell. This file is something else, or the mount conflicts with its content. Nothing was changed.",
			"Edit the manifest by hand as [the page](install.md#kube-controller-manager-as-a-kubeadm-static-pod) says: edit a copy outside of the manifests folder, and then move it there.",
		},
	},
	{
		Code: "HF522", Level: Stop, Title: "the file is not the expected controller manager", By: []string{"kcm check", "kcm manifest"},
		About: []string{"The manifest mounts the file of `--binary` over the one in the image. That file must be Holdfast, exist on this master under its full path, be executable, and need no libraries of the image. Otherwise the container does not start, and this master has no controller manager."},
	},
	{
		Code: "HF523", Level: Stop, Title: "the controller manager refuses its command line", By: []string{"kcm check", "kcm manifest"},
		About: []string{"The manifest has a flag or a feature gate that the controller manager does not know: the container would exit at each start. Remove it from the manifest first. On the way back these are the flags and gates of Holdfast."},
	},
	{
		Code: "HF524", Level: Stop, Title: "the controller manager may not get Services", By: []string{"kcm check"},
		About: []string{"Holdfast's endpoints controller asks for a Service (`get services`) before it deletes its Endpoints. Without that right the Endpoints of deleted Services stay. Upstream's roles have it. Give your own role or policy the verb `get` on `services` ([reflector-monotonic-rv](../../patches/reflector-monotonic-rv/README.md#before-you-swap))."},
	},
	{
		Code: "HF525", Level: New, Title: "pods are replaced when the other controller manager leads", By: []string{"kcm check"},
		About: []string{
			"When Holdfast takes over, a StatefulSet that has several revisions of its one template is rolled once to the youngest, and a Deployment that works with the ReplicaSet of another owner gets a ReplicaSet of its own, with new pods. When a stock controller manager takes over, it may roll a StatefulSet that has a collision count, or two revisions with the same number. [hash-collision](../../patches/hash-collision/README.md#going-back) says why.",
			"Set the StatefulSet's `partition` as high as its `replicas` until you can afford a roll, or its `updateStrategy` to `OnDelete`.",
		},
	},
	{
		Code: "HF526", Level: Unknown, Title: "a question about the controller manager has no answer", By: []string{"kcm check"},
		About: []string{"The API server did not answer, or the user does not have the right to ask. Besides `list` on Deployments, ReplicaSets, StatefulSets and ControllerRevisions the check needs `create` on `subjectaccessreviews`; `/etc/kubernetes/admin.conf` of kubeadm has all of these."},
	},
}
