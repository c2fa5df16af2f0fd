// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/testutil"
	"k8s.io/kubernetes/pkg/features"
)

// retryCluster is an API server with two nodes, dead and well, and two ready pods on each,
// and the controller that leads. Its clock stands still between passes.
type retryCluster struct {
	*testing.T
	client *fake.Clientset
	nc     *nodeLifecycleController
	now    time.Time
	// fail says what a request for pods or nodes is answered, nil if it is to be served.
	fail func(a core.Action) error
	// stored is what a node is read as, nil if it is to be served.
	stored *v1.Node
	// requests are those for pods: verb and name.
	requests []string
}

func newRetryCluster(t *testing.T) *retryCluster {
	c := &retryCluster{T: t, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	var objects []runtime.Object
	for _, name := range []string{"dead", "well"} {
		objects = append(objects, c.node(name))
		for i := 0; i < 2; i++ {
			objects = append(objects, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("%s-%d", name, i)},
				Spec:   v1.PodSpec{NodeName: name},
				Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}})
		}
	}
	c.client = fake.NewSimpleClientset(objects...)
	c.client.PrependReactor("*", "*", func(a core.Action) (bool, runtime.Object, error) {
		if a.GetResource().Resource == "pods" {
			name := ""
			if u, ok := a.(core.UpdateAction); ok {
				name = " " + u.GetObject().(*v1.Pod).Name
			}
			c.requests = append(c.requests, a.GetVerb()+name)
		}
		if c.fail != nil {
			if err := c.fail(a); err != nil {
				return true, nil, err
			}
		}
		return a.GetVerb() == "get" && c.stored != nil, c.stored, nil
	})
	c.lead()
	return c
}

// node is a node as its kubelet reports it now.
func (c *retryCluster) node(name string) *v1.Node {
	at := metav1.Time{Time: c.now}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1", CreationTimestamp: at}, Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
		{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: at, LastTransitionTime: at}}}}
}

// lead begins anew with a controller that knows nothing.
func (c *retryCluster) lead() {
	nc, err := newNodeLifecycleControllerFromClient(nil, c.client, 5*time.Minute, testRateLimiterQPS, testRateLimiterQPS, testLargeClusterThreshold,
		testUnhealthyThreshold, testNodeMonitorGracePeriod, testNodeStartupGracePeriod, testNodeMonitorPeriod, false)
	if err != nil {
		c.Fatal(err)
	}
	nc.recorder = testutil.NewFakeRecorder()
	nc.now = func() metav1.Time { return metav1.Time{Time: c.now} }
	c.nc = nc
}

func (c *retryCluster) report(node *v1.Node) {
	if _, err := c.client.CoreV1().Nodes().UpdateStatus(node); err != nil {
		c.Fatal(err)
	}
}

// pass lets d go by, "well" report, and the controller look. It returns the requests for
// pods.
func (c *retryCluster) pass(d time.Duration) string {
	c.Helper()
	c.now = c.now.Add(d)
	c.report(c.node("well"))
	nodes, err := c.client.CoreV1().Nodes().List(metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var items []interface{}
	for i := range nodes.Items {
		items = append(items, &nodes.Items[i])
	}
	c.nc.nodeInformer.Informer().GetStore().Replace(items, "")
	c.requests = nil
	if err := c.nc.monitorNodeStatus(); err != nil {
		c.Fatal(err)
	}
	return strings.Join(c.requests, ", ")
}

// die lets the node "dead" be silent until just before it becomes Unknown.
func (c *retryCluster) die() {
	c.Helper()
	c.want("first pass", c.pass(0), "")
	c.want("in the grace period", c.pass(testNodeMonitorGracePeriod), "")
}

func (c *retryCluster) want(what, got, want string) {
	c.Helper()
	if got != want {
		c.Errorf("%s: %q, want %q", what, got, want)
	}
}

// ready are the names of the ready pods.
func (c *retryCluster) ready() string {
	pods, err := c.client.CoreV1().Pods("ns").List(metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var names []string
	for _, p := range pods.Items {
		if p.Status.Conditions[0].Status == v1.ConditionTrue {
			names = append(names, p.Name)
		}
	}
	sort.Strings(names)
	return strings.Join(names, " ")
}

// failTimes refuses the first n requests of that verb for the resource.
func failTimes(n int, verb, resource string) func(core.Action) error {
	return func(a core.Action) error {
		if a.GetVerb() != verb || a.GetResource().Resource != resource || n == 0 {
			return nil
		}
		n--
		return apierrors.NewInternalError(fmt.Errorf("etcdserver: request timed out"))
	}
}

func retryGate(t *testing.T, on bool) func() {
	return utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DeadNodePodsRetry, on)
}

const markAll = "list, update dead-0, update dead-1"

// A request of the pass in which the node dies fails.
func TestHoldfastDeadNodePodsRequestFails(t *testing.T) {
	for _, tc := range []struct {
		name, verb, resource string
		first, stays, second string
	}{
		{name: "write of a pod", verb: "update", resource: "pods", first: markAll, stays: "dead-0 well-0 well-1", second: "list, update dead-0"},
		{name: "list", verb: "list", resource: "pods", first: "list", stays: "dead-0 dead-1 well-0 well-1", second: markAll},
	} {
		for _, on := range []bool{true, false} {
			func() {
				defer retryGate(t, on)()
				c := newRetryCluster(t)
				c.die()
				c.fail = failTimes(1, tc.verb, tc.resource)
				c.want(tc.name+": first", c.pass(time.Second), tc.first)
				if !on {
					for i := 0; i < 20; i++ {
						c.want(tc.name+": gate off", c.pass(testNodeMonitorPeriod), "")
					}
					c.want(tc.name+": gate off: stay", c.ready(), tc.stays)
					if len(c.nc.deadNodes) != 0 {
						t.Errorf("gate off: %d nodes are remembered", len(c.nc.deadNodes))
					}
					return
				}
				c.want(tc.name+": next pass", c.pass(testNodeMonitorPeriod), tc.second)
				c.want(tc.name+": ready", c.ready(), "well-0 well-1")
				for i := 0; i < 20; i++ {
					c.want(tc.name+": at rest", c.pass(testNodeMonitorPeriod), "")
				}
			}()
		}
	}
}

// The write of the node was done, but its answer is an error: the retry of it finds Unknown.
func TestHoldfastDeadNodePodsNodeWriteTimesOut(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer retryGate(t, on)()
			c := newRetryCluster(t)
			c.die()
			c.fail = func(a core.Action) error {
				u, ok := a.(core.UpdateAction)
				if !ok || c.stored != nil {
					return nil
				}
				if n, ok := u.GetObject().(*v1.Node); ok && n.Name == "dead" {
					c.stored = n
					return fmt.Errorf("etcdserver: request timed out")
				}
				return nil
			}
			got, ready := c.pass(time.Second), "dead-0 dead-1 well-0 well-1"
			if c.stored == nil {
				t.Fatal("no write of the node failed")
			}
			c.report(c.stored)
			c.stored = nil
			c.fail = nil
			if on {
				c.want("the same pass", got, markAll)
				ready = "well-0 well-1"
			}
			c.want("later", c.pass(testNodeMonitorPeriod), "")
			c.want("ready", c.ready(), ready)
		}()
	}
}

