// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlegacylock

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/kubeletlab"
	"holdfast/tools/labs/internal/rbdlab"
)

// When an image was looked at; the names of swaps are moments, too.
const (
	byOld           = "under the old kubelet"
	underTest       = "under test"
	backAgain       = "back under the old kubelet"
	beforePowerCut  = "before the power cut"
	rebooted        = "after the power cut"
	deleted         = "its pod is deleted"
	there           = "the way there"
	back            = "the way back"
	thereAgain      = "there again"
	backAfterReboot = "back after the power cut"
	thereForE       = "there once more"
)

// swaps are those of a trip, in their order.
var swaps = []string{there, back, thereAgain, backAfterReboot, thereForE}

func isBack(swap string) bool { return swap == back || swap == backAfterReboot }

// moments are when a pod's image is mounted and written to.
func moments(letter string) []string {
	return map[string][]string{
		"a": {byOld, underTest, backAgain},
		"b": {byOld, underTest},
		"c": {underTest, backAgain},
		"d": {underTest, thereAgain, rebooted, backAfterReboot},
		"e": {underTest, rebooted},
	}[letter]
}

var letters = []string{"a", "b", "c", "d", "e"}

// lockedAt are the moments at which the image must have the lock if the gate is on: those
// at which the kubelet under test has mapped it. After a power cut ours with the gate off
// removes the lock that nobody has any more, and takes none.
func (c cell) lockedAt(letter string) []string {
	switch letter {
	case "c":
		return []string{underTest, backAgain}
	case "d":
		return []string{underTest, thereAgain, rebooted, backAfterReboot}
	case "e":
		if c.base == "" {
			return []string{underTest}
		}
		return []string{underTest, rebooted}
	}
	return nil
}

// oursRuns says whether a kubelet of ours runs at a moment of an image.
func (c cell) oursRuns(letter, when string) bool {
	return c.base == "" || when == underTest || when == thereAgain || when == rebooted && letter == "d"
}

// foreignOn is State.Foreign of one node.
func foreignOn(s rbdlab.State, node string) string {
	return rbdlab.State{InUse: map[string][]string{node: s.InUse[node]}}.Foreign()
}

// swapped is what became of a node's containers when its kubelet was replaced.
type swapped struct {
	Cell, What    string
	Before, After kubeletlab.Snapshot
}

// arrived is the end of a trip.
type arrived struct{ Cell string }

var rollbackOracle = labkit.Oracle{
	Text: []string{
		"no container is recreated by a swap, and each image stays mounted for writing on its node; after a power cut its pod runs again",
		"node " + controlNode + ", stock alone: an image whose pod is deleted right after the kubelet's start stays mapped; an image whose mount was reported before the deletion does not",
		"with the gate on, an image that the kubelet under test has mapped has the node's lock, also after a swap",
		fmt.Sprintf("within %v after a pod is deleted, its image has no watcher and no lock, is clean for e2fsck -fn, and has everything that was written", freeBound),
	},
	Judge: judgeRollback,
}

