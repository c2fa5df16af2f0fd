// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outputlimit bounds how much of a pod's output the kubelet keeps in memory:
// of the answers to HTTP probes and HTTP lifecycle hooks, and of commands that it runs
// in containers; and how much of it a line of the log or an event has. What is beyond the limit is read and thrown away, never refused:
// whether a probe succeeds and when a hook is done does not depend on the limit
// (kubernetes/kubernetes#82671 tells what happens else).
package outputlimit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/ioutil"
	"net/http"
	"sync"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// HTTPBody is the limit of one answer in bytes, upstream's of 1.16 (#76518).
const HTTPBody = 10 << 10

// ShownText is how much of what a pod says a line of the log and an event have, in bytes. The
// event recorder also remembers the texts of its last 4,096 events.
const ShownText = 10 << 10

// The values of the label "of".
const (
	Probe     = "http_probe"
	Lifecycle = "http_lifecycle"
	Exec      = "exec"
	Text      = "text"
)

var (
	cut = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_probe_output_limits_cut_total",
		Help: "Outputs of pods of which the kubelet kept a first part only, by what they are of.",
	}, []string{"of"})
	wouldCut = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_probe_output_limits_would_cut_total",
		Help: "Outputs of pods that would have been cut if the feature gate ProbeOutputLimits were on, by what they are of.",
	}, []string{"of"})

	logged = recent{now: time.Now, seen: map[string]time.Time{}}
)

func init() {
	prometheus.MustRegister(cut, wouldCut)
}

func enabled() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.ProbeOutputLimits)
}

// ReadBody reads the body of resp to its end and returns at most its first HTTPBody
// bytes, and the error that ioutil.ReadAll would return.
func ReadBody(resp *http.Response, of string) ([]byte, error) {
	body := resp.Body
	if !enabled() {
		b, err := ioutil.ReadAll(body)
		if len(b) > HTTPBody {
			wouldCut.WithLabelValues(of).Inc()
		}
		return b, err
	}
	b, err := ioutil.ReadAll(io.LimitReader(body, HTTPBody))
	if err != nil {
		return b, err
	}
	n, err := io.Copy(ioutil.Discard, body)
	if n > 0 {
		tell(of, Sender(resp.Request), HTTPBody)
	}
	return b, err
}

// Container is a container as the log names it: the UID of its pod and its name. An address or a
// path would be the pod's choice.
func Container(pod types.UID, name string) string { return string(pod) + "/" + name }

type senderKey struct{}

func withSender(req *http.Request, container string) *http.Request {
	return req.WithContext(context.WithValue(req.Context(), senderKey{}, container))
}

// Sender is the container that a request, or the redirect that it follows, went to.
func Sender(req *http.Request) string {
	if req != nil {
		if container, ok := req.Context().Value(senderKey{}).(string); ok {
			return container
		}
	}
	return "a pod"
}

// Client is an HTTP client of a probe. Its answers, after redirects too, know whose probe it is.
type Client struct {
	*http.Client
	Sender string // from Container, "" if nobody knows
}

// Do is http.Client's.
func (c Client) Do(req *http.Request) (*http.Response, error) {
	if c.Sender != "" {
		req = withSender(req, c.Sender)
	}
	return c.Client.Do(req)
}

// From notes whose answer resp is. It may be nil.
func From(resp *http.Response, container string) *http.Response {
	if resp != nil && resp.Request != nil {
		resp.Request = withSender(resp.Request, container)
	}
	return resp
}

// Shown returns the first ShownText bytes of what a pod says, for log and event.
func Shown(output []byte) []byte {
	if len(output) <= ShownText {
		return output
	}
	if !enabled() {
		wouldCut.WithLabelValues(Text).Inc()
		return output
	}
	cut.WithLabelValues(Text).Inc()
	// A copy: the rest can be forgotten.
	return append([]byte{}, output[:ShownText]...)
}

// ShownError is Shown for an error that quotes a pod: the address of a redirect, or what a
// command printed. Such an error is only for log and event: one that is cut has no type.
func ShownError(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); len(text) > ShownText {
		if shown := Shown([]byte(text)); len(shown) < len(text) {
			return errors.New(string(shown))
		}
	}
	return err
}

// Buffer holds what is written to it up to its limit. It is made by ExecBuffer and
// used like a bytes.Buffer.
type Buffer struct {
	buf   bytes.Buffer
	limit int // -1: the gate is off
	isCut bool
	from  string
}

// ExecBuffer is a buffer for one output stream of a command in a container.
func ExecBuffer(containerID string) Buffer {
	if !enabled() {
		return Buffer{limit: -1, from: containerID}
	}
	return Buffer{limit: ExecStream, from: containerID}
}

// Write never fails, so that the command is not stopped by a reader that went away.
func (b *Buffer) Write(p []byte) (int, error) {
	if b.limit < 0 {
		if !b.isCut && b.buf.Len()+len(p) > ExecStream {
			b.isCut = true
			wouldCut.WithLabelValues(Exec).Inc()
		}
		return b.buf.Write(p)
	}
	keep := p
	if left := b.limit - b.buf.Len(); len(keep) > left {
		keep = keep[:left]
		if !b.isCut {
			b.isCut = true
			tell(Exec, b.from, b.limit)
		}
	}
	b.buf.Write(keep)
	return len(p), nil
}

// Bytes are those that were kept.
func (b *Buffer) Bytes() []byte { return b.buf.Bytes() }

// tell counts, and logs now and then.
func tell(of, from string, limit int) {
	cut.WithLabelValues(of).Inc()
	if len(from) > senderText {
		from = from[:senderText]
	}
	if logged.first(of + " " + from) {
		glog.Warningf("The output of %s of %q is longer than %d bytes: the kubelet reads the rest and forgets it (feature gate %s)", of, from, limit, features.ProbeOutputLimits)
	}
}

// What is remembered and logged of senders: at most 1,000 names of 100 bytes and what of (a pod's
// UID and a container's name have that length), and a line for each in an hour.
const (
	senderText = 100
	remembered = 1000
	forgotten  = time.Hour
)

// recent remembers what was logged in the last hour.
type recent struct {
	lock sync.Mutex
	now  func() time.Time
	seen map[string]time.Time
}

// first is true for a key that it was not true for in the last hour. While it remembers as much
// as it may, it is false for all others.
func (r *recent) first(key string) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	now := r.now()
	for k, at := range r.seen {
		if age := now.Sub(at); age < 0 || age >= forgotten {
			delete(r.seen, k)
		}
	}
	if _, ok := r.seen[key]; ok || len(r.seen) >= remembered {
		return false
	}
	r.seen[key] = now
	return true
}
