// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dropin compares what can be seen of two builds of a component from the
// outside, and judges the differences by the table of those that a
// fix is allowed. It runs nothing: who looks at a build, as package commandline does,
// writes facts.
package dropin

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/build/exit"
)

// Fact is one thing that was seen of a component.
type Fact struct {
	Kind      string `json:"kind"` // the name of one of Kinds
	Component string `json:"component"`
	// Name says of what, Value how it is; what differs between two runs of one build
	// (times, names that are made up, addresses) is replaced by words, see Normal.
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	// Count is how often, of a kind that is counted.
	Count int `json:"count,omitempty"`
}

// Run is what was seen of one build in one run.
type Run []Fact

// Kind is a way of looking.
type Kind struct {
	Name string
	Says string
	// Counted: how often it happens is compared too, within stock's own spread.
	Counted bool
	// Cluster: it is seen in a run of a cluster, not on the command line.
	Cluster bool
}

// The components that are compared.
const (
	Kubelet = "kubelet"
	Manager = "kube-controller-manager"
)

// Components are both.
var Components = []string{Manager, Kubelet}

// Kinds are all ways of looking.
var Kinds = []Kind{
	{Name: "flag", Says: "a flag of the FlagSet, hidden and deprecated ones too: type, default, texts"},
	{Name: "gate", Says: "a feature gate: default and stage"},
	{Name: "help", Says: "a flag as `--help` prints it"},
	{Name: "version", Says: "what `--version` prints"},
	{Name: "refusal", Says: "a wrong command line: exit status and first line"},
	{Name: "configz", Says: "a field of the configuration that `/configz` serves", Cluster: true},
	{Name: "metric", Says: "a metric: type, names of its labels, help", Cluster: true},
	{Name: "event", Says: "an event: type, reason, source, message", Cluster: true},
	{Name: "log", Says: "the form of a line of the log at `--v=2`", Cluster: true},
	{Name: "container", Says: "a label or setting of a container, as docker shows it", Cluster: true},
	{Name: "file", Says: "a file on the node: its place, mode and format", Cluster: true},
	{Name: "docker", Says: "a call on docker's socket", Cluster: true, Counted: true},
	{Name: "packet-filter", Says: "a line of `iptables-save`", Cluster: true},
	{Name: "cgroup", Says: "a control group and its limits", Cluster: true},
	{Name: "port", Says: "a port that is listened on", Cluster: true},
	{Name: "tls", Says: "versions and ciphers of TLS, offered and accepted", Cluster: true},
	{Name: "request", Says: "a request to the API: verb, path, status", Cluster: true, Counted: true},
	{Name: "body", Says: "a field of what is sent to the API", Cluster: true},
	{Name: "agent", Says: "a user agent, but for the version", Cluster: true},
}

// KindOf is the kind of that name, nil for none.
func KindOf(name string) *Kind {
	for i := range Kinds {
		if Kinds[i].Name == name {
			return &Kinds[i]
		}
	}
	return nil
}

// KindNames are those of the kinds that are seen in a cluster, or of the others.
func KindNames(cluster bool) []string {
	var out []string
	for _, k := range Kinds {
		if k.Cluster == cluster {
			out = append(out, k.Name)
		}
	}
	return out
}

// Check says what a run lacks: it must have facts of each of these kinds, of each
// component that has such, and none that is malformed.
func (r Run) Check(kinds []string, components []string) error {
	have := map[string]bool{}
	for _, f := range r {
		k := KindOf(f.Kind)
		switch {
		case k == nil:
			return fmt.Errorf("a fact of the kind %q, which is none", f.Kind)
		case !slices.Contains(Components, f.Component) || f.Name == "":
			return fmt.Errorf("a %s of component %q with the name %q", f.Kind, f.Component, f.Name)
		}
		have[f.Kind+" "+f.Component] = true
	}
	var missing []string
	for _, k := range kinds {
		for _, c := range components {
			if !have[k+" "+c] && !(c == Manager && slices.Contains(nodeOnly, k)) {
				missing = append(missing, k+" of "+c)
			}
		}
	}
	if len(missing) > 0 {
		return exit.Preconditionf("nothing was seen of: %s", strings.Join(missing, ", "))
	}
	return nil
}

// nodeOnly are kinds that a kubelet alone has.
var nodeOnly = []string{"container", "file", "docker", "packet-filter", "cgroup"}
