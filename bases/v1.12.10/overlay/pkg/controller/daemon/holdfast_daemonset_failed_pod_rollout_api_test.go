// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/clock"
	"k8s.io/apiserver/pkg/storage/names"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/controller/daemon/util"
	"k8s.io/kubernetes/pkg/features"
)

// The types of the release's API that the tests use.
type (
	daemonSetUpdateStrategy = apps.DaemonSetUpdateStrategy
	rollingUpdateDaemonSet  = apps.RollingUpdateDaemonSet
)

func nextTemplateGeneration(ds *daemonSet) {
	if ds.Annotations == nil {
		ds.Annotations = map[string]string{}
	}
	ds.Annotations[apps.DeprecatedTemplateGeneration] = strconv.FormatInt(templateGeneration(ds)+1, 10)
}

// endBackoff lets the time pass that 1.12 waits before it deletes a failed pod again.
func endBackoff(manager *daemonSetsController) {
	manager.failedPodsBackoff.Clock.(*clock.FakeClock).Step(time.Hour)
}

// withScheduler: the scheduler gives a pod its node, as is the default in 1.12.
var withScheduler = true

func setUpFleet(t *testing.T) {
	if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%t", features.ScheduleDaemonSetPods, withScheduler)); err != nil {
		t.Fatal(err)
	}
}

// schedule gives pods the nodes that they ask for, and names them by these.
func (f *fleet) schedule() {
	for _, o := range f.manager.podStore.List() {
		pod := o.(*v1.Pod)
		if pod.Spec.NodeName != "" {
			continue
		}
		node, err := util.GetTargetNodeName(pod)
		if err != nil {
			f.t.Fatal(err)
		}
		f.manager.podStore.Delete(pod)
		delete(f.control.podIDMap, pod.Name)
		pod = pod.DeepCopy()
		pod.Spec.NodeName, pod.Name = node, names.SimpleNameGenerator.GenerateName(node+"-")
		f.manager.podStore.Add(pod)
		f.control.podIDMap[pod.Name] = pod
	}
}

// TestHoldfastDaemonSetFailedPodRolloutOnNodes: the same where the controller makes pods on their
// nodes, with ScheduleDaemonSetPods off.
func TestHoldfastDaemonSetFailedPodRolloutOnNodes(t *testing.T) {
	withScheduler = false
	defer func() { withScheduler = true }()
	for name, test := range map[string]func(*testing.T){
		"one of two":  TestHoldfastDaemonSetFailedPodRollout,
		"of broken":   TestHoldfastDaemonSetFailedPodRolloutOfBroken,
		"meanwhile":   TestHoldfastDaemonSetFailedPodRolloutMeanwhile,
		"restart":     TestHoldfastDaemonSetFailedPodRolloutRestart,
		"unchanged":   TestHoldfastDaemonSetFailedPodRolloutUnchanged,
		"in back-off": TestHoldfastDaemonSetFailedPodRolloutInBackoff,
	} {
		t.Run(name, test)
	}
}

// TestHoldfastDaemonSetTemplateGeneration: what cannot be read is 0, with which no node is spared.
func TestHoldfastDaemonSetTemplateGeneration(t *testing.T) {
	ds := newDaemonSet("foo")
	got := []int64{templateGeneration(ds)}
	for _, text := range []string{"", "x", "7"} {
		ds.Annotations = map[string]string{apps.DeprecatedTemplateGeneration: text}
		got = append(got, templateGeneration(ds))
	}
	if want := []int64{0, 0, 0, 7}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A failed pod that waits to be deleted again does not stop the update of other nodes.
func TestHoldfastDaemonSetFailedPodRolloutInBackoff(t *testing.T) {
	for on, want := range map[bool]string{true: "v2", false: "v1"} {
		func() {
			defer setFailedPodRollout(t, on)()
			f := newFleet(t, 3, 1)
			f.refuses = refusesAlways("node-0")
			for i := 0; i < 12; i++ {
				if i == 5 {
					f.want(gate(on)+", before", map[string]string{"node-1": "v1", "node-2": "v1"})
					f.image("v2")
				}
				f.work()
				f.kubelets()
			}
			f.want(gate(on), map[string]string{"node-1": want, "node-2": want})
			if on {
				return
			}
			// The failed pod was deleted once, and waits since.
			if n := strings.Count(strings.Join(f.trace, " "), "node-0"); n != 1 {
				t.Errorf("the failed pod was deleted %d times, want once: %q", n, f.trace)
			}
		}()
	}
}
