// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"

	"k8s.io/api/core/v1"
)

// node is what is needed to print a value of one type. The nodes of all types
// below v1.Container are built once, so that printing looks no type up.
type node struct {
	kind   reflect.Kind
	prefix string // "(v1.Probe)", what go-spew's %#v puts before a value
	elem   *node  // of a pointer, slice or map
	fields []fieldNode
}

type fieldNode struct {
	node  *node
	label string // " Name:", without the space in the first field
	json  string // name in the API, "" if the struct is inlined
	since Generation
}

// rootNode is nil if the table and the types differ: then nothing is known
// about older generations.
var rootNode = buildRoot(reflect.TypeOf(v1.Container{}))

func buildRoot(t reflect.Type) *node {
	if len(drift(t)) > 0 {
		return nil
	}
	return buildNode(t, map[reflect.Type]*node{})
}

func buildNode(t reflect.Type, known map[reflect.Type]*node) *node {
	if n, ok := known[t]; ok {
		return n
	}
	n := &node{kind: t.Kind(), prefix: "(" + t.String() + ")"}
	known[t] = n
	switch t.Kind() {
	case reflect.Ptr, reflect.Slice, reflect.Map:
		n.elem = buildNode(t.Elem(), known)
	case reflect.Struct:
		fields, _ := tableFields(t.String())
		for i, f := range fields {
			fn := fieldNode{node: buildNode(t.Field(i).Type, known), label: f.name + ":", since: f.since}
			if i > 0 {
				fn.label = " " + fn.label
			}
			fn.json = strings.Split(t.Field(i).Tag.Get("json"), ",")[0]
			if fn.json == "" && !t.Field(i).Anonymous {
				fn.json = f.name
			}
			n.fields = append(n.fields, fn)
		}
	}
	return n
}

// span is a part of the dump that generations before since do not print.
type span struct {
	from, to int
	since    Generation
	set      bool
	path     string // only if the dump was made with paths
}

// dump holds the text that go-spew prints for a container, and which parts
// of it older generations lack.
type dump struct {
	// container is a copy, so that the caller's does not have to be on the
	// heap: upstream's loop over a pod's containers keeps it on the stack.
	container v1.Container

	text  []byte
	spans []span
	paths bool
	path  []string
}

var dumps = sync.Pool{New: func() interface{} { return &dump{text: make([]byte, 0, 4096)} }}

// newDump prints the container. The caller releases the dump.
func newDump(c *v1.Container, paths bool) *dump {
	d := dumps.Get().(*dump)
	d.text, d.spans, d.paths, d.path = d.text[:0], d.spans[:0], paths, d.path[:0]
	d.container = *c
	d.value(reflect.ValueOf(&d.container).Elem(), rootNode, true)
	return d
}

func (d *dump) release() {
	d.container = v1.Container{}
	if cap(d.text) <= 1<<20 {
		dumps.Put(d)
	}
}

// value prints v as the formatter of go-spew does for %#v with SortKeys,
// SpewKeys and DisableMethods. typed says whether the type comes first, which
// it does for struct fields only.
func (d *dump) value(v reflect.Value, n *node, typed bool) {
	if typed {
		d.text = append(d.text, n.prefix...)
	}
	switch n.kind {
	case reflect.Bool:
		d.text = strconv.AppendBool(d.text, v.Bool())
	case reflect.String:
		d.text = append(d.text, v.String()...)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.text = strconv.AppendInt(d.text, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.text = strconv.AppendUint(d.text, v.Uint(), 10)
	case reflect.Ptr:
		// go-spew prints "<shown>" for a pointer that it followed before at a
		// smaller depth and has not forgotten since. No two pointers below a
		// container can be equal at such places (TestDumpAliased).
		if v.IsNil() {
			d.text = append(d.text, "<nil>"...)
			return
		}
		d.value(v.Elem(), n.elem, false)
	case reflect.Slice:
		if v.IsNil() {
			d.text = append(d.text, "<nil>"...)
			return
		}
		d.text = append(d.text, '[')
		for i, l := 0, v.Len(); i < l; i++ {
			if i > 0 {
				d.text = append(d.text, ' ')
			}
			if d.paths {
				d.path = append(d.path, "["+strconv.Itoa(i)+"]")
			}
			d.value(v.Index(i), n.elem, false)
			if d.paths {
				d.path = d.path[:len(d.path)-1]
			}
		}
		d.text = append(d.text, ']')
	case reflect.Map:
		d.mapping(v, n)
	case reflect.Struct:
		d.text = append(d.text, '{')
		for i := range n.fields {
			f := &n.fields[i]
			if d.paths && f.json != "" {
				d.path = append(d.path, "."+f.json)
			}
			from, fv := len(d.text), v.Field(i)
			d.text = append(d.text, f.label...)
			d.value(fv, f.node, true)
			if f.since > Gen16 {
				s := span{from: from, to: len(d.text), since: f.since, set: isSet(fv)}
				if d.paths {
					s.path = strings.TrimPrefix(strings.Join(d.path, ""), ".")
				}
				d.spans = append(d.spans, s)
			}
			if d.paths && f.json != "" {
				d.path = d.path[:len(d.path)-1]
			}
		}
		d.text = append(d.text, '}')
	}
}

func (d *dump) mapping(v reflect.Value, n *node) {
	if v.IsNil() {
		d.text = append(d.text, "<nil>"...)
		return
	}
	d.text = append(d.text, "map["...)
	if v.Len() > 0 {
		keys := v.MapKeys()
		sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
		for i, key := range keys {
			if i > 0 {
				d.text = append(d.text, ' ')
			}
			d.text = append(d.text, key.String()...)
			d.text = append(d.text, ':')
			if d.paths {
				d.path = append(d.path, "["+key.String()+"]")
			}
			d.value(v.MapIndex(key), n.elem, false)
			if d.paths {
				d.path = d.path[:len(d.path)-1]
			}
		}
	}
	d.text = append(d.text, ']')
}

// isSet reports whether a field holds something that a kubelet which does not
// know the field would have lost. An empty list says nothing; a pointer to an
// empty value does.
func isSet(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() > 0
	case reflect.Ptr:
		return !v.IsNil()
	default:
		return !v.IsZero()
	}
}

// expressible reports whether g knows every field that is set.
func (d *dump) expressible(g Generation) bool {
	for i := range d.spans {
		if d.spans[i].set && d.spans[i].since > g {
			return false
		}
	}
	return true
}

// oldest returns the oldest generation that knows every field that is set.
func (d *dump) oldest() Generation {
	g := Gen16
	for i := range d.spans {
		if d.spans[i].set && d.spans[i].since > g {
			g = d.spans[i].since
		}
	}
	return g
}

// adds reports whether a field of the container came with g, so that the hash
// of g differs from that of the generation before.
func (d *dump) adds(g Generation) bool {
	for i := range d.spans {
		if d.spans[i].since == g {
			return true
		}
	}
	return false
}

// fnv32a of the dump as g prints it, whether g knows every set field or not.
func (d *dump) hash(g Generation) uint64 {
	h, pos := uint32(2166136261), 0
	for i := range d.spans {
		s := &d.spans[i]
		if s.since <= g || s.from < pos {
			continue
		}
		h = fnv32a(h, d.text[pos:s.from])
		pos = s.to
	}
	return uint64(fnv32a(h, d.text[pos:]))
}

func fnv32a(h uint32, text []byte) uint32 {
	for _, b := range text {
		h ^= uint32(b)
		h *= 16777619
	}
	return h
}
