// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costlab

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/tools/labkit/process"
)

func TestFastest(t *testing.T) {
	took := []time.Duration{3 * time.Second, time.Second, 2 * time.Second}
	n := 0
	once := func() (time.Duration, error) { n++; return took[n-1], nil }
	if got, err := fastest(3, once); got != 1 || err != nil || n != 3 {
		t.Error(got, err, n)
	}
	if _, err := fastest(3, func() (time.Duration, error) { return 0, errors.New("x") }); err == nil {
		t.Error("a start that failed counts")
	}
}

func TestHealthy(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 4 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer s.Close()
	p := &process.Proc{Started: time.Now(), Spec: process.Process{Name: "x", HealthURL: s.URL}}
	if took, err := since(p, healthy(context.Background(), s.URL, time.Minute)); err != nil || took <= 0 || asked.Load() != 4 {
		t.Error(took, err, asked.Load())
	}
	s.Close()
	if _, err := since(p, healthy(context.Background(), s.URL, 50*time.Millisecond)); err == nil || !strings.Contains(err.Error(), "x did not answer") {
		t.Error(err)
	}
}
