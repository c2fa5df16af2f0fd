// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dump prints an API object, given as decoded JSON, as the code of a
// Kubernetes release prints it before it takes a checksum: with go-spew's %#v,
// which names every field of every struct, set or not, or with encoding/json.
//
// Both print Go types, and none of the releases' types is linked here: a table
// of types, written by the release's own code, takes their place. What go-spew
// prints of the standard library's types depends on the Go release too; Layout
// says how.
package dump

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Type is a Go type in a table. Its name there is what go-spew prints, such as
// "*v1.Probe".
type Type struct {
	// Kind is ptr, slice, map (of strings), struct, string, bool, int, int32,
	// int64, or leaf: a type that this package prints by rules of its own.
	Kind string `json:"kind"`
	// Elem is the type of a pointer's, slice's or map's element.
	Elem   string  `json:"elem"`
	Fields []Field `json:"fields"`
}

// Field is a struct's field. JSON is "" where its own fields are inlined.
type Field struct {
	Name      string `json:"name"`
	JSON      string `json:"json"`
	Type      string `json:"type"`
	OmitEmpty bool   `json:"omitempty,omitempty"`
}

// Layout is what a dump owes to the release and the Go that built it, beside
// the table of types.
type Layout struct {
	// SecNsecLoc: a time.Time has the fields of Go 1.8 and before.
	SecNsecLoc bool
	// HexWords: big.Word was a uintptr, as in Go 1.8 and before.
	HexWords bool
	// DecQuantity: a Quantity is an inf.Dec alone, as in Kubernetes 1.2.
	DecQuantity bool
	// Milli: the conversion from v1 rounds a Quantity to thousandths, as in
	// Kubernetes 1.3 to 1.5.
	Milli bool
	// UTC: a time that is set is printed as a process whose time zone is UTC
	// does; without it such a time is an error.
	UTC bool
	// Wire prints the object as a client has it that got it as protobuf: empty
	// lists are nil there, and quantities canonical.
	Wire bool
}

// Node is a type of a table, with all that it reaches.
type Node struct {
	name   string
	kind   kind
	elem   *Node
	fields []fieldNode
	byJSON map[string]*Node // of a struct, with the fields of those that are inlined
}

type fieldNode struct {
	Field
	label string // " Name:(v1.Type)", without the space in the first field
	node  *Node
}

type kind int

const (
	stringKind kind = iota
	boolKind
	intKind
	int32Kind
	ptrKind
	sliceKind
	mapKind
	structKind
	intOrStringKind
	quantityKind
	timeKind
)

var kinds = map[string]kind{
	"string": stringKind, "bool": boolKind, "int": intKind, "int64": intKind, "int32": int32Kind,
	"ptr": ptrKind, "slice": sliceKind, "map": mapKind, "struct": structKind,
}

var leaves = map[string]kind{
	"intstr.IntOrString": intOrStringKind, "resource.Quantity": quantityKind,
	"unversioned.Time": timeKind, "v1.Time": timeKind,
}

// Compile returns the type named root. It is an error if the table lacks a type
// or has one that cannot be printed.
func Compile(types map[string]Type, root string) (*Node, error) {
	nodes := map[string]*Node{}
	var compile func(name string) (*Node, error)
	compile = func(name string) (*Node, error) {
		if n, ok := nodes[name]; ok {
			return n, nil
		}
		t, ok := types[name]
		if !ok {
			return nil, fmt.Errorf("no table for type %s", name)
		}
		n := &Node{name: name}
		nodes[name] = n
		if n.kind, ok = kinds[t.Kind]; t.Kind == "leaf" {
			n.kind, ok = leaves[name]
		}
		if !ok {
			return nil, fmt.Errorf("no rule for kind %s of type %s", t.Kind, name)
		}
		var err error
		switch n.kind {
		case ptrKind, sliceKind, mapKind:
			if n.elem, err = compile(t.Elem); err != nil {
				return nil, err
			}
		case structKind:
			n.byJSON = map[string]*Node{}
			for i, f := range t.Fields {
				fn, err := compile(f.Type)
				if err != nil {
					return nil, err
				}
				label := f.Name + ":(" + f.Type + ")"
				if i > 0 {
					label = " " + label
				}
				n.fields = append(n.fields, fieldNode{Field: f, label: label, node: fn})
				if f.JSON != "" {
					n.byJSON[f.JSON] = fn
					continue
				}
				for name, inlined := range fn.byJSON {
					n.byJSON[name] = inlined
				}
			}
		}
		return n, nil
	}
	return compile(root)
}

