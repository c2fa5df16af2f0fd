// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"math/rand"
	"reflect"
	"sort"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/features"
)

func setFailedPodRollout(t *testing.T, on bool) func() {
	return utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DaemonSetFailedPodRollout, on)
}

// fleet is a DaemonSet, its nodes and its pods, which end as soon as they are deleted. The image of a pod tells its
// template.
type fleet struct {
	t       *testing.T
	manager *daemonSetsController
	control *fakePodControl
	ds      *daemonSet
	// refuses is true for a node and an image that make a pod fail.
	refuses func(node, image string) bool
	// trace is what the controller did, a line for each sync.
	trace []string
}

func newFleet(t *testing.T, nodes, maxUnavailable int) *fleet {
	setUpFleet(t)
	f := &fleet{t: t, ds: newDaemonSet("foo"), refuses: func(string, string) bool { return false }}
	max := intstr.FromInt(maxUnavailable)
	f.ds.Spec.UpdateStrategy = daemonSetUpdateStrategy{
		Type:          rollingUpdateType,
		RollingUpdate: &rollingUpdateDaemonSet{MaxUnavailable: &max},
	}
	f.start()
	addNodes(f.manager.nodeStore, 0, nodes, nil)
	f.image("v1")
	return f
}

// start is a new process of the controller, with the same cluster.
func (f *fleet) start() {
	manager, control, _, err := newTestController(f.ds)
	if err != nil {
		f.t.Fatal(err)
	}
	manager.eventRecorder = &record.FakeRecorder{}
	if f.manager != nil {
		for _, move := range [][2]interface{}{{f.manager.nodeStore, manager.nodeStore}, {f.manager.podStore, manager.podStore}, {f.manager.historyStore, manager.historyStore}} {
			from, to := reflect.ValueOf(move[0]), reflect.ValueOf(move[1])
			for _, o := range from.MethodByName("List").Call(nil)[0].Interface().([]interface{}) {
				to.MethodByName("Add").Call([]reflect.Value{reflect.ValueOf(o)})
			}
		}
		control.podIDMap = f.control.podIDMap
	}
	f.manager, f.control = manager, control
	f.manager.dsStore.Add(f.ds)
}

func (f *fleet) image(image string) {
	f.ds = f.ds.DeepCopy()
	f.ds.Spec.Template.Spec.Containers[0].Image = image
	nextTemplateGeneration(f.ds)
	f.ds.Generation++
	f.manager.dsStore.Add(f.ds)
}

// sync lets the controller work once, when no failed pod waits; what it did is observed.
func (f *fleet) sync() {
	endBackoff(f.manager)
	f.work()
}

func (f *fleet) work() {
	key, err := controller.KeyFunc(f.ds)
	if err != nil {
		f.t.Fatal(err)
	}
	f.manager.syncHandler(key)
	f.schedule()
	deleted := append([]string{}, f.control.DeletePodName...)
	for i, name := range deleted {
		deleted[i] = name[:strings.LastIndex(name, "-")]
	}
	sort.Strings(deleted)
	f.trace = append(f.trace, fmt.Sprintf("%d created, deleted %s", len(f.control.Templates), deleted))
	clearExpectations(f.t, f.manager, f.ds, f.control)
}

// kubelet starts or fails the pod of a node.
func (f *fleet) kubelet(node string) {
	for _, o := range f.manager.podStore.List() {
		pod := o.(*v1.Pod)
		if pod.Spec.NodeName != node || pod.Status.Phase == v1.PodFailed {
			continue
		}
		pod = pod.DeepCopy()
		if f.refuses(node, pod.Spec.Containers[0].Image) {
			pod.Status = v1.PodStatus{Phase: v1.PodFailed}
		} else if pod.Status.Phase == "" {
			pod.Status.Phase = v1.PodRunning
			markPodReady(pod)
		}
		f.manager.podStore.Update(pod)
	}
}

// kubelets do so on all nodes.
func (f *fleet) kubelets() {
	for _, o := range f.manager.nodeStore.List() {
		f.kubelet(o.(*v1.Node).Name)
	}
}

// rounds lets controller and kubelets work in turn.
func (f *fleet) rounds(n int) {
	for i := 0; i < n; i++ {
		f.sync()
		f.kubelets()
	}
}

