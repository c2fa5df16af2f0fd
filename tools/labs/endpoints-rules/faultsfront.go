// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/wait"
)

// mode is what the server in between does, once, to the review of the Endpoints of that name.
type mode struct {
	name string
	// body is how long the second half of the review waits before it goes on to the
	// program, which takes 1 s at most.
	body time.Duration
	// answer is how long the program's answer waits; the API server takes 30 s at most.
	answer time.Duration
	// instead is the answer, if it is not the program's; cut ends the connection in it.
	status  int
	instead string
	cut     bool
	// want is what the API server must make of it.
	want placed
	// bound is that of the call.
	bound time.Duration
}

// modes have no answer that 1.9.11 refuses in spite of failurePolicy Ignore: that the
// program gives none is what its unit tests hold.
var modes = []mode{
	{name: "body-under", body: 600 * time.Millisecond, want: patched, bound: soon},
	{name: "body-over", body: 1500 * time.Millisecond, want: unchanged, bound: soon},
	{name: "answer-under", answer: 27 * time.Second, want: patched, bound: serverGivesUp},
	{name: "answer-over", answer: 33 * time.Second, want: unchanged, bound: serverGivesUp},
	{name: "garbage-empty", status: 200, want: unchanged, bound: soon},
	{name: "garbage-text", status: 200, instead: "this is no review", want: unchanged, bound: soon},
	{name: "garbage-kind", status: 200, instead: `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}`, want: unchanged, bound: soon},
	{name: "garbage-none", status: 200, instead: `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1"}`, want: unchanged, bound: soon},
	{name: "garbage-500", status: 500, instead: "panic: something", want: unchanged, bound: soon},
	{name: "garbage-cut", status: 200, instead: `{"kind":"AdmissionReview","apiVersion":"admission`, cut: true, want: unchanged, bound: soon},
}

const frontAddress = "127.0.0.1:9944"

// front stands between kube-apiserver and endpoints-rules.
type front struct {
	tls *tls.Config
	to  string // where the program is asked
	// hang is how long every review waits before anything is done with it.
	hang time.Duration

	mu     sync.Mutex
	used   map[string]bool // modes by name
	calls  int
	sample []byte // a review as kube-apiserver sent it
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if wait.Pause(r.Context(), f.hang) != nil {
		return
	}
	var review struct {
		Request struct{ Name string }
	}
	_ = json.Unmarshal(body, &review) // then no mode has its name
	var m mode
	f.mu.Lock()
	f.calls++
	if review.Request.Name == probe && f.sample == nil {
		f.sample = body
	}
	if i := slices.IndexFunc(modes, func(m mode) bool { return m.name == review.Request.Name }); i >= 0 && !f.used[review.Request.Name] {
		m, f.used[review.Request.Name] = modes[i], true
	}
	f.mu.Unlock()
	if m.status != 0 {
		if m.cut {
			w.Header().Set("Content-Length", fmt.Sprint(2*len(m.instead)))
		}
		w.WriteHeader(m.status)
		_, _ = io.WriteString(w, m.instead)
		return
	}
	status, answer, err := f.pass(r.Context(), body, m.body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if wait.Pause(r.Context(), m.answer) != nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

// pass asks the program, with a pause in the middle of the body.
func (f *front) pass(ctx context.Context, body []byte, pause time.Duration) (int, []byte, error) {
	half := len(body) / 2
	pr, pw := io.Pipe()
	go func() {
		_, err := pw.Write(body[:half])
		if err == nil {
			err = wait.Pause(ctx, pause)
		}
		if err == nil {
			_, err = pw.Write(body[half:])
		}
		pw.CloseWithError(err)
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.to, pr)
	if err != nil {
		return 0, nil, err
	}
	req.ContentLength = int64(len(body))
	return answerOf(&http.Client{Transport: &http.Transport{TLSClientConfig: f.tls, DisableKeepAlives: true}}, req)
}

func answerOf(c *http.Client, req *http.Request) (int, []byte, error) {
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// startFront starts the server in between. Its end comes from the channel.
func (l *faults) startFront(hang time.Duration) (*front, <-chan error, error) {
	f := &front{tls: l.program.tls, to: "https://" + address + "/mutate", hang: hang, used: map[string]bool{}}
	pair, err := tls.LoadX509KeyPair(l.program.file("tls.crt"), l.program.file("tls.key"))
	if err != nil {
		return nil, nil, err
	}
	srv := &http.Server{Addr: frontAddress, Handler: f, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, ErrorLog: stdlog.New(io.Discard, "", 0)}
	ended := make(chan error, 1)
	go func() { ended <- srv.ListenAndServeTLS("", "") }()
	l.e.OnStop("the server in between", func(context.Context) error { return srv.Close() })
	return f, ended, nil
}

// between has the API server call the server in between, which fails in all modes.
func (l *faults) between(ctx context.Context) error {
	f, ended, err := l.startFront(0)
	if err != nil {
		return err
	}
	l.front = f
	return l.row(ctx, betweenRow, func(ctx context.Context, o *fault) error {
		if err := l.clientConfig(ctx, "url", "https://"+frontAddress+"/mutate"); err != nil {
			return err
		}
		if err := wait.Until(ctx, "the API server calls the server in between", time.Minute, func(ctx context.Context) (bool, error) {
			select {
			case err := <-ended:
				return false, err
			default:
			}
			c := l.call(ctx, probe)
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.sample == nil {
				return false, errors.New(c.Err)
			}
			return true, nil
		}); err != nil {
			return err
		}
		o.Calls = make([]call, len(modes))
		one := func(i int) {
			c := l.call(ctx, modes[i].name)
			if c.Err == "" {
				c.RightAfter = l.right(ctx, c.Name, c.Addresses)
			}
			o.Calls[i] = c
		}
		var late sync.WaitGroup
		for i, m := range modes {
			if m.answer > 0 {
				late.Go(func() { one(i) })
			}
		}
		for i, m := range modes {
			if m.answer == 0 {
				one(i)
			}
		}
		late.Wait()
		f.mu.Lock()
		o.Modes = len(f.used)
		f.mu.Unlock()
		if err := l.clientConfig(ctx, "url", "https://"+address+"/mutate"); err != nil {
			return err
		}
		// Until nothing goes to the server in between.
		calls, since := -1, time.Now()
		if err := wait.Until(ctx, "the API server calls endpoints-rules alone", time.Minute, func(context.Context) (bool, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.calls != calls {
				calls, since = f.calls, time.Now()
			}
			return time.Since(since) > 3*time.Second, nil
		}); err != nil {
			return err
		}
		return l.recovered(ctx, o)
	})
}

// clientConfig changes a field of the webhook's clientConfig.
func (l *faults) clientConfig(ctx context.Context, field, value string) error {
	return wait.Until(ctx, "the webhook configuration is changed", 10*time.Second, func(ctx context.Context) (bool, error) {
		o, err := l.c.Client.Get(ctx, configurations, "", "endpoints-rules")
		if err != nil {
			return false, err
		}
		hooks := kube.Slice(o, "webhooks")
		if len(hooks) != 1 {
			return false, fmt.Errorf("it has %d webhooks", len(hooks))
		}
		hook, _ := hooks[0].(map[string]any)
		conf, _ := hook["clientConfig"].(map[string]any)
		if conf == nil {
			return false, errors.New("the webhook has no clientConfig")
		}
		conf[field] = value
		_, err = l.c.Client.Update(ctx, configurations, "", o)
		if apierrors.IsConflict(err) {
			return false, err
		}
		return err == nil, err
	})
}
