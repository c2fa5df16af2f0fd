// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history is what a run of a lab observed, as JSON lines: written while it
// runs, read by the oracle, and read again by lab rejudge.
//
// A line is {"n":3,"at":"…","kind":"swapped","data":{…}}: n counts from 1 without a
// gap, kind is the name of the Go type that data was made of. The first line is of
// kind begin, the last one of kind end. A history without its end, or with a line
// that is missing or cannot be read, proves nothing.
package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"
)

// File is the name of the history in a run's directory.
const File = "history.jsonl"

// Begin says what was run.
type Begin struct {
	Lab     string `json:"lab"`
	Variant string `json:"variant"`
	Profile string `json:"profile"`
	Seed    uint64 `json:"seed"`
}

// kinds of the lines that are the kit's own.
const (
	kindBegin = "begin"
	kindEnd   = "end"
	kindError = "error"
)

// Line is one observation.
type Line struct {
	N    int             `json:"n"`
	At   time.Time       `json:"at"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Writer appends lines. It may be used by several goroutines.
type Writer struct {
	mu     sync.Mutex
	w      io.Writer
	n      int
	closed bool
	err    error
}

// NewWriter writes the first line.
func NewWriter(w io.Writer, b Begin) (*Writer, error) {
	h := &Writer{w: w}
	h.add(kindBegin, b)
	return h, h.err
}

// Record appends an observation. Its type, which must be named, is the line's kind:
// so Of finds it again. What cannot be written is the error of End.
func (h *Writer) Record(v any) { h.add(kind(reflect.TypeOf(v)), v) }

// Fail says why the run did not come to its end.
func (h *Writer) Fail(err error) { h.add(kindError, err.Error()) }

// End appends the last line. What is recorded after it is dropped: a goroutine may
// be late.
func (h *Writer) End() error {
	h.add(kindEnd, nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return h.err
}

func (h *Writer) add(kind string, v any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.err != nil {
		return
	}
	if kind == "" {
		h.err = fmt.Errorf("history: a %T cannot be recorded: its type has no name", v)
		return
	}
	h.n++
	l := Line{N: h.n, At: time.Now().UTC(), Kind: kind}
	if v != nil {
		if l.Data, h.err = json.Marshal(v); h.err != nil {
			h.err = fmt.Errorf("history: record %s: %w", kind, h.err)
			return
		}
	}
	b, err := json.Marshal(l)
	if err == nil {
		_, err = h.w.Write(append(b, '\n'))
	}
	if err != nil {
		h.err = fmt.Errorf("history: %w", err)
	}
}

func kind(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return ""
	}
	return t.Name()
}

// History is what was read.
type History struct {
	Begin
	Lines []Line

	whole error // why it is not whole
	read  error // why a line could not be decoded, see Of
}

// Read reads what a Writer wrote. A history that was cut off is returned as far as
// it goes, and Whole says so; an error is of the reader.
func Read(r io.Reader) (*History, error) {
	h := &History{whole: errors.New("it is empty")}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 64<<20)
	ended := false
	for s.Scan() {
		var l Line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			h.whole = fmt.Errorf("line %d is no JSON: %w", len(h.Lines)+1, err)
			return h, s.Err()
		}
		switch want := len(h.Lines) + 1; {
		case ended:
			h.whole = errors.New("there is a line after the end")
			return h, nil
		case l.N != want:
			h.whole = fmt.Errorf("line %d is missing", want)
			return h, nil
		case l.N == 1:
			if l.Kind != kindBegin {
				h.whole = fmt.Errorf("it begins with %q", l.Kind)
				return h, nil
			}
			if err := json.Unmarshal(l.Data, &h.Begin); err != nil {
				h.whole = fmt.Errorf("line 1: %w", err)
				return h, nil
			}
		}
		h.Lines = append(h.Lines, l)
		switch l.Kind {
		case kindEnd:
			ended, h.whole = true, nil
		case kindError:
			var why string
			_ = json.Unmarshal(l.Data, &why)
			h.whole = errors.New("the run failed: " + why)
			return h, nil
		default:
			h.whole = fmt.Errorf("it ends after line %d, of kind %s", l.N, l.Kind)
		}
	}
	return h, s.Err()
}

// Whole is nil if the history has all lines from its begin to its end.
func (h *History) Whole() error { return h.whole }

// Err is nil if all that Of and One were asked for could be read.
func (h *History) Err() error { return h.read }

// Of are the observations of that type, in their order.
func Of[T any](h *History) []T {
	var out []T
	Each(h, func(_ Line, v T) { out = append(out, v) })
	return out
}

// Each calls f with the observations of that type and their lines.
func Each[T any](h *History, f func(Line, T)) {
	k := kind(reflect.TypeFor[T]())
	for _, l := range h.Lines {
		if l.Kind != k {
			continue
		}
		var v T
		d := json.NewDecoder(bytes.NewReader(l.Data))
		d.DisallowUnknownFields()
		if err := d.Decode(&v); err != nil {
			h.fail(fmt.Errorf("line %d, of kind %s: %w", l.N, k, err))
			return
		}
		f(l, v)
	}
}

// One is the observation of a type of which there must be one.
func One[T any](h *History) T {
	all := Of[T](h)
	if len(all) != 1 {
		h.fail(fmt.Errorf("it has %d lines of kind %s, want 1", len(all), kind(reflect.TypeFor[T]())))
		var zero T
		return zero
	}
	return all[0]
}

func (h *History) fail(err error) {
	if h.read == nil {
		h.read = err
	}
}

// Make is a whole history of these observations, for tests of an oracle.
func Make(b Begin, observations ...any) *History {
	var buf bytes.Buffer
	w, err := NewWriter(&buf, b)
	for _, o := range observations {
		w.Record(o)
	}
	h, rerr := &History{}, error(nil)
	if err = errors.Join(err, w.End()); err == nil {
		h, rerr = Read(&buf)
	}
	if err := errors.Join(err, rerr); err != nil {
		panic(err)
	}
	return h
}
