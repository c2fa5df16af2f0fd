// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// How many labs run side by side, each on a machine of its own. A lab waits most of its time,
// but has bounds: beside too many others it runs into them. Two do well on any two cores. More
// begin while the computer has at least idleWanted of its time left, measured when the start
// of the one before is over, which is what costs most. Both times together are how fast labs
// can begin: with 35 s, forty labs took 23 minutes however idle the computer was.
// With eight at once, a computer of two cores got to a load of 43, and labs ran into their bounds.
const (
	fewLabs    = 2
	manyLabs   = 4
	idleWanted = 0.5
	idleOver   = 7 * time.Second
	startTakes = 8 * time.Second
)

// lanes admits labs.
type lanes struct {
	// idle is the computer's idle time and all of its time since it started.
	idle func() (idle, all float64, err error)

	mu      sync.Mutex
	running int
	last    time.Time  // when a lab began last
	first   idleSample // where the stretch began that is measured; zero while that start lasts
}

type idleSample struct {
	at        time.Time
	idle, all float64
}

func newLanes() *lanes { return &lanes{idle: idleTime} }

// idleTime reads /proc/stat. Time of processes of a low priority counts as idle, as they give way
// (make test compiles so beside the labs); time that the host of a virtual machine took does not.
func idleTime() (idle, all float64, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, 0, err
	}
	s, err := fs.Stat()
	if err != nil {
		return 0, 0, err
	}
	t := s.CPUTotal
	idle = t.Idle + t.Iowait + t.Nice
	return idle, idle + t.User + t.System + t.IRQ + t.SoftIRQ + t.Steal, nil
}

// enter waits until another lab may begin. Each enter needs a leave.
func (l *lanes) enter(ctx context.Context) {
	for !l.admit(time.Now()) {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done(): // what begins now ends at once
			l.mu.Lock()
			l.running++
			l.mu.Unlock()
			return
		}
	}
}

func (l *lanes) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
}

// admit says whether a lab may begin now, and counts it.
func (l *lanes) admit(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running >= fewLabs && (l.running >= manyLabs || !l.idles(now)) {
		return false
	}
	l.running++
	l.last, l.first = now, idleSample{}
	return true
}

// idles says whether the computer has had time left for one stretch of idleOver since the
// last lab's start was over. A busy stretch does not count against the next one. Where that
// cannot be read it has had none.
func (l *lanes) idles(now time.Time) bool {
	if now.Sub(l.last) < startTakes {
		return false
	}
	idle, all, err := l.idle()
	if err != nil {
		return false
	}
	if l.first.at.IsZero() {
		l.first = idleSample{now, idle, all}
	}
	if now.Sub(l.first.at) < idleOver {
		return false
	}
	had := idle-l.first.idle >= idleWanted*(all-l.first.all)
	l.first = idleSample{now, idle, all}
	return had
}
