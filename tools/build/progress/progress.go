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
	"golang.org/x/sys/unix"
)

// Step is one long piece of work.
type Step struct {
	name  string
	start time.Time
	now   atomic.Value // string: what is being done
	pool  *mpb.Progress
	bar   *mpb.Bar
	w     io.Writer     // where plain lines go
	stop  chan struct{} // closed at the end, where there is no terminal
	quiet chan struct{} // closed when no plain line comes any more
}

// every is how long a step without a terminal is silent at most.
var every = 30 * time.Second

// Start begins a step on standard error.
func Start(format string, args ...any) *Step {
	if !terminal(os.Stderr) {
		return plain(os.Stderr, fmt.Sprintf(format, args...))
	}
	s := newStep(os.Stderr, fmt.Sprintf(format, args...))
	s.pool = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(1))
	s.bar = s.pool.New(0, mpb.SpinnerStyle(), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(s.name+" ")),
		mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_GO), decor.Any(func(decor.Statistics) string {
			return " " + s.now.Load().(string)
		})))
	return s
}

func newStep(w io.Writer, name string) *Step {
	s := &Step{name: name, start: time.Now(), w: w}
	s.now.Store("")
	return s
}

// plain begins a step that prints a line now and then.
func plain(w io.Writer, name string) *Step {
	s := newStep(w, name)
	s.stop, s.quiet = make(chan struct{}), make(chan struct{})
	fmt.Fprintf(w, "%s …\n", s.name)
	tick := time.NewTicker(every)
	go func() {
		defer close(s.quiet)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-tick.C:
				at := s.now.Load().(string)
				if at != "" {
					at = ": " + at
				}
				fmt.Fprintf(w, "%s … %.0f s%s\n", s.name, time.Since(s.start).Seconds(), at)
			}
		}
	}()
	return s
}

// Now says what the step is at. It is shown on a terminal at once, elsewhere
// in the next plain line.
func (s *Step) Now(text string) { s.now.Store(text) }

// Done ends the step and prints how long it took and the notes.
func (s *Step) Done(notes string) {
	s.end()
	if notes != "" {
		notes = ", " + notes
	}
	fmt.Fprintf(s.w, "%s: %.1f s%s\n", s.name, time.Since(s.start).Seconds(), notes)
}

// Fail ends the step without a good word; the error is the caller's to print.
func (s *Step) Fail() {
	s.end()
	fmt.Fprintf(s.w, "%s: failed after %.1f s\n", s.name, time.Since(s.start).Seconds())
}

func (s *Step) end() {
	if s.bar != nil {
		s.bar.Abort(true)
		s.pool.Wait()
		return
	}
	close(s.stop)
	<-s.quiet
}

// terminal reports whether f is one.
func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("TERM") != "dumb"
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
