// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package load asks addresses over HTTP, steadily or once.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config is a steady HTTP load on addresses that may change.
type Config struct {
	// Targets are "ip:port"; asked before every request. Requests go round.
	Targets func() []string
	// Path is requested; default "/".
	Path string
	// Interval between two requests of one worker; default 20 ms.
	Interval time.Duration
	// Timeout of a request, default 10 s. Every request has its own connection. An address
	// that nobody has answers with a refusal, or within 3 s by "no route to host": what takes
	// longer is a busy machine.
	Timeout time.Duration
	// Workers run at the same time; default 2.
	Workers int
	// Want, if set, decides on a 200 answer's body.
	Want func(body string) error
}

// Failure is one failed request.
type Failure struct {
	Time   time.Time
	Target string // "" if there was none
	Err    string
}

// Report is what a load counted.
type Report struct {
	OK, Failed int
	NoTarget   int       // of Failed, because Targets was empty
	TimedOut   int       // of Failed, without an answer within Timeout
	Failures   []Failure // the first 200
	Bodies     map[string]int
}

func (r Report) String() string {
	s := fmt.Sprintf("%d requests, %d failed (%d because there was no address)", r.OK+r.Failed, r.Failed, r.NoTarget)
	if r.TimedOut > 0 {
		s += fmt.Sprintf(" (%d without an answer in time)", r.TimedOut)
	}
	if len(r.Failures) > 0 {
		f := r.Failures[0]
		s += fmt.Sprintf("; first at %s: %s %s", f.Time.UTC().Format("15:04:05.000"), f.Target, f.Err)
	}
	return s
}

// Load is a running load.
type Load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	turn   atomic.Uint64
	cfg    Config
	client *http.Client

	mu sync.Mutex
	r  Report
}

// Start starts c until Stop or the end of ctx.
func Start(ctx context.Context, c Config) *Load {
	if c.Path == "" {
		c.Path = "/"
	}
	if c.Interval == 0 {
		c.Interval = 20 * time.Millisecond
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Workers == 0 {
		c.Workers = 2
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{cancel: cancel, cfg: c, client: &http.Client{Timeout: c.Timeout, Transport: &http.Transport{DisableKeepAlives: true}}}
	l.r.Bodies = map[string]int{}
	for range c.Workers {
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			t := time.NewTicker(c.Interval)
			defer t.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-t.C:
					l.one(ctx)
				}
			}
		}()
	}
	return l
}

func (l *Load) one(ctx context.Context) {
	at := time.Now()
	ts := l.cfg.Targets()
	var target, body string
	err := errors.New("no address")
	if len(ts) > 0 {
		target = ts[l.turn.Add(1)%uint64(len(ts))]
		body, err = httpGet(ctx, l.client, "http://"+target+l.cfg.Path)
		if err == nil && l.cfg.Want != nil {
			err = l.cfg.Want(body)
		}
	}
	if ctx.Err() != nil {
		return // cut off by Stop: says nothing
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.r.OK++
		l.r.Bodies[strings.TrimSpace(body)]++
		return
	}
	l.r.Failed++
	if target == "" {
		l.r.NoTarget++
	}
	if n := net.Error(nil); errors.As(err, &n) && n.Timeout() {
		l.r.TimedOut++
	}
	if len(l.r.Failures) < 200 {
		l.r.Failures = append(l.r.Failures, Failure{at, target, err.Error()})
	}
}

func httpGet(ctx context.Context, c *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return string(b), fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(b)))
	}
	return string(b), nil
}

// Get gets url with a time-out of 3 s; any answer but 200 is an error.
func Get(ctx context.Context, url string) (string, error) {
	return httpGet(ctx, &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}, url)
}

// Report is the count so far.
func (l *Load) Report() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.r
	r.Failures = append([]Failure(nil), l.r.Failures...)
	r.Bodies = map[string]int{}
	for k, v := range l.r.Bodies {
		r.Bodies[k] = v
	}
	return r
}

// Stop ends the load and returns its count.
func (l *Load) Stop() Report {
	l.cancel()
	l.wg.Wait()
	return l.Report()
}
