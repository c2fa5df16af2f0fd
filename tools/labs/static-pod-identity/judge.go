// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpodidentity

import (
	"fmt"
	"path"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/kubeletlab"
)

// swapped is what became of the static pods when a kubelet took over.
type swapped struct {
	Step   int
	Name   string // to what
	Judged bool
	// Edit: the manifest of one pod was changed meanwhile.
	Edit bool
	// Reboot: the node was rebooted, so all that ran is new.
	Reboot        bool
	Before, After kubeletlab.Snapshot
	// Forecast is what kubectl-holdfast told before it.
	Forecast []kubeletlab.Told
	// HashesBefore and HashesAfter are the mirror pods' hashes of the manifest, which are the
	// static pods' UIDs, by pod.
	HashesBefore, HashesAfter map[string]string
	// What was sent to the pods meanwhile; to the pod whose manifest is changed nothing.
	count
}

var oracle = labkit.Oracle{
	Text: []string{
		"for each swap: IDs and start times of the containers and sandboxes in docker, the mirror pods' hashes in the API, requests to each pod, and writes through the API server and etcd",
		"every container is kept or recreated as kubectl-holdfast forecast said before the swap",
		"control: the pod whose manifest is changed while the kubelet is down is replaced, once, and a reboot replaces all pods; a swap is over when the new kubelet has logged for every pod that it compared the pod's containers",
	},
	Judge: judge,
}

func isEdited(pod string) bool { return strings.HasPrefix(pod, edited+"-") }

func judge(h *history.History) labkit.Outcome {
	want := chain(labkit.Variant(h.Variant), labkit.Profile(h.Profile))
	all := history.Of[swapped](h)
	var facts, bad, wrong []string
	missing := ""
	recreated, kept, failed := 0, 0, 0
	for i, s := range all {
		if i >= len(want) || s.Step != i || s.Name != want[i].to {
			missing = fmt.Sprintf("swap %d is to %s, which is not the planned one", i+1, s.Name)
			break
		}
		d := kubeletlab.Compare(s.Before, s.After, func(_ string, c kubeletlab.Container) bool { return !s.Edit || !isEdited(c.Pod) })
		lost := append(d.Recreated, d.Gone...)
		facts = append(facts, fmt.Sprintf("swap %d, to %s: %d of %d containers and sandboxes recreated, %d of %d requests and %d of %d writes failed", i+1, s.Name, len(lost), len(lost)+len(d.Kept), s.Failed, s.Asked, s.Unwritten, s.Written))
		if !s.Judged {
			continue
		}
		if pods := 2 * len(masters); len(s.Before) != pods || s.Asked == 0 || s.Written == 0 {
			missing = fmt.Sprintf("swap %d: %d containers and sandboxes ran before it, want %d, and %d requests and %d writes were sent", i+1, len(s.Before), pods, s.Asked, s.Written)
			continue
		}
		if s.Reboot {
			if len(d.Kept) > 0 {
				missing = fmt.Sprintf("swap %d: %d containers and sandboxes survived the reboot", i+1, len(d.Kept))
			}
			for pod, hash := range s.HashesBefore {
				if s.HashesAfter[pod] != hash {
					bad = append(bad, fmt.Sprintf("swap %d: after the reboot mirror pod %s has another hash", i+1, pod))
				}
			}
			continue
		}
		// Nobody can tell that a manifest will be changed, and forecast does not know which release's
		// UID a pod has.
		open := func(t kubeletlab.Told) bool {
			return s.Edit && isEdited(path.Base(t.Pod)) || s.Name != underTest && t.Answer == "?"
		}
		for _, w := range kubeletlab.NotAsTold(s.Forecast, s.Before, s.After, open) {
			bad = append(bad, fmt.Sprintf("swap %d: %s", i+1, w))
			wrong = append(wrong, bad[len(bad)-1])
		}
		recreated, kept = recreated+len(lost), kept+len(d.Kept)
		if len(lost) > 0 {
			bad = append(bad, fmt.Sprintf("swap %d, to %s, ended %d of %d, first %s", i+1, s.Name, len(lost), len(lost)+len(d.Kept), lost[0]))
		}
		for pod, hash := range s.HashesBefore {
			same := s.HashesAfter[pod] == hash
			switch {
			case hash == "":
				missing = fmt.Sprintf("swap %d: mirror pod %s has no hash", i+1, pod)
			case s.Edit && isEdited(pod) && same:
				bad = append(bad, fmt.Sprintf("swap %d: the manifest of %s was changed, but its UID is the same", i+1, pod))
			case !(s.Edit && isEdited(pod)) && len(lost) == 0 && !same:
				bad = append(bad, fmt.Sprintf("swap %d: mirror pod %s has another hash", i+1, pod))
			}
		}
		if s.Edit {
			e := kubeletlab.Compare(s.Before, s.After, func(_ string, c kubeletlab.Container) bool { return isEdited(c.Pod) })
			if len(e.Recreated) != 2 {
				bad = append(bad, fmt.Sprintf("swap %d: the manifest of %s was changed, but %d of its container and sandbox are new, want 2", i+1, edited, len(e.Recreated)))
			}
		}
		failed += s.Failed + s.Unwritten
		if s.Failed+s.Unwritten > 0 && len(lost) == 0 {
			bad = append(bad, fmt.Sprintf("swap %d: %d of %d requests and %d of %d writes failed although nothing was recreated, first %s", i+1, s.Failed, s.Asked, s.Unwritten, s.Written, s.Why))
		}
	}
	res := labkit.AbsentBecause("%d swaps: %d containers and sandboxes of static pods kept, no request and no write failed", len(all), kept)
	switch {
	case len(wrong) > 0 && h.Variant != string(labkit.Ours): // what reproduces the incident is another thing
		res = labkit.InconclusiveBecause("%s", strings.Join(wrong, "; "))
	case len(bad) > 0:
		res = labkit.ReproducedBecause("%s", strings.Join(bad, "; "))
	case missing != "":
		res = labkit.InconclusiveBecause("%s", missing)
	case len(all) < len(want):
		res = labkit.InconclusiveBecause("%d of %d swaps were made", len(all), len(want))
	}
	res.Facts = facts
	res.Measure("containers and sandboxes of static pods recreated", float64(recreated), "")
	res.Measure("failed requests and writes", float64(failed), "")
	return res
}
