// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
)

// Annotations of pods. docs/decisions/0010 says why they have this prefix.
const (
	replacePrefix = "holdfast/"
	// drainAnnotation is how many whole seconds, 0 to 300, a container goes on between
	// the API server's acknowledgement that it is not ready and its kill. The grace
	// period begins after it.
	drainAnnotation = replacePrefix + "drain-seconds"
	// optOutAnnotation names the containers, with commas between, that are replaced as
	// by stock: not made not ready, not waited for. "*" is all of them.
	optOutAnnotation = replacePrefix + "replace-at-once"

	maxDrainSeconds = 300
	// maxOptOutBytes is what is read of optOutAnnotation: an annotation may have 256 KiB, the
	// names of 250 containers have 16.
	maxOptOutBytes = 16 << 10
	// maxQuoteBytes is what of a value is quoted in an event and in the log.
	maxQuoteBytes = 60
)

// replaceSettings is what a pod's annotations say.
type replaceSettings struct {
	drain time.Duration
	// out has the names of containers, or all is set.
	out sets.String
	all bool
}

func (s replaceSettings) optsOut(container string) bool { return s.all || s.out.Has(container) }

// replaceSettingsOf reads a pod's annotations. A problem names one that cannot be
// used; it counts as not there, all others count.
func replaceSettingsOf(pod *v1.Pod) (s replaceSettings, problem error) {
	if value, ok := pod.Annotations[optOutAnnotation]; ok {
		s.out, s.all, problem = optOut(pod, value)
	}
	if value, ok := pod.Annotations[drainAnnotation]; ok {
		seconds, err := strconv.Atoi(value)
		if err != nil || seconds < 0 || seconds > maxDrainSeconds {
			problem = fmt.Errorf("annotation %s is %s: give whole seconds from 0 to %d; 0 is used", drainAnnotation, quoteShort(value), maxDrainSeconds)
		} else {
			s.drain = time.Duration(seconds) * time.Second
		}
	}
	return s, problem
}

func optOut(pod *v1.Pod, value string) (out sets.String, all bool, problem error) {
	if strings.TrimSpace(value) == "*" {
		return nil, true, nil
	}
	if len(value) > maxOptOutBytes {
		return nil, false, fmt.Errorf("annotation %s has %d bytes: give names of containers with commas between, %d bytes at most, or * for all; it counts as not there", optOutAnnotation, len(value), maxOptOutBytes)
	}
	names := sets.String{}
	for i := range pod.Spec.Containers {
		names.Insert(pod.Spec.Containers[i].Name)
	}
	out = sets.String{}
	for _, name := range strings.Split(value, ",") {
		if name = strings.TrimSpace(name); names.Has(name) {
			out.Insert(name)
		} else {
			problem = fmt.Errorf("annotation %s has %s, which is no container of the pod: give names with commas between, or * for all; it is left out", optOutAnnotation, quoteShort(name))
		}
	}
	return out, false, problem
}

// quoteShort quotes what a pod's author wrote, in maxQuoteBytes bytes at most.
func quoteShort(s string) string {
	const more = "..."
	if len(s) <= maxQuoteBytes {
		if quoted := strconv.Quote(s); len(quoted) <= maxQuoteBytes {
			return quoted
		}
	} else {
		s = s[:maxQuoteBytes]
	}
	for {
		if quoted := strconv.Quote(s) + more; len(quoted) <= maxQuoteBytes {
			return quoted
		}
		s = s[:len(s)-1]
	}
}

// replaceNoted remembers what was counted, logged and told of by events, as a pod is
// synced again and again. It decides nothing.
var replaceNoted noted

// replaceNote is something that is counted, logged or told of once for a container.
type replaceNote uint8

const (
	noteMarked replaceNote = 1 << iota
	noteWaited
	noteOptedOut
)

// noted has, of each pod that has a status, a few bytes for each container and for the
// annotations, however often the pod's author changes these.
type noted struct {
	sync.Mutex
	pods map[types.UID]*podNotes
}

type podNotes struct {
	// containers has the newest replaced container of each name.
	containers map[string]*containerNotes
	// problem is the hash of the last problem with the annotations that was told of.
	problem uint64
}

type containerNotes struct {
	id    string
	notes replaceNote
}

// of returns the notes of a pod. When a pod is new, it drops those of pods without a
// status: a pod may have gone in any way. The lock is held.
func (n *noted) of(podUID types.UID, hasStatus func(types.UID) bool) *podNotes {
	if p := n.pods[podUID]; p != nil {
		return p
	}
	for uid := range n.pods {
		if !hasStatus(uid) {
			delete(n.pods, uid)
		}
	}
	if n.pods == nil {
		n.pods = map[types.UID]*podNotes{}
	}
	p := &podNotes{containers: map[string]*containerNotes{}}
	n.pods[podUID] = p
	return p
}

// first notes something of a container, and reports whether that is new.
func (n *noted) first(podUID types.UID, r kuberuntime.ReplacedContainer, note replaceNote, hasStatus func(types.UID) bool) bool {
	n.Lock()
	defer n.Unlock()
	p := n.of(podUID, hasStatus)
	c := p.containers[r.Name]
	if c == nil || c.id != r.ID.ID {
		c = &containerNotes{id: r.ID.ID}
		p.containers[r.Name] = c
	}
	if c.notes&note != 0 {
		return false
	}
	c.notes |= note
	return true
}

// firstProblem notes a problem with the pod's annotations, and reports whether it is
// another one than the last.
func (n *noted) firstProblem(podUID types.UID, problem error, hasStatus func(types.UID) bool) bool {
	hash := fnv.New64a()
	io.WriteString(hash, problem.Error())
	n.Lock()
	defer n.Unlock()
	p := n.of(podUID, hasStatus)
	if p.problem == hash.Sum64() {
		return false
	}
	p.problem = hash.Sum64()
	return true
}

// has says whether something was noted of a container.
func (n *noted) has(podUID types.UID, containerID string, note replaceNote) bool {
	n.Lock()
	defer n.Unlock()
	if p := n.pods[podUID]; p != nil {
		for _, c := range p.containers {
			if c.id == containerID {
				return c.notes&note != 0
			}
		}
	}
	return false
}

// forget forgets what was noted of a container.
func (n *noted) forget(podUID types.UID, containerID string) {
	n.Lock()
	defer n.Unlock()
	if p := n.pods[podUID]; p != nil {
		for name, c := range p.containers {
			if c.id == containerID {
				delete(p.containers, name)
			}
		}
	}
}

// forgetPod forgets all that was noted of a pod.
func (n *noted) forgetPod(podUID types.UID) {
	n.Lock()
	defer n.Unlock()
	delete(n.pods, podUID)
}
