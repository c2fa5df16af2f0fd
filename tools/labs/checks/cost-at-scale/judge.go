// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costatscale

import (
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/costlab"
)

var compared = []costlab.Component{{Name: manager, Quantities: []costlab.Quantity{costlab.Requests, costlab.CPU, costlab.RSS, costlab.Heap,
	costlab.Rollout, costlab.Settled, costlab.Goroutines, costlab.Files, costlab.Start, costlab.StartCPU}}}

var oracle = labkit.Oracle{
	Text:  costlab.Oracle("for each quantity: the ratio ours/stock of each pair of rollouts, the median of these ratios and its interval"),
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	readings := history.Of[costlab.Reading](h)
	ratios, err := costlab.Compare(readings, sizeOf(labkit.Profile(h.Profile)).pairs, compared)
	res := costlab.Judge(h.Profile, ratios, err)
	res.Facts = append(res.Facts, costlab.Kinds(readings, manager))
	return res
}
