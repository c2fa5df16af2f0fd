// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package costatrest

import (
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/costlab"
)

var quantities = []costlab.Quantity{costlab.Start, costlab.StartCPU, costlab.CPU, costlab.RSS, costlab.Heap, costlab.Goroutines, costlab.Files, costlab.Requests}

var oracle = labkit.Oracle{
	Text:  costlab.Oracle("for each quantity: the ratio ours/stock of each pair, the median of these ratios and its interval"),
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	readings := history.Of[costlab.Reading](h)
	ratios, err := costlab.Compare(readings, sizeOf(labkit.Profile(h.Profile)).pairs(),
		[]costlab.Component{{Name: kubelet, Quantities: quantities}, {Name: manager, Quantities: quantities}})
	res := costlab.Judge(h.Profile, ratios, err)
	res.Facts = append(res.Facts, costlab.Kinds(readings, kubelet), costlab.Kinds(readings, manager))
	return res
}
