// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/journal"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/machine"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/process"
)

type looked struct{ Bad bool }

// stepsLab records in its first step what first returns and bad, and says which steps ran.
func stepsLab(first error, ran *[]string) *Lab {
	return &Lab{Name: "a", Summary: "s",
		Steps: func(e *Env) []Step {
			do := func(name string, err error) func(context.Context) error {
				return func(context.Context) error {
					*ran = append(*ran, name)
					e.Record(looked{Bad: errors.Is(err, Enough)})
					return err
				}
			}
			return []Step{{Text: "look, " + string(e.Profile), Do: do("look", first)}, {Text: "look again", Do: do("again", nil)},
				{Text: "alive", Do: do("alive", nil), Always: true}}
		},
		Oracle: Oracle{Text: []string{"nothing is bad"}, Judge: func(h *history.History) Outcome {
			for _, o := range history.Of[looked](h) {
				if o.Bad {
					return ReproducedBecause("bad")
				}
			}
			return AbsentBecause("good")
		}},
	}
}

func drive(t *testing.T, l *Lab) (Outcome, *history.History, error) {
	t.Helper()
	sup, err := process.NewSupervisor(t.TempDir(), "x")
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.New(sup.Dir, history.Begin{Lab: l.Name, Variant: "ours"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	e := &Env{Starter: node.NewStarter(kube.NewStarter(machine.New(sup, j)), ""), Lab: l}
	res, err := l.Drive(context.Background(), e)
	h, herr := ReadHistory(e.Path(history.File))
	if herr != nil {
		t.Fatal(herr)
	}
	return res, h, err
}

func TestDrive(t *testing.T) {
	for _, c := range []struct {
		first   error
		ran     string
		verdict Verdict // of the run, "" for an error
	}{
		{nil, "look again alive", Absent},
		{Enough, "look alive", Reproduced},
		{errors.New("no etcd"), "look", ""},
	} {
		var ran []string
		l := stepsLab(c.first, &ran)
		if err := l.validate(); err != nil {
			t.Fatal(err)
		}
		res, h, err := drive(t, l)
		if strings.Join(ran, " ") != c.ran || res.Verdict != c.verdict || (err == nil) != (c.verdict != "") {
			t.Errorf("%v: ran %v, %+v, %v", c.first, ran, res, err)
		}
		// Judged again, the answer is the same; a run that failed proves nothing.
		again := l.Judge(h)
		if err == nil && again.Verdict != res.Verdict || err != nil && (again.Verdict != Inconclusive || !strings.Contains(again.Why, "step 1: no etcd")) {
			t.Errorf("%v: again %+v", c.first, again)
		}
	}
}

func TestPlanOf(t *testing.T) {
	l := stepsLab(nil, nil)
	if got := l.PlanOf(Stock, Long, 1); !slices.Equal(got, []string{"look, long", "look again", "alive", "oracle: nothing is bad"}) {
		t.Errorf("%q", got)
	}
}

func TestJudgeAnotherLabs(t *testing.T) {
	l := stepsLab(nil, nil)
	if res := l.Judge(history.Make(history.Begin{Lab: "b"}, looked{})); res.Verdict != Inconclusive || !strings.Contains(res.Why, "of lab b, not of a") {
		t.Errorf("%+v", res)
	}
	if res := l.Judge(history.Make(history.Begin{Lab: "a"}, looked{})); res.Verdict != Absent {
		t.Errorf("%+v", res)
	}
}
