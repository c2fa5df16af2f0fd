// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// The Endpoints of a large Service are a megabyte of JSON, read three times for one
// answer. encoding/json makes a map and a copy of each text of it; here a value is
// a part of the text that came in, and most values are copied to the patch as they
// were written.

// kind is what a JSON value is.
type kind byte

const (
	null   kind = 'n'
	truth  kind = 't' // true or false
	number kind = '0'
	str    kind = '"'
	list   kind = '['
	object kind = '{'
)

// node is one JSON value.
type node struct {
	kind kind
	at   uint32 // where raw begins in the text
	key  string // where it is the member of an object
	raw  string // as it was written, without space around it
	// kids are the elements of a list in their order, or the members of an object,
	// by keys if there are more than few. Nothing is here below the depth that was
	// asked for.
	kids []node
}

const (
	// few members are searched one by one.
	few = 8
	// maxDepth keeps a hostile text from using up the stack.
	maxDepth = 200
	// whole is the depth to parse all of a text.
	whole = maxDepth + 1
)

// jsonError is a mistake in a text.
type jsonError struct {
	at  int
	msg string
}

func (e *jsonError) Error() string { return fmt.Sprintf("not JSON: %s at byte %d", e.msg, e.at) }

type jsonParser struct {
	s string
	i int
	// stack has the kids of what is being read; slab is where they are moved to.
	stack, slab []node
}

// parseJSON reads a text of one value. All of it is checked; nodes are made for depth levels
// of it. A key that is twice in one object is a mistake: decoders differ in what they
// make of it.
func parseJSON(text string, depth int) (*node, error) {
	if len(text) > math.MaxInt32 {
		return nil, &jsonError{0, "too large a text"}
	}
	if !utf8.ValidString(text) {
		return nil, &jsonError{0, "not UTF-8"}
	}
	p := &jsonParser{s: text}
	p.space()
	n, err := p.value(0, depth)
	if err != nil {
		return nil, err
	}
	if p.space(); p.i < len(text) {
		return nil, p.fail("more than one value")
	}
	return &n, nil
}

func (p *jsonParser) fail(msg string) error { return &jsonError{p.i, msg} }

func (p *jsonParser) space() {
	for p.i < len(p.s) {
		switch p.s[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

// is skips c and the space after it, if it is there.
func (p *jsonParser) is(c byte) bool {
	if p.i >= len(p.s) || p.s[p.i] != c {
		return false
	}
	p.i++
	p.space()
	return true
}

func (p *jsonParser) value(level, depth int) (node, error) {
	if p.i >= len(p.s) {
		return node{}, p.fail("the end")
	}
	from, n, err := p.i, node{}, error(nil)
	switch c := p.s[p.i]; {
	case c == '"':
		n.kind, err = str, p.str()
	case c == '{' || c == '[':
		if level >= maxDepth {
			return n, p.fail("too deep")
		}
		n.kind = kind(c)
		n.kids, err = p.inside(n.kind, level, depth)
	case c == '-' || c >= '0' && c <= '9':
		n.kind, err = number, p.number()
	default:
		n.kind = truth
		if c == 'n' {
			n.kind = null
		}
		err = p.word()
	}
	n.at, n.raw = uint32(from), p.s[from:p.i]
	return n, err
}

func (p *jsonParser) word() error {
	for _, w := range []string{"null", "true", "false"} {
		if strings.HasPrefix(p.s[p.i:], w) {
			p.i += len(w)
			return nil
		}
	}
	return p.fail("no value")
}

// str skips a text.
func (p *jsonParser) str() error {
	s, i := p.s, p.i+1
	for ; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"':
			p.i = i + 1
			return nil
		case c < ' ':
			p.i = i
			return p.fail("a control character in a text")
		case c != '\\':
			continue
		}
		if i++; i < len(s) && s[i] == 'u' {
			for range 4 {
				if i++; i >= len(s) || !strings.ContainsRune("0123456789abcdefABCDEF", rune(s[i])) {
					p.i = min(i, len(s))
					return p.fail("no \\u and four digits")
				}
			}
		} else if i >= len(s) || strings.IndexByte(`"\/bfnrt`, s[i]) < 0 {
			p.i = min(i, len(s))
			return p.fail("no such escape")
		}
	}
	p.i = i
	return p.fail("the end, in a text")
}

func (p *jsonParser) digits() bool {
	from := p.i
	for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
		p.i++
	}
	return p.i > from
}