func judgeRollback(h *history.History) labkit.Outcome {
	states, contents := rbdlab.States(h), rbdlab.ContentsOf(h)
	ended := map[string]bool{}
	for _, a := range history.Of[arrived](h) {
		ended[a.Cell] = true
	}
	var wrong, open, facts []string
	v := labkit.Variant(h.Variant)
	cells := cellsOf(v, labkit.Profile(h.Profile))
	for _, c := range cells {
		j := &rollbackJudge{cell: c, states: states, contents: contents}
		if v != labkit.Ours {
			if !j.unlocked("c") && !j.unlocked("d") {
				return labkit.InconclusiveBecause("%s: not recorded: %s", c, or(strings.Join(j.missing, ", "), "an image without a lock"))
			}
			return labkit.ReproducedBecause("%s: the node has the image mounted, but there is no lock that a kubelet up to 1.8 sees", c)
		}
		j.swaps(history.Of[swapped](h))
		for _, l := range letters {
			j.image(l)
		}
		if len(j.missing) > 0 || !ended[c.name] {
			open = append(open, fmt.Sprintf("%s: not recorded: %s", c, or(strings.Join(j.missing, ", "), "the end")))
		}
		wrong = append(wrong, j.wrong...)
		facts = append(facts, fmt.Sprintf("%s: %d containers kept in %d swaps; free after %s", c, j.kept, len(swaps), strings.Join(j.free, ", ")))
	}
	lost, told, err := judgeControl(h)
	if err != nil {
		open = append(open, err.Error())
	}
	wrong, facts = append(wrong, lost...), append(facts, told)
	res := labkit.AbsentBecause("%d nodes there and back, twice, with a power cut under either kubelet: no container recreated, no image lost", len(cells))
	switch {
	case len(wrong) > 0:
		res = labkit.ReproducedBecause("%s", strings.Join(append(wrong, open...), "; "))
	case len(open) > 0:
		res = labkit.InconclusiveBecause("%s", open[0])
	}
	res.Facts = facts
	res.Measure("stock reports the mount after its start", history.One[learned](h).Seconds, "s")
	return res
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// rollbackJudge judges one node.
type rollbackJudge struct {
	cell                 cell
	states               map[rbdlab.At]rbdlab.State
	contents             map[rbdlab.At]rbdlab.Contents
	wrong, missing, free []string
	kept                 int
}

func (j *rollbackJudge) bad(format string, a ...any) {
	j.wrong = append(j.wrong, j.cell.String()+": "+fmt.Sprintf(format, a...))
}

func (j *rollbackJudge) state(image, when string) (rbdlab.State, bool) {
	s, ok := j.states[rbdlab.At{Image: image, When: when}]
	if !ok {
		j.missing = append(j.missing, image+" "+when)
	}
	return s, ok
}

// unlocked says whether an image was seen to be mounted by the kubelet under test, and to
// have no lock.
func (j *rollbackJudge) unlocked(letter string) bool {
	s, ok := j.state(j.cell.name+"-"+letter, underTest)
	return ok && len(s.WritersOn()) == 1 && len(s.Watchers) == 1 && len(s.Locks) == 0
}

func (j *rollbackJudge) swaps(all []swapped) {
	seen := map[string]bool{}
	for _, s := range all {
		if s.Cell != j.cell.name {
			continue
		}
		d := kubeletlab.Compare(s.Before, s.After, func(string, kubeletlab.Container) bool { return true })
		if lost := append(d.Recreated, d.Gone...); len(lost) > 0 {
			j.bad("%s: %d of %d containers recreated, first %s", s.What, len(lost), len(s.Before), lost[0])
		}
		j.kept += len(d.Kept)
		seen[s.What] = len(s.Before) > 0 || s.What == thereForE // no pod is left there
	}
	for _, what := range swaps {
		if !seen[what] {
			j.missing = append(j.missing, what)
		}
	}
}

// image judges an image from its first moment to the end of its pod.
func (j *rollbackJudge) image(letter string) {
	image, texts := j.cell.name+"-"+letter, map[string]string{}
	for _, when := range moments(letter) {
		texts[written(when)] = textOf(image, when)
		s, ok := j.state(image, when)
		if !ok {
			continue
		}
		if w := s.WritersOn(); !slices.Equal(w, []string{j.cell.name}) || !s.Runs(image) {
			j.bad("%s, %s: mounted for writing on %v, its pod is %q", image, when, w, s.Pods[image].Phase)
		}
		// Stock names volumes "[]:" itself after its start.
		if foreign := foreignOn(s, j.cell.name); j.cell.oursRuns(letter, when) && foreign != "" {
			j.bad("%s, %s: %s", image, when, foreign)
		}
		must := slices.Contains(j.cell.lockedAt(letter), when)
		switch locked := s.Locked(rbdlab.LegacyLock(j.cell.name)); {
		case j.cell.gate && must && !locked:
			j.bad("%s, %s: it has no lock of this node", image, when)
		case j.cell.base == "" && !must && locked:
			j.bad("%s, %s: it has a lock that was taken with the gate off", image, when)
		case !j.cell.gate && must && letter != "d" && letter != "e" && locked:
			j.bad("%s, %s: it has a lock although the gate is off", image, when)
		}
	}
	s, ok := j.state(image, deleted)
	if !ok {
		return
	}
	if s.Held() || len(s.Locks) > 0 || len(s.Mounts) > 0 {
		j.bad("%s, %v after its pod was deleted: watchers %v, mapped on %v, locks %v", image, freeBound, s.Watchers, s.Mapped, s.Locks)
		return
	}
	c, ok := j.contents[rbdlab.At{Image: image, When: deleted}]
	if !ok {
		j.missing = append(j.missing, "what is in "+image)
		return
	}
	if lost := c.Lost(texts); lost != "" {
		j.bad("%s", lost)
	}
	j.free = append(j.free, fmt.Sprintf("%s %.1f s", letter, s.Seconds))
}
