// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"sync"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/config/staticpod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
)

const (
	// maxRunningPodsWait is how long static pods wait for the runtime to list what runs. It
	// costs nothing: without the runtime no pod can be started. After it they get the UIDs
	// of this release, as in stock.
	maxRunningPodsWait = 5 * time.Minute
	// runningPodsPause is between two tries.
	runningPodsPause = time.Second
)

var staticPodsKept = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "holdfast_static_pod_identity_kept_total",
	Help: "Static pods that keep the UID under which an older kubelet started them, once each, by the release whose UID it is.",
}, []string{"release"})

func init() {
	prometheus.MustRegister(staticPodsKept)
	for _, d := range staticpod.Drift() {
		glog.Errorf("static-pod-identity is off: %s", d)
	}
}

// ranBefore is what this process knows of the pods that its predecessor left. It is nil in a
// program that has pod sources and no runtime.
var ranBefore *runningPods

// ExpectRunningPods says that the kubelet will call FindRunningPods: static pods wait for it.
// It is called before the sources of pods are made. Gate off: nothing is expected.
func ExpectRunningPods() {
	if utilfeature.DefaultFeatureGate.Enabled(features.StaticPodIdentity) {
		ranBefore = newRunningPods(maxRunningPodsWait)
	}
}

// FindRunningPods asks the runtime which pods run, in the background, until it answers.
func FindRunningPods(getPods func(all bool) ([]*kubecontainer.Pod, error)) {
	if ranBefore != nil {
		go ranBefore.find(getPods, runningPodsPause)
	}
}

// staticPodUID is called for a pod of a manifest that names no UID. native is its UID in this
// release; the pod is as native was computed from it. It is native unless a sandbox of the
// pod runs under the UID that a 1.8 or 1.7 kubelet gives the same pod, and none under native.
//
// What ran is asked once, so one manifest has one UID as long as the process lives.
func staticPodUID(pod *api.Pod, native types.UID, nodeName types.NodeName) types.UID {
	if ranBefore == nil {
		return native
	}
	return ranBefore.uid(pod, native, nodeName)
}

type podName struct{ namespace, name string }

// runningPods has the UIDs under which sandboxes ran when the kubelet started.
type runningPods struct {
	maxWait  time.Duration
	found    chan struct{} // closed when pods is there
	deadline chan struct{} // closed when nobody waits any longer
	wait     sync.Once

	mu   sync.Mutex
	pods map[podName]map[types.UID]bool // nil: not known
	// settled: a static pod got an answer, and all others get theirs from the same pods and
	// the same legacy, which is the release whose UIDs new pods get, "" for this one.
	settled bool
	legacy  string
	said    map[types.UID]bool // of pods, so it is no longer than it
}

func newRunningPods(maxWait time.Duration) *runningPods {
	return &runningPods{maxWait: maxWait, found: make(chan struct{}), deadline: make(chan struct{}), said: map[types.UID]bool{}}
}

func (r *runningPods) find(getPods func(all bool) ([]*kubecontainer.Pod, error), pause time.Duration) {
	for {
		pods, err := getPods(false)
		if err == nil {
			r.set(pods)
			return
		}
		glog.Errorf("Static pods wait until it is known which of them run: %v", err)
		select {
		case <-r.deadline:
			return
		case <-time.After(pause):
		}
	}
}

func (r *runningPods) set(pods []*kubecontainer.Pod) {
	running := map[podName]map[types.UID]bool{}
	for _, pod := range pods {
		for _, sandbox := range pod.Sandboxes {
			if sandbox.State != kubecontainer.ContainerStateRunning {
				continue
			}
			name := podName{pod.Namespace, pod.Name}
			if running[name] == nil {
				running[name] = map[types.UID]bool{}
			}
			running[name][pod.ID] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.settled {
		r.pods = running
	}
	close(r.found)
}

// uids returns under which UIDs the pod ran, and the release whose UID it gets if it is new.
// It waits for the runtime's answer.
func (r *runningPods) uids(name podName) (running map[types.UID]bool, legacy string) {
	r.wait.Do(func() {
		go func() {
			time.Sleep(r.maxWait)
			close(r.deadline)
		}()
	})
	select {
	case <-r.found:
	case <-r.deadline:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.settled {
		if r.pods == nil {
			glog.Errorf("The runtime has not told in %v which pods run: static pods of an older kubelet restart", r.maxWait)
		} else {
			r.legacy = legacyRelease()
		}
		r.settled = true
	}
	return r.pods[name], r.legacy
}

// legacyRelease is that of the kubelet that was here before, as "1.7", or "" if none is known
// or new static pods are to get the UID of this release. The kubelet has looked for it before
// it calls FindRunningPods.
func legacyRelease() string {
	if !utilfeature.DefaultFeatureGate.Enabled(features.LegacyStaticPodIdentityWrite) {
		return ""
	}
	r, ok := predecessor.Default.Release()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d.%d", r.Major, r.Minor)
}

func (r *runningPods) uid(pod *api.Pod, native types.UID, nodeName types.NodeName) types.UID {
	namespace := pod.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	name := podName{namespace, generatePodName(pod.Name, nodeName)}
	running, legacy := r.uids(name)
	if running[native] || len(running) == 0 && legacy == "" {
		return native
	}
	uid := native
	for _, older := range staticpod.Older(pod) {
		if running[older.UID] {
			r.say(name, older, native)
			return older.UID
		}
		if older.Release == legacy && uid == native {
			uid = older.UID
		}
	}
	return uid
}

// say counts and logs a pod that is kept, once.
func (r *runningPods) say(name podName, older staticpod.UID, native types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said[older.UID] {
		return
	}
	r.said[older.UID] = true
	staticPodsKept.WithLabelValues(older.Release).Inc()
	glog.Infof("Static pod %q in namespace %q keeps the UID %s, under which a %s kubelet started it (%s in this release)",
		name.name, name.namespace, older.UID, older.Release, native)
}
