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
	words  bool // a big.nat, whose elements the Go of older releases prints otherwise
	time   bool // a time.Time, which the Go of older releases prints otherwise
}

type fieldNode struct {
	node    *node
	label   string // " Name:", without the space in the first field
	json    string // name in the API, "" if the struct is inlined
	since   Generation
	pointer Generation
	unset   *string
}

// rootNode is nil if the table and the types differ: then nothing is known
// about older generations.
var rootNode = buildRoot(reflect.TypeOf(v1.Container{}))

func buildRoot(t reflect.Type) *node {
	r, _ := NewRelease(t, table, reflect.Type.String)
	if r == nil {
		return nil
	}
	return r.root
}

type nodeBuilder struct {
	table map[string]string
	known map[reflect.Type]*node
	named func(reflect.Type) string // what the release calls a type
}

func (b *nodeBuilder) build(t reflect.Type) *node {
	if n, ok := b.known[t]; ok {
		return n
	}
	n := &node{kind: t.Kind(), prefix: "(" + b.named(t) + ")", time: t.String() == timeType}
	b.known[t] = n
	switch {
	case n.time:
	case t.Kind() == reflect.Ptr, t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		n.elem = b.build(t.Elem())
		n.words = t.Kind() == reflect.Slice && t.Elem().String() == wordType
	case t.Kind() == reflect.Struct:
		fields, _ := tableFields(b.table, t.String())
		for i, f := range fields {
			fn := fieldNode{node: b.build(t.Field(i).Type), label: f.name + ":", since: f.since, pointer: f.pointer, unset: f.unset}
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

// span is a part of the dump that generations before since do not print, or
// print as another text. No span lies within another.
type span struct {
	from, to int
	since    Generation
	set      bool
	path     string // only if the dump was made with paths
	// older is the text that generations before since have in this place. It is owed to
	// the Go that they were built with, except with field: there to the field's type.
	older []byte
	field bool
}

// dump holds the text that go-spew prints for a container, and which parts
// of it older generations lack.
type dump struct {
	// container is a copy, so that the caller's does not have to be on the
	// heap: upstream's loop over a pod's containers keeps it on the stack.
	container v1.Container

	text  []byte
	spans []span
	words bool // one of the spans is a big.nat's
	paths bool
	path  []string
}

var dumps = sync.Pool{New: func() interface{} { return &dump{text: make([]byte, 0, 4096)} }}

// newDump prints the container. The caller releases the dump.
func newDump(c *v1.Container, paths bool) *dump {
	d := dumps.Get().(*dump)
	d.text, d.spans, d.words, d.paths, d.path = d.text[:0], d.spans[:0], false, paths, d.path[:0]
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
		if n.words && v.Len() > 0 {
			d.bigNat(v)
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
		if n.time {
			d.time(v)
			return
		}
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
				if f.unset != nil && s.set && fv.Elem().String() == *f.unset {
					s.set = false
				}
				if d.paths {
					s.path = strings.TrimPrefix(strings.Join(d.path, ""), ".")
				}
				d.spans = append(d.spans, s)
			} else if f.pointer > Gen16 {
				d.once(from, f, fv)
			}
			if d.paths && f.json != "" {
				d.path = d.path[:len(d.path)-1]
			}
		}
		d.text = append(d.text, '}')
	}
}

// bigNat prints the words of a quantity that is too large, or too exact, for an
// int64. A big.Word is a uint since Go 1.9, which go-spew prints in decimal. Go 1.7
// and 1.8, with which the releases 1.6 to 1.8 were built, have a uintptr, which
// go-spew prints as the address that it takes it for.
func (d *dump) bigNat(v reflect.Value) {
	s := span{from: len(d.text), since: Gen19}
	d.text, s.older = append(d.text, '['), append(s.older, '[')
	for i, l := 0, v.Len(); i < l; i++ {
		if i > 0 {
			d.text, s.older = append(d.text, ' '), append(s.older, ' ')
		}
		word := v.Index(i).Uint()
		d.text = strconv.AppendUint(d.text, word, 10)
		if word == 0 {
			s.older = append(s.older, "<nil>"...)
		} else {
			s.older = strconv.AppendUint(append(s.older, "0x"...), word, 16)
		}
	}
	d.text, s.older = append(d.text, ']'), append(s.older, ']')
	s.to = len(d.text)
	d.spans, d.words = append(d.spans, s), true
}

// What go-spew prints of a time.Time that is not set: with the Go of this build, and with
// Go 1.8 and older, with which the releases 1.6 to 1.8 were built.
const (
	unsetTime    = "{wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}"
	unsetOldTime = "{sec:(int64)0 nsec:(int32)0 loc:(*time.Location)<nil>}"
)

// time prints a time. One that is set prints the time zone of the machine, in a form that
// differs with each Go: no older generation has a text for it.
func (d *dump) time(v reflect.Value) {
	s := span{from: len(d.text), since: Gen19, set: !v.IsZero(), older: []byte(unsetOldTime)}
	d.text = append(d.text, unsetTime...)
	s.to = len(d.text)
	d.spans = append(d.spans, s)
}

// once makes a span of a field that was printed from from on, and that is a pointer now and
// was not in older generations. A nil pointer is the value that is not set.
func (d *dump) once(from int, f *fieldNode, fv reflect.Value) {
	older := &dump{}
	older.text = append(older.text, f.label...)
	elem := reflect.Zero(fv.Type().Elem())
	if !fv.IsNil() {
		elem = fv.Elem()
	}
	older.value(elem, f.node.elem, true)
	s := span{from: from, to: len(d.text), since: f.pointer, older: older.text, field: true}
	if len(older.spans) > 0 {
		// No span lies within another, and this one holds a big.nat's: older generations
		// have no text for it.
		s = span{from: s.to, to: s.to, since: f.pointer, set: true}
	}
	d.spans = append(d.spans, s)
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
	return d.hashBuilt(g, false)
}

// records reports whether recorded is the hash of g, as the release itself records it
// or, for g before 1.9, as a build of it with Go 1.9 or later does. Distributors have
// such builds, and v1.9.11+holdfast.1 recorded their hash for 1.7.
func (d *dump) records(g Generation, recorded uint64) bool {
	return d.hash(g) == recorded || d.words && g < Gen19 && d.hashBuilt(g, true) == recorded
}

// hashBuilt is hash for a release that was built with its own Go, or with a newer one.
func (d *dump) hashBuilt(g Generation, newerGo bool) uint64 {
	h := uint32(2166136261)
	d.parts(g, newerGo, func(text []byte) { h = fnv32a(h, text) })
	return uint64(h)
}

// parts calls with each part of the dump as g prints it.
func (d *dump) parts(g Generation, newerGo bool, with func([]byte)) {
	pos := 0
	for i := range d.spans {
		s := &d.spans[i]
		if s.since <= g || newerGo && s.older != nil && !s.field {
			continue
		}
		with(d.text[pos:s.from])
		with(s.older)
		pos = s.to
	}
	with(d.text[pos:])
}

func fnv32a(h uint32, text []byte) uint32 {
	for _, b := range text {
		h ^= uint32(b)
		h *= 16777619
	}
	return h
}
