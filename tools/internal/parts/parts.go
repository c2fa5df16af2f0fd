// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package parts runs the parts of `make test` one after the other, times each,
// and closes with a table. A part that fails does not keep the others from
// running, unless they need it. Beside a part that waits most of its time others run too.
package parts

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Count is what a part found. Skipped tests are named in its output.
type Count struct {
	Passed, Failed, Skipped int
	// CPU is the processors' time of the programs that the part ran, set by this package.
	CPU time.Duration
	// Why is the error that the part ended in, set by this package.
	Why string
}

// Part is one piece of the tests.
type Part struct {
	Name string
	// Needs names parts without which this one cannot run; it counts as failed
	// when one of them did.
	Needs []string
	// Fresh says that Select brings what it needs: it would run what was built of other
	// sources, and say nothing of it. The others are quick to ask for alone (make check).
	Fresh bool
	// Waits says that the part leaves much of the processors' time to others, Beside that it
	// may have it: it can be run in another process, and harms no part that Waits.
	Waits, Beside bool
	Run           func() (Count, error)
}

// Aside runs one part in another process, which gives way to this one's, and returns what that
// printed, headline and result included.
type Aside func(Part) (output []byte, n Count, err error)

// Budget is what all parts together may take on two cores from empty caches.
const Budget = 60 * time.Minute

// atOnce is how many parts run Beside one that Waits: once that has ended, one alone would not
// keep both processors of the smallest machine busy.
const atOnce = 2

// Run runs the parts and reports whether all passed. Where one of them Waits, those that may run
// Beside it do so, two at once and in their order, by aside. Without aside all run here.
func Run(w io.Writer, all []Part, aside Aside) bool {
	begin := time.Now()
	w = &lockedWriter{w: w}
	r := &results{failed: map[string]bool{}}
	waits := slices.IndexFunc(all, func(p Part) bool { return p.Waits })
	if aside == nil || waits < 0 {
		for _, p := range all {
			r.here(w, p)
		}
	} else {
		// What has to wait for none of the others' processors.
		var besides []Part
		for i, p := range all {
			switch {
			case p.Beside:
				besides = append(besides, p)
			case i != waits:
				r.here(w, p)
			}
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.here(w, all[waits])
		}()
		next := make(chan Part)
		var workers sync.WaitGroup
		for range atOnce {
			workers.Go(func() {
				for p := range next {
					r.aside(w, p, aside)
				}
			})
		}
		for _, p := range besides {
			next <- p
		}
		close(next)
		workers.Wait()
		<-ended
	}
	took := time.Since(begin)
	fmt.Fprintln(w, "\npart                   result")
	for _, l := range r.lines {
		fmt.Fprintln(w, l)
	}
	fmt.Fprintf(w, "all parts took %.1f min of a budget of %.0f min, and %.1f min of the processors\n", took.Minutes(), Budget.Minutes(), r.total.CPU.Minutes())
	for _, l := range r.why {
		fmt.Fprintln(w, l)
	}
	fmt.Fprintf(w, "%d passed, %d failed%s\n", r.total.Passed, r.total.Failed, r.total.skipped())
	return r.total.Failed == 0
}

// One runs one part, between a headline and a line with its result, and returns what it found. A
// part that ends in an error has failed at least once.
func One(w io.Writer, p Part) Count {
	n, _ := one(w, p, nil, func() time.Duration { return 0 })
	return n
}

// one is One for a part that is not run, because of err, or that runs with a nil err. others is
// the processors' time of those that ran aside and have ended, which is none of this part's.
func one(w io.Writer, p Part, err error, others func() time.Duration) (Count, string) {
	fmt.Fprintf(w, "\n=== %s\n", p.Name)
	start, before := time.Now(), childrenTime()-others()
	var n Count
	if err == nil {
		n, err = p.Run()
	}
	n.CPU = max(0, childrenTime()-others()-before)
	if err != nil {
		n.fail(err)
		fmt.Fprintf(w, "%s: %v\n", p.Name, err)
	}
	l := line(p, n, time.Since(start))
	fmt.Fprintf(w, "--- %s\n", l)
	return n, l
}

