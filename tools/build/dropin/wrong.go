// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

// both are wrong command lines of either component. Each is refused while flags are
// parsed or checked: none may get as far as to start.
var both = [][]string{
	{"--no-such-flag"},
	{"--no-such-flag=1"},
	{"--v=loud"},
	{"--vmodule=x"},
	{"--log-flush-frequency=often"},
	{"--logtostderr=perhaps"},
	{"--stderrthreshold=LOUD"},
	{"--version=7"},
	{"-v"},
	{"-z"},
	{"---v=2"},
	{"--=x"},
	{"--feature-gates=NoSuchGate=true"},
	{"--feature-gates=AllAlpha"},
	{"--feature-gates=AllAlpha=perhaps"},
	{"--feature-gates=DynamicKubeletConfig=1,x"},
	{"--address=300.1.1.1"},
	{"--port=many"},
	{"--kube-api-qps=fast"},
	{"--kube-api-burst=1.5"},
	{"--kubeconfig"},
}

// wrong are all, by component: 30 each at least.
var wrong = map[string][][]string{
	Manager: append([][]string{
		{"--controllers=no-such-controller"},
		{"--controllers=*,-no-such-controller"},
		{"--kubeconfig=/nonexistent/kubeconfig"},
		{"--leader-elect=perhaps"},
		{"--leader-elect-lease-duration=long"},
		{"--concurrent-deployment-syncs=x"},
		{"--node-monitor-period=40"},
		{"--cluster-signing-duration=x"},
		{"--large-cluster-size-threshold=-x"},
		{"--allocate-node-cidrs=maybe"},
		{"--use-service-account-credentials=x"},
	}, both...),
	Kubelet: append([][]string{
		{"--max-pods=-1x"},
		{"--max-pods=-1"},
		{"--max-open-files=-1"},
		{"--pods-per-core=-1"},
		{"--event-qps=-1"},
		{"--event-burst=-1"},
		{"--image-gc-high-threshold=101"},
		{"--image-gc-low-threshold=-1"},
		{"--iptables-drop-bit=32"},
		{"--healthz-port=70000"},
		{"--enforce-node-allocatable=all"},
		{"--cgroups-per-qos=false"},
		{"--oom-score-adj=2000"},
		{"--system-cgroups=/system"},
		{"--sync-frequency=soon"},
		{"--api-servers=http://127.0.0.1:8080"},
	}, both...),
}
