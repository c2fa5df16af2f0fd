// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/cmd/internal/finding"
)

// sign is what may be a finding: it is one if it is there in two looks.
type sign struct {
	code, object string
	// text is followed by the items of all signs with the same code, object and text; "" is none.
	text, item, remedy string
	// id is the sign's in both looks.
	id string
	// stuck is the Deployment's UID, if it is one of HF611.
	stuck string
}

// gone is how long a node, a pod or a lease must have been so.
const gone = time.Minute

// signs are all that c has, and the kinds that they come from.
func (c *cluster) signs() []sign {
	return slices.Concat(c.endpointsSigns(), c.workloadSigns(), c.revisionSigns(), c.deadNodeSigns(), c.leaseSigns())
}

// needs are the kinds that a code's signs come from.
var needs = map[string][]string{
	"HF604": {"services", "pods", "endpoints"},
	"HF611": {"deployments", "replicasets", "daemonsets", "controllerrevisions"},
	"HF613": {"daemonsets", "controllerrevisions"},
	"HF614": {"statefulsets", "controllerrevisions"},
	"HF615": {"nodes", "pods", "endpoints"},
}

// selects tells whether the Service selects the pod.
func (s *service) selects(p *pod) bool {
	for k, v := range s.selector {
		if w, ok := p.labels[k]; !ok || w != v {
			return false
		}
	}
	return true
}

// reaches tells whether the pod has one of the Service's ports: without one, the endpoints
// controller leaves it out (pkg/controller/endpoint, syncService).
func (s *service) reaches(p *pod) bool {
	if len(s.ports) == 0 {
		return s.headless
	}
	for _, x := range s.ports {
		if x.name == "" || slices.Contains(p.ports, x.name+"/"+x.protocol) {
			return true
		}
	}
	return false
}

const endpointsRemedy = "change a label or annotation of the Service, and check the leading controller manager"

// endpointsSigns are of Endpoints that are not what the pods are.
func (c *cluster) endpointsSigns() []sign {
	if c.lacks(needs["HF604"]...) != "" {
		return nil
	}
	var out []sign
	for i := range c.services {
		s := &c.services[i]
		e := c.endpoints[s.id]
		if e.rules {
			continue
		}
		ips, uids := map[string]bool{}, map[string]bool{}
		for _, a := range e.ready {
			ips[a.ip] = true
		}
		for j := range c.pods[s.namespace] {
			p := &c.pods[s.namespace][j]
			if p.ip == "" || !s.selects(p) {
				continue
			}
			if p.ready {
				uids[p.uid] = true
			}
			if p.ready && !p.deleting && !ips[p.ip] && s.reaches(p) {
				out = append(out, sign{"HF604", "service " + s.id, "ready pods are not among its ready addresses", p.name, endpointsRemedy, "off " + s.id + " " + p.uid, ""})
			}
		}
		if s.unready {
			continue
		}
		for _, a := range e.ready {
			if a.uid != "" && !uids[a.uid] {
				out = append(out, sign{"HF604", "service " + s.id, "it has ready addresses whose pods are gone or not ready", a.pod, endpointsRemedy, "on " + s.id + " " + a.uid, ""})
			}
		}
	}
	return out
}

// by says who controls an object.
func (o owner) by() string {
	if o.UID == "" {
		return "nobody controls"
	}
	return fmt.Sprintf("%s %s controls", strings.ToLower(o.Kind), o.Name)
}

func byName(all []workload) map[string]*workload {
	out := map[string]*workload{}
	for i := range all {
		out[all[i].namespace+"/"+all[i].name] = &all[i]
	}
	return out
}

// templates are which owners have which templates among all.
func templates(all []workload) map[string]bool {
	out := map[string]bool{}
	for _, w := range all {
		if w.owner.UID != "" {
			out[w.owner.UID+string(w.template[:])] = true
		}
	}
	return out
}

// workloadSigns are of Deployments without a ReplicaSet of their own with their template.
func (c *cluster) workloadSigns() []sign {
	if c.lacks("deployments", "replicasets") != "" {
		return nil
	}
	var out []sign
	have, named := templates(c.replicaSets), byName(c.replicaSets)
	if c.server.minor < 6 {
		// ReplicaSets have no owner yet: one of that template in the namespace will do.
		for _, rs := range c.replicaSets {
			have[rs.namespace+string(rs.template[:])] = true
		}
	}
	for _, d := range c.deployments {
		if !d.seen || d.deleting || have[d.uid+string(d.template[:])] || have[d.namespace+string(d.template[:])] {
			continue
		}
		text := "the controller has seen its spec, but it has no ReplicaSet of its own with its template"
		remedy := "check its events and the log of the leading controller manager"
		if rs := named[d.namespace+"/"+d.wants]; rs != nil {
			remedy = fmt.Sprintf("delete replicaset %s if nobody needs it, or run Holdfast's controller manager", rs.name)
			switch {
			case rs.template != d.template:
				text += fmt.Sprintf("; the name of its next ReplicaSet, %s, is taken by another template", rs.name)
			case rs.deleting:
				text += fmt.Sprintf("; %s, which has this template, is being deleted", rs.name)
			default:
				text = fmt.Sprintf("it uses replicaset %s, which %s", rs.name, rs.owner.by())
			}
		}
		out = append(out, sign{"HF611", "deployment " + d.namespace + "/" + d.name, text, "", remedy, "rs " + d.uid + string(d.template[:]), d.uid})
	}
	return out
}

