// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"fmt"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// change is a replacement of pods that kubelets run. A pod is gone by docker's events, 0 if
// there is none.
type change struct {
	replacement
	Column column
	// Patched is when the last image was changed.
	Patched time.Duration
}

// patchedWithin is in which time all images must have been changed.
const patchedWithin = 2 * time.Second

// stuck is the longest that a ready pod may be missing from the ready addresses.
func (c column) stuck() time.Duration {
	if c == batchingColumn {
		return stuck + period
	}
	return stuck
}

// cures says whether L must hold.
func (c column) cures() bool { return c != batchingColumn && c != queuedColumn }

var kubeletsOracle = labkit.Oracle{
	Text: []string{
		"L: the report's client, which gathers updates for 2 s (fixed and trailing windows), enables no pod before docker has reported the end of its old container",
		fmt.Sprintf("ours: L holds with %s, with %s and with %s; with %s the number of pods is reported, not judged", kubeletColumn, webhookColumn, bothColumn, batchingColumn),
		fmt.Sprintf("all addresses are ready at most %v after the last pod; with %s at most %v", stuck, batchingColumn, batchingColumn.stuck()),
	},
	Judge: judgeKubelets,
}

func (c change) String() string {
	return fmt.Sprintf("%s, round %d: L broken for %d of %d pods (fixed), %d (trailing); %d updates of the Endpoints; images changed within %v; all ready %v after the last pod was",
		c.Column, c.Round+1, len(c.broken(fixed)), len(c.Pods), len(c.broken(trailing)), len(c.Updates), c.Patched.Round(10*time.Millisecond), c.Late.Round(10*time.Millisecond))
}

// wrong says what is, "" if nothing is.
func (c change) wrong() string {
	switch f, t := c.broken(fixed), c.broken(trailing); {
	case c.Late == 0 && c.Column != queuedColumn:
		return fmt.Sprintf("%s: %v after the last pod became ready, %d of %d addresses are ready", c.Column, c.Column.stuck(), c.Addresses, pods)
	case c.Column.cures() && len(f)+len(t) > 0:
		return fmt.Sprintf("%s: the client enabled pods whose old container still ran: %v (fixed windows), %v (trailing)", c.Column, f, t)
	}
	return ""
}

// unsure says why nothing can be told.
func (c change) unsure() string {
	switch changed := c.changed(); {
	case len(c.Pods) != pods || changed != pods:
		return fmt.Sprintf("%s: docker reported the end of the old containers of %d of %d pods, want %d", c.Column, changed, len(c.Pods), pods)
	case c.Patched > patchedWithin:
		return fmt.Sprintf("%s: the images were changed within %v, want %v: the machine is too busy for a verdict", c.Column, c.Patched, patchedWithin)
	case len(c.Updates) == 0:
		return fmt.Sprintf("%s: the Endpoints never changed: the trigger is missing", c.Column)
	}
	return ""
}

func judgeKubelets(h *history.History) labkit.Outcome {
	all := history.Of[change](h)
	res := kubeletsVerdict(h, all)
	last := map[column]change{}
	for _, c := range all {
		res.Facts = append(res.Facts, c.String())
		last[c.Column] = c
	}
	for _, col := range columnsOf(labkit.Variant(h.Variant)) {
		c, ok := last[col]
		if !ok {
			continue
		}
		for _, w := range []window{fixed, trailing} {
			res.Measure(fmt.Sprintf("pods switched on too early, %s windows, %s", w, col), float64(len(c.broken(w))), "")
		}
		res.Measure(fmt.Sprintf("updates of the Endpoints, %s", col), float64(len(c.Updates)), "")
	}
	return res
}

func kubeletsVerdict(h *history.History, all []change) labkit.Outcome {
	for _, c := range all {
		if why := c.unsure(); why != "" {
			return labkit.InconclusiveBecause("%s", why)
		}
		if why := c.wrong(); why != "" {
			return labkit.ReproducedBecause("%s", why)
		}
	}
	n := rounds(labkit.Profile(h.Profile))
	for _, col := range columnsOf(labkit.Variant(h.Variant)) {
		got := 0
		for _, c := range all {
			if c.Column == col {
				got++
			}
		}
		if got != n {
			return labkit.InconclusiveBecause("%s: %d rounds, want %d", col, got, n)
		}
	}
	if h.Variant == string(labkit.Stock) {
		return labkit.AbsentBecause("none of %d pods was enabled too early", pods)
	}
	var batched change
	for _, c := range all {
		if c.Column == batchingColumn {
			batched = c
		}
	}
	return labkit.AbsentBecause("none of %d pods was enabled before its old container was gone, with the kubelet, the webhook, and both; with %s %d (fixed windows), %d (trailing)",
		pods, batchingColumn, len(batched.broken(fixed)), len(batched.broken(trailing)))
}
