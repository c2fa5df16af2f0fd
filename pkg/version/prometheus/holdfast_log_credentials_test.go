// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"flag"
	"net/http"
	"testing"

	_ "github.com/golang/glog" // the flag v
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/transport"
)

type nowhere struct{}

func (nowhere) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrNotSupported }

// TestHeadersMaskedIsServed: the counter follows client-go's.
func TestHeadersMaskedIsServed(t *testing.T) {
	value := func() float64 {
		families, err := prometheus.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "holdfast_log_credentials_headers_masked_total" {
				return f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		t.Fatal("there is no such metric")
		return 0
	}
	req, err := http.NewRequest("GET", "https://server/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	if err := flag.Set("v", "7"); err != nil {
		t.Fatal(err)
	}
	defer flag.Set("v", "0")
	before, counted := value(), transport.CredentialsMasked()
	transport.DebugWrappers(nowhere{}).RoundTrip(req)
	if n := value() - before; n != 1 || transport.CredentialsMasked()-counted != 1 {
		t.Errorf("the metric grew by %v, want 1", n)
	}
}
