// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package judgetest holds what every oracle must do with a history from which
// something is missing.
package judgetest

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/sweep"
)

// Lab is the one of that name among a folder's labs, with nothing of what the fixes say of it.
func Lab(t *testing.T, all []labkit.Lab, name string) *labkit.Lab {
	t.Helper()
	i := slices.IndexFunc(all, func(l labkit.Lab) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("there is no lab %s", name)
	}
	return &all[i]
}

// Judge fails the test unless the lab gives that verdict.
func Judge(t *testing.T, l *labkit.Lab, h *history.History, want labkit.Verdict) labkit.Outcome {
	t.Helper()
	res := l.Judge(h)
	if res.Verdict != want {
		t.Errorf("%s, %s: %s because %s; want %s", l.Name, h.Variant, res.Verdict, res.Why, want)
	}
	return res
}

// Cut has the lab judge a history that it calls absent (a check: passed), cut off. As the file of a run
// that was killed: every part of it must be inconclusive. And as if less had been
// observed: without its last lines, and without each single line, but with its end.
// That must be neither, unless spare says so of the kinds of lines that are gone. The lines of a
// sweep must not move the verdict.
func Cut(t *testing.T, l *labkit.Lab, h *history.History, spare ...string) {
	t.Helper()
	good := labkit.Absent
	if l.Check() {
		good = labkit.Passed
	}
	told := Judge(t, l, h, good)
	unmoved(t, l, h, told)
	var text []byte
	for _, line := range h.Lines {
		b, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, b...), '\n')
	}
	for i := 0; i < len(text)-1; i += 1 + len(text)/500 {
		cut, err := history.Read(bytes.NewReader(text[:i]))
		if err != nil {
			t.Fatal(err)
		}
		if res := l.Judge(cut); res.Verdict != labkit.Inconclusive {
			t.Fatalf("%s: the first %d of %d bytes: %s because %s", l.Name, i, len(text), res.Verdict, res.Why)
		}
	}
	isSpare := map[string]bool{}
	for _, k := range spare {
		isSpare[k] = true
	}
	body := h.Lines[1 : len(h.Lines)-1]
	check := func(what string, kept, gone []history.Line) {
		for _, g := range gone {
			if isSpare[g.Kind] {
				continue
			}
			if res := l.Judge(again(t, h, kept)); res.Verdict == good {
				t.Errorf("%s: %s, of kind %s: still so because %s", l.Name, what, g.Kind, res.Why)
			}
			return
		}
	}
	for i := range body {
		check("without the last observations", body[:i], body[i:])
		check("without one observation", append(append([]history.Line{}, body[:i]...), body[i+1:]...), body[i:i+1])
	}
}

// unmoved has the lab judge the history with the lines of a kill test in it, which no oracle heeds.
func unmoved(t *testing.T, l *labkit.Lab, h *history.History, told labkit.Outcome) {
	t.Helper()
	marks := history.Make(h.Begin, sweep.Marks()...).Lines
	marks = marks[1 : len(marks)-1]
	body := h.Lines[1 : len(h.Lines)-1]
	for _, at := range []int{0, len(body) / 2, len(body)} {
		with := slices.Concat(body[:at], marks, body[at:])
		if res := l.Judge(again(t, h, with)); res.Verdict != told.Verdict || res.Why != told.Why {
			t.Errorf("%s: with the lines of a kill test: %s because %s; was %s because %s", l.Name, res.Verdict, res.Why, told.Verdict, told.Why)
		}
	}
}

// again is a whole history of these observations.
func again(t *testing.T, h *history.History, lines []history.Line) *history.History {
	t.Helper()
	all := append([]history.Line{h.Lines[0]}, lines...)
	all = append(all, h.Lines[len(h.Lines)-1])
	var buf bytes.Buffer
	for i, line := range all {
		line.N = i + 1
		b, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		buf.Write(append(b, '\n'))
	}
	out, err := history.Read(&buf)
	if err != nil || out.Whole() != nil {
		t.Fatal(err, out.Whole())
	}
	return out
}
