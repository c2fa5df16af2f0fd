// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package livecheck

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/features"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func value(t *testing.T, c prometheus.Counter) float64 {
	m := &dto.Metric{}
	if err := c.Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func TestGone(t *testing.T) {
	service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo"}}
	for name, tc := range map[string]struct {
		gate    bool
		objects []runtime.Object
		err     error
		result  string
		message string
		gets    int
	}{
		"gone":     {gate: true, result: resultGone, gets: 1},
		"kept":     {gate: true, objects: []runtime.Object{service}, result: resultKept, message: "service ns/foo is missing from the cache", gets: 1},
		"error":    {gate: true, err: fmt.Errorf("no route to host"), result: resultError, message: "no route to host", gets: 1},
		"gate off": {objects: []runtime.Object{service}, result: resultUnchecked},
	} {
		utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.EndpointsLiveServiceCheck, tc.gate))
		client := fake.NewSimpleClientset(tc.objects...)
		if tc.err != nil {
			err := tc.err
			client.PrependReactor("get", "services", func(core.Action) (bool, runtime.Object, error) { return true, nil, err })
		}
		before := map[string]float64{}
		for _, result := range []string{resultKept, resultGone, resultError, resultUnchecked} {
			before[result] = value(t, checks.WithLabelValues(result))
		}
		err := Gone(client.CoreV1(), "ns", "foo", 0)
		switch {
		case tc.message == "" && err != nil:
			t.Errorf("%s: unexpected error %v", name, err)
		case tc.message != "" && (err == nil || !strings.Contains(err.Error(), tc.message)):
			t.Errorf("%s: got error %v, expected %q in it", name, err, tc.message)
		}
		for result, b := range before {
			want := b
			if result == tc.result {
				want++
			}
			if got := value(t, checks.WithLabelValues(result)); got != want {
				t.Errorf("%s: counter %s is %v, expected %v", name, result, got, want)
			}
		}
		if got := len(client.Actions()); got != tc.gets {
			t.Errorf("%s: %d requests, expected %d: %v", name, got, tc.gets, client.Actions())
		}
	}
	utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.EndpointsLiveServiceCheck))
}

// TestWarnsOnce: only the first try of a key warns; the controller tries for as long as the
// Service is missing from its cache.
func TestWarnsOnce(t *testing.T) {
	utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.EndpointsLiveServiceCheck))
	client := fake.NewSimpleClientset(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo"}})
	for retries, want := range []int64{1, 0, 0} {
		before := glog.Stats.Warning.Lines()
		if err := Gone(client.CoreV1(), "ns", "foo", retries); err == nil {
			t.Error("no error")
		}
		if got := glog.Stats.Warning.Lines() - before; got != want {
			t.Errorf("try %d: %d warnings, want %d", retries, got, want)
		}
	}
}
