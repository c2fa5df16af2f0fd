// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package flagtable

import (
	"fmt"
	"strings"

	"holdfast/tools/build/prose"
)

// Markdown writes the page for operators. Upstream's help texts are not in it.
func Markdown(kubelet, manager *Table) []byte {
	p := &page{}
	p.text("# Flags and feature gates from 1.7.0 to 1.9.11, and of Holdfast")
	p.text("`make flags` writes this page from [bases/flags](../../bases/flags/kubelet.json): do not edit it. " +
		"The data comes from programs that are compiled with each release's own code. `make test` generates the data and this " +
		"page again, and fails if they differ from the stored data and page, or if a kubelet " +
		"accepts flags other than those listed.")
	p.text("A kubelet exits at startup if its command line contains a flag or a feature gate that it does not support. So " +
		"**before you go back**, remove from the unit file every flag and gate that a section below lists as *new* since the " +
		"release to which you go back. In the name of a flag, `-` and `_` mean the same. The lists include flags that `--help` does not print because they are hidden or deprecated.")
	p.text("The tables show the default values of the flags themselves. If a default is empty, the " +
		"program may still set a value when it starts. The tables do not cover configuration files.")
	p.step(kubelet.Between("v1.7.0", "v1.9.11"))
	p.step(kubelet.Between("v1.8.15", "v1.9.11"))
	p.step(kubelet.Between("v1.7.0", "v1.8.15"))
	p.step(kubelet.Between("v1.8.0", "v1.8.15"))
	p.step(kubelet.Between("v1.9.11", Ours))
	p.step(manager.Between("v1.9.11", Ours))
	return p.b
}

type page struct{ b []byte }

func (p *page) text(s string) {
	if len(p.b) > 0 {
		p.b = append(p.b, '\n')
	}
	p.b = append(p.b, wrap(s)...)
}

// wrap breaks a paragraph into lines of at most 100 characters; a heading stays
// one line.
func wrap(s string) string {
	if strings.HasPrefix(s, "#") {
		return s + "\n"
	}
	return strings.Join(prose.Lines(s, 100), "\n") + "\n"
}

func release(name string) string {
	if name == Ours {
		return "Holdfast"
	}
	return strings.TrimPrefix(name, "v")
}

func (p *page) step(s Step) {
	p.text(fmt.Sprintf("## %s, %s to %s", s.Table.Component, release(s.From), release(s.To)))
	to := release(s.To)
	p.names("Flags that "+to+" refuses", flagNames(s.GoneFlags))
	p.names("Flags that are new in "+to, flagNames(s.NewFlags))
	p.names("Flags that are deprecated in "+to+", and still work", flagNames(s.DeprecatedFlags))
	p.moved(s)
	p.names("Feature gates that "+to+" refuses", s.GoneGates)
	p.names("Feature gates that are new in "+to, withDefaults(s, s.NewGates))
	p.names("Feature gates with a changed default in "+to, withDefaults(s, s.MovedGates))
}

func flagNames(l []string) []string {
	var out []string
	for _, n := range l {
		out = append(out, "--"+n)
	}
	return out
}

func withDefaults(s Step, l []string) []string {
	var out []string
	for _, n := range l {
		out = append(out, fmt.Sprintf("%s=%t", n, s.Table.Gate(n).In(s.To).Default))
	}
	return out
}

func (p *page) names(what string, l []string) {
	if len(l) == 0 {
		p.text(what + ": none.")
		return
	}
	p.text(fmt.Sprintf("%s (%d): `%s`.", what, len(l), strings.Join(l, "`, `")))
}

func (p *page) moved(s Step) {
	if len(s.MovedFlags) == 0 {
		p.text("Flags with a changed default or type: none.")
		return
	}
	p.text(fmt.Sprintf("Flags with a changed default or type (%d):", len(s.MovedFlags)))
	rows := fmt.Sprintf("\n| flag | %s | %s |\n|---|---|---|\n", release(s.From), release(s.To))
	for _, n := range s.MovedFlags {
		f := s.Table.Flag(n)
		a, b := f.In(s.From), f.In(s.To)
		rows += fmt.Sprintf("| `--%s` | %s | %s |\n", n, shown(a, a.Type != b.Type), shown(b, a.Type != b.Type))
	}
	p.b = append(p.b, rows...)
}

func shown(f *Flag, withType bool) string {
	out := "empty"
	if f.Default != "" {
		out = "`" + strings.ReplaceAll(f.Default, "|", `\|`) + "`"
	}
	if withType {
		out += " (" + f.Type + ")"
	}
	return out
}
