// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeletflags"
)

// row is what becomes of one container, as -o json has it.
type row struct {
	Version   int    `json:"version"`
	Kind      string `json:"kind"` // "container"
	Node      string `json:"node"`
	UID       string `json:"uid"` // of the pod
	Pod       string `json:"pod"` // NAMESPACE/NAME
	Container string `json:"container"`
	// Answer is kept, new or ?; new also if the kubelet fails the pod. Why is for new and ?. Back is
	// the same for a later way back to the kubelet that runs now, where the target is Holdfast.
	Answer string `json:"answer"`
	Why    string `json:"why,omitempty"`
	Back   string `json:"back,omitempty"`
	// RecordedBy is the release that recorded its hash, if that is known.
	RecordedBy string `json:"recordedBy,omitempty"`
	// ID is docker's of the container that runs, for verify.
	ID string `json:"containerID,omitempty"`
	// Estimate: the node did not tell the hash; it is taken to be that of the kubelet that runs.
	Estimate bool `json:"estimate,omitempty"`
}

// forecast is what is told of one node.
type forecast struct {
	node, kubelet, to string
	pods              int
	rows              []row
	findings          []finding.Finding
	// unready are the pods that are not ready for some time, by UID: how long at most, or 0 where
	// nothing bounds it.
	unready map[string]time.Duration
	claims  []claim
}

func (f *forecast) count(is string) (n int) {
	for _, r := range f.rows {
		if r.Answer == is {
			n++
		}
	}
	return n
}

func (f *forecast) add(code, object, text, remedy string) *finding.Finding {
	f.findings = append(f.findings, finding.Of(code, object, text, remedy))
	return &f.findings[len(f.findings)-1]
}

func (f *forecast) at(level finding.Level, code, object, text, remedy string) {
	x := f.add(code, object, text, remedy)
	*x = x.At(level)
}

// checker is one run.
type checker struct {
	judge *judge
	table *kubeletflags.Table
	to    *target // nil: back
	// server is the API server's release.
	server      version
	serverKnown bool
}

// gate is what a feature gate of Holdfast that is on by default is set to.
func gate(l *kubeletflags.Line, name string) bool {
	if l == nil {
		return true
	}
	set, ok := l.Gates()[name]
	return !ok || set
}

// targetOf is the kubelet that a node would get, or an error that says why that is not known.
func (c *checker) targetOf(a *answers) (target, error) {
	if c.to != nil {
		return *c.to, nil
	}
	switch {
	case !a.kubelet.holdfast:
		return target{}, errors.New("it does not run Holdfast, so there is nothing to go back to")
	case a.before == nil:
		return target{}, errors.New("its kubelet does not report which kubelet ran before it")
	}
	t, ok := release(a.before.Release)
	if !ok {
		return target{}, fmt.Errorf("Holdfast replaced no kubelet (%s): give --to 1.7, 1.8 or 1.9", a.before.Source)
	}
	t.back = true
	return t, nil
}

// check makes the forecast of a node.
func (c *checker) check(a *answers) *forecast {
	name := a.node.Metadata.Name
	f := &forecast{node: name, kubelet: a.node.Status.NodeInfo.KubeletVersion, to: "?", unready: map[string]time.Duration{}}
	for _, m := range a.missing {
		f.add("HF002", name, "could not read "+m, "run the command again, or as another user; there may be faults that are not shown here")
	}
	if !a.known {
		f.add("HF002", name, "its kubelet's version is not a Kubernetes version", "")
		return f
	}
	to, err := c.targetOf(a)
	if err != nil {
		f.add("HF003", name, err.Error(), "")
		return f
	}
	f.to = to.String()
	c.commandLine(f, a, to)
	c.skew(f, a, to)
	allFail := c.pressure(f, a, to)
	for _, p := range a.pods {
		if p.ended() {
			continue
		}
		f.pods++
		first := len(f.rows)
		c.pod(f, a, to, p)
		if misfit := c.labels(f, a, to, p); misfit || allFail {
			f.fail(p, f.rows[first:])
		}
		c.subPaths(f, a, to, p)
		c.volumes(f, a, to, p)
	}
	return f
}

func (c *checker) commandLine(f *forecast, a *answers, to target) {
	if a.line == nil {
		return
	}
	if to.row == "" {
		f.add("HF003", f.node, fmt.Sprintf("the flags of %s are not known", to), "")
		return
	}
	if refused := c.table.Refused(to.row, a.line); len(refused) > 0 {
		f.add("HF101", f.node, fmt.Sprintf("%s refuses %s%s", to, strings.Join(kubeletflags.Plain(refused), ", "), to.as()), "remove it from the unit before the swap")
	}
	if a.line.Standalone(to.minor) && !a.line.Standalone(a.kubelet.minor) {
		remedy := "add --kubeconfig=FILE --require-kubeconfig=true to the unit"
		f.add("HF102", f.node, fmt.Sprintf("%s would run standalone with these flags, without those that it refuses, and kill every pod", to), remedy)
	}
}

func (c *checker) skew(f *forecast, a *answers, to target) {
	if !c.serverKnown {
		return
	}
	server := fmt.Sprintf("1.%d", c.server.minor)
	switch {
	case to.minor > c.server.minor:
		f.add("HF103", f.node, fmt.Sprintf("a kubelet of 1.%d is newer than the API server, %s", to.minor, server), "upgrade the control plane first")
	case to.minor < c.server.minor-2:
		f.add("HF103", f.node, fmt.Sprintf("a kubelet of 1.%d is more than two minor releases older than the API server, %s", to.minor, server), "upstream supports two")
	}
}