// images are those of ready pods, by the names of their nodes.
func (f *fleet) images() map[string]string {
	images := map[string]string{}
	for _, o := range f.manager.podStore.List() {
		if pod := o.(*v1.Pod); len(pod.Status.Conditions) > 0 && pod.Status.Phase == v1.PodRunning {
			images[pod.Spec.NodeName] = pod.Spec.Containers[0].Image
		}
	}
	return images
}

func (f *fleet) want(what string, want map[string]string) {
	if got := f.images(); !reflect.DeepEqual(got, want) {
		f.t.Errorf("%s: the ready pods are %v, want %v", what, got, want)
	}
}

func gate(on bool) string { return fmt.Sprintf("gate %t", on) }

func refusesAlways(nodes ...string) func(string, string) bool {
	return func(node, _ string) bool {
		for _, n := range nodes {
			if n == node {
				return true
			}
		}
		return false
	}
}

// Two nodes, one refuses the pod again and again: the other is updated, also in a rollback.
func TestHoldfastDaemonSetFailedPodRollout(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer setFailedPodRollout(t, on)()
			f := newFleet(t, 2, 1)
			f.refuses = refusesAlways("node-0")
			f.rounds(5)
			f.want("before", map[string]string{"node-1": "v1"})
			for _, image := range []string{"v2", "v1", "v3"} {
				f.image(image)
				f.rounds(8)
				want := "v1"
				if on {
					want = image
				}
				f.want(gate(on)+" "+image, map[string]string{"node-1": want})
			}
			f.refuses = refusesAlways()
			f.rounds(12)
			f.want(gate(on)+", mended", map[string]string{"node-0": "v3", "node-1": "v3"})
		}()
	}
}

// A template that no node can run takes maxUnavailable nodes, whatever failed before, and however many such templates
// follow each other.
func TestHoldfastDaemonSetFailedPodRolloutOfBroken(t *testing.T) {
	for _, on := range []bool{true, false} {
		for _, failing := range []int{0, 1} {
			func() {
				defer setFailedPodRollout(t, on)()
				f := newFleet(t, 6, 2)
				refuses := refusesAlways([]string{"node-0"}[:failing]...)
				f.refuses = refuses
				f.rounds(5)
				f.refuses = func(node, image string) bool { return strings.HasPrefix(image, "broken") || refuses(node, image) }
				for i := 0; i < 3; i++ {
					f.image(fmt.Sprintf("broken%d", i))
					f.rounds(12)
					// With the gate off, the node that failed before stops the update.
					left := map[bool]int{true: 4 - failing, false: 4 + failing}[on]
					if images := f.images(); len(images) != left {
						t.Errorf("%s, %d fail before, %s: %d nodes have ready pods, want %d: %v", gate(on), failing, f.ds.Spec.Template.Spec.Containers[0].Image, len(images), left, images)
					}
				}
				if !on {
					return
				}
				f.image("v2")
				f.rounds(30)
				for node, image := range f.images() {
					if image != "v2" {
						t.Errorf("%s, %d fail before: in the end %s has %s", gate(on), failing, node, image)
					}
				}
				if n := len(f.images()); n != 6-failing {
					t.Errorf("%s: in the end %d nodes have ready pods", gate(on), n)
				}
			}()
		}
	}
}

// Half of 40 nodes refuse the pod, each in its own time. The others are updated, at most 3 at once.
func TestHoldfastDaemonSetFailedPodRolloutOfMany(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer setFailedPodRollout(t, on)()
			random := rand.New(rand.NewSource(1))
			f := newFleet(t, 40, 3)
			var failing []string
			for i := 0; i < 20; i++ {
				failing = append(failing, fmt.Sprintf("node-%d", i))
			}
			f.refuses = refusesAlways(failing...)
			f.rounds(5)
			f.image("v2")
			for i := 0; i < 400; i++ {
				f.sync()
				for n := 0; n < 40; n++ {
					if random.Intn(3) == 0 {
						f.kubelet(fmt.Sprintf("node-%d", n))
					}
				}
				if n := len(f.images()); n < 17 {
					t.Fatalf("%s: %d of 20 nodes that do not fail have ready pods", gate(on), n)
				}
			}
			for i := 0; i < 10; i++ {
				f.kubelets()
			}
			updated := 0
			for _, image := range f.images() {
				if image == "v2" {
					updated++
				}
			}
			if want := map[bool]int{true: 20, false: 0}[on]; updated != want {
				t.Errorf("%s: %d nodes are updated, want %d", gate(on), updated, want)
			}
		}()
	}
}

