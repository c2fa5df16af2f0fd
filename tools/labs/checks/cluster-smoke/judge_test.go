// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package clustersmoke

import (
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/node"
)

func serves(version string) served {
	i := node.WebImage(version)
	return served{Version: version, Observed: true, Replicas: 3, Updated: 3, Available: 3, Images: []string{i, i, i}, Ready: []string{"a", "b", "c"},
		Answers: map[string]string{"a": version + " x", "b": version + " y", "c": version + " z"}}
}

func good() []any {
	return []any{serves("v1"), reflectors{Names: []string{"reflector_k8s_io_kubernetes_vendor_k8s_io_client_go_informers_factory_go_86_1"}},
		serves("v2"), updated{load.Report{OK: 9}, []string{"web-1"}, []string{"web-2"}},
		reconnected{true, "", []string{"4", "5", "6"}, []string{"4", "6", "5"}}, serves("v1"),
		rolledBack{Status: 201, Image: node.WebImage("v1"), ReplicaSets: 2}, serves("v1"),
		restarted{1, true, []string{"1", "2", "3"}, []string{"3", "2", "1"}}, deleted{}}
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "cluster-smoke")
	begin := history.Begin{Lab: l.Name, Variant: "ours", Profile: "short"}
	judgetest.Cut(t, l, history.Make(begin, good()...))
	two := serves("v1")
	two.Answers = map[string]string{"a": "v1 x", "b": "v1 x", "c": "v1 z"}
	dead := serves("v2")
	dead.Answers = map[string]string{"a": "v2 x", "b": "refused", "c": "v2 z"}
	old := serves("v2")
	old.Images = append(slices.Clone(old.Images), node.WebImage("v1"))
	for i, bad := range map[int]any{0: two, 2: dead, 5: served{Version: "v1"}, 1: reflectors{Names: []string{"reflector_factory_go"}},
		3: updated{load.Report{OK: 9, Failed: 1}, []string{"web-1"}, []string{"web-2"}},
		4: reconnected{false, "", []string{"4", "5", "6"}, []string{"4", "5", "6"}},
		6: rolledBack{Status: 500, Image: node.WebImage("v1"), ReplicaSets: 2},
		8: restarted{1, true, []string{"1", "2", "3"}, []string{"3", "2", "4"}}, 9: deleted{[]string{"pods web-1"}}, 7: old} {
		all := good()
		all[i] = bad
		judgetest.Judge(t, l, history.Make(begin, all...), labkit.Failed)
		// Nothing comes after what is wrong.
		judgetest.Judge(t, l, history.Make(begin, all[:i+1]...), labkit.Failed)
	}
	for _, bad := range []reconnected{{true, "kubelet ended", []string{"4", "5", "6"}, []string{"4", "5", "6"}},
		{true, "", []string{"4", "5", "6"}, []string{"4", "5"}}, {true, "", []string{"4"}, []string{"4"}}} {
		all := good()
		all[4] = bad
		judgetest.Judge(t, l, history.Make(begin, all...), labkit.Failed)
	}
	// Names of the log.
	for name, want := range map[string]labkit.Verdict{"k8s.io/client-go/informers/factory.go:131": labkit.Passed,
		"k8s.io/client-go@v0.0.0/informers/factory.go:131": labkit.Failed, "k8s.io/kubernetes/pkg/x.go:1": labkit.Failed} {
		all := good()
		all[1] = reflectors{Names: []string{name}, FromLog: true}
		judgetest.Judge(t, l, history.Make(begin, all...), want)
	}
	all := good()
	all[3] = updated{load.Report{}, []string{"web-1"}, []string{"web-2"}}
	judgetest.Judge(t, l, history.Make(begin, all...), labkit.Inconclusive)
}
