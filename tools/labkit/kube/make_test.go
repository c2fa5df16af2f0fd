// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// TestMake: each object is posted to its resource, in its namespace, with what was set
// and nothing that a server of 2016 would keep.
func TestMake(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.URL.Path+" "+strings.TrimSpace(string(b)))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(b)
	}))
	defer s.Close()
	c, err := NewClientForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	pod := Pod("p")
	pod.Namespace = "other"
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", ReadinessProbe: &corev1.Probe{ProbeHandler: HTTPGet("/ready", 8080)}}}
	if err := c.Make(context.Background(), "default", Service("web", "app", 8080), pod, Namespace("n"), ConfigMap("m", map[string]string{"a": "b"})); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`POST /api/v1/namespaces/default/services {"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[{"port":80,"targetPort":8080}],"selector":{"app":"app"}}}`,
		`POST /api/v1/namespaces/other/pods {"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"other"},"spec":{"containers":[{"image":"i","name":"c","readinessProbe":{"httpGet":{"path":"/ready","port":8080}},"resources":{}}]}}`,
		`POST /api/v1/namespaces {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"},"spec":{}}`,
		`POST /api/v1/namespaces/default/configmaps {"apiVersion":"v1","data":{"a":"b"},"kind":"ConfigMap","metadata":{"name":"m"}}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := c.Make(context.Background(), "default", &corev1.Pod{}); err == nil || !strings.Contains(err.Error(), "names no kind") {
		t.Error(err)
	}
}

// TestProbes: the handlers have the fields of the API of 1.9.
func TestProbes(t *testing.T) {
	for want, h := range map[string]corev1.ProbeHandler{
		`{"exec":{"command":["/labpod","probe"]}}`: Exec("/labpod", "probe"),
		`{"tcpSocket":{"port":1}}`:                 TCP(1),
	} {
		if b, err := json.Marshal(h); err != nil || string(b) != want {
			t.Errorf("%s, %v, want %s", b, err, want)
		}
	}
}
