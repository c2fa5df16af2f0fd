// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"holdfast/cmd/internal/finding"
)

// staticPod is why a static pod's containers are new.
const staticPod = "static pod"

// restarts: the target gives the static pod another UID, or may do so. Holdfast keeps that of a 1.7
// or 1.8 kubelet, see patches/static-pod-identity.
func restarts(p *pod, a *answers, to target) bool {
	if !p.static() || p.ownUID() || p.ended() {
		return false
	}
	if a.kubelet.minor == to.minor {
		return !to.holdfast && legacyUIDs(a)
	}
	return !(to.holdfast && tellsStatic(a.kubelet) && gate(a.line, "StaticPodIdentity"))
}

// legacyUIDs: static pods of this Holdfast may have UIDs of the 1.7 or 1.8 kubelet before it.
func legacyUIDs(a *answers) bool {
	if !a.kubelet.holdfast || a.before == nil {
		return false
	}
	before, ok := release(a.before.Release)
	return ok && tellsStatic(before.version) && gate(a.line, "StaticPodIdentity")
}

// tellsStatic: Holdfast can tell the UIDs that the release gives static pods.
func tellsStatic(v version) bool { return v.minor == 7 || v.minor == 8 }

// pod answers for the containers of a pod.
func (c *checker) pod(f *forecast, a *answers, to target, p *pod) {
	object := f.node + ": " + p.name()
	estimate := a.seen == nil
	if restarts(p, a, to) {
		what, remedy, said := "static pod restarts: ", "", isNew
		if a.kubelet.holdfast && (tellsStatic(to.version) || a.kubelet.minor == to.minor) {
			// It may be the target's: a pod that the target started, or Holdfast for it.
			what, said = fmt.Sprintf("static pod restarts, unless its UID is that of 1.%d: ", to.minor), unknown
		}
		for _, s := range p.Spec.Containers {
			if n := text(s, "name"); strings.Contains(n, "etcd") || strings.Contains(n, "apiserver") {
				what, remedy = fmt.Sprintf("%sit is %s, and ", what, n), "swap one master at a time, and wait until it serves requests"
			}
		}
		f.add("HF203", object, what+"its UID is computed from the release's own types", remedy)
		f.unready[p.Metadata.UID] = 0
		for _, s := range p.Spec.Containers {
			f.rows = append(f.rows, row{Version: finding.Version, Kind: "container", Node: f.node, UID: p.uid(), Pod: p.name(), Container: text(s, "name"),
				Answer: said, Why: staticPod, ID: a.seen[key{p.uid(), text(s, "name")}].id})
		}
		return
	}
	longest, bounded, unready := time.Duration(0), true, false
	for _, s := range p.Spec.Containers {
		name := text(s, "name")
		image, running := p.running(name)
		r := row{Version: finding.Version, Kind: "container", Node: f.node, UID: p.uid(), Pod: p.name(), Container: name, Estimate: estimate}
		var recorded *uint32
		hashes := c.judge.try(s)
		if estimate {
			if !running && !p.static() {
				continue
			}
			if h, ok := hashes.records(a.kubelet, 0, true); ok && !a.kubelet.holdfast {
				recorded = &h
			}
		} else {
			got, ok := a.seen[key{p.uid(), name}]
			if !ok && !running {
				continue
			}
			recorded, r.ID = got.hash, got.id
		}
		said := answer{is: unknown, why: "the node did not return its hash"}
		if recorded != nil {
			said = hashes.ask(to, *recorded, gate(a.line, "ContainerHashCompat"))
			if said.by == "" && !estimate {
				said.why = c.image(s, image, *recorded, said.why)
			}
		} else if a.kubelet.holdfast {
			said.why = "the node did not return its hash, and Holdfast records the hashes of several releases"
		}
		if said.is == kept && !p.whole && a.kubelet.minor < to.minor {
			said.is, said.why = unknown, fmt.Sprintf("the API server did not return its spec, and a 1.%d kubelet leaves out fields that it does not support", a.kubelet.minor)
		}
		r.Answer, r.Why, r.RecordedBy = said.is, said.why, said.by
		note := ""
		if estimate {
			note = " (estimate: the node returned no hashes)"
		}
		subject := object + " " + name
		probe := readiness(s)
		switch said.is {
		case isNew:
			code, when := "HF201", "container is recreated: "
			if to.back {
				code, when = "HF202", "container is recreated when you go back: "
			}
			f.add(code, subject, when+said.why+note, "")
			unready, bounded = true, false
		case unknown:
			f.add("HF207", subject, "it is not known whether this container is kept: "+said.why+note, "")
		}
		// A kubelet that starts anew has no probe result, see patches/readiness-across-restart.
		if probe != nil && !(to.holdfast && gate(a.line, "ReadinessAcrossRestart")) {
			unready, longest = true, max(longest, firstProbe(probe))
		}
		c.wayBack(f, a, to, hashes, recorded, &r, subject, note)
		f.rows = append(f.rows, r)
	}
	if unready {
		if !bounded {
			longest = 0
		}
		f.unready[p.Metadata.UID] = longest
	}
}

// image explains a hash that no release records by the image that runs.
func (c *checker) image(spec map[string]any, runs string, recorded uint32, why string) string {
	now := text(spec, "image")
	if runs == "" || runs == now {
		return why
	}
	before := maps.Clone(spec)
	before["image"] = runs
	if by := c.judge.try(before).by(recorded); by != "" {
		return fmt.Sprintf("the image was %s and is now %s", runs, now)
	}
	return why
}

// wayBack looks further where the target is Holdfast: to the kubelet that runs now.
func (c *checker) wayBack(f *forecast, a *answers, to target, hashes tried, recorded *uint32, r *row, object, note string) {
	if !to.holdfast || a.kubelet.holdfast || a.kubelet.minor > 9 {
		return
	}
	switch r.Answer {
	case unknown:
		r.Back = unknown
		return
	case isNew:
		h, ok := hashes.records(to.version, a.kubelet.minor, gate(a.line, "LegacyContainerHashWrite") && gate(a.line, "ContainerHashCompat"))
		if !ok {
			r.Back = unknown
			return
		}
		recorded = &h
	}
	back := hashes.ask(target{version: a.kubelet}, *recorded, false)
	r.Back = back.is
	if back.is == isNew {
		f.add("HF202", object, fmt.Sprintf("container is recreated if you later go back to %s: %s%s", a.kubelet, back.why, note), "")
	}
}
