// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"sync"
	"testing"
	"time"

	rl "k8s.io/client-go/tools/leaderelection/resourcelock"
)

// hangingLock is a lock whose requests hang from the moment that hang names one of them.
type hangingLock struct {
	// record is not guarded, as in the locks of this package: -race finds two requests.
	record rl.LeaderElectionRecord

	mu      sync.Mutex
	calls   []string
	hang    string
	release chan struct{}
	slow    time.Duration
}

func (l *hangingLock) call(what string) {
	l.mu.Lock()
	l.calls = append(l.calls, what)
	hangs, slow := l.hang == what, l.slow
	l.mu.Unlock()
	if hangs {
		<-l.release
	}
	time.Sleep(slow)
}

func (l *hangingLock) set(hang string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hang = hang
}

func (l *hangingLock) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls)
}

func (l *hangingLock) Get() (*rl.LeaderElectionRecord, error) {
	l.call("get")
	r := l.record
	return &r, nil
}
func (l *hangingLock) Create(r rl.LeaderElectionRecord) error { return l.Update(r) }
func (l *hangingLock) Update(r rl.LeaderElectionRecord) error {
	l.call("update")
	l.record = r
	return nil
}
func (l *hangingLock) RecordEvent(string) { _ = l.record.HolderIdentity }
func (l *hangingLock) Identity() string   { return "me" }
func (l *hangingLock) Describe() string   { return "lock" }

const silentDeadline = time.Second

// elect makes an elector of lock, and says when it begins and ceases to lead.
func elect(t *testing.T, lock rl.Interface) (le *LeaderElector, began, ended chan time.Time) {
	began, ended = make(chan time.Time, 10), make(chan time.Time, 10)
	le, err := NewLeaderElector(LeaderElectionConfig{
		Lock: lock, LeaseDuration: 1500 * time.Millisecond, RenewDeadline: silentDeadline, RetryPeriod: 100 * time.Millisecond,
		Callbacks: LeaderCallbacks{
			OnStartedLeading: func(<-chan struct{}) { began <- time.Now() },
			OnStoppedLeading: func() { ended <- time.Now() },
		}})
	if err != nil {
		t.Fatal(err)
	}
	return le, began, ended
}

func came(c <-chan time.Time, within time.Duration) (time.Time, bool) {
	select {
	case at := <-c:
		return at, true
	case <-time.After(within):
		return time.Time{}, false
	}
}

// TestHoldfastKCMSilentConnectionHangs: a leader whose request hangs gives up in time, and sends
// nothing afterwards, not even when the request is answered at last. It may be elected again.
func TestHoldfastKCMSilentConnectionHangs(t *testing.T) {
	for _, what := range []string{"get", "update"} {
		t.Run(what, func(t *testing.T) {
			lock := &hangingLock{release: make(chan struct{})}
			le, began, ended := elect(t, lock)
			go le.Run()
			if _, ok := came(began, 30*time.Second); !ok {
				t.Fatal("does not lead")
			}
			time.Sleep(2 * silentDeadline) // it renews
			lock.set(what)
			since := time.Now()
			at, ok := came(ended, 4*silentDeadline)
			if !ok {
				close(lock.release)
				t.Fatalf("leads %v after its %s began to hang", 4*silentDeadline, what)
			}
			// 100 ms, times 1.2, may pass before the request that hangs.
			if took := at.Sub(since); took > silentDeadline+500*time.Millisecond {
				t.Errorf("gave up after %v", took)
			}
			sent := lock.count()
			lock.set("")
			close(lock.release)
			time.Sleep(silentDeadline)
			if now := lock.count(); now != sent {
				t.Errorf("%d requests after it gave up: %v", now-sent, lock.calls[sent:])
			}
			go le.Run()
			if _, ok := came(began, 30*time.Second); !ok {
				t.Error("does not lead again")
			}
			if _, ok := came(ended, 2*silentDeadline); ok {
				t.Error("the second time it does not renew")
			}
		})
	}
}

// TestHoldfastKCMSilentConnectionSlow: requests that are slow and answered keep the lease.
func TestHoldfastKCMSilentConnectionSlow(t *testing.T) {
	lock := &hangingLock{slow: silentDeadline / 4}
	le, began, ended := elect(t, lock)
	go le.Run()
	if _, ok := came(began, 30*time.Second); !ok {
		t.Fatal("does not lead")
	}
	if _, ok := came(ended, 4*silentDeadline); ok {
		t.Error("gave up")
	}
}

// TestHoldfastKCMSilentConnectionOff: as upstream's.
func TestHoldfastKCMSilentConnectionOff(t *testing.T) {
	BoundRequests = false
	defer func() { BoundRequests = true }()
	lock := &hangingLock{release: make(chan struct{})}
	defer close(lock.release)
	le, began, ended := elect(t, lock)
	if le.config.Lock != rl.Interface(lock) {
		t.Errorf("the lock is %T", le.config.Lock)
	}
	go le.Run()
	if _, ok := came(began, 30*time.Second); !ok {
		t.Fatal("does not lead")
	}
	lock.set("get")
	if _, ok := came(ended, 3*silentDeadline); ok {
		t.Error("gave up: the incident does not happen")
	}
}
