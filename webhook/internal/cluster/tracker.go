// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// guessed bounds what was guessed and not seen: a container taken for pending at
// start, or one that may have been started with an image in between.
const guessed = 2 * time.Minute

// tracker knows for each container the image that the running one was started
// with. status.image does not tell: dockershim reports the first tag of the image
// (pkg/kubelet/dockershim/docker_container.go of 1.9), so that of two tags of one
// image one would be pending for ever. So it watches: a container is pending while
// its ID is that from before its image in the spec changed.
type tracker struct {
	mu   sync.Mutex
	pods map[types.UID]*tracked
}

type tracked struct {
	rv         string
	containers map[string]*container
}

type container struct {
	id    string // the running one's; "" before the first
	image string // what it was started with
	// since are the spec's images since it was started, the newest last.
	since   []string
	changed time.Time // when the spec's image left image; zero while they are the same
	until   time.Time // a guess ends then; zero: it was seen
}

func newTracker() *tracker { return &tracker{pods: map[types.UID]*tracked{}} }

// older reports whether resourceVersion a is before b. They are numbers in every
// release since etcd 3; what is no number is no newer than anything.
func older(a, b string) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

// observe takes in a state of a pod; one that is older than the last is left
// out. held says that the pod's address is kept from the ready ones although the
// pod is ready: what another replica, or this program before it was restarted,
// did. It is asked only for pods that are seen for the first time.
func (t *tracker) observe(p *v1.Pod, now time.Time, held func() bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.pods[p.UID]
	first := s == nil
	if first {
		s = &tracked{containers: map[string]*container{}}
		t.pods[p.UID] = s
	} else if s.rv == p.ResourceVersion || older(p.ResourceVersion, s.rv) {
		return
	}
	s.rv = p.ResourceVersion
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		id, image := running(p, c.Name)
		k := s.containers[c.Name]
		if k == nil {
			k = &container{id: id, image: c.Image}
			s.containers[c.Name] = k
			if first && id != "" && normal(image) != normal(c.Image) && podReady(p) && held != nil && held() {
				k.image, k.until = image, now.Add(guessed)
			}
		}
		if n := len(k.since); n == 0 || k.since[n-1] != c.Image {
			k.since = append(k.since, c.Image)
		}
		if id != "" && id != k.id {
			k.started(id, image, c.Image, now)
		}
		switch {
		case k.image == c.Image:
			k.changed, k.until = time.Time{}, time.Time{}
		case k.changed.IsZero():
			k.changed = now
		}
		if len(k.since) > 8 {
			k.since = slices.Clone(k.since[len(k.since)-8:])
		}
	}
}

// started records a new container. It has the spec's image, unless that changed
// more than once since the last one and the runtime names another of these images.
func (k *container) started(id, reported, spec string, now time.Time) {
	was := k.image
	k.id, k.image, k.changed, k.until = id, spec, time.Time{}, time.Time{}
	for _, s := range k.since {
		if s != was && s != spec && normal(s) == normal(reported) && normal(spec) != normal(reported) {
			k.image, k.until = s, now.Add(guessed)
		}
	}
	k.since = []string{spec}
}

// running is a container's ID and the image that the runtime names.
func running(p *v1.Pod, name string) (id, image string) {
	for i := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[i]; s.Name == name {
			return s.ContainerID, s.Image
		}
	}
	return "", ""
}

// normal makes names of images comparable, as docker shortens them.
func normal(image string) string {
	image = strings.TrimPrefix(strings.TrimPrefix(image, "docker.io/"), "library/")
	if !strings.Contains(image[strings.LastIndexByte(image, '/')+1:], ":") && !strings.Contains(image, "@") {
		image += ":latest"
	}
	return image
}

// pending are the containers of p that are, with since when, and the time at
// which a guess ends (zero for none).
func (t *tracker) pending(p *v1.Pod, now time.Time) (map[string]time.Time, time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.pods[p.UID]
	if s == nil {
		return nil, time.Time{}
	}
	var out map[string]time.Time
	var until time.Time
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		k := s.containers[c.Name]
		if k == nil || k.id == "" || k.image == c.Image {
			continue
		}
		if id, _ := running(p, c.Name); id != k.id {
			continue
		}
		if !k.until.IsZero() {
			if !now.Before(k.until) {
				continue
			}
			if until.IsZero() || k.until.Before(until) {
				until = k.until
			}
		}
		if out == nil {
			out = map[string]time.Time{}
		}
		out[c.Name] = k.changed
	}
	return out, until
}

func (t *tracker) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}

func podReady(p *v1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
