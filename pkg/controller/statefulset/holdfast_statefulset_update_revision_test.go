// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/features"
)

func setUpdateRevision(t *testing.T, on bool) func() {
	was := utilfeature.DefaultFeatureGate.Enabled(features.StatefulSetUpdateRevision)
	set := func(v bool) {
		if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%t", features.StatefulSetUpdateRevision, v)); err != nil {
			t.Fatal(err)
		}
	}
	set(on)
	return func() { set(was) }
}

// rollout is a StatefulSet, its pods, which end as soon as they are deleted, and a controller whose cache of the set may
// be some of its own writes behind. The image of a pod tells its revision.
type rollout struct {
	t *testing.T
	*fakeStatefulPodControl
	control StatefulSetControlInterface
	set     *statefulSet
	// statuses are those that were written; the controller sees that of index seen.
	statuses []statefulSetStatus
	seen     int
	// broken is an image whose pods never become ready.
	broken string
	// trace is what the controller did: "create foo-1 v2", "delete foo-1 v1".
	trace []string
}

func newRollout(t *testing.T, replicas int, strategy statefulSetUpdateStrategy) *rollout {
	factory := informers.NewSharedInformerFactory(fake.NewSimpleClientset(), controller.NoResyncPeriodFunc())
	r := &rollout{t: t, fakeStatefulPodControl: rolloutPods(factory), set: newStatefulSet(replicas)}
	r.set.Spec.UpdateStrategy = strategy
	r.statuses = []statefulSetStatus{r.set.Status}
	r.image("v1")
	r.control = rolloutControl(r, factory)
	return r
}

func (r *rollout) CreateStatefulPod(set *statefulSet, pod *v1.Pod) error {
	r.trace = append(r.trace, fmt.Sprintf("create %s %s", pod.Name, pod.Spec.Containers[0].Image))
	pod.Status.Phase = v1.PodPending
	return r.fakeStatefulPodControl.CreateStatefulPod(set, pod)
}

func (r *rollout) DeleteStatefulPod(set *statefulSet, pod *v1.Pod) error {
	r.trace = append(r.trace, fmt.Sprintf("delete %s %s", pod.Name, pod.Spec.Containers[0].Image))
	return r.fakeStatefulPodControl.DeleteStatefulPod(set, pod)
}

func (r *rollout) UpdateStatefulSetStatus(set *statefulSet, status *statefulSetStatus) error {
	r.statuses = append(r.statuses, *status.DeepCopy())
	return nil
}

func (r *rollout) image(image string) {
	r.set.Spec.Template.Spec.Containers[0].Image = image
	r.set.Generation++
}

func (r *rollout) pods() []*v1.Pod {
	pods, err := r.podsLister.Pods(r.set.Namespace).List(labels.Everything())
	if err != nil {
		r.t.Fatal(err)
	}
	return pods
}

// sync lets the controller work, with a cache that lacks the last behind writes of the status, or fewer if it has had
// them already.
func (r *rollout) sync(behind int) {
	if seen := len(r.statuses) - 1 - behind; seen > r.seen {
		r.seen = seen
	}
	set := r.set.DeepCopy()
	set.Status = *r.statuses[r.seen].DeepCopy()
	if err := r.control.UpdateStatefulSet(set, r.pods()); err != nil {
		r.t.Fatal(err)
	}
}

// start makes all pods ready that can be.
func (r *rollout) start() {
	for _, pod := range r.pods() {
		if pod.Spec.Containers[0].Image != r.broken && pod.Status.Phase == v1.PodPending {
			pod = pod.DeepCopy()
			pod.Status.Phase = v1.PodRunning
			podutil.UpdatePodCondition(&pod.Status, &v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
			r.podsIndexer.Update(pod)
		}
	}
}

// end removes a pod, as a deletion by hand does.
func (r *rollout) end(ordinal int) {
	for _, pod := range r.pods() {
		if getOrdinal(pod) == ordinal {
			r.podsIndexer.Delete(pod)
		}
	}
}

// unready makes a pod not ready.
func (r *rollout) unready(ordinal int) {
	for _, pod := range r.pods() {
		if getOrdinal(pod) == ordinal {
			pod = pod.DeepCopy()
			podutil.UpdatePodCondition(&pod.Status, &v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse})
			r.podsIndexer.Update(pod)
		}
	}
}