func (p *jsonParser) number() error {
	if p.s[p.i] == '-' {
		p.i++
	}
	if p.i < len(p.s) && p.s[p.i] == '0' {
		p.i++
	} else if !p.digits() {
		return p.fail("no number")
	}
	if p.i < len(p.s) && p.s[p.i] == '.' {
		if p.i++; !p.digits() {
			return p.fail("no number")
		}
	}
	if p.i < len(p.s) && (p.s[p.i] == 'e' || p.s[p.i] == 'E') {
		if p.i++; p.i < len(p.s) && (p.s[p.i] == '+' || p.s[p.i] == '-') {
			p.i++
		}
		if !p.digits() {
			return p.fail("no number")
		}
	}
	return nil
}

// inside reads a list or an object.
func (p *jsonParser) inside(k kind, level, depth int) ([]node, error) {
	end := byte('}')
	if k == list {
		end = ']'
	}
	p.i++
	p.space()
	from, keep := len(p.stack), depth > 0
	for first := true; ; first = false {
		if p.i < len(p.s) && p.s[p.i] == end && first {
			break
		}
		key := ""
		if k == object {
			at := p.i
			if p.i >= len(p.s) || p.s[p.i] != '"' {
				return nil, p.fail("no key")
			}
			if err := p.str(); err != nil {
				return nil, err
			}
			key = unquote(p.s[at:p.i])
			if p.space(); !p.is(':') {
				return nil, p.fail("no colon")
			}
		}
		n, err := p.value(level+1, depth-1)
		if err != nil {
			return nil, err
		}
		if n.key = key; keep {
			p.stack = append(p.stack, n)
		}
		p.space()
		if p.is(',') {
			continue
		}
		if p.i >= len(p.s) || p.s[p.i] != end {
			return nil, p.fail("no comma and no end")
		}
		break
	}
	p.i++
	if !keep {
		return nil, nil
	}
	kids := p.take(from)
	if k == object && sorted(kids) {
		return nil, p.fail("a key that is there twice")
	}
	return kids, nil
}

// take moves what is on the stack from there on to the slab.
func (p *jsonParser) take(from int) []node {
	n := len(p.stack) - from
	if n == 0 {
		return nil
	}
	if cap(p.slab)-len(p.slab) < n {
		p.slab = make([]node, 0, max(n, min(2*cap(p.slab), 1<<12), 1<<6))
	}
	at := len(p.slab)
	p.slab = append(p.slab, p.stack[from:]...)
	p.stack = p.stack[:from]
	return p.slab[at:len(p.slab):len(p.slab)]
}

// sorted puts members in the order of node.kids, and reports whether a key is there twice.
func sorted(members []node) (twice bool) {
	if len(members) > few {
		slices.SortFunc(members, byKey)
		for i := range members[1:] {
			if members[i].key == members[i+1].key {
				return true
			}
		}
		return false
	}
	for i := range members {
		for j := range i {
			if members[i].key == members[j].key {
				return true
			}
		}
	}
	return false
}

func byKey(a, b node) int { return cmp.Compare(a.key, b.key) }

// unquote is what a text says, whose form is right.
func unquote(raw string) string {
	if strings.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var s string
	_ = json.Unmarshal([]byte(raw), &s)
	return s
}

// get is a member, or nil; also of what is no object.
func (n *node) get(key string) *node {
	if n == nil || n.kind != object {
		return nil
	}
	if len(n.kids) > few {
		if i, ok := slices.BinarySearchFunc(n.kids, key, func(a node, k string) int { return cmp.Compare(a.key, k) }); ok {
			return &n.kids[i]
		}
		return nil
	}
	for i := range n.kids {
		if n.kids[i].key == key {
			return &n.kids[i]
		}
	}
	return nil
}

// put sets a member of an object, whose kids are the caller's own.
func (n *node) put(key string, v node) {
	v.key = key
	if old := n.get(key); old != nil {
		*old = v
		return
	}
	n.kids = append(n.kids, v)
	sorted(n.kids)
}

// text is what a member says; "" if it is no text.
func (n *node) text(key string) string {
	if v := n.get(key); v != nil && v.kind == str {
		return unquote(v.raw)
	}
	return ""
}

// quoted is a text as a node.
func quoted(s string) node { return node{kind: str, raw: quote(s)} }

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a text always encodes
	}
	return string(b)
}
