// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"holdfast/tools/labkit/wait"
)

func TestResourceFor(t *testing.T) {
	for in, want := range map[string]string{
		"v1 Endpoints": "endpoints", "v1 Service": "services", "v1 Pod": "pods", "extensions/v1beta1 Ingress": "ingresses",
		"networking.k8s.io/v1 NetworkPolicy": "networkpolicies", "storage.k8s.io/v1 StorageClass": "storageclasses", "apps/v1 DaemonSet": "daemonsets",
	} {
		av, kind, _ := strings.Cut(in, " ")
		r, err := ResourceFor(av, kind)
		if err != nil || r.Resource != want || r.GroupVersion().String() != av {
			t.Errorf("%s: %v %v", in, r, err)
		}
	}
}

func obj(s string) *Object {
	o := &Object{}
	if err := json.Unmarshal([]byte(s), &o.Object); err != nil {
		panic(err)
	}
	return o
}

func TestFields(t *testing.T) {
	ep := obj(`{"subsets":[{"addresses":[{"ip":"10.0.0.2"},{"ip":"10.0.0.1"}],"notReadyAddresses":[{"ip":"10.0.0.3"}],"ports":[{"port":80},{"port":443}]}]}`)
	if got := fmt.Sprint(ReadyAddresses(ep)); got != "[10.0.0.2:80 10.0.0.2:443 10.0.0.1:80 10.0.0.1:443]" {
		t.Error(got)
	}
	if got := fmt.Sprint(NotReadyAddresses(ep)); got != "[10.0.0.3:80 10.0.0.3:443]" {
		t.Error(got)
	}
	if ReadyAddresses(obj(`{}`)) != nil {
		t.Error("addresses of nothing")
	}
	pod := obj(`{"metadata":{"name":"p"},"spec":{"containers":[{"image":"a:1"},{"image":"b:2"}]},"status":{"conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"a","containerID":"docker://abc","restartCount":2}]}}`)
	if Condition(pod, "Ready") != "True" || Condition(pod, "Other") != "" || ContainerIDs(pod)["a"] != "abc" || String(pod, "metadata", "name") != "p" || String(pod, "spec", "x") != "" || Image(pod) != "a:1" || Image(obj(`{}`)) != "" {
		t.Errorf("%v", pod)
	}
}

// fakeServer lists one Pod at resourceVersion 5, then watches: the first watch
// sends what is sent to events and ends when that is closed.
func fakeServer(t *testing.T, events chan string) (*Client, *atomic.Int32) {
	var lists atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, `{"kind":"Echo","apiVersion":"v1","metadata":{"name":%q},"sent":%s}`, r.URL.Path, b)
		case r.URL.Query().Get("watch") == "":
			lists.Add(1)
			io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"old","namespace":"ns","resourceVersion":"3"}}]}`)
		default:
			if from := r.URL.Query().Get("resourceVersion"); from == "6" {
				io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Gone","message":"too old resource version"}}`+"\n")
				return
			} else if from != "5" {
				t.Errorf("watch from %q", from)
			}
			w.(http.Flusher).Flush()
			for {
				select {
				case <-r.Context().Done():
					return
				case e, ok := <-events:
					if !ok {
						return
					}
					io.WriteString(w, e)
					w.(http.Flusher).Flush()
				}
			}
		}
	}))
	t.Cleanup(srv.Close)
	c, err := NewClientForConfig(&rest.Config{Host: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c, &lists
}

func TestRecorder(t *testing.T) {
	events := make(chan string, 10)
	c, lists := fakeServer(t, events)
	rec, err := c.Record(context.Background(), Pods, "")
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Stop()
	ev := func(kind, name, rv string) string {
		return fmt.Sprintf(`{"type":%q,"object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"ns","resourceVersion":%q}}}`+"\n", kind, name, rv)
	}
	events <- ev("ADDED", "new", "6")
	events <- ev("DELETED", "new", "6")
	got, err := rec.Wait(context.Background(), 5*time.Second, "DELETED", func(ev RecordedEvent) bool { return ev.Type == "DELETED" })
	if err != nil || got.Object.GetResourceVersion() != "6" {
		t.Fatalf("%v %v", got, err)
	}
	if rec.Latest("ns", "new") != nil || rec.Latest("ns", "old") == nil || len(rec.Of("ns", "new")) != 2 || rec.Gaps() != 0 {
		t.Errorf("%v", rec.Events())
	}
	if _, err := rec.Wait(context.Background(), 200*time.Millisecond, "a miracle", func(RecordedEvent) bool { return false }); err == nil || err.Error() != "a miracle: not within 200ms" {
		t.Errorf("got %v", err)
	}
	close(events) // the watch is lost, and the server has forgotten: a gap, and the list again
	if err := wait.Until(context.Background(), "a gap", 5*time.Second, func(context.Context) (bool, error) { return rec.Gaps() > 0 && lists.Load() > 1, nil }); err != nil {
		t.Error(err)
	}
}

func TestCreateYAML(t *testing.T) {
	c, _ := fakeServer(t, nil)
	os, err := c.CreateYAML(context.Background(), "lab", `
apiVersion: v1
kind: Namespace
metadata: {name: lab}
---
apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: web}
---
{apiVersion: v1, kind: Service, metadata: {name: s, namespace: other}}
`)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, o := range os {
		paths = append(paths, o.GetName())
	}
	if got := strings.Join(paths, " "); got != "/api/v1/namespaces /apis/extensions/v1beta1/namespaces/lab/deployments /api/v1/namespaces/other/services" {
		t.Error(got)
	}
	if _, err := c.CreateYAML(context.Background(), "lab", "a: [b"); err == nil {
		t.Error("bad YAML accepted")
	}
}
