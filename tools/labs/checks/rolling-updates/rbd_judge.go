// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rollingupdates

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/rbdlab"
)

// Names of further commands, and of a moment.
const (
	cordoned   = "cordon"
	uncordoned = "uncordon"
	scaled     = "scale"
	atEnd      = "at the end"
)

const (
	// waitBound is how long a pod's events may say that its image is locked or in use.
	waitBound = 30 * time.Second
	// gapBound is how long, in seconds, the images may not have been looked at.
	gapBound = 15.0
)

// claimed is the image that a pod's claim has got.
type claimed struct{ Pod, Image string }

// pod is what is seen of one. Lines are those in its volume, as it serves them.
type pod struct {
	Name, UID, Node, Image string
	Ready                  bool
	Lines                  []string
}

// rolled are the pods after a rollout to a version on a node ("" is any), Seconds after its
// command was given.
type rolled struct {
	By, Version, Node string
	Pods              []pod
	Seconds           float64
}

// line is what a pod has written at its start.
func (o rolled) line(p pod) string { return o.Version + " " + p.UID + " " + p.Node }

// fault says why the rollout has not ended, "" if it has. It does not look at earlier lines.
func (o rolled) fault() string {
	var names []string
	for _, p := range o.Pods {
		names = append(names, p.Name)
		switch want := node.WebImage(o.Version); {
		case !p.Ready:
			return fmt.Sprintf("%s: %s is not Ready", o.By, p.Name)
		case p.Image != want:
			return fmt.Sprintf("%s: %s has the image %s, want %s", o.By, p.Name, p.Image, want)
		case o.Node != "" && p.Node != o.Node:
			return fmt.Sprintf("%s: %s is on %s, want %s", o.By, p.Name, p.Node, o.Node)
		case len(p.Lines) == 0 || p.Lines[len(p.Lines)-1] != o.line(p):
			return fmt.Sprintf("%s: %s serves the lines %q, the last one should be %q", o.By, p.Name, p.Lines, o.line(p))
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, podNames()) {
		return fmt.Sprintf("%s: the pods are %v", o.By, names)
	}
	return ""
}

func (o rolled) String() string {
	var all []string
	for _, p := range o.Pods {
		all = append(all, fmt.Sprintf("%s on %s with %d lines", p.Name, p.Node, len(p.Lines)))
	}
	return strings.Join(all, ", ")
}

// waited is an event of a pod that tells of a wait for its volume, Count times from First to
// Last; waits are all.
type (
	waited struct {
		Pod, UID, Text string
		Count          int64
		First, Last    time.Time
	}
	waits struct{ All []waited }
)

// heldTexts are in the events that a kubelet gives when an image is not free, waitTexts also
// in those of the controller manager, which waits for the other node with every build.
var (
	heldTexts = []string{"is locked", "still being used"}
	waitTexts = append(slices.Clone(heldTexts), "Multi-Attach")
)

func has(text string, of []string) bool {
	return slices.ContainsFunc(of, func(t string) bool { return strings.Contains(text, t) })
}

func podNames() []string {
	var all []string
	for i := range replicas {
		all = append(all, fmt.Sprintf("%s-%d", set, i))
	}
	return all
}

// want is how a command ends, and what it has to print.
type want struct{ name, says string }

// rbdCommands are all commands, each of which ends with 0.
func rbdCommands() []want {
	all := []want{{create, "created"}, {applied, "configured"}, {histories, "REVISION"}, {undone, set}, {undoneTo, set}, {scaled, "scaled"}}
	for _, x := range rollouts {
		all = append(all, want{x.by + ": " + status, "complete"})
		if x.node != "" {
			all = append(all, want{x.by + ": " + cordoned, "cordoned"}, want{x.by + ": " + uncordoned, "uncordoned"})
		}
	}
	return all
}

var rbdOracle = labkit.Oracle{
	Text: []string{
		fmt.Sprintf("each command ends with status 0 and the expected message, each PATCH answers 200, each rollout ends within %v with 3 Ready pods of its version on the node that is not cordoned", rolloutBound),
		"after each rollout each pod serves all lines that its predecessors have written, and one line of its own; each image is mapped and mounted only on the pod's node, with one watcher and no lock",
		fmt.Sprintf("no reading shows an image mapped or mounted on two nodes; no event reports for more than %v that an image is locked or still being used", waitBound),
		fmt.Sprintf("at the end each image is free within %v, clean for e2fsck -fn, and has all lines", freeBound),
	},
	Judge: judgeRBD,
}

// rbdJudge gathers what is wrong, and what was not seen.
type rbdJudge struct {
	wrong, missing []string
}

func (j *rbdJudge) bad(format string, a ...any) {
	j.wrong = append(j.wrong, fmt.Sprintf(format, a...))
}
func (j *rbdJudge) lacks(format string, a ...any) {
	j.missing = append(j.missing, fmt.Sprintf(format, a...))
}

func judgeRBD(h *history.History) labkit.Outcome {
	j := &rbdJudge{}
	j.commands(h)
	images := map[string]string{}
	for _, o := range history.Of[claimed](h) {
		images[o.Pod] = o.Image
	}
	lines, moves, longest := j.rollouts(h, images)
	j.watched(h, images)
	facts := j.events(h)
	if lines != nil {
		j.contents(h, images, lines)
	}
	var res labkit.Outcome
	switch {
	case len(j.wrong) > 0:
		res = labkit.FailedBecause("%s", strings.Join(j.wrong, "; "))
	case len(j.missing) > 0:
		res = labkit.InconclusiveBecause("not all observations were recorded: %s", strings.Join(j.missing, "; "))
	default:
		res = labkit.PassedBecause("%d rollouts, %d moves of a pod to the other node; all volumes have all lines", len(rollouts)-1, moves)
	}
	res.Facts = facts
	res.Measure("moves", float64(moves), "")
	res.Measure("longest rollout", longest, "s")
	return res
}

func (j *rbdJudge) commands(h *history.History) {
	byName := map[string]ran{}
	for _, o := range history.Of[ran](h) {
		byName[o.Name] = o
	}
	for _, c := range rbdCommands() {
		o, ok := byName[c.name]
		switch {
		case !ok:
			j.lacks("kubectl %s", c.name)
		case o.Exit != 0 || !strings.Contains(o.Output, c.says):
			j.bad("kubectl %s ends with status %d, want 0 and %q: %.300s", c.name, o.Exit, c.says, o.Output)
		}
	}
	answers := map[string]asked{}
	for _, o := range history.Of[asked](h) {
		answers[o.Name] = o
	}
	for _, name := range []string{strategic, mergePatch, jsonPatch} {
		switch o, ok := answers[name]; {
		case !ok:
			j.lacks("the answer to the %s", name)
		case o.Code != 200:
			j.bad("the %s answers %d: %.300s", name, o.Code, o.Body)
		}
	}
}

// rollouts returns all lines of each pod, nil if a rollout was not seen to its end, how often
// a pod came to the other node, and the longest rollout's seconds.
func (j *rbdJudge) rollouts(h *history.History, images map[string]string) (map[string][]string, int, float64) {
	seen, states := map[string]rolled{}, rbdlab.States(h)
	for _, o := range history.Of[rolled](h) {
		seen[o.By] = o
	}
	lines, on := map[string][]string{}, map[string]string{}
	moves, longest := 0, 0.0
	for _, x := range rollouts {
		o, ok := seen[x.by]
		if !ok || o.Version != x.version || o.Node != x.node {
			j.lacks("the outcome of %s", x.by)
			return nil, moves, longest // what comes after it has a line more
		}
		if f := o.fault(); f != "" {
			j.bad("%s", f)
			return nil, moves, longest
		}
		longest = max(longest, o.Seconds)
		for _, p := range o.Pods {
			if want := append(slices.Clone(lines[p.Name]), o.line(p)); !slices.Equal(p.Lines, want) {
				j.bad("%s: %s has the lines %q, want %q", x.by, p.Name, p.Lines, want)
			}
			lines[p.Name] = p.Lines
			if on[p.Name] != "" && on[p.Name] != p.Node {
				moves++
			}
			on[p.Name] = p.Node
			s, ok := states[rbdlab.At{Image: images[p.Name], When: x.by}]
			switch one := []string{p.Node}; {
			case !ok:
				j.lacks("the image of %s after %s", p.Name, x.by)
			case !slices.Equal(s.Mapped, one) || !slices.Equal(s.WritersOn(), one) || len(s.Watchers) != 1 || len(s.Locks) > 0:
				j.bad("%s: the image of %s on %s is mapped on %v, mounted for writing on %v, watched by %v, locked by %v", x.by, p.Name, p.Node, s.Mapped, s.WritersOn(), s.Watchers, s.Locks)
			}
		}
	}
	return lines, moves, longest
}

// watched judges what was looked at all the time.
func (j *rbdJudge) watched(h *history.History, images map[string]string) {
	looked := map[string]bool{}
	for _, o := range history.Of[held](h) {
		looked[o.Pod] = looked[o.Pod] || o.most() == 1
		if o.most() > 1 {
			j.bad("the image of %s is mapped on %v and mounted on %v at once", o.Pod, o.Mapped, o.Mounted)
		}
	}
	how := history.Of[watched](h)
	switch {
	case len(how) != 1:
		j.lacks("the reading of the mounts")
	case how[0].Failed != "" || how[0].Longest > gapBound:
		j.lacks("the mounts were not read all the time: %+v", how[0])
	}
	for _, name := range podNames() {
		if images[name] == "" || !looked[name] {
			j.lacks("the mounts of %s", name)
		}
	}
}

// events judges those that tell of a wait for a volume, and returns them as facts.
func (j *rbdJudge) events(h *history.History) []string {
	var facts []string
	all := history.Of[waits](h)
	if len(all) != 1 {
		j.lacks("the events")
	}
	attached := 0
	first, last := map[string]time.Time{}, map[string]time.Time{} // by UID
	for _, o := range all {
		for _, w := range o.All {
			if !has(w.Text, heldTexts) {
				attached++
				continue
			}
			facts = append(facts, fmt.Sprintf("%s: %d times in %v: %.200s", w.Pod, w.Count, w.Last.Sub(w.First), w.Text))
			if was, ok := first[w.UID]; !ok || w.First.Before(was) {
				first[w.UID] = w.First
			}
			if w.Last.After(last[w.UID]) {
				last[w.UID] = w.Last
			}
			if took := last[w.UID].Sub(first[w.UID]); took > waitBound {
				j.bad("%s was reported for %v: %.300s", w.Pod, took, w.Text)
			}
		}
	}
	facts = append(facts, fmt.Sprintf("%d events say that the controller manager waited for the other node (Multi-Attach)", attached))
	return facts
}

// contents judges what the images hold at the end: all lines.
func (j *rbdJudge) contents(h *history.History, images map[string]string, lines map[string][]string) {
	states, contents := rbdlab.States(h), rbdlab.ContentsOf(h)
	for _, name := range podNames() {
		at := rbdlab.At{Image: images[name], When: atEnd}
		s, ok := states[at]
		c, read := contents[at]
		switch want := strings.Join(lines[name], "\n"); {
		case !ok:
			j.lacks("the image of %s at the end", name)
		case !rbdlab.FreeUnlocked(s):
			j.bad("the image of %s is not free at the end: watched by %v, mapped on %v, locked by %v", name, s.Watchers, s.Mapped, s.Locks)
		case !read:
			j.lacks("the contents of the image of %s", name)
		case c.Fsck != "":
			j.bad("the image of %s is not clean: %s", name, c.Fsck)
		case c.Files[startsFile] != want:
			j.bad("the image of %s has the lines %q, want %q", name, c.Files[startsFile], want)
		}
	}
}
