// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"time"
)

// MaxElapsed is the longest duration that elapsed takes.
const MaxElapsed = 7 * 24 * time.Hour

// Moment is a point in time that elapsed measures from; never, if zero. It has
// no arithmetic, so that the program knows each time at which an answer changes.
type Moment struct{ t time.Time }

// At makes a Moment.
func At(t time.Time) Moment { return Moment{t} }

// Meta is the part of an object's metadata that rules see. A label or annotation
// that is not there reads as "".
type Meta struct {
	Name        string            `expr:"name"`
	Namespace   string            `expr:"namespace"`
	Labels      map[string]string `expr:"labels"`
	Annotations map[string]string `expr:"annotations"`
	Created     Moment            `expr:"created"`
}

// Address is the address that is judged.
type Address struct {
	IP       string `expr:"ip"`
	Hostname string `expr:"hostname"`
	NodeName string `expr:"nodeName"`
	// Ready is where the endpoints controller has it: the pod's Ready condition.
	Ready bool `expr:"ready"`
}

// Container is one of a pod's containers.
type Container struct {
	Name     string `expr:"name"`
	Image    string `expr:"image"`
	Ready    bool   `expr:"ready"`
	Running  bool   `expr:"running"`
	Started  Moment `expr:"started"`
	Restarts int    `expr:"restarts"`
	// ImagePending: its ID has not changed since its image in the spec did.
	ImagePending bool `expr:"imagePending"`
}

// Pod is the pod behind the address. Addresses without one are never judged.
type Pod struct {
	Meta
	IP          string `expr:"ip"`
	NodeName    string `expr:"nodeName"`
	Phase       string `expr:"phase"`
	HostNetwork bool   `expr:"hostNetwork"`
	Deleting    bool   `expr:"deleting"`
	// Ready is the Ready condition, ReadySince its last transition, to either side.
	Ready      bool   `expr:"ready"`
	ReadySince Moment `expr:"readySince"`
	// ImagePending: one of its containers is; ImageChanged is since when.
	ImagePending bool        `expr:"imagePending"`
	ImageChanged Moment      `expr:"imageChanged"`
	Owner        Owner       `expr:"owner"`
	Containers   []Container `expr:"containers"`
}

// Owner is the controller of a pod; empty for none.
type Owner struct {
	Kind string `expr:"kind"`
	Name string `expr:"name"`
}

// Service is the Service of the Endpoints.
type Service struct {
	Meta
	Type     string `expr:"type"`
	Headless bool   `expr:"headless"`
}

// Node is the pod's node. Known is false, and the rest empty, where the program
// has not seen it.
type Node struct {
	Meta
	Known         bool   `expr:"known"`
	Ready         bool   `expr:"ready"`
	ReadySince    Moment `expr:"readySince"`
	Unschedulable bool   `expr:"unschedulable"`
}

// Env is what a rule sees.
type Env struct {
	Endpoints Meta    `expr:"endpoints"`
	Address   Address `expr:"address"`
	Pod       Pod     `expr:"pod"`
	Service   Service `expr:"service"`
	Node      Node    `expr:"node"`
	Namespace Meta    `expr:"namespace"`

	// Elapsed: the duration has passed since the moment.
	Elapsed func(Moment, string) bool `expr:"elapsed"`
	// ContainersReady: every container named in a comma-separated list is there and ready.
	ContainersReady func(string) bool `expr:"containersReady"`
	// SplitNames takes a comma-separated list apart.
	SplitNames func(string) []string `expr:"splitNames"`

	now  time.Time
	wake time.Time // the next time at which an answer of Elapsed changes; zero for none
}

// prepare sets the functions and the clock.
func (e *Env) prepare(now time.Time) {
	e.now, e.wake = now, time.Time{}
	e.Elapsed = e.elapsed
	e.ContainersReady = e.containersReady
	e.SplitNames = splitNames
}

func (e *Env) elapsed(m Moment, duration string) bool {
	d, err := time.ParseDuration(duration)
	if err != nil || m.t.IsZero() {
		return false
	}
	at := m.t.Add(d)
	if !at.After(e.now) {
		return true
	}
	if e.wake.IsZero() || at.Before(e.wake) {
		e.wake = at
	}
	return false
}

func (e *Env) containersReady(names string) bool {
	for _, name := range splitNames(names) {
		found := false
		for i := range e.Pod.Containers {
			if c := &e.Pod.Containers[i]; c.Name == name {
				found = c.Ready
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// splitNames gives at most as many names as a pod can sensibly have containers.
func splitNames(names string) []string {
	if names == "" {
		return nil
	}
	out := strings.SplitN(names, ",", 64)
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}
