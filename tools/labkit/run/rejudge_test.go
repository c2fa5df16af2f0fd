// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/tools/build/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

type measured struct{ Lost int }

// steppedLab measures, and judges what it measured.
var steppedLab = labkit.Lab{Name: "t-steps", Summary: "test", Variants: []labkit.Variant{labkit.Ours},
	Steps: func(e *labkit.Env) []labkit.Step {
		return []labkit.Step{{Text: "measure", Do: func(context.Context) error { e.Record(measured{2}); return nil }}}
	},
	Oracle: labkit.Oracle{Text: []string{"2 are lost at most"}, Judge: func(h *history.History) labkit.Outcome {
		if n := history.One[measured](h).Lost; n > 2 {
			return labkit.ReproducedBecause("%d are lost", n)
		}
		return labkit.AbsentBecause("few are lost")
	}}}

// TestRejudge: what a run left is judged again, and what was tampered with differently.
func TestRejudge(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a machine's namespaces need root")
	}
	root, out := t.TempDir(), &bytes.Buffer{}
	l := testLab(t, "t-steps")
	outs, err := runLab(context.Background(), l, l.Runs(), root, &labkit.Binaries{}, Options{Profile: labkit.Short, Keep: true, Out: out})
	if err != nil || len(outs) != 1 || !outs[0].AsExpected() || !strings.Contains(out.String(), "1. measure\n    2. oracle: 2 are lost at most") {
		t.Fatalf("%+v %v\n%s", outs, err, out)
	}
	dir := filepath.Join(root, outs[0].Artefacts)
	again, err := Rejudge(out, labkit.Labs{l}, filepath.Dir(dir))
	if err != nil || len(again) != 1 || again[0].Verdict != labkit.Absent || again[0].Variant != labkit.Ours {
		t.Errorf("%+v %v", again, err)
	}
	file := filepath.Join(dir, history.File)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for verdict, text := range map[labkit.Verdict]string{
		labkit.Reproduced:   strings.Replace(string(raw), `"Lost":2`, `"Lost":3`, 1),
		labkit.Inconclusive: string(raw[:len(raw)/2]),
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		again, err := Rejudge(out, labkit.Labs{l}, dir)
		if f := Failed(nil); !errors.As(err, &f) || len(again) != 1 || again[0].Verdict != verdict {
			t.Errorf("want %s: %+v %v", verdict, again, err)
		}
	}
	if _, err := Rejudge(out, labkit.Labs{l}, t.TempDir()); exit.Code(err) != 1 || !strings.Contains(err.Error(), "has no history.jsonl") {
		t.Error(err)
	}
}
