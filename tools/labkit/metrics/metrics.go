// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics reads what a component serves under /metrics.
package metrics

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Page is a page of metrics: families by name.
type Page map[string]*dto.MetricFamily

// Get reads the page at url, in the text format, within 3 s.
func Get(ctx context.Context, url string) (Page, error) { return GetTLS(ctx, url, nil) }

// GetTLS is Get for a server whose certificate tc knows.
func GetTLS(ctx context.Context, url string, tc *tls.Config) (Page, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain")
	resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: tc, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, resp.Status)
	}
	p, err := Parse(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return p, nil
}

// Parse reads a page.
func Parse(r io.Reader) (Page, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(r)
}

// Sum adds the samples of a counter, gauge or untyped metric whose labels are those
// given, as name and value in turn, and maybe others. name may end in _count or _sum
// of a summary or histogram. n is the number of samples: 0 if there is no such metric.
func (p Page) Sum(name string, labels ...string) (sum float64, n int) {
	f, part := p[name], ""
	for _, s := range []string{"_count", "_sum"} {
		if short, ok := strings.CutSuffix(name, s); ok && f == nil {
			f, part = p[short], s
		}
	}
	for _, m := range f.GetMetric() {
		if !Has(m, labels...) {
			continue
		}
		v, ok := value(m, part)
		if !ok {
			continue
		}
		sum, n = sum+v, n+1
	}
	return sum, n
}

// Series counts the samples of a counter, gauge or untyped metric with these labels.
func (p Page) Series(name string, labels ...string) int {
	_, n := p.Sum(name, labels...)
	return n
}

// Has says whether a sample has these labels, given as name and value in turn.
func Has(m *dto.Metric, labels ...string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if Label(m, labels[i]) != labels[i+1] {
			return false
		}
	}
	return true
}

// Label is the value of a sample's label, "" if it has none of that name.
func Label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func value(m *dto.Metric, part string) (float64, bool) {
	switch {
	case part == "_count" && m.Summary != nil:
		return float64(m.Summary.GetSampleCount()), true
	case part == "_sum" && m.Summary != nil:
		return m.Summary.GetSampleSum(), true
	case part == "_count" && m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount()), true
	case part == "_sum" && m.Histogram != nil:
		return m.Histogram.GetSampleSum(), true
	case part != "":
		return 0, false
	case m.Counter != nil:
		return m.Counter.GetValue(), true
	case m.Gauge != nil:
		return m.Gauge.GetValue(), true
	case m.Untyped != nil:
		return m.Untyped.GetValue(), true
	}
	return 0, false
}
