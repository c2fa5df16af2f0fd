// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestFakeNodes: a pod that is not ready gets a status, one that is ready or is being
// deleted gets none.
func TestFakeNodes(t *testing.T) {
	puts := make(chan string, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPut {
			b, _ := io.ReadAll(r.Body)
			puts <- r.URL.Path + " " + string(b)
			_, _ = w.Write(b)
			return
		}
		io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[
			{"metadata":{"name":"new","namespace":"ns"}},
			{"metadata":{"name":"ready","namespace":"ns"},"status":{"conditions":[{"type":"Ready","status":"True"}]}},
			{"metadata":{"name":"going","namespace":"ns","deletionTimestamp":"2026-11-21T00:00:00Z"}}]}`)
	}))
	defer srv.Close()
	c, err := NewClientForConfig(&rest.Config{Host: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	f := StartFakeNodes(context.Background(), c)
	for range 2 {
		select {
		case p := <-puts:
			if !strings.HasPrefix(p, "/api/v1/namespaces/ns/pods/new/status ") || !strings.Contains(p, `"phase":"Running"`) {
				t.Error(p)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("no status was sent")
		}
	}
	f.Stop()
	if err := f.Err(); err != nil {
		t.Error(err)
	}
	for len(puts) > 0 {
		if p := <-puts; !strings.HasPrefix(p, "/api/v1/namespaces/ns/pods/new/") {
			t.Error(p)
		}
	}
}
