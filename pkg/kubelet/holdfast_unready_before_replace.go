// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/format"
)

// How long a container that is to be replaced waits for the API server. They are
// variables for tests.
var (
	// unreadyWait is how long without any acknowledgement, of this or of another pod.
	unreadyWait = 20 * time.Second
	// unreadyMaxWait is how long at most.
	unreadyMaxWait = 2 * time.Minute
	// unreadyMaxHold is how long at most a container that this process found not ready, or
	// whose replacement was put off, is held so before its replacement begins. What keeps it
	// from beginning, such as a secret that is missing, may last for ever.
	unreadyMaxHold = 2 * time.Minute
	// unreadyPoll is how often a waiting pod worker looks.
	unreadyPoll = 50 * time.Millisecond
	// unreadyMaxAsk is how long the first sync of a pod waits for the API server's copy,
	// and unreadyAskPoll how often it looks for news meanwhile.
	unreadyMaxAsk  = 10 * time.Second
	unreadyAskPoll = time.Second
)

// Reasons of events.
const (
	unreadyEvent           = "UnreadyBeforeReplace"
	unreadyTimeoutEvent    = "UnreadyNotAcknowledged"
	unreadyAnnotationEvent = "InvalidReplaceAnnotation"
)

var (
	unreadyMarked = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_unready_before_replace_marked_total",
		Help: "Containers made not ready because their spec changed, before they are killed.",
	})
	unreadyOutcome = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_unready_before_replace_waits_total",
		Help: "Containers whose wait ended, by how: acknowledged (by the API server), timeout, put-back (the spec is again that of the container, perhaps after acknowledged), gone (it ended by itself or with its pod).",
	}, []string{"outcome"})
	unreadyOptedOut = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_unready_before_replace_opted_out_total",
		Help: "Containers replaced as by stock because their pod's annotation asks for it.",
	})
	unreadyHeld = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_unready_before_replace_held_total",
		Help: "Containers that an earlier process of the kubelet made not ready and did not replace, kept not ready.",
	})
	unreadyWaiting = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_unready_before_replace_waiting",
		Help: "Pods that wait now for the API server or for their drain-seconds.",
	})
	unreadyAckSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "holdfast_unready_before_replace_acknowledged_seconds",
		Help:    "Seconds from the decision to replace containers of a pod until the API server had them not ready.",
		Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 60, 120},
	})
)

func init() {
	prometheus.MustRegister(unreadyMarked, unreadyOutcome, unreadyOptedOut, unreadyHeld, unreadyWaiting, unreadyAckSeconds)
}

// changedContainers is a container runtime that knows which running containers have
// another spec than they were started from.
type changedContainers interface {
	ContainersChanged(*v1.Pod, *kubecontainer.PodStatus) []kuberuntime.ReplacedContainer
}

var _ kuberuntime.ReplacementPreparer = &Kubelet{}

// PrepareReplacement implements kuberuntime.ReplacementPreparer. It runs in the pod's
// worker. What it knows outlives a sync: the marks are the status manager's. The next sync
// gives them an end, as it need not come here.
func (kl *Kubelet) PrepareReplacement(pod *v1.Pod, replaced []kuberuntime.ReplacedContainer, block bool) bool {
	marker, ok := kl.statusManager.(status.UnreadyMarking)
	if !ok || kl.kubeClient == nil {
		return true
	}
	var ids []kubecontainer.ContainerID
	for _, r := range replaced {
		ids = append(ids, r.ID)
	}
	if !marker.MarkUnready(pod, ids) {
		return true
	}
	for _, r := range replaced {
		if kl.firstNote(pod.UID, r, noteMarked) {
			unreadyMarked.Inc()
			kl.recorder.Eventf(pod, v1.EventTypeNormal, unreadyEvent, "Container %q is not ready from now on: its spec changed, and it will be replaced", r.Name)
			glog.Infof("Container %q (%q) of pod %q is not ready from now on: its spec changed, and it will be replaced", r.Name, r.ID.String(), format.Pod(pod))
		}
	}
	w := &replaceWait{kl: kl, marker: marker, pod: pod, replaced: replaced, drain: kl.replaceSettings(pod).drain}
	if over, killable := w.over(); over {
		return killable
	}
	if !block {
		return false
	}
	unreadyWaiting.Inc()
	defer unreadyWaiting.Dec()
	for {
		if kl.newsOf(pod) {
			glog.V(2).Infof("Pod %q, which waits for containers to be replaced, has news", format.Pod(pod))
			return false
		}
		if over, killable := w.over(); over {
			// What came meanwhile may have taken the reason away.
			return killable && !kl.newsOf(pod)
		}
		time.Sleep(unreadyPoll)
	}
}

// ReplaceAtOnce implements kuberuntime.ReplacementPreparer.
func (kl *Kubelet) ReplaceAtOnce(pod *v1.Pod, r kuberuntime.ReplacedContainer) bool {
	if !kl.replaceSettings(pod).optsOut(r.Name) {
		return false
	}
	if kl.firstNote(pod.UID, r, noteOptedOut) {
		unreadyOptedOut.Inc()
		glog.Infof("Container %q of pod %q is replaced without being made not ready first: annotation %s", r.Name, format.Pod(pod), optOutAnnotation)
	}
	return true
}

