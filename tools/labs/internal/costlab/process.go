// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costlab

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// Target is a process whose cost is read.
type Target struct {
	Proc *process.Proc
	// ProfilesURL ends with /debug/pprof; TLS is the client's, for https.
	ProfilesURL string
	TLS         *tls.Config
}

// CPU is user and system time that the process took so far, in seconds.
func (t Target) CPU() (float64, error) {
	p, err := procfs.NewProc(t.Proc.PID())
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return stat.CPUTime(), err
}

// memory is resident memory, and how many files are open. The pages of files are apart:
// they are the binary's, and the kernel maps as many around each that is touched as its cache has
// just then, which is not the process's doing.
func (t Target) memory() (map[Quantity]float64, error) {
	p, err := procfs.NewProc(t.Proc.PID())
	if err != nil {
		return nil, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return nil, err
	}
	n, err := p.FileDescriptorsLen()
	return map[Quantity]float64{RSS: float64(status.RssAnon), FilePages: float64(status.RssFile), Files: float64(n)}, err
}

// Meter reads what processes take from its start on.
type Meter struct {
	targets []Target
	begin   []float64
	stop    context.CancelFunc
	done    chan struct{}

	// sum is of samples of what memory returns; both are of the goroutine until
	// done is closed, as is err.
	sum     []map[Quantity]float64
	samples float64
	err     error
}

// StartMeter looks at the targets every two seconds.
func StartMeter(ctx context.Context, targets ...Target) (*Meter, error) {
	m := &Meter{targets: targets, done: make(chan struct{})}
	for _, t := range targets {
		cpu, err := t.CPU()
		if err != nil {
			return nil, err
		}
		m.begin, m.sum = append(m.begin, cpu), append(m.sum, map[Quantity]float64{})
	}
	ctx, m.stop = context.WithCancel(ctx)
	go func() {
		defer close(m.done)
		for m.err == nil {
			if m.err = m.sample(); wait.Pause(ctx, 2*time.Second) != nil {
				return
			}
		}
	}()
	return m, nil
}

func (m *Meter) sample() error {
	for i, t := range m.targets {
		sample, err := t.memory()
		if err != nil {
			return err
		}
		for q, v := range sample {
			m.sum[i][q] += v
		}
	}
	m.samples++
	return nil
}

// Stop has what each target took: CPU, and the means of what memory returns.
func (m *Meter) Stop() ([]map[Quantity]float64, error) {
	m.stop()
	<-m.done
	if m.err != nil {
		return nil, m.err
	}
	for i, t := range m.targets {
		cpu, err := t.CPU()
		if err != nil {
			return nil, err
		}
		for q := range m.sum[i] {
			m.sum[i][q] /= m.samples
		}
		m.sum[i][CPU] = cpu - m.begin[i]
	}
	return m.sum, nil
}

// Inside reads what only the process itself knows, into took: how many goroutines it has,
// the median of five looks, and what its heap is after a collection. The number of
// goroutines is that of their profile: go_goroutines of /metrics has those that collect
// the page, one for each collector.
func (t Target) Inside(ctx context.Context, took map[Quantity]float64) error {
	var all []float64
	for range 5 {
		n, err := t.profile(ctx, "/goroutine?debug=1", "goroutine profile: total ")
		if err != nil {
			return err
		}
		all = append(all, n)
		if err := wait.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
	slices.Sort(all)
	took[Goroutines] = all[len(all)/2]
	heap, err := t.profile(ctx, "/heap?gc=1&debug=1", "# HeapAlloc = ") // of runtime.MemStats
	took[Heap] = heap
	return err
}

// profile reads a number of a profile in text form, that of the line with the prefix.
func (t Target) profile(ctx context.Context, path, prefix string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	url := t.ProfilesURL + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: t.TLS, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s answers %s", url, resp.Status)
	}
	n, err := numberAfter(resp.Body, prefix)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", url, err)
	}
	return n, nil
}

// numberAfter is the number after the prefix, in the line that begins with it.
func numberAfter(r io.Reader, prefix string) (float64, error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		if v, ok := strings.CutPrefix(s.Text(), prefix); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	if err := s.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("it has no line %s…", prefix)
}
