// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

type seen struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

type other struct{ X int }

func written(t *testing.T, f func(*Writer)) string {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, Begin{Lab: "l", Variant: "ours", Profile: "short", Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	f(w)
	return b.String()
}

func whole(w *Writer) {
	w.Record(seen{"a", 1})
	w.Record(&other{7})
	w.Record(seen{"b", 2})
	_ = w.End()
	w.Record(seen{"late", 3})
}

func TestRoundTrip(t *testing.T) {
	h, err := Read(strings.NewReader(written(t, whole)))
	if err != nil || h.Whole() != nil {
		t.Fatal(err, h.Whole())
	}
	if h.Begin != (Begin{"l", "ours", "short", 3}) {
		t.Errorf("%+v", h.Begin)
	}
	if got := Of[seen](h); !reflect.DeepEqual(got, []seen{{"a", 1}, {"b", 2}}) {
		t.Errorf("%+v", got)
	}
	if got := One[other](h); got.X != 7 || h.Err() != nil {
		t.Error(got, h.Err())
	}
	if One[seen](h); h.Err() == nil || !strings.Contains(h.Err().Error(), "2 lines of kind seen, want 1") {
		t.Error(h.Err())
	}
}

// TestNotWhole: whatever is missing, the history says so.
func TestNotWhole(t *testing.T) {
	text := written(t, whole)
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	for i := range len(text) - 1 {
		h, err := Read(strings.NewReader(text[:i]))
		if err != nil {
			t.Fatal(err)
		}
		// Of the last line only the line feed may be missing.
		if h.Whole() == nil {
			t.Fatalf("the first %d of %d bytes are taken for all", i, len(text))
		}
	}
	for i := range lines {
		cut := strings.Join(append(append([]string{}, lines[:i]...), lines[i+1:]...), "")
		if h, _ := Read(strings.NewReader(cut)); h.Whole() == nil {
			t.Errorf("line %d may be missing", i+1)
		}
	}
	for want, text := range map[string]string{
		"it is empty":                "",
		"line 2 is no JSON":          lines[0] + "{\n",
		"a line after the end":       text + lines[1],
		"it begins with":             `{"n":1,"kind":"seen"}`,
		"the run failed: no etcd":    written(t, func(w *Writer) { w.Fail(errors.New("no etcd")); _ = w.End() }),
		"it ends after line 2, of k": written(t, func(w *Writer) { w.Record(seen{}) }),
	} {
		if h, err := Read(strings.NewReader(text)); err != nil || h.Whole() == nil || !strings.Contains(h.Whole().Error(), want) {
			t.Errorf("%v, %v; want %q", h.Whole(), err, want)
		}
	}
}

func TestDecode(t *testing.T) {
	text := strings.Replace(written(t, whole), `"name":"a"`, `"nome":"a"`, 1)
	h, err := Read(strings.NewReader(text))
	if err != nil || h.Whole() != nil {
		t.Fatal(err, h.Whole())
	}
	if Of[seen](h); h.Err() == nil || !strings.Contains(h.Err().Error(), `line 2, of kind seen: json: unknown field "nome"`) {
		t.Error(h.Err())
	}
}

func TestCannotBeRecorded(t *testing.T) {
	for want, v := range map[string]any{"has no name": struct{ A int }{}, "record unsupported": unsupported{func() {}}} {
		w, _ := NewWriter(&bytes.Buffer{}, Begin{})
		w.Record(v)
		if err := w.End(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

type unsupported struct{ F func() }