// made is how many pods the controller has made with image, or with any.
func (r *rollout) made(image string) int {
	n := 0
	for _, line := range r.trace {
		if strings.HasPrefix(line, "create") && strings.HasSuffix(line, image) {
			n++
		}
	}
	return n
}

// fail makes a pod's phase Failed.
func (r *rollout) fail(ordinal int) {
	for _, pod := range r.pods() {
		if getOrdinal(pod) == ordinal {
			pod = pod.DeepCopy()
			pod.Status.Phase = v1.PodFailed
			r.podsIndexer.Update(pod)
		}
	}
}

// images are those of the pods, by ordinal, "-" where there is none.
func (r *rollout) images() string {
	images := strings.Split(strings.Repeat("-", int(*r.set.Spec.Replicas)), "")
	for _, pod := range r.pods() {
		images[getOrdinal(pod)] = pod.Spec.Containers[0].Image
	}
	return strings.Join(images, " ")
}

// settle lets the controller work until it has nothing to do.
func (r *rollout) settle() {
	for quiet := 0; quiet < 4; quiet++ {
		before := len(r.trace) + len(r.statuses)
		r.sync(0)
		r.start()
		if len(r.trace)+len(r.statuses) != before {
			quiet = -1
		}
	}
}

// until lets the controller work until pod ordinal has image.
func (r *rollout) until(ordinal int, image string) {
	for i := 0; i < 1000; i++ {
		if strings.Split(r.images(), " ")[ordinal] == image {
			return
		}
		r.sync(0)
		r.start()
	}
	r.t.Fatalf("pod %d never has %s: %s", ordinal, image, r.images())
}

var noPartition = statefulSetUpdateStrategy{Type: rollingUpdateType}

func partition(ordinal int32) statefulSetUpdateStrategy {
	return statefulSetUpdateStrategy{
		Type:          rollingUpdateType,
		RollingUpdate: &rollingUpdateStrategy{Partition: &ordinal},
	}
}

// 14 rollouts of 8 pods, with a cache that is up to 3 writes behind: each pod is made once in each.
func TestHoldfastStatefulSetUpdateRevision(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		for _, on := range []bool{true, false} {
			func() {
				defer setUpdateRevision(t, on)()
				random := rand.New(rand.NewSource(1))
				r := newRollout(t, 8, noPartition)
				if parallel {
					burst(r.set)
				}
				r.settle()
				r.trace = nil
				for n := 2; n < 16; n++ {
					image := fmt.Sprintf("v%d", n)
					r.image(image)
					want := strings.TrimSpace(strings.Repeat(image+" ", 8))
					for i := 0; r.images() != want; i++ {
						if i == 10000 {
							t.Fatalf("gate %t: the rollout of %s does not end: %s", on, image, r.images())
						}
						if r.sync(random.Intn(4)); random.Intn(3) == 0 {
							r.start()
						}
					}
					r.settle()
				}
				made := r.made("")
				t.Logf("gate %t, parallel %t: %d extra pods in 14 rollouts of 8", on, parallel, made-14*8)
				if (made == 14*8) != on {
					t.Errorf("gate %t, parallel %t: %d pods were made in 14 rollouts of 8", on, parallel, made)
				}
			}()
		}
	}
}

// The remedy for a pod that never becomes ready is to mend the template and delete the pod. It must come back mended: a
// pod of the old revision would not become ready, and the controller waits for it without end.
func TestHoldfastStatefulSetUpdateRevisionOfBroken(t *testing.T) {
	for on, want := range map[bool]string{true: "v2 v2 v2", false: "v1 - -"} {
		func() {
			defer setUpdateRevision(t, on)()
			r := newRollout(t, 3, noPartition)
			r.broken = "v1"
			r.settle()
			r.image("v2")
			r.sync(0)
			behind := len(r.statuses)
			r.end(0)
			r.sync(len(r.statuses) - behind)
			r.settle()
			if r.images() != want {
				t.Errorf("gate %t: the pods have %s, want %s", on, r.images(), want)
			}
		}()
	}
}

