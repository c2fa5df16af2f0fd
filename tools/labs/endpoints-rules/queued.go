// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdfast/tools/build/dropin"
	"holdfast/tools/build/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/webset"
)

func queuedLab() labkit.Lab {
	return labkit.Lab{
		Name:     "endpoints-rules-queued",
		Folder:   "endpoints-rules",
		Summary:  "statuses that announce a replacement wait behind the kubelet's other requests: a client enables pods whose old container still runs",
		Steps:    queuedSteps,
		Oracle:   queuedOracle,
		Variants: []labkit.Variant{labkit.Ours}, // the other kubelet is in the same run
		Timeout: func(p labkit.Profile) time.Duration {
			return labkit.Pick(p, 12*time.Minute, 60*time.Minute)
		},
		Needs: labkit.KubeletNeeds(base, labkit.StockBinary(base, "kubelet")),
	}
}

// queuedColumn is kubeletColumn with dropin.Queued's kubelet.
const queuedColumn column = "kubelet without its own limit"

// queuedColumns are in their order: the kubelet without the limit is the control.
var queuedColumns = []column{queuedColumn, kubeletColumn}

func queuedSteps(e *labkit.Env) []labkit.Step {
	l := &kubelets{e: e, nodes: 1, web: &webset.Running{Action: "die"}}
	return append(append([]labkit.Step{
		{Text: "start etcd, kube-apiserver, kube-controller-manager and one node with a kubelet, all stock; record docker's events", Do: l.startQueued},
		{Text: fmt.Sprintf("create a Service and %d pods, all on that node, that take 0 to 8 s to end, half of them without a readiness probe", pods), Do: l.start},
	}, l.columns(queuedColumns, map[column]labkit.Step{
		queuedColumn: {Text: "swap the kubelet for Holdfast without the separate request limit for these statuses", Do: func(ctx context.Context) error {
			p := e.UnderTest(base, "kubelet")
			p.Path = queuedFile(e)
			return l.swapKubelets(ctx, p)
		}},
		kubeletColumn: {Text: "swap the kubelet for the kubelet under test", Do: func(ctx context.Context) error {
			return l.swapKubelets(ctx, e.UnderTest(base, "kubelet"))
		}},
	})...), l.end())
}

func queuedFile(e *labkit.Env) string {
	return filepath.Join(e.Root, filepath.FromSlash(dropin.QueuedDir), dropin.Kubelet)
}

func (l *kubelets) startQueued(ctx context.Context) error {
	if _, err := os.Stat(queuedFile(l.e)); err != nil {
		return exit.Preconditionf("the kubelet without its own limit: %v: run _output/tools/lab, which builds it", err)
	}
	return l.startCluster(ctx)
}

var queuedOracle = labkit.Oracle{
	Text: []string{
		"L: the report's client, which gathers updates for 2 s (fixed and trailing windows), enables no pod before docker has reported the end of its old container",
		fmt.Sprintf("L breaks with %q; otherwise the run is inconclusive, because the separate limit would not be needed", queuedColumn),
		fmt.Sprintf("L holds with %q, and all addresses are ready at most %v after the last pod", kubeletColumn, stuck),
	},
	Judge: judgeQueued,
}

func judgeQueued(h *history.History) labkit.Outcome {
	all := history.Of[change](h)
	res := queuedVerdict(h, all)
	most := map[column][2]int{}
	for _, c := range all {
		res.Facts = append(res.Facts, c.String())
		m := most[c.Column]
		most[c.Column] = [2]int{max(m[0], len(c.broken(fixed))), max(m[1], len(c.broken(trailing)))}
	}
	for _, col := range queuedColumns {
		if m, ok := most[col]; ok {
			res.Measure(fmt.Sprintf("pods switched on too early in the worst round, fixed windows, %s", col), float64(m[0]), "")
			res.Measure(fmt.Sprintf("pods switched on too early in the worst round, trailing windows, %s", col), float64(m[1]), "")
		}
	}
	return res
}

func queuedVerdict(h *history.History, all []change) labkit.Outcome {
	got, early := map[column]int{}, 0
	for _, c := range all {
		if c.Column == kubeletColumn {
			if why := c.unsure(); why != "" {
				return labkit.InconclusiveBecause("%s", why)
			}
			if why := c.wrong(); why != "" {
				return labkit.ReproducedBecause("%s", why)
			}
		}
	}
	for _, c := range all {
		if why := c.unsure(); why != "" {
			return labkit.InconclusiveBecause("%s", why)
		}
		got[c.Column]++
		if c.Column == queuedColumn {
			early = max(early, len(c.broken(fixed)), len(c.broken(trailing)))
		}
	}
	want := rounds(labkit.Profile(h.Profile))
	for _, col := range queuedColumns {
		if got[col] != want {
			return labkit.InconclusiveBecause("%s: %d rounds, want %d", col, got[col], want)
		}
	}
	if early == 0 {
		return labkit.InconclusiveBecause("%s: no pod was enabled too early: the control shows nothing", queuedColumn)
	}
	return labkit.AbsentBecause("none of %d pods was enabled before its old container was gone; without the separate limit up to %d in a round were", pods, early)
}
