// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"
)

// Program is a binary with what the lab must know about it.
type Program struct {
	Path string
	// Base is the release, like "v1.9.11"; component flags depend on it.
	Base string
	// Variant is the build.
	Variant Variant
	// Gates are set by --feature-gates; false for the lab's own gates in the
	// variant ours-gate-off.
	Gates map[string]bool
}

// WithGates returns p with further feature gates.
func (p Program) WithGates(g map[string]bool) Program {
	m := map[string]bool{}
	for _, from := range []map[string]bool{p.Gates, g} {
		for k, v := range from {
			m[k] = v
		}
	}
	p.Gates = m
	return p
}

// GateArgs is the --feature-gates flag for p, or nothing.
func (p Program) GateArgs() []string {
	if len(p.Gates) == 0 {
		return nil
	}
	var gs []string
	for k, v := range p.Gates {
		gs = append(gs, fmt.Sprintf("%s=%t", k, v))
	}
	sort.Strings(gs)
	return []string{"--feature-gates=" + strings.Join(gs, ",")}
}

// minor is 9 for v1.9.11; 0 if Base is malformed.
func (p Program) minor() int {
	var n int
	_, _ = fmt.Sscanf(p.Base, "v1.%d", &n)
	return n
}

// Env is one variant's run: its machine, directory, chance and clock.
type Env struct {
	*Supervisor
	Lab     *Lab
	Variant Variant
	Profile Profile
	Seed    uint64
	// Rand is seeded by Seed, the same in every variant.
	Rand *rand.Rand
	// Root is the repository.
	Root string
	// PKI is the cluster's certificate authority, made at first use by GetPKI.
	pki *PKI

	bins  *Binaries
	up    *upCluster // of the lab up
	out   io.Writer
	file  io.Writer // events.log
	began time.Time

	mu      sync.Mutex
	facts   []string
	numbers []Number
	dumps   []func(context.Context, string) error
	nodes   int
	ports   map[int]bool
}

// Step says what the lab does now, on the console and in events.log.
func (e *Env) Step(format string, a ...any) { e.say("", fmt.Sprintf(format, a...)) }

// Logf writes to events.log only.
func (e *Env) Logf(format string, a ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(e.file, "%s   %s\n", time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, a...))
}

// Fact is a number or observation that is printed below the verdict.
func (e *Env) Fact(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	e.mu.Lock()
	e.facts = append(e.facts, s)
	e.mu.Unlock()
	e.Logf("fact: %s", s)
}

func (e *Env) say(prefix, s string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	fmt.Fprintf(e.file, "%s %s%s\n", now.UTC().Format("15:04:05.000"), prefix, s)
	fmt.Fprintf(e.out, "  %6.1fs  %-13s %s%s\n", now.Sub(e.began).Seconds(), e.Variant, prefix, s)
}

// UnderTest is name of base in the build of the variant that runs, with the
// lab's gates off if that is the variant.
func (e *Env) UnderTest(base, name string) Program {
	p := e.Program(BinaryUnderTest(base, name))
	if e.Variant == GateOff {
		off := map[string]bool{}
		for _, g := range e.Lab.gates {
			off[g] = false
		}
		p = p.WithGates(off)
	}
	return p
}

// Stock is name of base as upstream has it.
func (e *Env) Stock(base, name string) Program { return e.Program(StockBinary(base, name)) }

// Ours is name of base from our build, whatever variant runs.
func (e *Env) Ours(base, name string) Program { return e.Program(Binary{base, Ours, name}) }

// Program is any binary, also one of a lab-only build of a base.
func (e *Env) Program(b Binary) Program {
	b = b.forVariant(e.Variant)
	return Program{Path: e.bins.Path(b), Base: b.Base, Variant: b.Variant}
}

// Path joins elements to the run's directory.
func (e *Env) Path(elem ...string) string {
	return filepath.Join(append([]string{e.Dir}, elem...)...)
}

// FreePort picks a TCP port that was free just now and never picks it again.
func (e *Env) FreePort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		p := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if e.claimPort(p) {
			return p, nil
		}
	}
	return 0, errors.New("no free port in 100 tries")
}

// port is want if nobody has it, else a free one.
func (e *Env) port(want int) (int, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", want))
	if err == nil {
		l.Close()
		if e.claimPort(want) {
			return want, nil
		}
	}
	return e.FreePort()
}

func (e *Env) claimPort(p int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ports[p] {
		return false
	}
	if e.ports == nil {
		e.ports = map[int]bool{}
	}
	e.ports[p] = true
	return true
}

// WaitUntil polls f every 100 ms until it answers true. An error of f is
// remembered, not fatal; the error at the end names what was waited for, the
// bound and the last error.
func (e *Env) WaitUntil(ctx context.Context, what string, bound time.Duration, f func(context.Context) (bool, error)) error {
	return WaitUntil(ctx, what, bound, f)
}

// WaitUntil is Env.WaitUntil without an Env.
func WaitUntil(ctx context.Context, what string, bound time.Duration, f func(context.Context) (bool, error)) error {
	c, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var last error
	for {
		ok, err := f(c)
		if ok && err == nil {
			return nil
		}
		if err != nil && c.Err() == nil {
			last = err
		}
		select {
		case <-c.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
			}
			if last != nil {
				return fmt.Errorf("%s: not within %v; last: %w", what, bound, last)
			}
			return fmt.Errorf("%s: not within %v", what, bound)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// OnDump has f write artefacts into a directory when the answer is wrong,
// inconclusive, or artefacts are kept. It is called before anything is stopped.
func (e *Env) OnDump(f func(ctx context.Context, dir string) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dumps = append(e.dumps, f)
}

func (e *Env) dump(ctx context.Context) {
	e.mu.Lock()
	ds := e.dumps
	e.mu.Unlock()
	dir := e.Path("dump")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		e.Logf("dump: %v", err)
		return
	}
	for _, d := range ds {
		if err := d(ctx, dir); err != nil {
			e.Logf("dump: %v", err)
		}
	}
}
