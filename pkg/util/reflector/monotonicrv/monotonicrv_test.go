// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package monotonicrv

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache/rvcursor"
	"k8s.io/kubernetes/pkg/features"

	dto "github.com/prometheus/client_model/go"
)

func count(t *testing.T, result string) float64 {
	m := &dto.Metric{}
	if err := regressions.WithLabelValues("*v1.Service", result).Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func TestGateAndMetrics(t *testing.T) {
	defer utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.ReflectorMonotonicResourceVersion))
	if !utilfeature.DefaultFeatureGate.Enabled(features.ReflectorMonotonicResourceVersion) {
		t.Errorf("expected the gate to be on by default")
	}
	old := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc", ResourceVersion: "5"}}
	for _, tc := range []struct {
		gate   bool
		next   string
		result string
		other  string
	}{
		{true, "11", "kept", "followed"},
		{false, "5", "followed", "kept"},
	} {
		utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.ReflectorMonotonicResourceVersion, tc.gate))
		result, other := count(t, tc.result), count(t, tc.other)
		c := rvcursor.New("test", reflect.TypeOf(old), "11")
		if got := c.Next("11", old.ResourceVersion, watch.Deleted, old); got != tc.next {
			t.Errorf("gate %v: next watch from %q, expected %q", tc.gate, got, tc.next)
		}
		if got := count(t, tc.result); got != result+1 {
			t.Errorf("gate %v: %s is %v, expected %v", tc.gate, tc.result, got, result+1)
		}
		if got := count(t, tc.other); got != other {
			t.Errorf("gate %v: %s is %v, expected %v", tc.gate, tc.other, got, other)
		}
	}
}

func TestServerVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		want   string
		err    string
	}{
		"version":   {200, `{"major":"1","minor":"9","gitVersion":"v1.9.0"}`, "v1.9.0", ""},
		"forbidden": {403, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`, "", "no"},
		"no JSON":   {200, `hello`, "", "/version: "},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/version" {
				t.Errorf("unexpected request %s", r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tc.status)
			fmt.Fprint(w, tc.body)
		}))
		got, err := serverVersion(clientset.NewForConfigOrDie(&restclient.Config{Host: server.URL}))
		server.Close()
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: got %q, %v; expected %q, error %q", name, got, err, tc.want, tc.err)
		}
	}
	var none *clientset.Clientset
	if _, err := serverVersion(none); err == nil {
		t.Errorf("expected an error without a client")
	}
}