func line(p Part, n Count, took time.Duration) string {
	word := "ok"
	if n.Failed > 0 {
		word = "FAILED"
	}
	return fmt.Sprintf("%-22s %-6s %5d passed %4d failed %7.1f s %7.1f s CPU", p.Name, word, n.Passed, n.Failed, took.Seconds(), n.CPU.Seconds()) + n.skipped()
}

// childrenTime is the processors' time of the programs that this one ran and that have ended,
// and of what these ran.
func childrenTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// results are those of the parts that have ended.
type results struct {
	mu     sync.Mutex
	failed map[string]bool
	lines  []string
	why    []string
	total  Count
	beside time.Duration // processors' time of those that ran aside
}

// here runs p in this process.
func (r *results) here(w io.Writer, p Part) {
	n, l := one(w, p, r.missing(p), func() time.Duration {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.beside
	})
	r.add(p, n, l)
}

// aside runs p in another process and shows what it printed in one piece.
func (r *results) aside(w io.Writer, p Part, aside Aside) {
	if r.missing(p) != nil {
		r.here(w, p)
		return
	}
	start := time.Now()
	out, n, err := aside(p)
	if err != nil {
		n.fail(err)
		out = fmt.Appendf(out, "%s: %v\n", p.Name, err)
	}
	w.Write(out)
	r.mu.Lock()
	r.beside += n.CPU
	r.mu.Unlock()
	r.add(p, n, line(p, n, time.Since(start))+", beside others")
}

func (r *results) add(p Part, n Count, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed[p.Name] = n.Failed > 0
	r.lines = append(r.lines, line)
	if n.Why != "" {
		r.why = append(r.why, fmt.Sprintf("%s failed: %s", p.Name, beginning(n.Why)))
	}
	r.total.Passed += n.Passed
	r.total.Failed += n.Failed
	r.total.Skipped += n.Skipped
	r.total.CPU += n.CPU
}

// beginning is as much of an error as the end of the output can repeat: of a log that is cut off
// at its beginning, that is what is left.
func beginning(why string) string {
	const lines, bytes = 4, 500
	why = strings.TrimSpace(why)
	all := strings.SplitN(why, "\n", lines+1)
	short := strings.Join(all[:min(lines, len(all))], "\n")
	if len(short) > bytes {
		short = strings.ToValidUTF8(short[:bytes], "")
	}
	if len(short) < len(why) {
		short += " … (whole above)"
	}
	return short
}

// missing says why p cannot run.
func (r *results) missing(p Part) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range p.Needs {
		if r.failed[n] {
			return fmt.Errorf("not run: it needs the part %q, which failed", n)
		}
	}
	return nil
}

// fail notes the error that a part ended in: it has failed at least once.
func (n *Count) fail(err error) { n.Failed, n.Why = max(n.Failed, 1), err.Error() }

// skipped is the end of a line, if any test was skipped.
func (n Count) skipped() string {
	if n.Skipped == 0 {
		return ""
	}
	return fmt.Sprintf(", %d skipped", n.Skipped)
}

// lockedWriter is written to by the part that waits and by those beside it.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// Select is the parts of all with these names, in the order of all, and where one is Fresh
// those that it needs, and that these need; without names it is all.
func Select(all []Part, names []string) []Part {
	if len(names) == 0 {
		return all
	}
	wanted, fresh := map[string]bool{}, map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	var out []Part
	// A part needs only parts before it.
	for _, p := range slices.Backward(all) {
		if !wanted[p.Name] {
			continue
		}
		if p.Fresh || fresh[p.Name] {
			for _, n := range p.Needs {
				wanted[n], fresh[n] = true, true
			}
		}
		out = append(out, p)
	}
	slices.Reverse(out)
	return out
}