// replaceSettings is what the pod's annotations say. What cannot be used is told of once.
func (kl *Kubelet) replaceSettings(pod *v1.Pod) replaceSettings {
	settings, problem := replaceSettingsOf(pod)
	if problem != nil && replaceNoted.firstProblem(pod.UID, problem, kl.hasStatus) {
		kl.recorder.Eventf(pod, v1.EventTypeWarning, unreadyAnnotationEvent, "%v", problem)
		glog.Warningf("Pod %q: %v", format.Pod(pod), problem)
	}
	return settings
}

// firstNote notes something of a container that is to be replaced, and reports whether
// that is new.
func (kl *Kubelet) firstNote(podUID types.UID, r kuberuntime.ReplacedContainer, note replaceNote) bool {
	return replaceNoted.first(podUID, r, note, kl.hasStatus)
}

func (kl *Kubelet) hasStatus(podUID types.UID) bool {
	_, ok := kl.statusManager.GetPodStatus(podUID)
	return ok
}

// replaceWait is the wait of one pod in one sync.
type replaceWait struct {
	kl       *Kubelet
	marker   status.UnreadyMarking
	pod      *v1.Pod
	replaced []kuberuntime.ReplacedContainer
	drain    time.Duration
}

// over says whether the wait is over, and if so whether the containers may be killed.
func (w *replaceWait) over() (over, killable bool) {
	s := w.marker.UnreadyState(w.pod.UID)
	if !s.Marked {
		w.kl.syncDropped(w.pod.UID)
		return true, false
	}
	if s.Acknowledged {
		w.note("acknowledged", func() { unreadyAckSeconds.Observe(s.AcknowledgedAt.Sub(s.Since).Seconds()) })
		return time.Since(s.NotReadySince) >= w.drain, true
	}
	quiet := s.Since
	if s.LastAcknowledged.After(quiet) {
		quiet = s.LastAcknowledged
	}
	waited := time.Since(s.Since)
	if time.Since(quiet) < unreadyWait && waited < unreadyMaxWait {
		return false, false
	}
	w.note("timeout", func() {
		w.kl.recorder.Eventf(w.pod, v1.EventTypeWarning, unreadyTimeoutEvent, "The API server has not taken in %v that containers are not ready; they are replaced all the same", waited.Round(time.Second))
		glog.Warningf("Pod %q: the API server has not taken in %v that containers are not ready; they are replaced all the same", format.Pod(w.pod), waited)
	})
	return true, true
}

// note counts how the wait of the containers ended, and calls first, once.
func (w *replaceWait) note(outcome string, first func()) {
	any := false
	for _, r := range w.replaced {
		if w.kl.firstNote(w.pod.UID, r, noteWaited) {
			unreadyOutcome.WithLabelValues(outcome).Inc()
			any = true
		}
	}
	if any {
		first()
	}
}

// syncDropped has a pod synced again whose status was dropped while its worker waited. Most
// are gone; one that is not, such as a static pod whose mirror pod was made anew, would else
// have its next sync up to 90 s later.
func (kl *Kubelet) syncDropped(podUID types.UID) {
	pod, found := kl.podManager.GetPodByUID(podUID)
	if workers, ok := kl.podWorkers.(*podWorkers); ok && found {
		mirrorPod, _ := kl.podManager.GetMirrorPodByPod(pod)
		workers.syncAgain(UpdatePodOptions{Pod: pod, MirrorPod: mirrorPod, UpdateType: kubetypes.SyncPodSync})
	}
}

// syncAgain has an update follow the one that the pod's worker is at, if none does yet.
func (p *podWorkers) syncAgain(options UpdatePodOptions) {
	p.podLock.Lock()
	defer p.podLock.Unlock()
	uid := options.Pod.UID
	_, working := p.podUpdates[uid]
	if _, follows := p.lastUndeliveredWorkUpdate[uid]; working && !follows {
		p.lastUndeliveredWorkUpdate[uid] = options
	}
}

// newsOf says whether there is something about the pod that its worker does not know
// yet: a change, its deletion, a request to kill it, a container that died, a liveness
// probe that failed. All of them are, or end in, an update that waits for the worker;
// a pod that was removed at once is in no manager any more.
func (kl *Kubelet) newsOf(pod *v1.Pod) bool {
	if _, ok := kl.podManager.GetPodByUID(pod.UID); !ok {
		return true
	}
	workers, ok := kl.podWorkers.(*podWorkers)
	return ok && workers.hasUpdate(pod.UID)
}

// hasUpdate says whether an update of the pod waits for its worker to be done.
func (p *podWorkers) hasUpdate(uid types.UID) bool {
	p.podLock.Lock()
	defer p.podLock.Unlock()
	_, ok := p.lastUndeliveredWorkUpdate[uid]
	return ok
}

