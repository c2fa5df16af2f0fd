// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package subpathrollback

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// dealtWith is what became of pods that were deleted, when one kubelet has dealt with
// their directories.
type dealtWith struct {
	What  string
	Pods  []podDir
	Files map[string]file // by their path below the host directories
}

type podDir struct {
	Name  string
	Stays bool // the pod's directory is still there
	Host  bool // it had files in a host directory
}

// file has the checksums before the deletion and after it, "" if it is not there.
type file struct{ Pod, Was, Is string }

// The values of dealtWith.What; the release follows whatBack.
const (
	whatForced = "pod deleted while the kubelet was down"
	whatBack   = "back to "
)

var oracle = labkit.Oracle{
	Text:  []string{"each file below the host directories still has its checksum, and each pod's directory is gone; the kubelet's log shows that it removed orphans"},
	Judge: judge,
}

func judge(h *history.History) labkit.Outcome {
	want := []string{whatForced, whatBack + old}
	if h.Variant == string(labkit.Ours) && h.Profile == string(labkit.Long) {
		want = append(want, whatBack+"v1.8.15", whatBack+base)
	}
	var seen, bad, facts []string
	all, unsure := 0, "" // unsure is why it cannot be told that nothing was lost
	for _, o := range history.Of[dealtWith](h) {
		seen = append(seen, o.What)
		var lost []string
		gone, kept := 0, 0
		for _, p := range o.Pods {
			files, changed := 0, 0
			for _, f := range o.Files {
				if f.Pod != p.Name {
					continue
				}
				files++
				if f.Was == "" || f.Is != f.Was {
					changed++
				}
			}
			if p.Host && files == 0 {
				unsure = fmt.Sprintf("%s: pod %s had no file", o.What, p.Name)
			}
			kept += files - changed
			if changed > 0 {
				lost = append(lost, fmt.Sprintf("%d files of pod %s", changed, p.Name))
			}
			if p.Stays {
				lost = append(lost, "directory of pod "+p.Name)
			} else {
				gone++
			}
		}
		if len(o.Pods) == 0 {
			unsure = o.What + ": no pod was deleted"
		}
		slices.Sort(lost)
		facts = append(facts, fmt.Sprintf("%-44s %2d files kept, %2d pod directories removed, %2d lost or left", o.What+":", kept, gone, len(lost)))
		if len(lost) > 0 {
			bad = append(bad, fmt.Sprintf("%s: %s", o.What, strings.Join(lost, ", ")))
		}
		all += kept
	}
	var res labkit.Outcome
	switch {
	case len(bad) > 0 && h.Variant == string(labkit.Ours):
		// Nothing that was not seen makes up for what was.
		res = labkit.ReproducedBecause("%s", strings.Join(bad, "; "))
	case unsure != "":
		res = labkit.InconclusiveBecause("%s", unsure)
	case !slices.Equal(seen, want):
		res = labkit.InconclusiveBecause("seen %q, want %q", seen, want)
	case len(bad) == 0:
		res = labkit.AbsentBecause("%d checks of a file, each had its checksum; no pod directory is left", all)
	case len(bad) < len(want):
		res = labkit.InconclusiveBecause("only %s", strings.Join(bad, "; "))
	default:
		res = labkit.ReproducedBecause("%s", strings.Join(bad, "; "))
	}
	res.Facts = facts
	res.Measure("looks at a file that was as before", float64(all), "")
	res.Measure("steps that lost files or left directories", float64(len(bad)), "")
	return res
}