// A node that begins to fail in the middle of an update stops it if it runs the new template, and does not if it has the
// old one.
func TestHoldfastDaemonSetFailedPodRolloutMeanwhile(t *testing.T) {
	for _, on := range []bool{true, false} {
		for _, updated := range []bool{true, false} {
			func() {
				defer setFailedPodRollout(t, on)()
				f := newFleet(t, 4, 1)
				f.rounds(3)
				f.image("v2")
				count := func() (n int, with, without string) {
					for node, image := range f.images() {
						if image == "v2" {
							n, with = n+1, node
						} else {
							without = node
						}
					}
					return n, with, without
				}
				for i := 0; ; i++ {
					n, with, without := count()
					if n == 1 {
						f.refuses = refusesAlways(map[bool]string{true: with, false: without}[updated])
						f.kubelets()
						break
					}
					if i == 20 {
						t.Fatalf("no node is updated")
					}
					f.rounds(1)
				}
				f.rounds(20)
				want := 3
				switch {
				case updated:
					want = 0
				case !on:
					want = 1
				}
				if n, _, _ := count(); n != want {
					t.Errorf("%s, the new template fails %t: %d of the other nodes are updated, want %d", gate(on), updated, n, want)
				}
			}()
		}
	}
}

// A new process learns of a failing node anew, at the next template at the latest.
func TestHoldfastDaemonSetFailedPodRolloutRestart(t *testing.T) {
	defer setFailedPodRollout(t, true)()
	f := newFleet(t, 2, 1)
	f.refuses = refusesAlways("node-0")
	f.rounds(5)
	f.start()
	f.rounds(3)
	f.image("v2")
	f.rounds(8)
	f.want("restart, then a template", map[string]string{"node-1": "v2"})
	f.image("v3")
	f.start()
	f.rounds(8)
	f.image("v4")
	f.rounds(8)
	f.want("a template, restart, a template", map[string]string{"node-1": "v4"})
}

// Where no pod fails, the controller does the same with the gate on and off, sync by sync.
func TestHoldfastDaemonSetFailedPodRolloutUnchanged(t *testing.T) {
	for seed := int64(0); seed < 5; seed++ {
		var traces [2][]string
		for i, on := range []bool{true, false} {
			func() {
				defer setFailedPodRollout(t, on)()
				random := rand.New(rand.NewSource(seed))
				f := newFleet(t, 1, 1)
				f.rounds(3)
				for n := 0; n < 60; n++ {
					switch random.Intn(6) {
					case 0:
						f.image(fmt.Sprintf("v%d", 1+random.Intn(3)))
					case 1:
						f.kubelets()
					default:
						f.sync()
					}
				}
				traces[i] = f.trace
			}()
		}
		if !reflect.DeepEqual(traces[0], traces[1]) {
			t.Errorf("seed %d: the gate on did\n%s\nand off\n%s", seed, strings.Join(traces[0], "\n"), strings.Join(traces[1], "\n"))
		}
	}
}

// Nothing is kept of a DaemonSet, or a node, that is gone or well.
func TestHoldfastDaemonSetFailedPodRolloutForgets(t *testing.T) {
	defer setFailedPodRollout(t, true)()
	f := newFleet(t, 3, 1)
	f.refuses = refusesAlways("node-0", "node-1")
	f.rounds(5)
	kept := func() int { return len(f.manager.failedNodes.of(f.ds)) }
	if n := kept(); n != 2 {
		t.Fatalf("%d nodes are kept, want 2", n)
	}
	f.manager.nodeStore.Delete(newNode("node-0", nil))
	f.rounds(1)
	if n := kept(); n != 1 {
		t.Errorf("without node-0, %d nodes are kept", n)
	}
	f.refuses = refusesAlways()
	f.rounds(4)
	if n := len(f.manager.failedNodes.sets); n != 0 {
		t.Errorf("when all are well, %d DaemonSets are kept", n)
	}
	f.refuses = refusesAlways("node-1")
	f.kubelets()
	f.rounds(1)
	if n := kept(); n != 1 {
		t.Errorf("when node-1 fails again, %d nodes are kept", n)
	}
	f.manager.dsStore.Delete(f.ds)
	f.sync()
	if n := len(f.manager.failedNodes.sets); n != 0 {
		t.Errorf("without the DaemonSet, %d are kept", n)
	}
}
