// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseidentity_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/pkg/controller/leaseidentity"
	"k8s.io/kubernetes/pkg/features"
)

const annotation = resourcelock.LeaderElectionRecordAnnotationKey

func setGate(t *testing.T, on bool) func() {
	return utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.UniqueLeaseIdentity, on)
}

// TestHoldfastLeaseIdentityOfRun: what the controller manager writes into the lease.
func TestHoldfastLeaseIdentityOfRun(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	unique := regexp.MustCompile("^" + regexp.QuoteMeta(host) + "_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

	defer setGate(t, true)()
	first, second := identityOfRun(t), identityOfRun(t)
	if !unique.MatchString(first) || !unique.MatchString(second) || first == second {
		t.Errorf("two processes on host %s are %s and %s in the lease", host, first, second)
	}
	defer setGate(t, false)()
	if id := identityOfRun(t); id != host {
		t.Errorf("gate off: %s is %s in the lease", host, id)
	}
}

// identityOfRun starts the controller manager, and returns the holder in the lease that it
// creates. The API server refuses the lease, so that no controller is ever started; the
// controller manager goes on trying until the test ends.
func identityOfRun(t *testing.T) string {
	holders := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			var lease v1.Endpoints
			var election resourcelock.LeaderElectionRecord
			if err := json.NewDecoder(r.Body).Decode(&lease); err != nil || lease.Name != "kube-controller-manager" {
				t.Errorf("%s %s: name %q, error %v", r.Method, r.URL, lease.Name, err)
			} else if err := json.Unmarshal([]byte(lease.Annotations[annotation]), &election); err != nil {
				t.Errorf("annotation %q: %v", lease.Annotations[annotation], err)
			}
			select {
			case holders <- election.HolderIdentity:
			default:
			}
		}
		w.Header().Set("Content-Type", "application/json")
		status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		w.WriteHeader(http.StatusNotFound)
		json.NewEncoder(w).Encode(status)
	}))
	s := options.NewCMServer()
	s.Master, s.ContentType = server.URL, "application/json"
	s.Address, s.Port = "127.0.0.1", 0
	go func() {
		if err := app.Run(s); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	select {
	case holder := <-holders:
		return holder
	case <-time.After(30 * time.Second):
		t.Fatal("no lease was created within 30 s")
		return ""
	}
}

// candidate is a controller manager in an election.
type candidate struct {
	client *fake.Clientset
	mu     sync.Mutex
	away   bool
	began  chan struct{}
	ended  chan struct{}
}

// lease is long enough that a busy machine does not keep a leader from renewing it.
const lease = 8 * time.Second

// lead starts a candidate of that identity on the one lease of tracker.
func lead(t *testing.T, identity string, tracker clientgotesting.ObjectTracker) *candidate {
	c := &candidate{client: &fake.Clientset{}, began: make(chan struct{}), ended: make(chan struct{})}
	c.client.AddReactor("*", "*", func(clientgotesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.away {
			return true, &v1.Endpoints{}, fmt.Errorf("the API server is away")
		}
		return false, nil, nil
	})
	c.client.AddReactor("*", "*", clientgotesting.ObjectReaction(tracker))
	lock, err := resourcelock.New(resourcelock.EndpointsResourceLock, "kube-system", "kube-controller-manager", c.client.CoreV1(),
		resourcelock.ResourceLockConfig{Identity: identity, EventRecorder: record.NewFakeRecorder(100)})
	if err != nil {
		t.Fatal(err)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: lease, RenewDeadline: 6 * time.Second, RetryPeriod: 100 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(stop <-chan struct{}) { close(c.began); <-stop },
			OnStoppedLeading: func() { close(c.ended) },
		}})
	if err != nil {
		t.Fatal(err)
	}
	go elector.Run()
	return c
}

// leave takes the API server away from the candidate for ever.
func (c *candidate) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = true
}

func within(d time.Duration, what <-chan struct{}) bool {
	select {
	case <-what:
		return true
	case <-time.After(d):
		return false
	}
}

// TestHoldfastLeaseIdentityElection: two on hosts of one name. The second leads when the
// first is gone, and not before; also where one of them is stock, which has the host name.
func TestHoldfastLeaseIdentityElection(t *testing.T) {
	for name, test := range map[string]struct {
		// unique: the gate of the first and of the second.
		unique [2]bool
		both   bool
	}{
		"stock beside stock":       {[2]bool{false, false}, true},
		"Holdfast beside stock":    {[2]bool{false, true}, false},
		"stock beside Holdfast":    {[2]bool{true, false}, false},
		"Holdfast beside Holdfast": {[2]bool{true, true}, false},
	} {
		var ids [2]string
		for i, on := range test.unique {
			restore := setGate(t, on)
			ids[i] = leaseidentity.New("master")
			restore()
		}
		test := test
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for try := 1; !elect(t, ids, test.both); try++ {
				if try == 3 {
					t.Fatal("in each of 3 elections the first lost its lease while the API server answered")
				}
				t.Log("the machine stood still: the first did not renew in time")
			}
		})
	}
}

// elect lets a second stand beside the first that leads, and then takes the first away. It
// returns false if the first lost its lease before, which takes a pause of the machine as
// long as the renew deadline, and then says nothing about identities.
func elect(t *testing.T, ids [2]string, both bool) bool {
	tracker := clientgotesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	first := lead(t, ids[0], tracker)
	if !within(time.Minute, first.began) {
		t.Fatal("nobody leads")
	}
	second := lead(t, ids[1], tracker)
	if !both && !within(lease+time.Second, second.began) {
		first.leave()
		if !within(time.Minute, first.ended) || !within(time.Minute, second.began) {
			t.Fatal("no failover")
		}
		return true
	}
	if !within(time.Minute, second.began) {
		t.Fatal("the second does not lead beside the first of its name")
	}
	// A first that has lost its lease says so within the renew deadline.
	if within(lease, first.ended) {
		return false
	}
	if !both {
		t.Fatal("both lead")
	}
	return true
}