// Spew is what go-spew's %#v with SortKeys, SpewKeys and DisableMethods prints
// for v, the decoded JSON (numbers as json.Number) of a value of n's type.
func (n *Node) Spew(v any, l Layout) ([]byte, error) {
	p := &printer{layout: l}
	p.text("(" + n.name + ")")
	err := p.value(n, v)
	return p.out, err
}

// printer writes one dump. path is where it is in the object, for errors.
type printer struct {
	layout Layout
	out    []byte
	path   []string
}

func (p *printer) text(s string) { p.out = append(p.out, s...) }

// at is the path as a prefix of an error.
func at(path []string) string { return strings.TrimPrefix(strings.Join(path, ""), ".") }

func (p *printer) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", at(p.path), fmt.Errorf(format, args...))
}

func (p *printer) wrong(n *Node, v any) error {
	return p.errorf("a value of type %s cannot be %s", n.name, jsonText(v))
}

func jsonText(v any) string {
	b, _ := json.Marshal(v)
	if len(b) > 60 {
		return string(b[:60]) + "…"
	}
	return string(b)
}

// in prints v at a place below the present one.
func (p *printer) in(step string, n *Node, v any, print func(*Node, any) error) error {
	p.path = append(p.path, step)
	err := print(n, v)
	p.path = p.path[:len(p.path)-1]
	return err
}

