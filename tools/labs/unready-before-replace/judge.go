// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package unreadybeforereplace

import (
	"fmt"
	"slices"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/load"
)

// round is what became of one change of all images.
type round struct {
	Drain     string // the annotation's value, "" if there is none
	Began     time.Time
	Pods      []replaced
	Endpoints []version // since Began, when all pods were in them
	Requests  load.Report
}

// replaced is a pod, with its container when the images were changed.
type replaced struct {
	Name, Was string
	Killed    time.Time // zero if docker's stream has no kill of Was
	Events    []podEvent
}

// podEvent is a pod as a watcher saw it.
type podEvent struct {
	At        time.Time
	Ready     bool
	Container string
}

// version is the Endpoints as a watcher saw them, with the pods of the ready addresses.
type version struct {
	At    time.Time
	Ready []string
}

// alone is a static pod that was changed while the API server did not answer. KilledAfter
// is 0 if it was not killed; TimeOuts is what the kubelet counted.
type alone struct {
	KilledAfter time.Duration
	Replaced    bool
	TimeOuts    float64
}

func (a alone) wrong() string {
	switch {
	case a.KilledAfter == 0:
		return "the container was not killed without the API server"
	case a.KilledAfter < 20*time.Second:
		return fmt.Sprintf("killed after %v: it did not wait for the API server", a.KilledAfter)
	case !a.Replaced:
		return "the static pod is not ready with a new container"
	case a.TimeOuts < 1:
		return "the metric has no timeout"
	}
	return ""
}

var oracle = labkit.Oracle{
	Text: []string{
		"K, for each container: docker reports no kill before the API publishes the pod as not ready, and the pod does not become ready again before its new container is ready; each address leaves Endpoints once and returns once",
		"stock: K must be broken for at least half of the containers, otherwise the trigger is missing; some requests to addresses in Endpoints must fail",
		"ours: with " + drainAnnotation + " " + drain + " no request to an address in Endpoints fails",
		"ours: no container is killed during its drain, each event that must end the drain ends it, and no pod is ready again before it is replaced; a stock kubelet replaces the containers that are waiting",
		"ours: the static pod is replaced, but not before 20 s",
		"ours, long profile: K, without Endpoints, also holds if the kubelet is killed at each moment, for the same image under another tag, and for the proxy to the API server",
	},
	Judge: judge,
}

// kResult is how many containers of a round broke K, the first rule of the oracle.
type kResult struct {
	broken  []string
	late    int           // of broken: not ready soon after the kill, as far as the watch told
	slowest time.Duration // from the change to the last "not ready" in the API
	unseen  string        // a pod whose kill docker's stream does not have
}

func (k kResult) String() string {
	return fmt.Sprintf("K broken for %d of %d; the last pod not ready in the API after %v", len(k.broken), pods, k.slowest.Round(10*time.Millisecond))
}

func (r round) checkK() kResult {
	var out kResult
	for _, p := range r.Pods {
		if p.Killed.IsZero() {
			out.unseen = p.Name
			continue
		}
		why, off := r.breaksK(p)
		if why != "" {
			out.broken = append(out.broken, why)
		}
		if off.IsZero() {
			continue
		}
		if after := off.Sub(p.Killed); after > lag && after <= busy {
			out.late++
		}
		out.slowest = max(out.slowest, off.Sub(r.Began))
	}
	return out
}

// lag is what a watch may be late: the kubelet kills some milliseconds after the API
// server's answer, and docker's event may be here before the watch's.
const lag = 300 * time.Millisecond

// busy is what it may be late on a busy machine. What is later than lag and not than busy
// proves nothing: without the patch it is seconds, or never.
const busy = 3 * time.Second

// breaksK says how one container of the round broke K, "" if it did not. off is when the API
// first had its pod not ready, zero if it never had, or had it ready again too early.
func (r round) breaksK(p replaced) (why string, off time.Time) {
	for _, ev := range p.Events {
		switch {
		case !ev.Ready && off.IsZero():
			off = ev.At
		case ev.Ready && !off.IsZero() && ev.Container == p.Was:
			return p.Name + " was ready again before its new container", time.Time{}
		}
	}
	switch {
	case off.IsZero():
		return p.Name + " was never published as not ready", off
	case off.After(p.Killed.Add(lag)):
		return fmt.Sprintf("%s was not ready %v after the kill", p.Name, off.Sub(p.Killed).Round(10*time.Millisecond)), off
	}
	left, came, was := 0, 0, true
	for _, v := range r.Endpoints {
		is := slices.Contains(v.Ready, p.Name)
		if was && !is {
			left++
		} else if !was && is {
			came++
		}
		was = is
	}
	if left != 1 || came != 1 {
		return fmt.Sprintf("the address of %s left Endpoints %d times and returned %d times", p.Name, left, came), off
	}
	return "", off
}

