// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/wait"
)

// invented is how many HTTP methods the lab makes up.
const invented = 100

var metrics = row{
	fix:     "metrics-method-label",
	summary: "anyone who reaches /metrics can create series that stay",
	does:    fmt.Sprintf("send %d requests with invented HTTP methods to /metrics of the kubelet's read-only port and of the controller manager", invented),
	oracle:  "http_requests_total of the kubelet or the controller manager grows by more than one series; absent: every request was answered, and GET and PATCH have their series",
	look:    lookMetrics,
	judge:   judgeMetrics,
}

// methods is how many series http_requests_total had before and after the invented
// methods, by component.
type methods struct {
	Before, After map[string]int
	Counted       float64
}

func lookMetrics(ctx context.Context, l *lab) error {
	o := methods{Before: map[string]int{}, After: map[string]int{}}
	var err error
	targets := []struct{ name, url string }{
		{"kubelet", l.node.KubeletURL + "/metrics"},
		{"controller manager", l.c.ControllerManager.URL + "/metrics"},
	}
	for _, t := range targets {
		for _, m := range []string{http.MethodGet, http.MethodPatch} {
			if err := send(ctx, m, t.url); err != nil {
				return err
			}
			label := fmt.Sprintf(`http_requests_total{code="200",handler="prometheus",method=%q}`, strings.ToLower(m))
			// A request is counted when it has been answered.
			if err := wait.Until(ctx, t.name+" has a series for "+m, patience, func(ctx context.Context) (bool, error) {
				n, err := series(ctx, t.url, label)
				return n == 1, err
			}); err != nil {
				return err
			}
		}
		if o.Before[t.name], err = series(ctx, t.url, "http_requests_total{"); err != nil {
			return err
		}
		for i := range invented {
			if err := send(ctx, fmt.Sprintf("LAB%d", i), t.url); err != nil {
				return err
			}
		}
		if err := wait.Until(ctx, t.name+" has counted the invented methods", patience, func(ctx context.Context) (bool, error) {
			var err error
			o.After[t.name], err = series(ctx, t.url, "http_requests_total{")
			return o.After[t.name] > o.Before[t.name], err
		}); err != nil {
			return err
		}
	}
	if o.Counted, err = l.counted(ctx, "holdfast_metrics_method_label_unknown_total"); err != nil {
		return err
	}
	l.e.Record(o)
	return nil
}

func judgeMetrics(h *history.History) finding {
	o, f, over := history.One[methods](h), finding{}, 0
	var grown []string
	for _, name := range []string{"kubelet", "controller manager"} {
		n := o.After[name] - o.Before[name]
		if n < 1 {
			return cannotTell("%s has no new series", name)
		}
		grown = append(grown, fmt.Sprintf("%s %d", name, n))
		f = f.measure("new series of the "+name, float64(n), "")
		if n > 1 {
			over++
		}
	}
	f.happened, f.saw = over > 0, fmt.Sprintf("new series of %d invented methods: %s", invented, strings.Join(grown, ", "))
	if over == 1 && h.Variant == string(labkit.Stock) {
		return cannotTell("only one of them: %s", f.saw)
	}
	return f.counting(h, "holdfast_metrics_method_label_unknown_total", o.Counted, invented)
}

// send sends a request that must be answered with 200.
func send(ctx context.Context, method, url string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	code, err := do(req)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s %s answers %d", method, url, code)
	}
	return err
}

// series counts the lines of a /metrics page that begin with the prefix.
func series(ctx context.Context, url, prefix string) (int, error) {
	text, err := load.Get(ctx, url)
	return strings.Count("\n"+text, "\n"+prefix), err
}
