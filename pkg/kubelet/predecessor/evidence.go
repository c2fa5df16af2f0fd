// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package predecessor

import "time"

// Checkpoints says which kubelets can read the newest sandbox checkpoint that
// was there when this kubelet started.
type Checkpoints int

const (
	// NoCheckpoints: there is none, or they were not looked at.
	NoCheckpoints Checkpoints = iota
	// Checkpoints17: written by 1.6 or 1.7, or by an earlier process of this
	// kubelet for it.
	Checkpoints17
	// CheckpointsNative: written by 1.8 or newer, or by this kubelet for those.
	CheckpointsNative
)

const (
	// maxVotes bounds the memory. When it is reached, the votes start anew.
	maxVotes = 10000
	// settleTime is how long the votes must say the same until they are kept. They
	// come in within seconds, as a kubelet that starts looks at each of its pods.
	settleTime = 2 * time.Minute
)

// minors are the minor releases 1.oldest to 1.newest, any of which recorded a
// container's hash.
type minors struct {
	oldest, newest int
}

// evidence is what the things that a kubelet left behind say of it. None of them
// names its maker, so they vote, and one left-over decides nothing: a
// container of a time with a gate off, or a checkpoint that outlived an upgrade.
type evidence struct {
	containers  map[string]minors
	checkpoints Checkpoints
	// said is what minor returned last, and since when.
	said struct {
		minor int
		ok    bool
	}
	since time.Time
}

func (e *evidence) add(key string, m minors, now time.Time) {
	if e.containers == nil || len(e.containers) >= maxVotes {
		e.containers = map[string]minors{}
	}
	e.containers[key] = m
	e.note(now)
}

func (e *evidence) setCheckpoints(c Checkpoints, now time.Time) {
	e.checkpoints = c
	e.note(now)
}

func (e *evidence) note(now time.Time) {
	minor, ok := e.minor()
	if e.since.IsZero() || minor != e.said.minor || ok != e.said.ok {
		e.said.minor, e.said.ok, e.since = minor, ok, now
	}
}

// settled reports whether containers have spoken of 1.7 or of 1.8, and the votes
// say the same since settleTime. If all speak of 1.9 there is nothing that would have
// to be remembered.
func (e *evidence) settled(now time.Time) bool {
	for _, m := range e.containers {
		if m.newest <= 7 || m.newest == 8 && (m.oldest == 8 || e.said.ok) {
			return now.Sub(e.since) >= settleTime
		}
	}
	return false
}

// minor returns the minor release, 7 or 8, that the evidence speaks for. What
// 1.9 leaves behind is no evidence of a kubelet before this one, which leaves the
// same, but it outweighs older things. Hashes count before checkpoints, which a
// kubelet leaves alone as long as their pod lives: after an upgrade from 1.7 to
// stock 1.9 the containers are new and the checkpoints are not.
func (e *evidence) minor() (int, bool) {
	var votes [3]int // 1.7, 1.8, 1.9
	unsure := 0      // 1.7 or 1.8
	for _, m := range e.containers {
		switch {
		case m.newest <= 7:
			votes[0]++
		case m.oldest == 8 && m.newest == 8:
			votes[1]++
		case m.oldest >= 9:
			votes[2]++
		case m.newest == 8:
			unsure++
		}
	}
	old := votes[0] + votes[1] + unsure
	switch {
	case votes[2] > 0 && votes[2] >= old:
		return 0, false
	case votes[1] > 0 && votes[1] >= votes[0]:
		return 8, true
	case votes[0] > 0:
		// A node that was born with v1.9.11+holdfast.1 has hashes of 1.7 and the
		// checkpoints of 1.9; no 1.7 kubelet was there.
		return 7, e.checkpoints != CheckpointsNative
	default:
		return 7, e.checkpoints == Checkpoints17
	}
}
