// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"fmt"
	"strings"
	"sync"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/container/hashcompat"
	"k8s.io/kubernetes/pkg/kubelet/predecessor"
)

const hashCompatMetrics = "holdfast_container_hash_compat_"

var (
	hashCompatKept = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: hashCompatMetrics + "kept_total",
		Help: "Running containers kept although their recorded hash is not this release's, by the release whose hash it is.",
	}, []string{"generation"})
	hashCompatWouldHaveKept = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: hashCompatMetrics + "would_have_kept_total",
		Help: "Running containers that would have been kept if the gate ContainerHashCompat were on, by the release whose hash they have.",
	}, []string{"generation"})
	hashCompatRecorded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: hashCompatMetrics + "recorded_total",
		Help: "New containers by the release whose hash was recorded.",
	}, []string{"generation"})
	hashCompatWouldHaveRecorded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: hashCompatMetrics + "would_have_recorded_total",
		Help: "New containers recorded with this release's hash that would have been recorded with an older one if LegacyContainerHashWrite and ContainerHashCompat were on, by the older release.",
	}, []string{"generation"})
	hashCompatChanged = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: hashCompatMetrics + "changed_total",
		Help: "Running containers to be replaced because their spec changed, by what is known of the change (image, ignored-field, both, unknown).",
	}, []string{"cause"})
)

func init() {
	prometheus.MustRegister(hashCompatKept, hashCompatWouldHaveKept, hashCompatRecorded, hashCompatWouldHaveRecorded, hashCompatChanged)
	for _, d := range hashcompat.Drift() {
		glog.Errorf("container-hash-compat is off: %s", d)
	}
}

// hashDecision is what comparing the hash of a container's spec with the
// recorded one says.
type hashDecision struct {
	// expected is the hash of the spec in this release.
	expected, recorded uint64
	// changed: the container is to be recreated.
	changed bool
	// older is the older release whose hash was recorded for the same spec, if
	// isOlder. Then changed says whether the gate ContainerHashCompat is off.
	older   hashcompat.Generation
	isOlder bool
}

// decideContainerHash says whether the spec of a container is not the one that
// the container was started from. It is the only place where that is decided,
// and it has no side effect: it may be asked by anybody, at any time.
//
// The hash of this release is compared first, as upstream does. Only if it
// differs, and with the gate ContainerHashCompat, those of the older generations
// are, each if the container sets no field that the generation does not know.
func decideContainerHash(container *v1.Container, status *kubecontainer.ContainerStatus) hashDecision {
	d := hashDecision{expected: kubecontainer.HashContainer(container), recorded: status.Hash}
	if d.recorded == d.expected {
		return d
	}
	d.older, d.isOlder = hashcompat.Match(container, d.recorded)
	d.changed = !d.isOlder || !utilfeature.DefaultFeatureGate.Enabled(features.ContainerHashCompat)
	return d
}

// noteContainerHashes counts and logs what was decided about the pod's
// containers, once for each container, and learns from them which kubelet was
// here. SyncPod calls it after it has decided and before it starts a container.
func noteContainerHashes(pod *v1.Pod, podStatus *kubecontainer.PodStatus, changes podActions) {
	learn := predecessor.Default.NeedsEvidence()
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		status := podStatus.FindContainerStatusByName(container.Name) // the newest, running or not
		if status == nil {
			continue
		}
		if learn && evidenceTaken.first(status.ID.ID, "") {
			if oldest, newest, ok := hashcompat.RecordedBy(container, status.Hash); ok {
				predecessor.Default.AddContainer(string(pod.UID)+"/"+container.Name, oldest.Minor(), newest.Minor())
			}
		}
		if status.State != kubecontainer.ContainerStateRunning || changes.KillPod {
			continue
		}
		if _, killed := changes.ContainersToKill[status.ID]; killed || hashCompatSeen.first(status.ID.ID, "decision") {
			noteContainerHash(container, status)
		}
	}
}

// noteContainerHash counts and logs one decision.
func noteContainerHash(container *v1.Container, status *kubecontainer.ContainerStatus) {
	d := decideContainerHash(container, status)
	switch {
	case d.isOlder && !d.changed && hashCompatSeen.first(status.ID.ID, "kept"):
		hashCompatKept.WithLabelValues(d.older.String()).Inc()
		glog.Infof("Container %q (%q) is kept: its recorded hash (%d) is that of a %v kubelet for the same spec (%d in this release).",
			container.Name, status.ID, d.recorded, d.older, d.expected)
	case d.isOlder && d.changed && hashCompatSeen.first(status.ID.ID, "would have kept"):
		hashCompatWouldHaveKept.WithLabelValues(d.older.String()).Inc()
		glog.Warningf("Container %q (%q) counts as changed: its recorded hash (%d) is that of a %v kubelet for the same spec, and the feature gate ContainerHashCompat is off.",
			container.Name, status.ID, d.recorded, d.older)
	case d.changed && utilfeature.DefaultFeatureGate.Enabled(features.ContainerHashCompat) && hashCompatSeen.first(status.ID.ID, "changed"):
		cause, _ := changeCause(container, status)
		hashCompatChanged.WithLabelValues(cause).Inc()
	}
}

