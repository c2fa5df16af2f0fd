// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdattach

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labs/internal/rbdlab"
)

// When an image was looked at.
const (
	atStart    = "before the trigger"
	atDeath    = "the node is dead"
	wanted     = "the expected state, or the time limit"
	readerGone = "the reader is gone"
	atEnd      = "at the end"
)

// row is one way in which an image is not mounted, or its lock stays. Its image has its name.
type row struct {
	name, text string
	do         func(*lab, context.Context) error
	// judge says what is wrong, "" if nothing; an error is what it could not tell.
	judge func(seen) (string, error)
	// written are the files that the image must have at the end.
	written map[string]string
	// old rows are those of node1, with 1.7.0. They are driven beside the others.
	old bool
	// any rows must be as wanted with every build: stock is right there. They take long.
	any bool
}

var rows []row

// rowsOf are the rows of a profile.
func rowsOf(p labkit.Profile) []row {
	if p == labkit.Long {
		return rows
	}
	return slices.DeleteFunc(slices.Clone(rows), func(x row) bool { return x.any })
}

func init() {
	rows = []row{
		{"readers", "two nodes mount the image read-only", (*lab).readers, judgeReaders, nil, false, false},
		{"beside", "a node mounts read-only an image that another node has mounted for writing", (*lab).beside, judgeBeside, map[string]string{"written": "before", "later": "after"}, false, false},
		{"keyring", "the volume names a keyring outside of Ceph's folders", (*lab).keyring, judgeKeyring, nil, false, false},
		{"user", "1.7.0 mounts the image with a user that has only mon 'allow r'; the kubelet is swapped, the pod deleted", (*lab).user, judgeUser, map[string]string{"written": "by 1.7"}, true, false},
		{"death", "the power of a 1.7.0 node is cut, its pod starts on another one", (*lab).death, judgeDeath, map[string]string{"written": "by 1.7", "later": "by the next node"}, true, false},
		{"death19", "the power of a node with the kubelet under test is cut, its pod starts on another one", (*lab).death19, judgeDeath19, map[string]string{"written": "by the dead node", "later": "by the next node"}, false, true},
	}
}

var oracle = labkit.Oracle{
	Text: []string{
		fmt.Sprintf("readers, beside: the second pod runs within %v, and when it is gone no byte of the image has changed", bound),
		fmt.Sprintf("keyring: the pod runs within %v", bound),
		fmt.Sprintf("user: within %v no watcher, no lock and no volumesInUse; Ceph's blocklist has not changed", bound),
		fmt.Sprintf("death: the pod runs within %v, and the dead node's lock is gone", deathBound),
		fmt.Sprintf("death19, also on stock: the pod runs within %v, and nothing else watches the image", deathBound),
		"at the end no node has an image mapped; each image is clean for e2fsck -fn and has its data",
	},
	Judge: judge,
}

// seen is what was recorded of one image.
type seen struct {
	row      row
	states   map[rbdlab.At]rbdlab.State
	contents map[rbdlab.At]rbdlab.Contents
	blocked  map[string]string
	learned  map[string]bool
	dirty    bool
	variant  string
}

func (s seen) state(when string) (rbdlab.State, error) {
	x, ok := s.states[rbdlab.At{Image: s.row.name, When: when}]
	if !ok {
		return x, fmt.Errorf("no observation of the image was recorded: %s", when)
	}
	return x, nil
}

func (s seen) content(when string) (rbdlab.Contents, error) {
	x, ok := s.contents[rbdlab.At{Image: s.row.name, When: when}]
	if !ok {
		return x, fmt.Errorf("the contents of the image were not read: %s", when)
	}
	return x, nil
}

// pair are the states before the trigger, in which count clients watch, and after it.
func (s seen) pair(count int) (before, after rbdlab.State, err error) {
	if before, err = s.state(atStart); err != nil {
		return
	}
	if len(before.Watchers) != count {
		return before, after, fmt.Errorf("before the trigger the image's watchers were %v", before.Watchers)
	}
	after, err = s.state(wanted)
	return
}

func judgeReaders(s seen) (string, error) {
	_, after, err := s.pair(1)
	if err != nil {
		return "", err
	}
	was, err := s.content(atStart)
	if err != nil {
		return "", err
	}
	is, err := s.content(atEnd)
	switch {
	case err != nil:
		return "", err
	case !after.Runs("reader-2"):
		return "the second reader does not run", nil
	case !after.Runs("reader-1"):
		return "the first reader does not run", nil
	case len(after.WritersOn()) > 0:
		return fmt.Sprintf("mounted for writing on %v", after.WritersOn()), nil
	case was.SHA256 != is.SHA256:
		return "the image was written to", nil
	}
	return "", nil
}

func judgeBeside(s seen) (string, error) {
	_, after, err := s.pair(1)
	if err != nil {
		return "", err
	}
	if !s.dirty {
		return "", fmt.Errorf("the journal was not dirty")
	}
	was, err := s.content(atStart)
	if err != nil {
		return "", err
	}
	gone, err := s.state(readerGone)
	if err != nil {
		return "", err
	}
	is, err := s.content(readerGone)
	switch {
	case err != nil:
		return "", err
	case was.SHA256 != is.SHA256:
		return "the image was written to", nil
	case !after.Runs("beside"):
		return "the reader does not run", nil
	case !after.Runs("writer") || !gone.Runs("writer") || len(gone.Watchers) != 1:
		return fmt.Sprintf("the writer does not keep running as the only client (watchers %v)", gone.Watchers), nil
	case !slices.Equal(after.WritersOn(), []string{"node2"}):
		return fmt.Sprintf("mounted for writing on %v", after.WritersOn()), nil
	}
	return "", nil
}