// hashes tells whether revisions of this release have names with a hash that this program knows.
func (c *cluster) hashes() bool { return c.server.minor >= 7 && c.server.minor <= 9 }

// revisionSigns are of DaemonSets whose next revision has a name that is taken.
func (c *cluster) revisionSigns() []sign {
	if !c.hashes() || c.lacks(needs["HF613"]...) != "" {
		return nil
	}
	var out []sign
	have, named := templates(c.revisions), byName(c.revisions)
	for _, d := range c.daemonSets {
		r := named[d.namespace+"/"+d.wants]
		if d.deleting || r == nil || have[d.uid+string(d.template[:])] {
			continue
		}
		id := d.uid + string(d.template[:])
		object := "daemonset " + d.namespace + "/" + d.name
		if r.template != d.template {
			out = append(out, sign{"HF613", object, fmt.Sprintf("the name of its next revision, %s, is taken by another template: its next sync crashes a stock controller manager", r.name), "",
				"start Holdfast's controller manager, or add an annotation to its template", "cr " + id, ""})
		} else if d.seen && r.owner.UID != "" && !r.deleting {
			out = append(out, sign{"HF611", object, fmt.Sprintf("it uses controllerrevision %s, which %s", r.name, r.owner.by()), "",
				"run Holdfast's controller manager", "cr " + id, ""})
		}
	}
	return out
}

// deadNodeSigns are of pods that are Ready on a node that is gone.
func (c *cluster) deadNodeSigns() []sign {
	if c.lacks("nodes", "pods") != "" {
		return nil
	}
	state := map[string]string{}
	for _, n := range c.nodes {
		state[n.name] = ""
		if n.ready == "Unknown" && c.now.Sub(n.since) > gone {
			state[n.name] = "the node is Unknown"
		}
	}
	var out []sign
	for _, pods := range c.pods {
		for _, p := range pods {
			what, there := state[p.node]
			if !there {
				what = "there is no such node"
			}
			if p.node == "" || what == "" || !p.ready || c.now.Sub(p.since) <= gone {
				continue
			}
			out = append(out, sign{"HF615", "node " + p.node, what + ", but pods on it are Ready", p.name,
				"delete the pods if the machine is off, and check the leading controller manager", "pod " + p.node + " " + p.uid, ""})
		}
	}
	return out
}

// leaseSigns are of leaders that do not renew.
func (c *cluster) leaseSigns() []sign {
	var out []sign
	for _, l := range c.leases {
		if age := c.now.Sub(l.renewed); age > gone {
			out = append(out, sign{"HF615", l.component, fmt.Sprintf("its leader, %.100q, has not renewed its lease since %s", l.holder, l.renewed.UTC().Format(time.RFC3339)), "",
				"check the process that holds the lease; until the lease is renewed, this component does nothing", "lease " + l.component + l.renewed.String(), ""})
		}
	}
	return out
}

// statefulSets are the sets that a stock controller manager may roll: no second look changes that.
func (c *cluster) statefulSets() []finding.Finding {
	if c.lacks(needs["HF614"]...) != "" {
		return nil
	}
	numbers, double := map[string]bool{}, map[string]bool{}
	for _, r := range c.revisions {
		if r.owner.Kind != "StatefulSet" {
			continue
		}
		id := fmt.Sprintf("%s %d", r.owner.UID, r.revision)
		if numbers[id] {
			double[r.owner.UID] = true
		}
		numbers[id] = true
	}
	var out []finding.Finding
	for _, s := range c.sets {
		text := ""
		switch {
		case !s.rolls:
		case double[s.uid]:
			text = "it has two revisions with the same number: a stock controller manager rolls it back and forth"
		case s.collisions > 0:
			text = "its collisionCount is not 0: a stock controller manager that takes over may replace all its pods"
		}
		if text != "" {
			out = append(out, finding.Of("HF614", "statefulset "+s.namespace+"/"+s.name, text, "set its partition to the value of replicas before a stock controller manager takes over"))
		}
	}
	return out
}

// maxItems is how many names one text has.
const maxItems = 3

// findings are signs as findings: those with the same text in one.
func findings(signs []sign) []finding.Finding {
	type group struct{ code, object, text, remedy string }
	var order []group
	items := map[group][]string{}
	for _, s := range signs {
		g := group{s.code, s.object, s.text, s.remedy}
		if items[g] == nil {
			order = append(order, g)
		}
		items[g] = append(items[g], s.item)
	}
	var out []finding.Finding
	for _, g := range order {
		names := items[g]
		slices.Sort(names)
		text := g.text
		if names[0] != "" {
			text += ": " + some(names, maxItems)
		}
		out = append(out, finding.Of(g.code, g.object, text, g.remedy))
	}
	return out
}

// some are the first names of a list, and how many more there are.
func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
