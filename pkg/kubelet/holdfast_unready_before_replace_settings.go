// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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
)

// replaceSettings is what a pod's annotations say.
type replaceSettings struct {
	drain time.Duration
	// out has the names of containers, or all is set.
	out sets.String
	all bool
}

func (s replaceSettings) optsOut(container string) bool { return s.all || s.out.Has(container) }

// replaceSettingsOf reads a pod's annotations. A problem names the first one that
// cannot be used; it counts as not there, all others count.
func replaceSettingsOf(pod *v1.Pod) (s replaceSettings, problem error) {
	if value, ok := pod.Annotations[optOutAnnotation]; ok {
		s.out, s.all, problem = optOut(pod, value)
	}
	if value, ok := pod.Annotations[drainAnnotation]; ok {
		seconds, err := strconv.Atoi(value)
		if err != nil || seconds < 0 || seconds > maxDrainSeconds {
			problem = fmt.Errorf("annotation %s is %q: give whole seconds from 0 to %d; 0 is used", drainAnnotation, value, maxDrainSeconds)
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
	names := sets.String{}
	for i := range pod.Spec.Containers {
		names.Insert(pod.Spec.Containers[i].Name)
	}
	out = sets.String{}
	for _, name := range strings.Split(value, ",") {
		if name = strings.TrimSpace(name); names.Has(name) {
			out.Insert(name)
		} else {
			problem = fmt.Errorf("annotation %s has %q, which is no container of the pod: give names with commas between, or * for all; it is left out", optOutAnnotation, name)
		}
	}
	return out, false, problem
}

// replaceNoted remembers what was counted, logged and told of by events, as a pod is
// synced again and again. It decides nothing.
var replaceNoted noted

// maxNotedPods bounds the memory. When it is reached everything is forgotten, and
// something may be said twice.
const maxNotedPods = 1000

type noted struct {
	sync.Mutex
	pods map[types.UID]sets.String
}

// first reports whether this is the first call with these arguments.
func (n *noted) first(podUID types.UID, what string) bool {
	n.Lock()
	defer n.Unlock()
	if n.pods[podUID].Has(what) {
		return false
	}
	if n.pods == nil || len(n.pods) >= maxNotedPods && n.pods[podUID] == nil {
		n.pods = map[types.UID]sets.String{}
	}
	if n.pods[podUID] == nil {
		n.pods[podUID] = sets.String{}
	}
	n.pods[podUID].Insert(what)
	return true
}

// forget forgets what was noted of a container.
func (n *noted) forget(podUID types.UID, containerID string) {
	n.Lock()
	defer n.Unlock()
	for what := range n.pods[podUID] {
		if strings.HasSuffix(what, " "+containerID) {
			delete(n.pods[podUID], what)
		}
	}
	if len(n.pods[podUID]) == 0 {
		delete(n.pods, podUID)
	}
}
