// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/container/hashcompat"
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

// ContainerChanged reports whether the spec of a container is not the one that
// the running container was started from, with the hash of the spec in this
// release and the recorded one. It is the only place where that is decided:
// whatever has to agree with the restart of changed containers, such as
// readiness, asks here.
//
// The hash of this release is compared first, as upstream does. Only if it
// differs, and with the gate ContainerHashCompat, the hashes of 1.8, 1.7 and
// 1.6 are, each if the container sets no field that the release does not know.
func ContainerChanged(container *v1.Container, status *kubecontainer.ContainerStatus) (expected, recorded uint64, changed bool) {
	expected = kubecontainer.HashContainer(container)
	if status.Hash == expected {
		nodeGeneration.learn(container, status)
		return expected, status.Hash, false
	}
	g, ok := hashcompat.Match(container, status.Hash)
	if !ok {
		return expected, status.Hash, true
	}
	nodeGeneration.learn(container, status)
	if utilfeature.DefaultFeatureGate.Enabled(features.ContainerHashCompat) {
		if hashCompatSeen.first(status.ID.ID, "kept") {
			hashCompatKept.WithLabelValues(g.String()).Inc()
			glog.Infof("Container %q (%q) is kept: its recorded hash (%d) is that of a %v kubelet for the same spec (%d in this release).",
				container.Name, status.ID, status.Hash, g, expected)
		}
		return expected, status.Hash, false
	}
	if hashCompatSeen.first(status.ID.ID, "would have kept") {
		hashCompatWouldHaveKept.WithLabelValues(g.String()).Inc()
		glog.Warningf("Container %q (%q) counts as changed: its recorded hash (%d) is that of a %v kubelet for the same spec, and the feature gate ContainerHashCompat is off.",
			container.Name, status.ID, status.Hash, g)
	}
	return expected, status.Hash, true
}

// containerChangeDetail says what is known about how a container for which
// ContainerChanged is true has changed, as a sentence to follow upstream's
// message, with a leading space and without a full stop; "" if nothing is.
// The pod spec of a running pod can change in the images only, so the image is
// tried: the sentence names it if a release would have recorded the hash for
// this spec with the image that the container runs.
func containerChangeDetail(container *v1.Container, status *kubecontainer.ContainerStatus) string {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ContainerHashCompat) {
		return ""
	}
	cause, detail := changeCause(container, status)
	if hashCompatSeen.first(status.ID.ID, "changed") {
		hashCompatChanged.WithLabelValues(cause).Inc()
	}
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
// with: that of the oldest release that knows all its fields, not before 1.7
// and not before the one that this node came from (see kubeletGeneration), so
// that the kubelet that was there keeps the container when it comes back.
// Without ContainerHashCompat this kubelet itself would take such a container
// for a changed one, so then, or without LegacyContainerHashWrite, it is
// native, the hash of this release, as upstream.
func containerHashToRecord(container *v1.Container, native uint64) uint64 {
	g, hash, ok := hashcompat.OldestHash(container, nodeGeneration.get())
	if !ok || g == hashcompat.Gen19 {
		hashCompatRecorded.WithLabelValues(hashcompat.Gen19.String()).Inc()
		return native
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.LegacyContainerHashWrite) ||
		!utilfeature.DefaultFeatureGate.Enabled(features.ContainerHashCompat) {
		hashCompatRecorded.WithLabelValues(hashcompat.Gen19.String()).Inc()
		hashCompatWouldHaveRecorded.WithLabelValues(g.String()).Inc()
		return native
	}
	hashCompatRecorded.WithLabelValues(g.String()).Inc()
	return hash
}

// nodeGeneration is what the running containers say of this node.
var nodeGeneration kubeletGeneration

// kubeletGeneration is the generation of the kubelet that a node came from, as
// far as its running containers prove it: the newest of those that recorded a
// container for which this kubelet would have recorded an older hash. What it
// records from then on proves the same, so a restart does not forget it.
type kubeletGeneration struct {
	generation uint32 // atomic; a hashcompat.Generation, 0 is the oldest
}

func (k *kubeletGeneration) get() hashcompat.Generation {
	return hashcompat.Generation(atomic.LoadUint32(&k.generation))
}

// learn looks at a running container whose spec has not changed. With the gate
// LegacyContainerHashWrite off nothing is learned: what this kubelet records
// then would prove 1.9.
func (k *kubeletGeneration) learn(container *v1.Container, status *kubecontainer.ContainerStatus) {
	if k.get() == hashcompat.Gen19 || !utilfeature.DefaultFeatureGate.Enabled(features.LegacyContainerHashWrite) ||
		!hashCompatSeen.first(status.ID.ID, "generation") {
		return
	}
	g, ok := hashcompat.Proves(container, status.Hash)
	for ok {
		was := k.get()
		if g <= was {
			return
		}
		if atomic.CompareAndSwapUint32(&k.generation, uint32(was), uint32(g)) {
			glog.Infof("Container %q (%q) was started by a %v kubelet: new containers record the hash of %v or later.", container.Name, status.ID, g, g)
			return
		}
	}
}

// hashCompatSeen remembers which containers were counted and logged:
// containers are compared at every sync, and by more than one caller.
var hashCompatSeen seenContainers

// maxSeenContainers bounds the memory. When it is reached, everything is
// forgotten and containers that still run are counted and logged once more.
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
