// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"fmt"
	"sync"
	"time"

	rl "k8s.io/client-go/tools/leaderelection/resourcelock"
)

// BoundRequests is whether electors that are made from now on give up on a request for the
// lock that hangs. If not, a leader whose request hangs leads until that ends, though
// another one may have taken the lock (kubernetes/kubernetes#65090).
var BoundRequests = true

// boundedLock is a lock whose requests end, while its elector leads, when leadership must
// be given up. What was not answered by then is left running, and nothing is sent after it.
type boundedLock struct {
	rl.Interface
	renewDeadline time.Duration
	// running is full while a request runs: locks keep what they read, and are not safe
	// for two at a time.
	running chan struct{}

	mu sync.Mutex
	// until is when leadership must be given up, zero for one who does not lead.
	until time.Time
}

func boundLock(lec LeaderElectionConfig) rl.Interface {
	if !BoundRequests {
		return lec.Lock
	}
	return &boundedLock{Interface: lec.Lock, renewDeadline: lec.RenewDeadline, running: make(chan struct{}, 1)}
}

// leading bounds the requests for lock from now on, until the returned function is called.
func leading(lock rl.Interface) (end func()) {
	b, ok := lock.(*boundedLock)
	if !ok {
		return func() {}
	}
	b.renewed()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.until = time.Time{}
	}
}

func (b *boundedLock) renewed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Now().Add(b.renewDeadline)
}

// bound is how long a request may take; false if there is no limit. A write that was stored
// at once and answered after half of the deadline is the latest that counts: so the lease,
// which others count from the store, outlives the leader if it is 1.5 times the deadline,
// as by default.
func (b *boundedLock) bound() (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return 0, false
	}
	bound := b.renewDeadline / 2
	if left := time.Until(b.until); left < bound {
		bound = left
	}
	return bound, true
}

// do runs request, as long as it may take.
func (b *boundedLock) do(what string, request func() error) error {
	bound, leads := b.bound()
	if !leads {
		b.running <- struct{}{}
		defer func() { <-b.running }()
		return request()
	}
	if bound <= 0 {
		return fmt.Errorf("no %s: the renew deadline of %v is over", what, b.renewDeadline)
	}
	timeout := time.NewTimer(bound)
	defer timeout.Stop()
	select {
	case b.running <- struct{}{}:
	case <-timeout.C:
		return fmt.Errorf("no %s: the request before is not answered", what)
	}
	done := make(chan error, 1)
	go func() {
		err := request()
		<-b.running
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-timeout.C:
		return fmt.Errorf("%s: no answer within %v", what, bound)
	}
}

func (b *boundedLock) Get() (*rl.LeaderElectionRecord, error) {
	answer := make(chan *rl.LeaderElectionRecord, 1)
	err := b.do("get", func() error {
		record, err := b.Interface.Get()
		answer <- record
		return err
	})
	select {
	case record := <-answer:
		return record, err
	default:
		return nil, err
	}
}

func (b *boundedLock) Create(record rl.LeaderElectionRecord) error {
	return b.write("create", func() error { return b.Interface.Create(record) })
}

func (b *boundedLock) Update(record rl.LeaderElectionRecord) error {
	return b.write("update", func() error { return b.Interface.Update(record) })
}

func (b *boundedLock) write(what string, request func() error) error {
	err := b.do(what, request)
	if _, leads := b.bound(); leads && err == nil {
		b.renewed()
	}
	return err
}

// RecordEvent waits for a request that hangs: locks read what they keep.
func (b *boundedLock) RecordEvent(s string) {
	select {
	case b.running <- struct{}{}:
		b.Interface.RecordEvent(s)
		<-b.running
	default:
		go func() {
			b.running <- struct{}{}
			b.Interface.RecordEvent(s)
			<-b.running
		}()
	}
}
