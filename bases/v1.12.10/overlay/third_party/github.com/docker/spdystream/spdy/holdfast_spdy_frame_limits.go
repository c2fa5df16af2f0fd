// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package spdy

import (
	"bytes"
	"sync"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
)

// The limits of one frame. exec, attach and port-forward use up to three headers of less
// than 100 bytes and no settings. moby/spdystream 0.5.1 allows 1000 headers and settings,
// and 1 MiB for each name and each value; into one such value fit a million values.
const (
	maxHeaders     = 100      // and as many values: a header has several, with a NUL between
	maxHeaderBytes = 16 << 10 // of all names and values, decompressed
	maxSettings    = 1000
)

// The values of the label "of".
const (
	ofHeaders     = "headers"
	ofHeaderBytes = "header_bytes"
	ofSettings    = "settings"
)

var framesRefused = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "holdfast_spdy_frame_limits_refused_total",
	Help: "SPDY frames that announced more than a limit, by which one. The connection is closed.",
}, []string{"of"})

func init() {
	prometheus.MustRegister(framesRefused)
}

// checkSettings returns an error if a SETTINGS frame announces more settings than may be,
// or than it has bytes for. Memory is taken for them before they are read.
func checkSettings(h ControlFrameHeader, settings uint32) error {
	if settings > maxSettings || uint64(h.length) < 4+8*uint64(settings) {
		return refuse(ofSettings, uint64(settings), maxSettings, 0)
	}
	return nil
}

// headerLimit is what is left for the headers of a frame: the bytes of names and values,
// and the values. A stream keeps its headers until it is closed.
type headerLimit struct {
	bytes  uint32
	values int
	stream StreamId
}

// newHeaderLimit returns an error if a frame announces more headers than may be
// (CVE-2026-35469). Memory is taken for them before they are read.
func newHeaderLimit(headers uint32, stream StreamId) (*headerLimit, error) {
	if headers > maxHeaders {
		return nil, refuse(ofHeaders, uint64(headers), maxHeaders, stream)
	}
	return &headerLimit{maxHeaderBytes, maxHeaders, stream}, nil
}

// take returns an error if a name or value of length bytes is too much.
func (l *headerLimit) take(length uint32) error {
	if length > l.bytes {
		return refuse(ofHeaderBytes, uint64(maxHeaderBytes-l.bytes)+uint64(length), maxHeaderBytes, l.stream)
	}
	l.bytes -= length
	return nil
}

// split returns an error if the values of a header are too many. Each takes 16 bytes and
// more, even if it is empty.
func (l *headerLimit) split(values []byte) error {
	n := 1 + bytes.Count(values, []byte(headerValueSeparator))
	if n > l.values {
		return refuse(ofHeaders, uint64(maxHeaders-l.values)+uint64(n), maxHeaders, l.stream)
	}
	l.values -= n
	return nil
}

// lastLog is when a refusal was logged: clients decide how many there are.
var lastLog struct {
	sync.Mutex
	at time.Time
}

const logEvery = time.Minute

func refuse(of string, announced, limit uint64, stream StreamId) error {
	framesRefused.WithLabelValues(of).Inc()
	lastLog.Lock()
	defer lastLog.Unlock()
	if now := time.Now(); lastLog.at.IsZero() || now.Sub(lastLog.at) >= logEvery {
		lastLog.at = now
		glog.Warningf("A SPDY frame of exec, attach or port-forward announces %d %s, the limit is %d: the connection is closed. Further ones are counted in holdfast_spdy_frame_limits_refused_total and logged once in %v", announced, of, limit, logEvery)
	}
	return &Error{InvalidControlFrame, stream}
}