func judge(h *history.History) labkit.Outcome {
	var facts []string
	all, stock := history.Of[round](h), h.Variant == string(labkit.Stock)
	var plain, drained []round
	for _, r := range all {
		what := fmt.Sprintf("round %d", len(plain)+1)
		if r.Drain != "" {
			what = "with " + drainAnnotation + " " + r.Drain
			drained = append(drained, r)
		} else {
			plain = append(plain, r)
		}
		facts = append(facts, fmt.Sprintf("%s: %v; %v", what, r.checkK(), r.Requests))
	}
	for _, o := range history.Of[alone](h) {
		facts = append(facts, fmt.Sprintf("a static pod changed while the API server did not answer: killed after %v (it must wait at least 20 s for the API server)", o.KilledAfter.Round(100*time.Millisecond)))
	}
	res := verdict(h, stock, plain, drained)
	res.Facts = facts
	if n := len(plain); n > 0 {
		last := plain[n-1]
		res.Measure("containers killed while the API had them ready", float64(len(last.checkK().broken)), "")
		res.Measure("last pod not ready in the API after", last.checkK().slowest.Seconds(), "s")
		res.Measure("requests that failed", float64(last.Requests.Failed-last.Requests.NoTarget), "")
	}
	for _, r := range drained {
		res.Measure("requests that failed, with "+drainAnnotation+" "+r.Drain, float64(r.Requests.Failed-r.Requests.NoTarget), "")
	}
	for _, o := range history.Of[alone](h) {
		res.Measure("a static pod is killed without the API server after", o.KilledAfter.Seconds(), "s")
	}
	return res
}

func verdict(h *history.History, stock bool, plain, drained []round) labkit.Outcome {
	res, first := answer(h, stock, plain, drained), labkit.Outcome{}
	if stock || res.Verdict != labkit.Inconclusive {
		return res
	}
	// A round that cannot tell hides no other round's loss.
	for _, r := range append(slices.Clone(plain), drained...) {
		if k := r.checkK(); len(k.broken) > k.late {
			first = labkit.ReproducedBecause("containers were killed while the API showed them as ready; first: %s; %s", k.broken[0], res.Why)
			break
		}
	}
	if why := wrongCase(h); first.Verdict == "" && why != "" {
		first = labkit.ReproducedBecause("%s; %s", why, res.Why)
	}
	if first.Verdict != "" {
		return first
	}
	return res
}

// answer is the first that a round gives, in their order.
func answer(h *history.History, stock bool, plain, drained []round) labkit.Outcome {
	for _, r := range append(slices.Clone(plain), drained...) {
		k := r.checkK()
		switch {
		case k.unseen != "" || len(r.Pods) != pods:
			return labkit.InconclusiveBecause("%d of %d pods were changed; docker did not report the kill of the old container of pod %q", len(r.Pods), pods, k.unseen)
		case len(k.broken) == 0:
		case len(k.broken) == k.late:
			return labkit.InconclusiveBecause("the watch reported %d pods as not ready up to %v after the kill: the machine is too busy for a verdict; first: %s", k.late, busy, k.broken[0])
		case r.Drain != "":
			return labkit.ReproducedBecause("with drain-seconds: %s", k.broken[0])
		case stock && len(k.broken) < pods/2:
			return labkit.InconclusiveBecause("stock killed only %d of %d containers before they were not ready: the trigger was missing", len(k.broken), pods)
		case stock && r.Requests.Failed == r.Requests.NoTarget:
			return labkit.InconclusiveBecause("K was broken, but no request failed (%v): the load does not detect failures", r.Requests)
		default:
			return labkit.ReproducedBecause("%d of %d containers were killed while the API showed them as ready; %v; first: %s", len(k.broken), pods, r.Requests, k.broken[0])
		}
	}
	n := rounds(labkit.Profile(h.Profile))
	if len(plain) != n {
		return labkit.InconclusiveBecause("%d rounds, want %d", len(plain), n)
	}
	if stock {
		return labkit.AbsentBecause("none of %d containers was killed while the API showed it as ready", pods)
	}
	for _, r := range drained {
		switch failed := r.Requests.Failed - r.Requests.NoTarget; {
		case failed > r.Requests.TimedOut || r.Requests.OK == 0:
			return labkit.ReproducedBecause("with drain-seconds %s: %v", r.Drain, r.Requests)
		case failed > 0:
			return labkit.InconclusiveBecause("with drain-seconds %s: %v: the machine is too busy for a verdict", r.Drain, r.Requests)
		}
	}
	if why := wrongCase(h); why != "" {
		return labkit.ReproducedBecause("%s", why)
	}
	if len(drained) != 1 {
		return labkit.InconclusiveBecause("%d rounds with a drain, want 1", len(drained))
	}
	if why := missing(h, n); why != "" {
		return labkit.InconclusiveBecause("%s", why)
	}
	return labkit.AbsentBecause("%d containers were killed after the API showed them as not ready, which took at most %v; with drain-seconds %s %d requests, none failed",
		pods, plain[n-1].checkK().slowest.Round(10*time.Millisecond), drain, drained[0].Requests.OK)
}
