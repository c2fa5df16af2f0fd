// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcollisionv120

import (
	"fmt"
	"strings"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// rollout is a Deployment with its ReplicaSets, when it should have rolled out Image.
type rollout struct {
	Namespace, Deployment, Image string
	// Template is the image that the Deployment has.
	Template, Revision       string
	Generation, Observed     int64
	Want, Updated, Available int64
	Sets                     []replicaSet
}

type replicaSet struct {
	Name, UID, Image, Revision string
	Spec, Status               int64 // replicas
}

// done says in which of Sets the Deployment has finished with Image: its replicas are all
// in that one, and the status says so. If not, why says what there is.
func (r rollout) done() (at int, why string) {
	at = -1
	var have []string
	for i, s := range r.Sets {
		if s.Image == r.Image && s.Spec == r.Want && s.Status == r.Want {
			at = i
		} else if s.Spec == 0 && s.Status == 0 {
			continue
		}
		have = append(have, fmt.Sprintf("%s of %s has %d/%d replicas", s.Name, s.Image, s.Status, s.Spec))
	}
	if at < 0 || len(have) != 1 {
		return -1, fmt.Sprintf("%s/%s has not rolled out %s: %s", r.Namespace, r.Deployment, r.Image, strings.Join(have, ", "))
	}
	if r.Template != r.Image || r.Observed < r.Generation || r.Updated != r.Want || r.Available != r.Want || r.Revision != r.Sets[at].Revision {
		return -1, fmt.Sprintf("%s/%s has not rolled out %s: %s; its generation is %d, observed %d, %d updated, %d available, revision %q", r.Namespace, r.Deployment, r.Image,
			strings.Join(have, ", "), r.Generation, r.Observed, r.Updated, r.Available, r.Revision)
	}
	return at, ""
}

// secondRelease is that of the report's second image, after stuckAfter at most.
type secondRelease struct{ Rollout rollout }

// stillStuck is what there was when it had not rolled out: another Deployment, and then
// this one again.
type stillStuck struct{ Elsewhere, Still rollout }

// releasing are the tags of the Deployment web, in their order.
type releasing struct{ Tags []string }

// exposedOnes is what the page's command lists.
type exposedOnes struct{ Listed string }

// takenAgain is the rollout after the old ReplicaSet of that name was deleted: it must
// be in one of that name.
type takenAgain struct {
	Rollout rollout
	Name    string
}

// scaledTo is a Deployment of strategy Recreate, with the UIDs of its ReplicaSet, and how
// many of its pods were Kept.
type scaledTo struct {
	Name     string
	From, To int64
	Kept     int
	Was, Is  string
}

// kept has the census before another controller manager took over, and later.
type kept struct{ When, Before, Now string }

// Values of kept.When, and how often each is looked at.
const (
	whenStock    = "after the swap back to stock"
	whenOurs     = "Holdfast, or the controller manager under test, in place of stock"
	whenGateOff  = "gate off"
	whenFailover = "failover to stock"
)

// counted is how many Deployments got a new ReplicaSet.
type counted struct{ Anew, Deployments int }

// wantRollouts is how many judged rollouts each Deployment but web must have. Those of
// strategy Recreate are scaled in three states, collide twice in two rounds, and once or
// twice before.
var wantRollouts = map[string]int{"yce-test": 5, "switched": 3, "direct": 2 + 4*1 + 2*2, "older": 3 + 4*1 + 2*2, "undone": 3 + 4*1 + 2*2}

func judgeCollision(h *history.History) labkit.Outcome {
	second := history.One[secondRelease](h).Rollout
	if _, why := second.done(); why != "" {
		s := history.One[stillStuck](h)
		_, elsewhere := s.Elsewhere.done()
		_, still := s.Still.done()
		switch {
		case elsewhere != "":
			return labkit.InconclusiveBecause("the controller manager does nothing: %s", elsewhere)
		case still == "":
			return labkit.InconclusiveBecause("it rolled out late")
		case len(s.Still.Sets) != 1 || s.Still.Sets[0].Image == s.Still.Image:
			return labkit.InconclusiveBecause("not the incident: %s", why)
		}
		one := s.Still.Sets[0]
		return labkit.ReproducedBecause("%v after its release %s has only the ReplicaSet %s of %s; another Deployment rolls out", stuckAfter, reportName, one.Name, one.Image)
	}
	var wrong []string
	bad := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	rollouts, webs := map[string]int{}, []string{}
	for _, r := range history.Of[rollout](h) {
		if r.Deployment == "web" {
			webs = append(webs, strings.TrimPrefix(r.Image, "web:"))
		} else {
			rollouts[r.Deployment]++
		}
		if _, why := r.done(); why != "" {
			bad("%s", why)
		}
	}
	for _, o := range history.Of[exposedOnes](h) {
		// What else is listed has strategy RollingUpdate and collided last with what ran.
		if strings.Count(o.Listed, "Recreate ") != 1 || !strings.Contains(o.Listed, "Recreate recreate/switched\n") || !strings.Contains(o.Listed, "RollingUpdate yce/yce-test\n") {
			bad("the page's command lists %q, want switched as the only Deployment with strategy Recreate, and yce-test with RollingUpdate", o.Listed)
		}
	}
	for _, o := range history.Of[takenAgain](h) {
		if at, why := o.Rollout.done(); why != "" || o.Rollout.Sets[at].Name != o.Name {
			bad("stock did not create %s for the release: %s", o.Name, why)
		}
	}
	for _, s := range history.Of[scaledTo](h) {
		if s.Was != s.Is || int64(s.Kept) != min(s.From, s.To) {
			bad("scaling %s from %d to %d kept %d of its pods; its ReplicaSet was %s and is %s", s.Name, s.From, s.To, s.Kept, s.Was, s.Is)
		}
	}
	looks := keptFaults(h, bad)
	if len(wrong) > 0 {
		return labkit.ReproducedBecause("%s", strings.Join(wrong, "; "))
	}
	tags := history.One[releasing](h).Tags
	if fmt.Sprint(webs) != fmt.Sprint(append(append([]string{}, tags...), "next")) || len(tags) < 100 {
		return labkit.InconclusiveBecause("%d releases of web were recorded, and %d tags were released", len(webs), len(tags))
	}
	for d, want := range wantRollouts {
		if rollouts[d] != want {
			return labkit.InconclusiveBecause("%d rollouts of %s were recorded, want %d", rollouts[d], d, want)
		}
	}
	for when, want := range map[string]int{whenStock: 1, whenOurs: 1, whenGateOff: 1, whenFailover: 1} {
		if looks[when] != want {
			return labkit.InconclusiveBecause("%s was recorded %d times, want %d", when, looks[when], want)
		}
	}
	if n := len(history.Of[scaledTo](h)); n != 4*len(recreated) || len(history.Of[exposedOnes](h)) != 1 || len(history.Of[takenAgain](h)) != 1 {
		return labkit.InconclusiveBecause("%d Deployments were scaled, want %d; or the page's command or the taken name was not recorded", n, 4*len(recreated))
	}
	res := labkit.AbsentBecause("the report's second image and %d releases rolled out; the stock controller manager took over without a change, also with strategy Recreate, by swap and by failover, and so did Holdfast with the gate off", len(tags))
	res.Facts = []string{fmt.Sprintf("%d releases, %d of which collide", len(tags), len(Collisions(tags)))}
	return res
}

// keptFaults says what changed when another controller manager took over, and counts how
// often was looked.
func keptFaults(h *history.History, bad func(string, ...any)) map[string]int {
	looks := map[string]int{}
	for _, k := range history.Of[kept](h) {
		if k.Before != "" {
			looks[k.When]++
		}
		if k.Before != k.Now {
			bad("%s: %s", k.When, difference(k.Before, k.Now))
		}
	}
	return looks
}

func judgeIdentity(h *history.History) labkit.Outcome {
	var wrong []string
	looks := keptFaults(h, func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) })
	n := history.One[counted](h)
	switch {
	case (n.Deployments < deployments || looks[whenOurs] != 1) && (len(wrong) == 0 || h.Variant == string(naive)):
		// What was lost with ours counts, however little was looked at.
		return labkit.InconclusiveBecause("%d Deployments and %d censuses were recorded", n.Deployments, looks[whenOurs])
	case len(wrong) > 0 && n.Anew > 0:
		return labkit.ReproducedBecause("%d of %d Deployments got a new ReplicaSet", n.Anew, n.Deployments)
	case len(wrong) > 0:
		return labkit.ReproducedBecause("no Deployment got a new ReplicaSet, but: %s", strings.Join(wrong, "; "))
	case h.Variant != string(naive) && looks[whenStock] != 1:
		return labkit.InconclusiveBecause("no census was recorded after the swap back to stock")
	}
	return labkit.AbsentBecause("%d new ReplicaSets for %d Deployments", n.Anew, n.Deployments)
}
