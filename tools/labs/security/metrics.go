// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/load"
	"holdfast/tools/labkit/wait"
)

// invented is how many HTTP methods the lab makes up.
const invented = 100

var metrics = row{
	slug:    "metrics-method-label",
	summary: "anybody who reaches /metrics makes series that stay",
	plan: []string{
		fmt.Sprintf("send %d requests with invented HTTP methods to /metrics of the kubelet's read-only port and of the controller manager", invented),
		"oracle: by how many series http_requests_total grows, 1 at most for each; absent: every request was answered, and GET and PATCH have their series",
	},
	judge: judgeMetrics,
}

func judgeMetrics(ctx context.Context, l *lab) (outcome, error) {
	var grown []string
	over := 0
	targets := []struct{ name, url string }{
		{"kubelet", l.node.KubeletURL + "/metrics"},
		{"controller manager", l.c.ControllerManager.URL + "/metrics"},
	}
	for _, t := range targets {
		for _, m := range []string{http.MethodGet, http.MethodPatch} {
			if err := send(ctx, m, t.url); err != nil {
				return outcome{}, err
			}
			label := fmt.Sprintf(`http_requests_total{code="200",handler="prometheus",method=%q}`, strings.ToLower(m))
			// A request is counted when it has been answered.
			if err := wait.Until(ctx, t.name+" has a series for "+m, 10*time.Second, func(ctx context.Context) (bool, error) {
				n, err := series(ctx, t.url, label)
				return n == 1, err
			}); err != nil {
				return outcome{}, err
			}
		}
		before, err := series(ctx, t.url, "http_requests_total{")
		if err != nil {
			return outcome{}, err
		}
		for i := range invented {
			if err := send(ctx, fmt.Sprintf("LAB%d", i), t.url); err != nil {
				return outcome{}, err
			}
		}
		var after int
		if err := wait.Until(ctx, t.name+" has counted the invented methods", 10*time.Second, func(ctx context.Context) (bool, error) {
			after, err = series(ctx, t.url, "http_requests_total{")
			return after > before, err
		}); err != nil {
			return outcome{}, err
		}
		grown = append(grown, fmt.Sprintf("%s %d", t.name, after-before))
		if after-before > 1 {
			over++
		}
	}
	saw := fmt.Sprintf("new series of %d invented methods: %s", invented, strings.Join(grown, ", "))
	if over > 0 && over < len(targets) && l.e.Variant == labkit.Stock {
		return outcome{}, fmt.Errorf("only one of them: %s", saw)
	}
	return outcome{over > 0, saw}, l.metric(ctx, "holdfast_metrics_method_label_unknown_total", invented)
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
