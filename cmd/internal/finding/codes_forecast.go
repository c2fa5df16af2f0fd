// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

// forecastCodes are the codes of forecast. node check gives some of them, too.
var forecastCodes = []Code{
	{
		Code: "HF002", Level: Unknown, Title: "the node was not asked, or not in full", By: []string{"forecast"},
		About: []string{
			"The node's kubelet did not answer through the API server, or not to all questions: it is down, the user may not use the node's proxy, or the kubelet runs with `--enable-debugging-handlers=false`. What could not be asked is not known to be well.",
			"The text names what failed. The user needs the verbs `get` and `create` on `nodes/proxy`, and `get` and `list` on nodes, pods, services and endpoints.",
		},
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
			"A kubelet that is told of no API server runs standalone: it knows only its static pods and **kills every other pod of the node** within seconds of its start. 1.8 and later find the API server only by `--kubeconfig`. `--api-servers` is refused, and a command line from which it is merely taken out is such a command line; so is one with `--require-kubeconfig` alone.",
			"Give the unit `--kubeconfig=FILE` before the swap.",
		},
	},
}
