// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenario reads files of objects, and what is to become of their
// addresses, for the commands test and explain.
package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"holdfast/webhook/internal/cluster"
	"holdfast/webhook/internal/exit"
	"holdfast/webhook/internal/rules"
	"holdfast/webhook/rulesets"
)

// File is a scenario.
type File struct {
	// Rules is a rules file, relative to this one; RuleSet one that comes with the
	// program. One of the two, unless the command line says.
	Rules   string `json:"rules,omitempty"`
	RuleSet string `json:"ruleSet,omitempty"`
	// Objects are there at first; each element of Then is what changes after that,
	// whole objects. It is by a change that an image becomes pending.
	Objects []json.RawMessage   `json:"objects"`
	Then    [][]json.RawMessage `json:"then,omitempty"`
	// Expect are the places by Service, "name" or "namespace/name".
	Expect map[string]Places `json:"expect,omitempty"`

	name string
}

// Places are IPs.
type Places struct {
	Ready    []string `json:"ready,omitempty"`
	NotReady []string `json:"notReady,omitempty"`
	Dropped  []string `json:"dropped,omitempty"`
}

// Read reads a scenario, or a list of objects as kubectl writes it, from a file
// or from in for "-".
func Read(name string, in io.Reader) (*File, error) {
	var raw []byte
	var err error
	if name == "-" {
		name = "standard input"
		raw, err = io.ReadAll(in)
	} else {
		raw, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	f := &File{name: name}
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if yaml.Unmarshal(raw, &list) == nil && strings.HasSuffix(list.Kind, "List") {
		f.Objects = list.Items
		return f, nil
	}
	if err := yaml.UnmarshalStrict(raw, f); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(f.Objects) == 0 {
		return nil, fmt.Errorf("%s: no \"objects\"", name)
	}
	return f, nil
}

// Set are the rules: a file, a rule set of the program's, or what the scenario says.
func (f *File) Set(file, set string) (*rules.Set, error) {
	if file == "" && set == "" {
		if set = f.RuleSet; f.Rules != "" {
			file = filepath.Join(filepath.Dir(f.name), f.Rules)
		}
	}
	return LoadRules(file, set)
}

// LoadRules reads a rules file or a rule set of the program's.
func LoadRules(file, set string) (*rules.Set, error) {
	switch {
	case (file == "") == (set == ""):
		return nil, exit.Usagef("one of a rules file (--rules) and a rule set (--rule-set: %s) is needed", strings.Join(rulesets.Names(), ", "))
	case set != "":
		text, ok := rulesets.Text(set)
		if !ok {
			return nil, exit.Usagef("there is no rule set %q: there are %s", set, strings.Join(rulesets.Names(), ", "))
		}
		return rules.Parse(set, text)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return rules.Parse(file, text)
}

func (f *File) states() ([][]runtime.Object, error) {
	var out [][]runtime.Object
	for i, state := range append([][]json.RawMessage{f.Objects}, f.Then...) {
		var objects []runtime.Object
		for n, raw := range state {
			o, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: object %d of state %d: %w", f.name, n+1, i+1, err)
			}
			if m, ok := o.(metav1.Object); ok && m.GetNamespace() == "" {
				m.SetNamespace("default")
			}
			objects = append(objects, o)
		}
		out = append(out, objects)
	}
	return out, nil
}

// Rows judges the objects.
func (f *File) Rows(set *rules.Set) ([]cluster.Row, error) {
	states, err := f.states()
	if err != nil {
		return nil, err
	}
	return cluster.Offline(set, states, time.Now())
}

// Compare says where the places differ from what is expected; nothing is expected
// of a Service that is not named.
func (f *File) Compare(rows []cluster.Row) ([]string, error) {
	if len(f.Expect) == 0 {
		return nil, fmt.Errorf("%s: no \"expect\": there is nothing to compare with", f.name)
	}
	got := map[string]map[string]rules.Place{}
	for _, r := range rows {
		if got[r.Service] == nil {
			got[r.Service] = map[string]rules.Place{}
		}
		got[r.Service][r.IP] = r.To
	}
	var bad []string
	for _, service := range slices.Sorted(maps.Keys(f.Expect)) {
		k := service
		if !strings.Contains(k, "/") {
			k = "default/" + k
		}
		e := f.Expect[service]
		want := map[string]rules.Place{}
		for place, ips := range map[rules.Place][]string{rules.Ready: e.Ready, rules.NotReady: e.NotReady, rules.Drop: e.Dropped} {
			for _, ip := range ips {
				want[ip] = place
			}
		}
		for _, ip := range slices.Sorted(maps.Keys(want)) {
			if is := got[k][ip]; is != want[ip] {
				bad = append(bad, fmt.Sprintf("%s: %s is %s, expected %s", service, ip, or(is), want[ip]))
			}
		}
		for _, ip := range slices.Sorted(maps.Keys(got[k])) {
			if _, ok := want[ip]; !ok {
				bad = append(bad, fmt.Sprintf("%s: %s is %s, and is not expected", service, ip, got[k][ip]))
			}
		}
	}
	return bad, nil
}

func or(p rules.Place) string {
	if p == "" {
		return "not there"
	}
	return string(p)
}

// Print writes rows as a table, with what each rule answered if asked.
func Print(w io.Writer, rows []cluster.Row, asked bool) error {
	var b bytes.Buffer
	for _, r := range rows {
		rule := r.Verdict.Rule
		switch {
		case r.Exempt != "":
			rule = "(untouched: " + r.Exempt + ")"
		case rule == "":
			rule = "(no rule)"
		}
		fmt.Fprintf(&b, "%-24s %-24s %-16s %-9s -> %-9s %s\n", r.Service, r.Pod, r.IP, r.Controller, r.To, rule)
		if asked {
			for _, a := range r.Asked {
				fmt.Fprintf(&b, "    %s\n", a)
			}
			if !r.Verdict.Wake.IsZero() {
				fmt.Fprintf(&b, "    judged again in %v\n", time.Until(r.Verdict.Wake).Round(time.Second))
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}
