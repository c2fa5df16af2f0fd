// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/kubeapi"
)

// After Ctrl-C what is known is printed, and what was not asked says so.
func TestInterrupt(t *testing.T) {
	a, b := oldNode(t), newNode("node2", "v1.7.0")
	c := newCluster(a, b)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/nodes/node2/proxy/pods" {
			time.Sleep(500 * time.Millisecond) // node1 has answered by then
			cancel()
			<-r.Context().Done()
			return
		}
		c.ServeHTTP(w, r)
	}))
	defer s.Close()
	client, err := kubeapi.Load(kubeconfig(t, s.URL), "")
	if err != nil {
		t.Fatal(err)
	}
	to := holdfast()
	var out, errs bytes.Buffer
	o := options{all: true, format: "table"}
	err = o.run(ctx, client, &to, &out, &errs)
	if exit.Code(err) != exit.Failed || !strings.Contains(out.String(), "1 kept") || !strings.Contains(out.String(), "interrupted") || strings.Count(out.String(), "HF002") != 1 {
		t.Errorf("%v\n%s%s", err, &out, &errs)
	}
}