// The leader ends between the write of the node and those of its pods.
func TestHoldfastDeadNodePodsLeaderChanges(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer retryGate(t, on)()
			c := newRetryCluster(t)
			c.die()
			c.fail = failTimes(1000, "update", "pods")
			c.pass(time.Second)
			c.fail = nil
			c.lead()
			c.want("the new leader's first pass", c.pass(testNodeMonitorPeriod), "")
			c.want("grace period", c.pass(testNodeMonitorGracePeriod), "")
			got, ready := c.pass(time.Second), "dead-0 dead-1 well-0 well-1"
			if on {
				c.want("after it", got, markAll)
				ready = "well-0 well-1"
			} else {
				c.want("gate off", got, "")
			}
			c.want("ready", c.ready(), ready)
			c.want("at rest", c.pass(testNodeMonitorPeriod), "")
		}()
	}
}

// A new leader leaves the pods of a node alone that reports within the grace period, and of
// one that says that it is not ready. Pods of the latter are marked when it is silent.
func TestHoldfastDeadNodePodsOfNodeThatReports(t *testing.T) {
	defer retryGate(t, true)()
	c := newRetryCluster(t)
	c.die()
	c.fail = failTimes(1000, "update", "pods")
	c.pass(time.Second)
	c.fail = nil
	c.lead()
	c.pass(testNodeMonitorPeriod)
	c.report(c.node("dead"))
	c.want("it came back", c.pass(testNodeMonitorGracePeriod), "")
	node := c.node("dead")
	node.Status.Conditions[0].Status = v1.ConditionFalse
	c.report(node)
	c.want("not ready", c.pass(testNodeMonitorPeriod), "")
	c.want("not ready", c.pass(testNodeMonitorGracePeriod), "")
	c.want("ready", c.ready(), "dead-0 dead-1 well-0 well-1")
	if len(c.nc.deadNodes) != 0 {
		t.Errorf("%d nodes are remembered", len(c.nc.deadNodes))
	}
	c.want("silent", c.pass(time.Second), markAll)
	c.want("ready", c.ready(), "well-0 well-1")
}

// Retries become rarer; a pod that is gone is no failure; one node's entry goes with it.
func TestHoldfastDeadNodePodsBounds(t *testing.T) {
	defer retryGate(t, true)()
	c := newRetryCluster(t)
	c.die()
	c.fail = failTimes(1000, "update", "pods")
	tries := 0
	for i := 0; i < 100; i++ { // 500 s
		if c.pass(testNodeMonitorPeriod) != "" {
			tries++
		}
	}
	// At 0, 5, 15, 35, 75 s and then each minute.
	if tries != 12 {
		t.Errorf("%d tries in 500 s, want 12", tries)
	}
	c.fail = func(a core.Action) error {
		if a.GetVerb() == "update" && a.GetResource().Resource == "pods" {
			return apierrors.NewNotFound(v1.Resource("pods"), "gone")
		}
		return nil
	}
	c.pass(time.Minute)
	c.fail = nil
	c.want("pods are gone", c.pass(time.Minute), "")

	// The node is deleted; another of its name is Unknown, then it is deleted too.
	again := c.node("dead")
	again.UID = "2"
	c.client.CoreV1().Nodes().Delete("dead", nil)
	c.client.CoreV1().Nodes().Create(again)
	c.pass(time.Second)
	c.want("another node of that name", c.pass(testNodeMonitorGracePeriod+time.Second), markAll)
	c.client.CoreV1().Nodes().Delete("dead", nil)
	other := c.node("other")
	c.client.CoreV1().Nodes().Create(other)
	c.pass(time.Second)
	c.pass(testNodeMonitorGracePeriod + time.Second)
	if c.nc.deadNodes["other"] == nil || len(c.nc.deadNodes) != 1 {
		t.Errorf("%v are remembered, want other alone", c.nc.deadNodes)
	}
}
