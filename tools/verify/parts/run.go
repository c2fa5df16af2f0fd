// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package parts is what make test runs beside the labs: the parts, one after the other, each
// timed, with a table at the end. A part that fails does not keep the others from running,
// unless they need it.
package parts

import (
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"
)

// Count is what a part found. Skipped tests are named in its output.
type Count struct {
	Passed, Failed, Skipped int
}

// Part is one piece of the tests.
type Part struct {
	Name string
	// Needs names parts without which this one cannot run; it counts as failed
	// when one of them did.
	Needs []string
	Run   func(context.Context) (Count, error)
}

// Run runs the parts and reports whether all passed.
func Run(ctx context.Context, w io.Writer, all []Part) bool {
	begin, cpu := time.Now(), childrenTime()
	failed := map[string]bool{}
	var lines, why []string
	var total Count
	for _, p := range all {
		fmt.Fprintf(w, "\n=== %s\n", p.Name)
		start, before := time.Now(), childrenTime()
		var n Count
		err := missing(p, failed)
		if err == nil {
			n, err = p.Run(ctx)
		}
		if err != nil {
			n.Failed = max(n.Failed, 1)
			fmt.Fprintf(w, "%s: %v\n", p.Name, err)
			why = append(why, fmt.Sprintf("%s failed: %s", p.Name, beginning(err.Error())))
		}
		word := "ok"
		if failed[p.Name] = n.Failed > 0; failed[p.Name] {
			word = "FAILED"
		}
		line := fmt.Sprintf("%-22s %-6s %5d passed %4d failed %7.1f s %7.1f s CPU%s", p.Name, word, n.Passed, n.Failed,
			time.Since(start).Seconds(), (childrenTime() - before).Seconds(), n.skipped())
		fmt.Fprintf(w, "--- %s\n", line)
		lines = append(lines, line)
		total.Passed += n.Passed
		total.Failed += n.Failed
		total.Skipped += n.Skipped
	}
	fmt.Fprintln(w, "\npart                   result")
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
	fmt.Fprintf(w, "all parts took %.1f min, and %.1f min of the processors\n", time.Since(begin).Minutes(), (childrenTime() - cpu).Minutes())
	for _, l := range why {
		fmt.Fprintln(w, l)
	}
	fmt.Fprintf(w, "%d passed, %d failed%s\n", total.Passed, total.Failed, total.skipped())
	return total.Failed == 0
}

// missing says why p cannot run.
func missing(p Part, failed map[string]bool) error {
	for _, n := range p.Needs {
		if failed[n] {
			return fmt.Errorf("not run: it needs the part %q, which failed", n)
		}
	}
	return nil
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

// skipped is the end of a line, if any test was skipped.
func (n Count) skipped() string {
	if n.Skipped == 0 {
		return ""
	}
	return fmt.Sprintf(", %d skipped", n.Skipped)
}