func judgeKeyring(s seen) (string, error) {
	after, err := s.state(wanted)
	if err == nil && !after.Runs("keyring") {
		return "the pod does not run", nil
	}
	return "", err
}

func judgeUser(s seen) (string, error) {
	before, after, err := s.pair(1)
	if err != nil {
		return "", err
	}
	if !before.Locked(rbdlab.LegacyLock("node1")) {
		return "", fmt.Errorf("1.7 had taken no lock: %v", before.Locks)
	}
	was, ok := s.blocked[atStart]
	is, ok2 := s.blocked[atEnd]
	reported, ok3 := s.learned["user"]
	switch {
	case !ok || !ok2:
		return "", fmt.Errorf("the blocklist was not read")
	case !ok3:
		return "", fmt.Errorf("it was not recorded whether the mount was reported again")
	case (s.variant == string(labkit.Stock) || s.variant == string(labkit.GateOff)) && (!reported || after.Held()):
		return "", fmt.Errorf("the kubelet has reported the mount again: %t, and the image is watched by %v and mapped on %v: the lock is not the reason",
			reported, after.Watchers, after.Mapped)
	case after.Held():
		return fmt.Sprintf("still watched by %v", after.Watchers), nil
	case len(after.Locks) > 0:
		return "the lock stays", nil
	case len(after.InUse["node1"]) > 0:
		return fmt.Sprintf("volumesInUse has %v", after.InUse["node1"]), nil
	case was != is:
		return fmt.Sprintf("the blocklist was %q and is %q", was, is), nil
	}
	return "", nil
}

func judgeDeath(s seen) (string, error) {
	before, after, err := s.pair(1)
	if err != nil {
		return "", err
	}
	dead, err := s.state(atDeath)
	lock := rbdlab.LegacyLock("node1")
	switch {
	case err != nil:
		return "", err
	case !before.Locked(lock) || !dead.Locked(lock) || len(dead.Watchers) == 0:
		return "", fmt.Errorf("the dead node's lock and watcher were %v and %v", dead.Locks, dead.Watchers)
	case !after.Runs("lives"):
		return "the pod does not run on the next node", nil
	case after.Locked(lock):
		return "the lock of the dead node stays", nil
	}
	return "", nil
}

func judgeDeath19(s seen) (string, error) {
	before, after, err := s.pair(1)
	if err != nil {
		return "", err
	}
	dead, err := s.state(atDeath)
	switch {
	case err != nil:
		return "", err
	case !before.Runs("dies19") || len(dead.Watchers) == 0:
		return "", fmt.Errorf("the dead node's watchers were %v", dead.Watchers)
	case !after.Runs("lives19"):
		return "the pod does not run on the next node", nil
	case len(after.Watchers) != 1 || len(after.Locks) > 0:
		return fmt.Sprintf("watched by %v, locked by %v", after.Watchers, after.Locks), nil
	}
	return "", nil
}

func judge(h *history.History) labkit.Outcome {
	s := seen{states: rbdlab.States(h), contents: rbdlab.ContentsOf(h), learned: rbdlab.LearnedOf(h), blocked: map[string]string{}, variant: h.Variant}
	for _, b := range history.Of[blocked](h) {
		s.blocked[b.When] = b.List
	}
	for _, j := range history.Of[journal](h) {
		s.dirty = j.Dirty
	}
	res := labkit.Outcome{}
	var lost, fine, damaged, missing []string
	all := rowsOf(labkit.Profile(h.Profile))
	for _, x := range all {
		s.row = x
		what, err := x.judge(s)
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s: %v", x.name, err))
			continue
		}
		after, err := s.state(wanted)
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s: %v", x.name, err))
			continue
		}
		if what != "" && x.any {
			damaged = append(damaged, x.name+": "+what)
			continue
		}
		if what != "" {
			lost = append(lost, x.name+": "+what)
			res.Facts = append(res.Facts, fmt.Sprintf("%s: %s (after %.1f s)", x.name, what, after.Seconds))
			continue
		}
		if !x.any {
			fine = append(fine, x.name)
		}
		res.Measure(x.name, after.Seconds, "s")
		res.Facts = append(res.Facts, fmt.Sprintf("%s: as expected after %.1f s", x.name, after.Seconds))
	}
	// What an image holds is judged in every variant, what is left of a row that is lost is not.
	for _, x := range all {
		s.row = x
		is, err := s.content(atEnd)
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s: %v", x.name, err))
			continue
		}
		if text := is.Lost(x.written); text != "" {
			damaged = append(damaged, text)
		}
	}
	return rbdlab.Ending{Lost: lost, Fine: fine, Wrong: damaged, Missing: missing,
		Absent: strings.Join(fine, ", ") + ": as expected, and all images are clean and have their data"}.Answer(h, res)
}
