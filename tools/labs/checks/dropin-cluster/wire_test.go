// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropincluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"holdfast/tools/build/dropin"
)

func request(t *testing.T, method, path, contentType string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, "https://server"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	return r
}

// TestFields: values are looked at of what is created, but of what is made up each time.
func TestFields(t *testing.T) {
	w := newWire(func(s string) string { return s })
	var proto bytes.Buffer
	if err := w.decode.Encode(&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "7"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "one"}, {Image: "two"}}}}, &proto); err != nil {
		t.Fatal(err)
	}
	const kind = "application/vnd.kubernetes.protobuf"
	for name, tc := range map[string]struct {
		method, path, contentType, body string
		want, not                       []string // name=value
	}{
		"created": {"POST", "/api/v1/pods", kind, proto.String(),
			[]string{`POST /api/v1/pods .metadata.name="a"`, `POST /api/v1/pods .spec.containers[].image="one" "two"`, `POST /api/v1/pods .metadata.resourceVersion=`}, nil},
		"updated":     {"PUT", "/api/v1/pods/a", kind, proto.String(), []string{`PUT /api/v1/pods/a .metadata.name=`}, []string{`PUT /api/v1/pods/a .metadata.name="a"`}},
		"a patch":     {"PATCH", "/p", "application/merge-patch+json", `{"a": {"b": [1, {"c": null}]}}`, []string{`PATCH /p .a.b[]=`, `PATCH /p .a.b[].c=`}, nil},
		"an event":    {"POST", "/api/v1/namespaces/n/events", "application/json; charset=utf-8", `{"message": "m"}`, []string{"POST /api/v1/namespaces/n/events .message="}, nil},
		"a deletion":  {"DELETE", "/p", "", `{"gracePeriodSeconds": 1}`, []string{"DELETE /p .gracePeriodSeconds="}, nil},
		"no body":     {"DELETE", "/p", "", "", nil, nil},
		"not JSON":    {"PUT", "/p", "application/json", "{", nil, nil},
		"no protobuf": {"PUT", "/p", kind, "{}", nil, nil},
		"no type":     {"PUT", "/p", "", "{}", nil, nil},
	} {
		facts, err := w.fields(request(t, tc.method, tc.path, tc.contentType), []byte(tc.body))
		if (err == nil) != (tc.want != nil || tc.body == "") {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, f := range facts {
			got = append(got, f.Name+"="+f.Value)
		}
		for _, s := range tc.want {
			if !slices.Contains(got, s) {
				t.Errorf("%s: no %s in\n%s", name, s, strings.Join(got, "\n"))
			}
		}
		for _, s := range tc.not {
			if slices.Contains(got, s) {
				t.Errorf("%s: %s", name, s)
			}
		}
	}
}

// TestWire: calls are counted under normal names, and a turn has its own.
func TestWire(t *testing.T) {
	w := newWire(func(s string) string { return strings.ReplaceAll(s, "turn-7", "NS") })
	look := func() dropin.Run {
		t.Helper()
		r, err := w.look(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := request(t, "GET", "/containers/json", "")
	r.URL.RawQuery = "filters=%7B%22label%22%3A%22turn-7%22%7D"
	w.dockerCall(r, 200)
	w.dockerCall(r, 200)
	w.dockerCall(r, 404)
	w.add(dropin.Fact{Kind: "agent", Component: dropin.Kubelet, Name: "kubelet"}, dropin.Fact{Kind: "agent", Component: dropin.Kubelet, Name: "kubelet"})
	got := look()
	for _, want := range []dropin.Fact{
		{Kind: "docker", Component: dropin.Kubelet, Name: `GET /containers/json?filters={"label":"NS"}`, Value: "200", Count: 2},
		{Kind: "docker", Component: dropin.Kubelet, Name: `GET /containers/json?filters={"label":"NS"}`, Value: "404", Count: 1},
		{Kind: "agent", Component: dropin.Kubelet, Name: "kubelet"},
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %+v in %+v", want, got)
		}
	}
	if w.reset(); len(look()) != 0 {
		t.Error("a turn has what another one sent")
	}
}

func TestOffered(t *testing.T) {
	got := offered(&tls.ClientHelloInfo{SupportedVersions: []uint16{tls.VersionTLS12}, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}, SupportedProtos: []string{"h2"}})
	if want := []string{"TLS 1.2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "protocol h2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
