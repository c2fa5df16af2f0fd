// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"holdfast/webhook/internal/cluster"
	"holdfast/webhook/internal/review"
)

// Metrics are those of the server. Rule names are labels: there are as many as
// the rules file has.
type Metrics struct {
	Registry *prometheus.Registry
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	moves    *prometheus.CounterVec
	behind   prometheus.Counter
	// configured is set by Configured.
	configured prometheus.Gauge
}

// Configured says whether the webhook configuration has webhooks.
func (m *Metrics) Configured(in bool) {
	if in {
		m.configured.Set(1)
	} else {
		m.configured.Set(0)
	}
}

// NewMetrics makes the metrics of a store and the source of its rules.
func NewMetrics(s *cluster.Store, source *Source) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "endpoints_rules_requests_total", Help: "Admission requests by outcome; only patched changed something."}, []string{"outcome"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "endpoints_rules_request_seconds", Help: "Time of admission requests by outcome.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}}, []string{"outcome"}),
		moves:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "endpoints_rules_moves_total", Help: "Addresses placed elsewhere in admission requests, by rule and place."}, []string{"rule", "place"}),
		behind: prometheus.NewCounter(prometheus.CounterOpts{Name: "endpoints_rules_behind_total", Help: "Addresses that stayed where they were because the cached pod was older than the address."}),
	}
	m.configured = prometheus.NewGauge(prometheus.GaugeOpts{Name: "endpoints_rules_webhook_configured", Help: "1 while the webhook configuration has webhooks; 0: the breaker has taken them out, or there is none, and Endpoints are stored as the controller makes them."})
	count := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, f)
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	c := s.Counters
	m.Registry.MustRegister(m.requests, m.latency, m.moves, m.behind, m.configured, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("endpoints_rules_misplaced_addresses", "Addresses whose stored place differs from the verdict.", func() float64 { return float64(s.Misplaced()) }),
		gauge("endpoints_rules_disputed_services", "Services whose Endpoints are written less and less often, once a minute in the end, as somebody keeps on writing them otherwise.", func() float64 { return float64(s.Disputed()) }),
		gauge("endpoints_rules_synced", "1 when every object has been seen and judged once.", func() float64 {
			if s.Synced() {
				return 1
			}
			return 0
		}),
		count("endpoints_rules_put_right_total", "Stored Endpoints written because they differed from the verdict.", func() float64 { return float64(c.PutRight.Load()) }),
		count("endpoints_rules_put_right_conflicts_total", "Such writes that somebody else was before.", func() float64 { return float64(c.Conflicts.Load()) }),
		count("endpoints_rules_put_right_overruled_total", "Such writes of which the server stored something else.", func() float64 { return float64(c.Overruled.Load()) }),
		count("endpoints_rules_write_errors_total", "Writes that failed otherwise.", func() float64 { return float64(c.WriteErrors.Load()) }),
		count("endpoints_rules_services_touched_total", "Services touched to bring dropped addresses back.", func() float64 { return float64(c.Touched.Load()) }),
		count("endpoints_rules_rules_failed_total", "Rules that failed and are off until the rules are read again.", func() float64 { return float64(c.RulesFailed.Load()) }),
		count("endpoints_rules_rules_loaded_total", "Rules files put in force.", func() float64 { return float64(source.Loaded.Load()) }),
		count("endpoints_rules_rules_rejected_total", "Rules files with a mistake, which changed nothing.", func() float64 { return float64(source.Failed.Load()) }),
		&placed{s})
	return m
}

// Observe is review.Handler's.
func (m *Metrics) Observe(outcome string, took time.Duration, res review.Result) {
	m.requests.WithLabelValues(outcome).Inc()
	m.latency.WithLabelValues(outcome).Observe(took.Seconds())
	m.behind.Add(float64(res.Behind))
	if res.Patch == nil {
		return
	}
	for _, v := range res.Moves {
		m.moves.WithLabelValues(v.Rule, string(v.To)).Inc()
	}
}

// placed reads the addresses that each rule places at the moment.
type placed struct{ store *cluster.Store }

var placedDesc = prometheus.NewDesc("endpoints_rules_addresses", "Addresses that each rule places now; dry_run: would place.", []string{"rule", "dry_run"}, nil)

func (p *placed) Describe(ch chan<- *prometheus.Desc) { ch <- placedDesc }

func (p *placed) Collect(ch chan<- prometheus.Metric) {
	placed, dry := p.store.Placed()
	for isDry, counts := range map[bool]map[string]int{false: placed, true: dry} {
		for rule, n := range counts {
			ch <- prometheus.MustNewConstMetric(placedDesc, prometheus.GaugeValue, float64(n), rule, strconv.FormatBool(isDry))
		}
	}
}