// settleReplacement is called in a pod's worker before the status of a sync is made. It
// lifts the marks of containers that are not to be replaced any more. In the pod's first
// sync of this process it holds those at not ready that an earlier process made so and
// did not come to replace. It lifts that too if this process does not come to it either.
func (kl *Kubelet) settleReplacement(pod *v1.Pod, podStatus *kubecontainer.PodStatus) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.UnreadyBeforeReplace) || kl.kubeClient == nil {
		return
	}
	marker, ok := kl.statusManager.(status.UnreadyMarking)
	runtime, known := kl.containerRuntime.(changedContainers)
	if !ok || !known {
		return
	}
	if !kl.hasStatus(pod.UID) {
		replaceNoted.forgetPod(pod.UID) // its status was dropped, and the notes go with it
		if pod.DeletionTimestamp == nil {
			kl.holdUnready(marker, pod, runtime.ContainersChanged(pod, podStatus))
			return
		}
	}
	// Hashes are computed for a pod with marks only, once.
	var changed map[kubecontainer.ContainerID]bool
	lifted := marker.LiftUnready(pod.UID, func(id kubecontainer.ContainerID) bool {
		if changed == nil {
			changed = map[kubecontainer.ContainerID]bool{}
			for _, r := range runtime.ContainersChanged(pod, podStatus) {
				changed[r.ID] = true
			}
		}
		return changed[id]
	})
	for _, id := range lifted {
		if changed[id] {
			glog.Warningf("Container %q of pod %q is as ready as its probe says again: it is to be replaced, but that has not begun for %v", id.String(), format.Pod(pod), unreadyMaxHold)
		} else if isRunning(podStatus, id) {
			unreadyOutcome.WithLabelValues("put-back").Inc()
			glog.Infof("Container %q of pod %q is not replaced: its spec is again the one it was started from", id.String(), format.Pod(pod))
		} else if !replaceNoted.has(pod.UID, id.ID, noteWaited) {
			// Else its wait had ended, and it was replaced.
			unreadyOutcome.WithLabelValues("gone").Inc()
		}
		replaceNoted.forget(pod.UID, id.ID)
	}
	// PrepareReplacement takes the end away when this sync comes so far.
	marker.LimitMarks(pod.UID, unreadyMaxHold)
}

func isRunning(podStatus *kubecontainer.PodStatus, id kubecontainer.ContainerID) bool {
	for _, c := range podStatus.ContainerStatuses {
		if c.ID == id {
			return c.State == kubecontainer.ContainerStateRunning
		}
	}
	return false
}

// holdUnready holds changed containers that the API server has not as ready. The
// kubelet's own copy of the pod may be older than what an earlier process wrote, so the
// API server is asked. If it does not answer the copy counts; a static pod without one
// is not ready, it is about to be replaced. It may also have been its probe, or a
// restart, that made a container not ready: so the hold has an end.
func (kl *Kubelet) holdUnready(marker status.UnreadyMarking, pod *v1.Pod, changed []kuberuntime.ReplacedContainer) {
	settings, _ := replaceSettingsOf(pod)
	var toReplace []kuberuntime.ReplacedContainer
	for _, r := range changed {
		if !settings.optsOut(r.Name) {
			toReplace = append(toReplace, r)
		}
	}
	if len(toReplace) == 0 {
		return
	}
	published, err := kl.publishedPod(marker, pod)
	if err != nil {
		glog.Warningf("Whether the API server has containers of pod %q, which are to be replaced, as ready: %v", format.Pod(pod), err)
		published = pod
		if kubepod.IsStaticPod(pod) {
			published, _ = kl.podManager.GetMirrorPodByPod(pod)
		}
	}
	for _, r := range toReplace {
		if readyIn(published, r.ID) {
			continue
		}
		marker.HoldUnready(pod.UID, []kubecontainer.ContainerID{r.ID}, unreadyMaxHold)
		unreadyHeld.Inc()
		glog.Infof("Container %q (%q) of pod %q stays not ready: its spec changed, and it will be replaced", r.Name, r.ID.String(), format.Pod(pod))
	}
}

// publishedPod asks the API server for the pod, nil if there is none. The pod's worker does
// not look at a deletion or an eviction meanwhile, so news ends it. A usual answer comes
// before that is looked at: after a start most pods have news soon.
func (kl *Kubelet) publishedPod(marker status.UnreadyMarking, pod *v1.Pod) (*v1.Pod, error) {
	type answer struct {
		pod *v1.Pod
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		published, err := marker.PublishedPod(pod.Namespace, pod.Name)
		answers <- answer{published, err}
	}()
	end := time.NewTimer(unreadyMaxAsk)
	defer end.Stop()
	news := time.NewTicker(unreadyAskPoll)
	defer news.Stop()
	for {
		select {
		case a := <-answers:
			return a.pod, a.err
		case <-end.C:
			return nil, fmt.Errorf("no answer in %v", unreadyMaxAsk)
		case <-news.C:
			if kl.newsOf(pod) {
				return nil, fmt.Errorf("no answer before the pod has news")
			}
		}
	}
}

// readyIn says whether the copy of a pod has a container as ready. pod may be nil.
func readyIn(pod *v1.Pod, id kubecontainer.ContainerID) bool {
	if pod == nil {
		return false
	}
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.ContainerID == id.String() {
			return c.Ready
		}
	}
	return false
}
