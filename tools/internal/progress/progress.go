// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress tells a person what a long step is doing: a live line on a
// terminal, plain lines elsewhere.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Step is one long piece of work.
type Step struct {
	name  string
	start time.Time
	now   atomic.Value // string: what is being done
	pool  *mpb.Progress
	bar   *mpb.Bar
}

// Start begins a step on standard error.
func Start(format string, args ...any) *Step {
	s := &Step{name: fmt.Sprintf(format, args...), start: time.Now()}
	s.now.Store("")
	if !terminal(os.Stderr) {
		fmt.Fprintf(os.Stderr, "%s …\n", s.name)
		return s
	}
	s.pool = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(1))
	s.bar = s.pool.New(0, mpb.SpinnerStyle(), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(s.name+" ")),
		mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_GO), decor.Any(func(decor.Statistics) string {
			return " " + s.now.Load().(string)
		})))
	return s
}

// Now says what the step is at; it is shown on a terminal only.
func (s *Step) Now(text string) { s.now.Store(text) }

// Done ends the step and prints how long it took and the notes.
func (s *Step) Done(notes string) {
	s.end()
	if notes != "" {
		notes = ", " + notes
	}
	fmt.Fprintf(os.Stderr, "%s: %.1f s%s\n", s.name, time.Since(s.start).Seconds(), notes)
}

// Fail ends the step without a good word; the error is the caller's to print.
func (s *Step) Fail() {
	s.end()
	fmt.Fprintf(os.Stderr, "%s: failed after %.1f s\n", s.name, time.Since(s.start).Seconds())
}

func (s *Step) end() {
	if s.bar != nil {
		s.bar.Abort(true)
		s.pool.Wait()
	}
}

// terminal reports whether f is one.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// LastLine is a writer that hands each line it gets to Now, for a command that
// prints what it does, and to w.
func (s *Step) LastLine(w io.Writer) io.Writer { return &liner{step: s, w: w} }

type liner struct {
	step *Step
	w    io.Writer
	part []byte
}

func (l *liner) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\n' {
			l.part = append(l.part, c)
			continue
		}
		l.step.Now(string(l.part))
		l.part = l.part[:0]
	}
	return l.w.Write(p)
}
