// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

// kcmCodes are the codes that only kcm check and kcm manifest give.
var kcmCodes = []Code{
	{
		Code: "HF521", Level: Stop, Title: "the manifest is none that can be changed", By: []string{"kcm check", "kcm manifest"},
		About: []string{
			"`kcm manifest` changes a static pod's manifest in which one container runs `kube-controller-manager`, or `hyperkube controller-manager` as its first two words, directly or by a shell. The file is something else, or what is in it leaves no place for the mount. Nothing was changed.",
			"Edit the manifest by hand as [the page](install.md#kube-controller-manager-as-a-kubeadm-static-pod) says: a copy outside of the manifests folder, and then `mv`.",
		},
	},
	{
		Code: "HF522", Level: Stop, Title: "the file is not the controller manager that is wanted", By: []string{"kcm check", "kcm manifest"},
		About: []string{"The manifest mounts the file of `--binary` over the one in the image. It must be there on this master under its full path, be executable, need no libraries of the image, and be Holdfast. Else the container does not start, and with it the controller manager of this master."},
	},
	{
		Code: "HF523", Level: Stop, Title: "the controller manager refuses its command line", By: []string{"kcm check", "kcm manifest"},
		About: []string{"The manifest has a flag or a feature gate that the controller manager does not know: the container would end at each start. On the way back these are what Holdfast adds: take them out of the manifest first."},
	},
	{
		Code: "HF524", Level: Stop, Title: "the controller manager may not get Services", By: []string{"kcm check"},
		About: []string{"Holdfast's endpoints controller asks for a Service (`get services`) before it deletes its Endpoints. Without that right the Endpoints of deleted Services stay. Upstream's roles have it. Give your own role or policy the verb `get` on `services` ([reflector-monotonic-rv](../../patches/reflector-monotonic-rv/README.md#before-you-swap))."},
	},
	{
		Code: "HF525", Level: New, Title: "pods are replaced when the other controller manager leads", By: []string{"kcm check"},
		About: []string{
			"To Holdfast: a StatefulSet that has several revisions of its one template is rolled once to the youngest. A Deployment that works with the ReplicaSet of another owner gets its own, with new pods. Back: stock may roll a StatefulSet with a collision count, or with two revisions of one number. [hash-collision](../../patches/hash-collision/README.md#going-back) says why.",
			"Set the StatefulSet's `partition` as high as its `replicas` until you can afford a roll, or its `updateStrategy` to `OnDelete`.",
		},
	},
	{
		Code: "HF526", Level: Unknown, Title: "the check of the controller manager has no answer to a question", By: []string{"kcm check"},
		About: []string{"The API server did not answer, or the user may not ask. Besides `list` on Deployments, ReplicaSets, StatefulSets and ControllerRevisions the check needs `create` on `subjectaccessreviews`; `/etc/kubernetes/admin.conf` of kubeadm has all of these."},
	},
}
