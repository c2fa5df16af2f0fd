// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashoracle

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options say what Run does.
type Options struct {
	// Root is the folder of the repository.
	Root string
	// Containers is how many are generated from Seed.
	Containers int
	Seed       int64
	// Workers is how many sets of programs run side by side.
	Workers int
	// Releases to compare with; nil means Releases.
	Releases []Release
	// SchemaEvery asks kubectl-holdfast, which is slower, about one container in
	// so many; 0 and 1 mean all.
	SchemaEvery int
	Log         io.Writer
}

// Report is what Run found.
type Report struct {
	Containers int
	// Asked is how many containers each engine was asked about, Hashes how many
	// hashes were equal, Withheld how many an engine rightly does not give because
	// the release lacks a set field.
	Asked            map[string]int
	Hashes, Withheld int64
	// Mismatches are the differences, at most maxMismatches of them in full.
	Mismatches []string
	Differ     int64
}

const (
	chunk         = 500
	maxMismatches = 10
)

// Run generates containers, half of them decoded from JSON only and half after
// a protobuf round trip, and compares what both engines of ours answer with
// what the code of the releases computes.
func Run(o Options) (Report, error) {
	if o.Releases == nil {
		o.Releases = Releases
	}
	b, err := newBuilder(o.Root, o.Log)
	if err != nil {
		return Report{}, err
	}
	ours, err := b.engines(o.SchemaEvery)
	if err != nil {
		return Report{}, err
	}
	programs := make([]string, len(o.Releases))
	for i, r := range o.Releases {
		if programs[i], err = b.oracle(r); err != nil {
			return Report{}, err
		}
	}
	c := comparison{report: Report{Containers: o.Containers, Asked: map[string]int{}}}
	var next, done atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, max(o.Workers, 1))
	begin := time.Now()
	for w := range errs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			set, err := startSet(ours, programs)
			if err != nil {
				errs[w] = err
				return
			}
			for {
				from := int(next.Add(chunk)) - chunk
				if from >= o.Containers {
					break
				}
				to := min(from+chunk, o.Containers)
				if errs[w] = c.chunk(set, o, from, to); errs[w] != nil {
					break
				}
				if n := done.Add(int64(to - from)); n/100_000 != (n-int64(to-from))/100_000 {
					fmt.Fprintf(o.Log, "%d containers, %d mismatches, %.0f s\n", n, atomic.LoadInt64(&c.report.Differ), time.Since(begin).Seconds())
				}
			}
			errs[w] = errors.Join(errs[w], set.stop())
		}()
	}
	wg.Wait()
	return c.report, errors.Join(errs...)
}

type comparison struct {
	mu     sync.Mutex
	report Report
}

// mode is how a container of the series is decoded.
func mode(number int) byte {
	if number%2 == 0 {
		return 'p'
	}
	return 'j'
}

func (c *comparison) chunk(set *programSet, o Options, from, to int) error {
	containers := make([]Container, to-from)
	var theirs bytes.Buffer
	for i := range containers {
		containers[i] = Generate(o.Seed, from+i)
		theirs.WriteByte(mode(from + i))
		theirs.Write(containers[i].JSON)
		theirs.WriteByte('\n')
	}
	real := make([][][]byte, len(o.Releases))
	for i := range o.Releases {
		lines, err := set.releases[i].ask(theirs.Bytes())
		if err != nil {
			return err
		}
		real[i] = lines
	}
	for _, e := range set.ours {
		var in [2]bytes.Buffer // proto, json
		for i := range containers {
			if n := from + i; n/2%e.every == 0 { // in pairs, so that both modes are
				fmt.Fprintf(&in[n%2], `{"id":%d,"spec":%s}`+"\n", n, containers[i].JSON)
			}
		}
		for m := range in {
			lines, err := e.modes[m].ask(in[m].Bytes())
			if err != nil {
				return err
			}
			c.mu.Lock()
			c.report.Asked[e.name] += len(lines)
			c.mu.Unlock()
			for _, line := range lines {
				var a answer
				if err := json.Unmarshal(line, &a); err != nil || a.ID < from || a.ID >= to {
					return fmt.Errorf("%s answered %q: %v", e.name, line, err)
				}
				var hashes []string
				for _, lines := range real {
					hashes = append(hashes, string(lines[a.ID-from]))
				}
				c.judge(o, e.name, a.ID, containers[a.ID-from], a, hashes)
			}
		}
	}
	return nil
}

