// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"encoding/json"
	"strconv"
	"strings"
)

// JSON is what encoding/json prints for v, see Spew.
func (n *Node) JSON(v any, l Layout) ([]byte, error) {
	p := &printer{layout: l}
	err := p.json(n, v)
	return p.out, err
}

// SpewBytes is what go-spew's %#v prints for a []byte.
func SpewBytes(b []byte) []byte {
	out := append(make([]byte, 0, 12+4*len(b)), "([]uint8)["...)
	for i, c := range b {
		if i > 0 {
			out = append(out, ' ')
		}
		out = strconv.AppendUint(out, uint64(c), 10)
	}
	return append(out, ']')
}

// jsonString prints a string as encoding/json does. Before Go 1.22 that wrote
// two control characters otherwise, and patch releases of one minor release of
// Kubernetes were built with Go releases of both kinds: these are an error.
func (p *printer) jsonString(s string) error {
	if strings.ContainsAny(s, "\b\f") {
		return p.errorf("the text has a backspace or a form feed, whose JSON depends on the Go release that the kubelet was built with")
	}
	b, err := json.Marshal(s)
	p.out = append(p.out, b...)
	return err
}

func (p *printer) json(n *Node, v any) error {
	switch n.kind {
	case ptrKind:
		if v == nil {
			p.text("null")
			return nil
		}
		return p.json(n.elem, v)
	case sliceKind:
		items, err := p.slice(n, v)
		if err != nil {
			return err
		}
		if items == nil {
			p.text("null")
			return nil
		}
		p.text("[")
		for i, item := range items {
			if i > 0 {
				p.text(",")
			}
			if err := p.in("["+strconv.Itoa(i)+"]", n.elem, item, p.json); err != nil {
				return err
			}
		}
		p.text("]")
	case mapKind:
		m, keys, err := p.mapping(n, v)
		if err != nil {
			return err
		}
		if m == nil {
			p.text("null")
			return nil
		}
		p.text("{")
		for i, k := range keys {
			if i > 0 {
				p.text(",")
			}
			if err := p.jsonString(k); err != nil {
				return err
			}
			p.text(":")
			if err := p.in("."+k, n.elem, m[k], p.json); err != nil {
				return err
			}
		}
		p.text("}")
	case structKind:
		p.text("{")
		first := true
		if err := p.jsonFields(n, v, &first); err != nil {
			return err
		}
		p.text("}")
	case intOrStringKind:
		s, isString, err := p.intOrString(v)
		if err != nil {
			return err
		}
		if isString {
			return p.jsonString(s)
		}
		p.text(s)
	case quantityKind:
		q, err := readQuantity(v, p.layout.Wire)
		if err != nil {
			return p.errorf("%w", err)
		}
		return p.jsonString(q.String())
	case timeKind:
		return p.errorf("no rule for a time in JSON")
	default:
		s, err := p.scalar(n, v)
		if err != nil {
			return err
		}
		if n.kind == stringKind {
			return p.jsonString(s)
		}
		p.text(s)
	}
	return nil
}

// jsonFields prints the fields of a struct and of those that are inlined in it.
func (p *printer) jsonFields(n *Node, v any, first *bool) error {
	m, ok := v.(map[string]any)
	if !ok && v != nil {
		return p.wrong(n, v)
	}
	for i := range n.fields {
		f := &n.fields[i]
		if f.JSON == "" {
			if err := p.jsonFields(f.node, v, first); err != nil {
				return err
			}
			continue
		}
		fv := m[f.JSON]
		if f.OmitEmpty && empty(f.node, fv) {
			continue
		}
		if !*first {
			p.text(",")
		}
		*first = false
		p.text(`"` + f.JSON + `":`)
		if err := p.in("."+f.JSON, f.node, fv, p.json); err != nil {
			return err
		}
	}
	return nil
}

// empty reports whether encoding/json's omitempty leaves the value out: a zero
// number or bool, an empty string, list or map, and nil, but no struct.
func empty(n *Node, v any) bool {
	switch n.kind {
	case structKind, intOrStringKind, quantityKind, timeKind:
		return false
	}
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return n.kind == stringKind && v == ""
	case bool:
		return n.kind == boolKind && !v
	case []any:
		return n.kind == sliceKind && len(v) == 0
	case map[string]any:
		return n.kind == mapKind && len(v) == 0
	case json.Number:
		i, err := v.Int64()
		return (n.kind == intKind || n.kind == int32Kind) && err == nil && i == 0
	}
	return false
}

// isSet reports whether v says something that is lost where the field is not
// known: an empty list does not, a pointer to an empty value does.
func isSet(n *Node, v any) bool {
	if n.kind == ptrKind {
		return v != nil
	}
	switch v := v.(type) {
	case nil:
		return false
	case string:
		return v != ""
	case bool:
		return v
	case json.Number:
		i, err := v.Int64()
		return err != nil || i != 0
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

// Unknown lists the fields that v sets and n does not have but newest, the same
// type in a later release, has: as paths such as "volumeMounts[0].subPathExpr".
// Fields that newest does not have either are listed in stray.
func (n *Node) Unknown(newest *Node, v any) (unknown, stray []string) {
	var path []string
	var walk func(old, latest *Node, v any)
	walk = func(old, latest *Node, v any) {
		for old.kind == ptrKind && latest.kind == ptrKind {
			old, latest = old.elem, latest.elem
		}
		if old.kind != latest.kind {
			return
		}
		switch v := v.(type) {
		case []any:
			for i, item := range v {
				if old.kind != sliceKind {
					return
				}
				path = append(path, "["+strconv.Itoa(i)+"]")
				walk(old.elem, latest.elem, item)
				path = path[:len(path)-1]
			}
		case map[string]any:
			for k, item := range v {
				path = append(path, "."+k)
				switch {
				case old.kind == mapKind:
					walk(old.elem, latest.elem, item)
				case old.kind != structKind:
				case old.byJSON[k] != nil && latest.byJSON[k] != nil:
					walk(old.byJSON[k], latest.byJSON[k], item)
				case latest.byJSON[k] == nil:
					stray = append(stray, at(path))
				case isSet(latest.byJSON[k], item):
					unknown = append(unknown, at(path))
				}
				path = path[:len(path)-1]
			}
		}
	}
	walk(n, newest, v)
	return sorted(unknown), sorted(stray)
}