// value prints v, which may be nil for the zero value. Types stand in
// parentheses before a value, except before elements of slices and maps and
// before what a pointer points to.
func (p *printer) value(n *Node, v any) error {
	switch n.kind {
	case ptrKind:
		if v == nil {
			p.text("<nil>")
			return nil
		}
		return p.value(n.elem, v)
	case sliceKind:
		items, err := p.slice(n, v)
		if err != nil {
			return err
		}
		if items == nil {
			p.text("<nil>")
			return nil
		}
		p.text("[")
		for i, item := range items {
			if i > 0 {
				p.text(" ")
			}
			if err := p.in("["+strconv.Itoa(i)+"]", n.elem, item, p.element); err != nil {
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
			p.text("<nil>")
			return nil
		}
		p.text("map[")
		for i, k := range keys {
			if i > 0 {
				p.text(" ")
			}
			p.text(k + ":")
			if err := p.in("."+k, n.elem, m[k], p.element); err != nil {
				return err
			}
		}
		p.text("]")
	case structKind:
		m, ok := v.(map[string]any)
		if !ok && v != nil {
			return p.wrong(n, v)
		}
		p.text("{")
		for i := range n.fields {
			f := &n.fields[i]
			p.text(f.label)
			if f.JSON == "" {
				if err := p.value(f.node, v); err != nil {
					return err
				}
			} else if err := p.in("."+f.JSON, f.node, m[f.JSON], p.value); err != nil {
				return err
			}
		}
		p.text("}")
	case intOrStringKind:
		s, isString, err := p.intOrString(v)
		switch {
		case err != nil:
			return err
		case isString:
			p.text("{Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)" + s + "}")
		default:
			p.text("{Type:(intstr.Type)0 IntVal:(int32)" + s + " StrVal:(string)}")
		}
	case quantityKind:
		text, err := p.layout.quantity(v)
		if err != nil {
			return p.errorf("%w", err)
		}
		p.text(text)
	case timeKind:
		text, err := p.layout.time(v)
		if err != nil {
			return p.errorf("%w", err)
		}
		p.text("{Time:(time.Time)" + text + "}")
	default:
		text, err := p.scalar(n, v)
		if err != nil {
			return err
		}
		p.text(text)
	}
	return nil
}

// element prints a value of a slice or a map: of a pointer's type only the star is left there.
func (p *printer) element(n *Node, v any) error {
	if n.kind == ptrKind && v != nil {
		p.text("<*>")
	}
	return p.value(n, v)
}

// scalar is a string, a bool or an integer as text.
func (p *printer) scalar(n *Node, v any) (string, error) {
	switch n.kind {
	case stringKind:
		if s, ok := v.(string); ok || v == nil {
			return s, nil
		}
	case boolKind:
		if b, ok := v.(bool); ok || v == nil {
			return strconv.FormatBool(b), nil
		}
	case intKind, int32Kind:
		if v == nil {
			return "0", nil
		}
		if number, ok := v.(json.Number); ok {
			bits := 64
			if n.kind == int32Kind {
				bits = 32
			}
			if i, err := strconv.ParseInt(number.String(), 10, bits); err == nil {
				return strconv.FormatInt(i, 10), nil
			}
		}
	}
	return "", p.wrong(n, v)
}

// slice returns the elements; nil for a nil slice, which an empty one is on the
// wire.
func (p *printer) slice(n *Node, v any) ([]any, error) {
	items, ok := v.([]any)
	if !ok && v != nil {
		return nil, p.wrong(n, v)
	}
	if p.layout.Wire && len(items) == 0 {
		return nil, nil
	}
	return items, nil
}

// mapping returns the entries and their keys in order; nil as slice does.
func (p *printer) mapping(n *Node, v any) (map[string]any, []string, error) {
	m, ok := v.(map[string]any)
	if !ok && v != nil {
		return nil, nil, p.wrong(n, v)
	}
	if p.layout.Wire && len(m) == 0 {
		return nil, nil, nil
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return m, keys, nil
}

// intOrString returns the number or, with isString, the string.
func (p *printer) intOrString(v any) (text string, isString bool, err error) {
	switch v := v.(type) {
	case nil:
		return "0", false, nil
	case string:
		return v, true, nil
	case json.Number:
		i, err := strconv.ParseInt(v.String(), 10, 32)
		if err != nil {
			return "", false, p.errorf("%s is not a port", v)
		}
		return strconv.FormatInt(i, 10), false, nil
	}
	return "", false, p.errorf("neither a number nor a string: %s", jsonText(v))
}

// utc is a time.Location of Go 1.4 to 1.8 that was loaded from a machine's UTC.
const utc = "(*time.Location){name:(string)Local zone:([]time.zone)[{name:(string)UTC offset:(int)0 isDST:(bool)false}]" +
	" tx:([]time.zoneTrans)[{when:(int64)-9223372036854775808 index:(uint8)0 isstd:(bool)false isutc:(bool)false}]" +
	" cacheStart:(int64)-9223372036854775808 cacheEnd:(int64)9223372036854775807" +
	" cacheZone:(*time.zone){name:(string)UTC offset:(int)0 isDST:(bool)false}}"

// time is the dump of a time.Time.
func (l Layout) time(v any) (string, error) {
	if v == nil {
		if l.SecNsecLoc {
			return "{sec:(int64)0 nsec:(int32)0 loc:(*time.Location)<nil>}", nil
		}
		return "{wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}", nil
	}
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("not a time: %s", jsonText(v))
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return "", err
	}
	if !l.UTC {
		return "", fmt.Errorf("a time is set (%s), and the hash then holds the controller's time zone, which is known for 1.2 only; remove it from the template if it was copied from a live object", s)
	}
	return fmt.Sprintf("{sec:(int64)%d nsec:(int32)0 loc:%s}", t.Unix()-time.Time{}.Unix(), utc), nil
}