// answer is a line of an engine.
type answer struct {
	ID     int
	Hash   map[string]*uint64
	Oldest string
}

// judge compares one container's answer with the releases' hashes.
func (c *comparison) judge(o Options, engine string, number int, container Container, a answer, real []string) {
	var wrong []string
	var equal, withheld int64
	for i, r := range o.Releases {
		minor, _ := strconv.Atoi(strings.TrimPrefix(r.Generation, "1."))
		got := a.Hash[r.Generation]
		switch {
		case got == nil && minor < container.Oldest:
			withheld++
			// The release ignores what it does not know and records a hash all
			// the same. A kubelet must not take it for one of this spec.
			for g, h := range a.Hash {
				if h != nil && strconv.FormatUint(*h, 10) == real[i] {
					wrong = append(wrong, fmt.Sprintf("%s records %s without knowing all fields, and it is accepted as %s", r.Golden, real[i], g))
				}
			}
		case got == nil:
			wrong = append(wrong, fmt.Sprintf("%s: null, the release knows all fields and records %s", r.Generation, real[i]))
		case minor < container.Oldest:
			wrong = append(wrong, fmt.Sprintf("%s: %d, but the release does not know all fields", r.Generation, *got))
		case strconv.FormatUint(*got, 10) != real[i]:
			wrong = append(wrong, fmt.Sprintf("%s: %d, %s records %s", r.Generation, *got, r.Golden, real[i]))
		default:
			equal++
		}
	}
	if want := fmt.Sprintf("1.%d", max(container.Oldest, 7)); a.Oldest != want {
		wrong = append(wrong, fmt.Sprintf("oldest %q, want %s", a.Oldest, want))
	}
	atomic.AddInt64(&c.report.Hashes, equal)
	atomic.AddInt64(&c.report.Withheld, withheld)
	if wrong == nil {
		return
	}
	atomic.AddInt64(&c.report.Differ, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.report.Mismatches) < maxMismatches {
		c.report.Mismatches = append(c.report.Mismatches,
			fmt.Sprintf("%s: container %d of seed %d (mode %c): %s\n%s", engine, number, o.Seed, mode(number), strings.Join(wrong, "; "), container.JSON))
	}
}

// programSet is one process of each program.
type programSet struct {
	ours     []engineSet
	releases []*process
}

// engineSet has an engine's processes: proto, json.
type engineSet struct {
	engine
	modes [2]*process
}

func startSet(ours []engine, releases []string) (*programSet, error) {
	s := &programSet{}
	for _, e := range ours {
		es := engineSet{engine: e}
		for i, m := range []string{"proto", "json"} {
			p, err := start(e.file, e.args(m)...)
			if err != nil {
				return nil, errors.Join(err, es.stop(), s.stop())
			}
			es.modes[i] = p
		}
		s.ours = append(s.ours, es)
	}
	for _, r := range releases {
		p, err := start(r)
		if err != nil {
			return nil, errors.Join(err, s.stop())
		}
		s.releases = append(s.releases, p)
	}
	return s, nil
}

func (e *engineSet) stop() error {
	var errs []error
	for _, p := range e.modes {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	return errors.Join(errs...)
}

func (s *programSet) stop() error {
	var errs []error
	for _, e := range s.ours {
		errs = append(errs, e.stop())
	}
	for _, p := range s.releases {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

// process is a program that answers lines with lines.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errout bytes.Buffer
}

func start(name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...)}
	// The go runtime's second thread would only compete with the other
	// programs.
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	p.cmd.Stderr = &p.errout
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReaderSize(out, 1<<16)
	return p, p.cmd.Start()
}

// ask writes lines and returns as many answers.
func (p *process) ask(lines []byte) ([][]byte, error) {
	written := make(chan error, 1)
	go func() {
		_, err := p.in.Write(lines)
		written <- err
	}()
	answers := make([][]byte, 0, chunk)
	for n := bytes.Count(lines, []byte("\n")); len(answers) < n; {
		line, err := p.out.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%s after %d of %d answers: %v %s", p.cmd.Path, len(answers), n, err, p.errout.String())
		}
		answers = append(answers, bytes.TrimSuffix(line, []byte("\n")))
	}
	return answers, <-written
}

func (p *process) stop() error {
	p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %v %s", p.cmd.Path, err, p.errout.String())
	}
	return nil
}