// containerChangeDetail says what is known about how a container that
// decideContainerHash calls changed has changed, as a sentence to follow upstream's
// message, with a leading space and without a full stop; "" if nothing is.
// The pod spec of a running pod can change in the images only, so the image is
// tried: the sentence names it if a release would have recorded the hash for
// this spec with the image that the container runs.
func containerChangeDetail(container *v1.Container, status *kubecontainer.ContainerStatus) string {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ContainerHashCompat) {
		return ""
	}
	_, detail := changeCause(container, status)
	return detail
}

func changeCause(container *v1.Container, status *kubecontainer.ContainerStatus) (cause, detail string) {
	if e := hashcompat.Explain(container, status.Hash); e.Ignoring != nil {
		return "ignored-field", ignoredFieldDetail(e)
	}
	for _, image := range imageNames(status.Image) {
		if image == container.Image {
			continue
		}
		old := *container
		old.Image = image
		e := hashcompat.Explain(&old, status.Hash)
		was := fmt.Sprintf(" The image was %q, it is %q now", image, container.Image)
		switch {
		case e.Recorded != nil:
			return "image", was
		case e.Ignoring != nil:
			return "both", was + "." + ignoredFieldDetail(e)
		}
	}
	return "unknown", ""
}

func ignoredFieldDetail(e hashcompat.Explanation) string {
	return fmt.Sprintf(" It was started by a %v kubelet, which does not know %s", e.IgnoringGeneration, strings.Join(e.Ignoring, ", "))
}

// imageNames returns how a pod spec can name an image that the runtime calls
// name: docker leaves out its own registry and does not leave out the tag.
func imageNames(name string) []string {
	if name == "" {
		return nil
	}
	names := []string{name}
	if short := strings.TrimSuffix(name, ":latest"); short != name {
		names = append(names, short)
	}
	for _, n := range names {
		if !strings.Contains(n, "/") {
			names = append(names, "library/"+n, "docker.io/library/"+n)
		}
		names = append(names, "docker.io/"+n, "index.docker.io/"+n)
	}
	return names
}

// containerHashToRecord returns the hash that a new container is labelled
// with: that of the kubelet which was here before (see generationToRecord), or
// of the oldest release after it that knows all fields of the container, so that
// the kubelet that was there keeps the container when it comes back.
// Without ContainerHashCompat this kubelet itself would take such a container
// for a changed one, so then, or without LegacyContainerHashWrite, it is
// native, the hash of this release, as upstream.
func containerHashToRecord(container *v1.Container, native uint64) uint64 {
	g, hash, ok := hashcompat.OldestHash(container, generationToRecord())
	if !ok || g == hashcompat.Native {
		hashCompatRecorded.WithLabelValues(hashcompat.Native.String()).Inc()
		return native
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.LegacyContainerHashWrite) ||
		!utilfeature.DefaultFeatureGate.Enabled(features.ContainerHashCompat) {
		hashCompatRecorded.WithLabelValues(hashcompat.Native.String()).Inc()
		hashCompatWouldHaveRecorded.WithLabelValues(g.String()).Inc()
		return native
	}
	hashCompatRecorded.WithLabelValues(g.String()).Inc()
	return hash
}

// generationToRecord is the generation of the kubelet that was here before. If
// none is known, or it was newer than this one, it is this release's.
func generationToRecord() hashcompat.Generation {
	if r, ok := predecessor.Default.Release(); ok {
		return hashcompat.Of(r.Minor)
	}
	return hashcompat.Native
}

// hashCompatSeen remembers which containers were counted and logged: pods are
// synced again and again. It decides nothing about a container.
var hashCompatSeen seenContainers

// evidenceTaken remembers from which containers evidence was taken. To take it
// twice costs some time and changes nothing.
var evidenceTaken seenContainers

// maxSeenContainers bounds the memory. When it is reached, everything is
// forgotten, and for containers that still run it is done once more.
const maxSeenContainers = 10000

type seenContainer struct {
	id, what string
}

type seenContainers struct {
	sync.Mutex
	seen map[seenContainer]struct{}
}

// first reports whether this is the first call with these arguments.
func (s *seenContainers) first(id, what string) bool {
	s.Lock()
	defer s.Unlock()
	key := seenContainer{id, what}
	if _, ok := s.seen[key]; ok {
		return false
	}
	if s.seen == nil || len(s.seen) >= maxSeenContainers {
		s.seen = map[seenContainer]struct{}{}
	}
	s.seen[key] = struct{}{}
	return true
}