// While a rollout waits for a pod, what goes comes back as with the gate off: an update that does not work takes no
// further pod. What the rollout has reached comes back updated.
func TestHoldfastStatefulSetUpdateRevisionMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rollout)
		// waiting is how many pods are made with v1 while pod 5 is not ready; on and off, if it is, with the gate.
		waiting, on, off int
	}{
		"below":        {func(r *rollout) { r.end(2) }, 1, 1, 1},
		"next":         {func(r *rollout) { r.end(4) }, 1, 0, 1},
		"updated":      {func(r *rollout) { r.end(6) }, 0, 0, 0},
		"several":      {func(r *rollout) { r.end(0); r.end(1); r.end(2); r.end(3) }, 4, 4, 4},
		"failed below": {func(r *rollout) { r.fail(2) }, 1, 1, 1},
		"failed next":  {func(r *rollout) { r.fail(4) }, 1, 0, 1},
	} {
		for _, parallel := range []bool{true, false} {
			for _, waits := range []bool{true, false} {
				var traces [2][]string
				for i, on := range []bool{true, false} {
					func() {
						defer setUpdateRevision(t, on)()
						r := newRollout(t, 8, noPartition)
						if parallel {
							burst(r.set)
						}
						r.settle()
						r.image("v2")
						r.until(5, "v2")
						if waits {
							r.unready(5)
							r.sync(0)
						}
						r.trace = nil
						c.change(r)
						r.settle()
						traces[i] = r.trace
						want := map[bool]int{true: c.on, false: c.off}[on]
						if waits {
							want = c.waiting
						}
						if old := r.made("v1"); old != want {
							t.Errorf("%s, gate %t, parallel %t, waits %t: %d pods are made with v1, want %d: %s", name, on, parallel, waits, old, want, r.trace)
						}
						if all := strings.Count(r.images(), "v2") == 8; all == waits {
							t.Errorf("%s, gate %t, parallel %t, waits %t: the pods have %s", name, on, parallel, waits, r.images())
						}
					}()
				}
				if waits && !reflect.DeepEqual(traces[0], traces[1]) {
					t.Errorf("%s, parallel %t: the gate on did\n%s\nand off\n%s", name, parallel, traces[0], traces[1])
				}
			}
		}
	}
}

// Whatever the cache has: with a partition or OnDelete, the controller does the same as with the gate off.
func TestHoldfastStatefulSetUpdateRevisionUnchanged(t *testing.T) {
	for name, strategy := range map[string]statefulSetUpdateStrategy{
		"partition 0": partition(0),
		"partition 3": partition(3),
		"partition 8": partition(8),
		"OnDelete":    {Type: onDeleteType},
	} {
		for seed := int64(0); seed < 4; seed++ {
			var traces [2][]string
			for i, on := range []bool{true, false} {
				func() {
					defer setUpdateRevision(t, on)()
					random := rand.New(rand.NewSource(seed))
					r := newRollout(t, 8, strategy)
					if seed%2 == 0 {
						burst(r.set)
					}
					r.settle()
					r.trace = nil
					for n := 0; n < 150; n++ {
						switch random.Intn(20) {
						case 0:
							r.image(fmt.Sprintf("v%d", 1+random.Intn(3)))
						case 1:
							r.end(random.Intn(8))
						case 2:
							r.fail(random.Intn(8))
						case 3, 4, 5:
							r.start()
						default:
							r.sync(random.Intn(3))
						}
					}
					traces[i] = r.trace
				}()
			}
			if len(traces[0]) == 0 || !reflect.DeepEqual(traces[0], traces[1]) {
				t.Errorf("%s, seed %d: the gate on did\n%s\nand off\n%s", name, seed, traces[0], traces[1])
			}
		}
	}
}

// A rollback in the middle of a rollout, when pod 1 was deleted for it, and a third template touch the pods that must
// change, once each.
func TestHoldfastStatefulSetUpdateRevisionRollback(t *testing.T) {
	for image, want := range map[string]string{
		"v1": "create foo-1 v1, delete foo-3 v2, create foo-3 v1, delete foo-2 v2, create foo-2 v1",
		"v3": "create foo-1 v3, delete foo-3 v2, create foo-3 v3, delete foo-2 v2, create foo-2 v3, delete foo-0 v1, create foo-0 v3",
	} {
		for _, on := range []bool{true, false} {
			func() {
				defer setUpdateRevision(t, on)()
				r := newRollout(t, 4, noPartition)
				r.settle()
				r.image("v2")
				r.until(2, "v2")
				r.sync(0)
				r.trace = nil
				r.image(image)
				r.settle()
				if got := strings.Join(r.trace, ", "); got != want {
					t.Errorf("gate %t, to %s: the controller did %s, want %s", on, image, got, want)
				}
			}()
		}
	}
}
