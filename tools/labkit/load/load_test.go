// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/tools/labkit/wait"
)

func TestLoad(t *testing.T) {
	var bad atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if bad.Load() {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "v1 pod")
	}))
	defer srv.Close()
	var targets atomic.Value
	targets.Store([]string{strings.TrimPrefix(srv.URL, "http://")})
	l := Start(context.Background(), Config{Targets: func() []string { return targets.Load().([]string) }, Interval: 5 * time.Millisecond})
	until := func(what string, f func(Report) bool) {
		t.Helper()
		if err := wait.Until(context.Background(), what, 5*time.Second, func(context.Context) (bool, error) { return f(l.Report()), nil }); err != nil {
			t.Error(err)
		}
	}
	until("good answers", func(r Report) bool { return r.OK > 3 && r.Failed == 0 && r.Bodies["v1 pod"] == r.OK })
	bad.Store(true)
	until("failures", func(r Report) bool { return r.Failed > 3 && r.NoTarget == 0 })
	targets.Store([]string{})
	until("no targets", func(r Report) bool { return r.NoTarget > 3 })
	r := l.Stop()
	if len(r.Failures) == 0 || !strings.Contains(r.Failures[0].Err, "500") || !strings.Contains(r.String(), "failed") {
		t.Errorf("%v", r)
	}
	if again := l.Report(); again.OK+again.Failed != r.OK+r.Failed {
		t.Error("it goes on after Stop")
	}
}
