// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollisionv120

import (
	"fmt"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// rolled is a rollout that is done, if img is what the running ReplicaSet has.
func rolled(deployment, img, running string) rollout {
	return rollout{Namespace: "n", Deployment: deployment, Image: img, Template: img, Revision: "2", Generation: 3, Observed: 3, Want: 2, Updated: 2, Available: 2,
		Sets: []replicaSet{{Name: deployment + "-1", Image: running, Revision: "2", Spec: 2, Status: 2}}}
}

// good is what ours shows.
func good() []any {
	all := []any{secondRelease{rolled(reportName, "b", "b")}}
	var tags []string
	for i := range 100 {
		tags = append(tags, fmt.Sprint(201700000000+i))
	}
	all = append(all, releasing{tags})
	for _, tag := range append(append([]string{}, tags...), "next") {
		all = append(all, rolled("web", "web:"+tag, "web:"+tag))
	}
	for _, d := range []string{"yce-test", "switched", "direct", "older", "undone"} {
		for range wantRollouts[d] {
			all = append(all, rolled(d, "a", "a"))
		}
	}
	all = append(all, exposedOnes{"Recreate recreate/switched\nRollingUpdate yce/yce-test\n"}, takenAgain{rolled(reportName, "b", "b"), reportName + "-1"})
	for range 4 {
		for _, name := range recreated {
			all = append(all, scaledTo{Name: name, From: 2, To: 3, Kept: 2, Was: "u", Is: "u"})
		}
	}
	for _, when := range []string{whenStock, whenOurs, whenGateOff, whenFailover} {
		all = append(all, kept{when, "pods a", "pods a"})
	}
	return all
}

func TestJudgeCollision(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "hash-collision-v1.2.0")
	of := func(v labkit.Variant, o ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v)}, o...)
	}
	judgetest.Cut(t, l, of(labkit.Ours, good()...))
	// Each is the last that was recorded, and decides.
	for _, bad := range []any{rolled("web", "web:2", "web:1"), exposedOnes{"Recreate a/b\n"}, takenAgain{rolled(reportName, "b", "b"), "another"},
		scaledTo{Name: "older", From: 2, To: 3, Kept: 1, Was: "u", Is: "u"}, scaledTo{Name: "older", From: 2, To: 3, Kept: 2, Was: "u", Is: "v"},
		kept{whenGateOff, "pods a", "pods b"}} {
		judgetest.Judge(t, l, of(labkit.Ours, append(good()[:50], bad)...), labkit.Reproduced)
	}
	stuck := rolled(reportName, "b", "a")
	judgetest.Judge(t, l, of(labkit.Stock, secondRelease{stuck}, stillStuck{rolled("alive", "web:2", "web:2"), stuck}), labkit.Reproduced)
	for _, s := range []stillStuck{
		{rolled("alive", "web:2", "web:1"), stuck},
		{rolled("alive", "web:2", "web:2"), rolled(reportName, "b", "b")},
		{rolled("alive", "web:2", "web:2"), rollout{Image: "b", Want: 2}},
	} {
		judgetest.Judge(t, l, of(labkit.Stock, secondRelease{stuck}, s), labkit.Inconclusive)
	}
	judgetest.Judge(t, l, of(labkit.Stock, secondRelease{stuck}), labkit.Inconclusive)
}

func TestDone(t *testing.T) {
	for what, change := range map[string]func(*rollout){
		"":                   func(*rollout) {},
		"not observed":       func(r *rollout) { r.Observed = 2 },
		"not updated":        func(r *rollout) { r.Updated = 1 },
		"not available":      func(r *rollout) { r.Available = 1 },
		"another revision":   func(r *rollout) { r.Revision = "3" },
		"another image":      func(r *rollout) { r.Sets[0].Image = "x" },
		"another ReplicaSet": func(r *rollout) { r.Sets = append(r.Sets, replicaSet{Name: "old", Image: "x", Spec: 1, Status: 1}) },
		"none":               func(r *rollout) { r.Sets = nil },
	} {
		r := rolled("web", "a", "a")
		r.Sets = append(r.Sets, replicaSet{Name: "older", Image: "x"}) // scaled down
		change(&r)
		if _, why := r.done(); (why == "") != (what == "") {
			t.Errorf("%q: %q", what, why)
		}
	}
}

func TestJudgeIdentity(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "hash-identity-v1.2.0")
	of := func(v labkit.Variant, o ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(v)}, o...)
	}
	same, changed := kept{whenOurs, "a", "a"}, kept{whenOurs, "a", "b"}
	judgetest.Cut(t, l, of(labkit.Ours, same, counted{0, deployments}, kept{whenStock, "a", "a"}))
	judgetest.Judge(t, l, of(naive, changed, counted{20, deployments}), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Ours, changed, counted{0, deployments}), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Ours, same, counted{0, deployments}, kept{whenStock, "a", "b"}), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Ours, same, counted{0, deployments}), labkit.Inconclusive)
	judgetest.Judge(t, l, of(naive, same, counted{0, deployments}), labkit.Absent)
	judgetest.Judge(t, l, of(labkit.Ours, same, counted{0, 3}, kept{whenStock, "a", "a"}), labkit.Inconclusive)
	judgetest.Judge(t, l, of(labkit.Ours, changed, counted{1, 3}), labkit.Reproduced)
	judgetest.Judge(t, l, of(naive, changed, counted{1, 3}), labkit.Inconclusive)
}
