// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outputlimit bounds how much of a pod's output the kubelet keeps in memory:
// of the answers to HTTP probes and HTTP lifecycle hooks, and of commands that it runs
// in containers. What is beyond the limit is read and thrown away, never refused:
// whether a probe succeeds and when a hook is done does not depend on the limit
// (kubernetes/kubernetes#82671 tells what happens else).
package outputlimit

import (
	"bytes"
	"io"
	"io/ioutil"
	"net/http"
	"sync"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// The limits in bytes, of one answer and of one stream of a command. They are
// upstream's of 1.16 (#76518, #82514).
const (
	HTTPBody   = 10 << 10
	ExecStream = 16 << 20
)

// The values of the label "of".
const (
	Probe     = "http_probe"
	Lifecycle = "http_lifecycle"
	Exec      = "exec"
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

	logged = onlyOnce{seen: map[string]bool{}}
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
		from := "a pod"
		if resp.Request != nil && resp.Request.URL != nil {
			from = resp.Request.URL.Host + resp.Request.URL.Path
		}
		tell(of, from, HTTPBody)
	}
	return b, err
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

// tell counts, and logs once per sender.
func tell(of, from string, limit int) {
	cut.WithLabelValues(of).Inc()
	if logged.first(of + " " + from) {
		glog.Warningf("The output of %s of %s is longer than %d bytes: the kubelet reads the rest and forgets it (feature gate %s)", of, from, limit, features.ProbeOutputLimits)
	}
}

// onlyOnce remembers some senders. Pods choose the names, so it begins anew when it
// has many.
type onlyOnce struct {
	lock sync.Mutex
	seen map[string]bool
}

const remembered = 1000

func (o *onlyOnce) first(key string) bool {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.seen[key] {
		return false
	}
	if len(o.seen) >= remembered {
		o.seen = map[string]bool{}
	}
	o.seen[key] = true
	return true
}
