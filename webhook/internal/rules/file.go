// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of a rules file. Every rule runs for every address, so that they are
// also what bounds the time of one judgement.
const (
	MaxFile  = 256 << 10 // bytes
	MaxRules = 500
	MaxWhen  = 4 << 10 // bytes of one expression
	MaxNodes = 300     // parts of one expression
)

// Error is a mistake in a rules file.
type Error struct {
	File         string
	Line, Column int // from 1; 0 where the whole file is meant
	Msg          string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Msg)
}

var (
	nameRE  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	lineRE  = regexp.MustCompile(`line (\d+): (.*)`)
	errMany = 20
)

// parser collects the mistakes of one file.
type parser struct {
	file  string
	lines [][]byte
	errs  []error
}

func (p *parser) say(n *yaml.Node, format string, args ...any) {
	e := &Error{File: p.file, Msg: fmt.Sprintf(format, args...)}
	if n != nil {
		e.Line, e.Column = n.Line, n.Column
	}
	p.errs = append(p.errs, e)
}

// Parse reads a rules file, YAML or JSON; file is its name in errors. On any
// mistake there is no Set and the error joins an *Error for each.
func Parse(file string, text []byte) (*Set, error) {
	p := &parser{file: file, lines: bytes.Split(text, []byte("\n"))}
	s := p.set(text)
	if len(p.errs) > errMany {
		p.errs = append(p.errs[:errMany:errMany], &Error{File: file, Msg: fmt.Sprintf("and %d more", len(p.errs)-errMany)})
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	return s, nil
}

func (p *parser) set(text []byte) *Set {
	if len(text) > MaxFile {
		p.say(nil, "%d bytes: the limit is %d", len(text), MaxFile)
		return nil
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		p.say(nil, "it is empty: it needs \"rules\", a list")
		return nil
	case err != nil:
		p.yamlError(err)
		return nil
	}
	if err := d.Decode(&more); err == nil {
		p.say(&more, "a second YAML document: a rules file has one")
		return nil
	} else if !errors.Is(err, io.EOF) {
		p.yamlError(err)
		return nil
	}
	s := &Set{}
	var list *yaml.Node
	p.mapping(doc.Content[0], "the file", map[string]func(*yaml.Node){
		"rules":  func(n *yaml.Node) { list = n },
		"dryRun": func(n *yaml.Node) { s.DryRun = p.boolean(n, "dryRun") },
	})
	switch {
	case len(p.errs) > 0:
		return nil
	case list == nil || list.Kind == yaml.SequenceNode && len(list.Content) == 0:
		p.say(doc.Content[0], "no rules: \"rules\" is a list of at least one; to have none, remove the webhook configuration")
		return nil
	case list.Kind != yaml.SequenceNode:
		p.say(list, "\"rules\" is a list")
		return nil
	case len(list.Content) > MaxRules:
		p.say(list, "%d rules: the limit is %d", len(list.Content), MaxRules)
		return nil
	}
	for _, n := range list.Content {
		r := p.rule(n)
		if r == nil {
			continue
		}
		if i := slices.IndexFunc(s.Rules, func(o *Rule) bool { return o.Name == r.Name }); i >= 0 {
			p.say(n, "rule %q is there twice, first in line %d", r.Name, s.Rules[i].Line)
		}
		s.Rules = append(s.Rules, r)
	}
	return s
}

// yamlError takes the line out of what the YAML library says.
func (p *parser) yamlError(err error) {
	e := &Error{File: p.file, Msg: strings.TrimPrefix(err.Error(), "yaml: ")}
	if m := lineRE.FindStringSubmatch(e.Msg); m != nil {
		if _, err := fmt.Sscan(m[1], &e.Line); err == nil {
			e.Column, e.Msg = 1, m[2]
		}
	}
	e.Msg = "not YAML: " + e.Msg
	p.errs = append(p.errs, e)
}

// mapping calls a function for each key; an unknown one, a second one and an
// alias are mistakes.
func (p *parser) mapping(n *yaml.Node, what string, keys map[string]func(*yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.say(n, "%s is a mapping with the keys %s", what, known(keys))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		f := keys[k.Value]
		switch {
		case f == nil || k.Kind != yaml.ScalarNode:
			p.say(k, "unknown key %q: there are %s", k.Value, known(keys))
		case seen[k.Value]:
			p.say(k, "key %q is there twice", k.Value)
		case v.Kind == yaml.AliasNode:
			p.say(v, "aliases (*%s) are not read here", v.Value)
		default:
			seen[k.Value] = true
			f(v)
		}
	}
}

func known(keys map[string]func(*yaml.Node)) string {
	var out []string
	for k := range keys {
		out = append(out, k)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (p *parser) boolean(n *yaml.Node, key string) bool {
	if n.Tag != "!!bool" {
		p.say(n, "%q is true or false, not %q", key, n.Value)
	}
	return strings.EqualFold(n.Value, "true")
}

func (p *parser) text(n *yaml.Node, key string) string {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" && key != "when" {
		p.say(n, "%q is text", key)
		return ""
	}
	return n.Value
}

// rule reads one rule and compiles its expression; nil after a mistake.
func (p *parser) rule(n *yaml.Node) *Rule {
	r := &Rule{Line: n.Line, Column: n.Column}
	before := len(p.errs)
	var when, then *yaml.Node
	p.mapping(n, "a rule", map[string]func(*yaml.Node){
		"name":   func(v *yaml.Node) { r.Name = p.text(v, "name") },
		"when":   func(v *yaml.Node) { when, r.When = v, p.text(v, "when") },
		"then":   func(v *yaml.Node) { then, r.Then = v, Place(p.text(v, "then")) },
		"dryRun": func(v *yaml.Node) { r.DryRun = p.boolean(v, "dryRun") },
	})
	switch {
	case len(p.errs) > before:
	case !nameRE.MatchString(r.Name):
		p.say(n, "\"name\" is %q: it is lower-case letters, digits and dashes, 63 at most", r.Name)
	case when == nil || strings.TrimSpace(r.When) == "":
		p.say(n, "rule %s has no \"when\", the expression that says when it applies", r.Name)
	case len(r.When) > MaxWhen:
		p.say(when, "\"when\" of rule %s has %d bytes: the limit is %d", r.Name, len(r.When), MaxWhen)
	case then == nil:
		p.say(n, "rule %s has no \"then\": it is one of %q", r.Name, Places)
	case !slices.Contains(Places, r.Then):
		p.say(then, "\"then\" is %q: it is one of %q", r.Then, Places)
	default:
		var bad *exprError
		if r.program, bad = compile(r.When); bad != nil {
			line, col := p.place(when, bad.line, bad.column)
			p.errs = append(p.errs, &Error{File: p.file, Line: line, Column: col, Msg: fmt.Sprintf("\"when\" of rule %s: %s", r.Name, bad.msg)})
		}
	}
	if len(p.errs) > before {
		return nil
	}
	return r
}

// place is where line and column of an expression, both from 1, are in the file.
func (p *parser) place(n *yaml.Node, line, column int) (int, int) {
	switch n.Style {
	case yaml.LiteralStyle:
		at := n.Line + line // the text begins in the line after "|"
		if at-1 < len(p.lines) {
			first := p.lines[n.Line] // its indentation is that of the first line
			return at, column + len(first) - len(bytes.TrimLeft(first, " "))
		}
		return at, column
	case yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle:
		return n.Line, n.Column + column
	}
	return n.Line, n.Column + column - 1
}
