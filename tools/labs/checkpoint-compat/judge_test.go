// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpointcompat

import (
	"fmt"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func good() []any {
	return []any{rulesLeft{Pod: "first", Kubelet: base, Address: "1"}, answered{"second", 18080, []string{"v1 second"}},
		answered{"gone", 18081, []string{"v1 gone", "v1 gone"}}, rulesLeft{Pod: "gone", Kubelet: base, Address: "2"}, logged{Accepted: true},
		rulesLeft{Pod: "second", Kubelet: old, Address: "3", Rules: []string{"a rule that 1.7 cannot know"}}, rulesLeft{Pod: "third", Kubelet: old, Address: "4"},
		wentBack{}}
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "checkpoint-compat")
	of := func(v labkit.Variant, i int, o any) *history.History {
		all := good()
		all[i] = o
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v)}, all...)
	}
	judgetest.Cut(t, l, of(labkit.Ours, 7, wentBack{}))
	for i, bad := range map[int]any{
		0: rulesLeft{Pod: "first", Kubelet: base, Address: "1", Rules: []string{"-A KUBE-HP-X --to-destination 1:8080"}},
		1: answered{"second", 18080, []string{"v1 second", "v1 first"}},
		2: answered{"gone", 18081, []string{"connection refused"}},
		4: logged{Refused: 2, Accepted: true},
	} {
		judgetest.Judge(t, l, of(labkit.Ours, i, bad), labkit.Reproduced)
		judgetest.Judge(t, l, of(labkit.Stock, i, bad), labkit.Reproduced)
	}
	// Only ours must write what v1.7.0 reads, and say that it read what it wrote.
	judgetest.Judge(t, l, of(labkit.Ours, 7, wentBack{1}), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Stock, 7, wentBack{1}), labkit.Absent)
	judgetest.Judge(t, l, of(labkit.Ours, 4, logged{}), labkit.Inconclusive)
	judgetest.Judge(t, l, of(labkit.Stock, 4, logged{}), labkit.Absent)
	judgetest.Judge(t, l, of(labkit.Ours, 4, logged{Refused: 1}), labkit.Reproduced)
	for refused, want := range map[int]labkit.Verdict{0: labkit.Inconclusive, 1: labkit.Reproduced} {
		early := good()
		early[3] = rulesLeft{Pod: "gone", Kubelet: base, Address: "2", Rules: []string{"-A KUBE-HP-X --to-destination 2:8080"}}
		early[4] = logged{Refused: refused, Accepted: true, Early: true}
		judgetest.Judge(t, l, history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours)}, early...), want)
	}
}

func TestReadLog(t *testing.T) {
	l := readLog("I1 1 x.go:1] Sandbox checkpoints: accepted 2 of v1.7.0\nE1 1 y.go:2] StopPodSandbox \"a\" from runtime: checkpoint is corrupt\nChecksum of checkpoint\n")
	if !l.Accepted || l.Refused != 1 || len(l.Stop) != 1 || l.Stop[0] != "StopPodSandbox \"a\" from runtime: checkpoint is corrupt" {
		t.Errorf("%+v", l)
	}
	const failed = `E1 1 z.go:1] Failed to stop sandbox "1e98": NetworkPlugin kubenet failed to teardown pod "%s_default" network: Kubenet needs a PodCIDR to tear down pods`
	if gone, first := readLog(fmt.Sprintf(failed, "gone")), readLog(fmt.Sprintf(failed, "first")); !gone.Early || first.Early {
		t.Errorf("gone: %+v; first: %+v", gone, first)
	}
}