// deletes: see kubeletflags.DeletesSubPaths.
func (v version) deletes() bool {
	return !v.holdfast && kubeletflags.DeletesSubPaths(v.minor, v.patch)
}

// otherFolders: a kubelet of this release gives the folders of subPaths on a claim other names
// (kubernetes/kubernetes#61373).
func (v version) otherFolders() bool {
	return !v.holdfast && (v.between(7, 14, 15) || v.between(8, 9, 10) || v.between(9, 4, 6))
}

func (c *checker) subPaths(f *forecast, a *answers, to target, p *pod) {
	mounts := p.subPaths()
	if len(mounts) == 0 {
		return
	}
	object := f.node + ": " + p.name()
	if a.kubelet.otherFolders() && !to.otherFolders() {
		for _, m := range mounts {
			if p.onClaim(m.volume) {
				f.add("HF204", object, fmt.Sprintf("container %s mounts a subPath of a claim whose directory %s named differently: through a mount that is left over, the volume's data can be deleted", m.container, a.kubelet), "drain the pod from the node first")
				break
			}
		}
	}
	if !to.deletes() || a.kubelet.deletes() {
		return
	}
	text := fmt.Sprintf("it mounts a subPath, and %s deletes the files in such mounts when the pod is deleted", to)
	if a.kubelet.holdfast && gate(a.line, "SubpathUnbindAfterStart") {
		f.at(finding.Warn, "HF205", object, text+"; Holdfast has unmounted all mounts except busy ones", "go back with node back: it unmounts what is left, and refuses if it cannot")
		return
	}
	f.add("HF205", object, text, "drain the pod, or go back with node back, which unmounts these mounts while no kubelet runs")
}

// claim is a volume of a pod whose kind its PersistentVolume tells.
type claim struct {
	name, pod string
	kubelet   version
	to        target
}

// harmed tells whether a volume is one that another kubelet, or the stop of this one, can harm.
func (f *forecast) harmed(s source, pod string, kubelet version, to target) {
	object := f.node + ": " + pod
	if s.RBD != nil && kubelet.minor <= 8 && to.minor >= 9 {
		remedy := "replace all kubelets up to 1.8 before the pod moves"
		if to.holdfast {
			remedy = "set --feature-gates=RBDLegacyLock=true after the swap, until the last old kubelet is gone"
		}
		f.add("HF302", object, "it has an RBD volume, and a kubelet up to 1.8 mounts an image that a 1.9 node has mounted", remedy)
	}
	if s.Glusterfs != nil && kubelet.minor <= 7 || s.FlexVolume != nil {
		kind := "GlusterFS"
		if s.FlexVolume != nil {
			kind = "FlexVolume"
		}
		f.add("HF302", object, fmt.Sprintf("it has a %s volume, whose daemon may be in the kubelet's unit and then ends with the kubelet", kind), "node check looks for the daemon; drain the pod, or first give the unit KillMode=process")
	}
}

// withClaims adds what the PersistentVolumes tell of the claims.
func withClaims(forecasts []*forecast, all []persistentVolume) {
	kinds := map[string]source{}
	for _, v := range all {
		if r := v.Spec.ClaimRef; r != nil {
			kinds[r.Namespace+"/"+r.Name] = v.Spec.source
		}
	}
	for _, f := range forecasts {
		for _, c := range f.claims {
			f.harmed(kinds[c.name], c.pod, c.kubelet, c.to)
		}
	}
}

func (c *checker) volumes(f *forecast, a *answers, to target, p *pod) {
	if to.holdfast && !a.kubelet.holdfast && gate(a.line, "GitRepoVolumeHardening") {
		for _, v := range p.Spec.Volumes {
			if g := v.GitRepo; g != nil {
				if field := refusedGitRepo(g.Repository, g.Revision, g.Directory); field != "" {
					f.add("HF301", f.node+": "+p.name(), fmt.Sprintf("Holdfast refuses the %s of its gitRepo volume: the pod keeps running, but a new pod like it does not start", field), "change it, or set --feature-gates=GitRepoVolumeHardening=false")
					break
				}
			}
		}
	}
	for _, v := range p.Spec.Volumes {
		if v.Claim != nil {
			f.claims = append(f.claims, claim{p.Metadata.Namespace + "/" + v.Claim.ClaimName, p.name(), a.kubelet, to})
		} else {
			f.harmed(v.source, p.name(), a.kubelet, to)
		}
	}
	// A checkpoint of 1.7 is removed by stock 1.8 and 1.9, with the host ports in it.
	if to.holdfast || a.kubelet.minor > 7 || to.minor <= 7 || p.Spec.HostNetwork {
		return
	}
	for _, s := range p.Spec.Containers {
		ports, _ := s["ports"].([]any)
		for _, port := range ports {
			if port, _ := port.(map[string]any); number(port, "hostPort", 0) > 0 {
				f.add("HF301", f.node+": "+p.name(), fmt.Sprintf("%s removes its checkpoint, which 1.%d wrote: with kubenet or CNI its host ports are not released when the pod is deleted", to, a.kubelet.minor), "")
				return
			}
		}
	}
}
