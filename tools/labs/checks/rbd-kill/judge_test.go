// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdkill

import (
	"fmt"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/rbdlab"
)

// good are the observations of a run: a kill and a look, for each attach and each detach.
func good() []any {
	var all []any
	files := map[string]string{rbdlab.DataFile: rbdlab.DataOf(img)}
	for round := 1; round <= rounds; round++ {
		pod := fmt.Sprintf("round-%d", round)
		all = append(all,
			struck{round, false, "the kubelet"},
			rbdlab.State{Image: img, When: blow{Round: round}.when(), Watchers: []string{"10.90.0.11:0/1"}, Pods: map[string]rbdlab.PodState{pod: {Phase: "Running"}}},
			struck{round, true, "the kubelet"},
			rbdlab.State{Image: img, When: blow{Round: round, Detach: true}.when(), Seconds: 3})
		files[pod] = "written"
	}
	return append(all, rbdlab.Contents{Image: img, When: "at the end", Files: files})
}

func made(all []any) *history.History {
	return history.Make(history.Begin{Lab: "rbd-kill", Variant: string(labkit.Ours), Profile: string(labkit.Long)}, all...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rbd-kill")
	judgetest.Cut(t, l, made(good()))
	for name, c := range map[string]struct {
		at   int
		by   any
		want labkit.Verdict
	}{
		"does not run": {5, rbdlab.State{Image: img, When: blow{Round: 2}.when()}, labkit.Failed},
		"watched":      {7, rbdlab.State{Image: img, When: blow{Round: 2, Detach: true}.when(), Watchers: []string{"x"}}, labkit.Failed},
		"in use":       {7, rbdlab.State{Image: img, When: blow{Round: 2, Detach: true}.when(), InUse: map[string][]string{"node1": {"v"}}}, labkit.Failed},
		"pod stays":    {7, rbdlab.State{Image: img, When: blow{Round: 2, Detach: true}.when(), Pods: map[string]rbdlab.PodState{"round-2": {}}}, labkit.Failed},
		"unclean":      {4 * rounds, rbdlab.Contents{Image: img, When: "at the end", Fsck: "exit status 4"}, labkit.Failed},
		"no files":     {4 * rounds, rbdlab.Contents{Image: img, When: "at the end", Files: map[string]string{rbdlab.DataFile: rbdlab.DataOf(img)}}, labkit.Failed},
	} {
		all := good()
		all[c.at] = c.by
		t.Log(name)
		judgetest.Judge(t, l, made(all), c.want)
	}
	// Nothing was killed.
	all := good()
	for i, o := range all {
		if s, ok := o.(struck); ok {
			s.Hit = "nothing: no read-only rbd command ran"
			all[i] = s
		}
	}
	judgetest.Judge(t, l, made(all), labkit.Inconclusive)
}

// The kills are those of the seed.
func TestBlows(t *testing.T) {
	of := func(seed uint64) []blow {
		return blows(&labkit.Env{Seed: seed, Rand: labkit.NewRand("rbd-kill", seed)})
	}
	if a, b, c := fmt.Sprint(of(1)), fmt.Sprint(of(1)), fmt.Sprint(of(2)); a != b || a == c || len(of(1)) != 2*rounds {
		t.Errorf("%s\n%s\n%s", a, b, c)
	}
}
