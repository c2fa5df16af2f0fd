// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"holdfast/webhook/internal/names"
)

// verify applies a patch as 1.9 does and compares with what is meant.
func (c *change) verify(patch string, noted bool) error {
	after, err := applied(c.o.root, patch)
	if err != nil {
		return err
	}
	want, err := c.want(noted)
	if err != nil {
		return err
	}
	if becomes(c.o.root, after, want) {
		return nil
	}
	for _, m := range []string{"subsets", "metadata"} {
		if !becomes(c.o.root.get(m), after.get(m), want.get(m)) {
			return fmt.Errorf("1.9 would make other %s of the patch than are meant", m)
		}
	}
	return errors.New("1.9 would change more by the patch than is meant")
}

// want is the object as it is meant.
func (c *change) want(noted bool) (*node, error) {
	subsets := node{kind: list}
	for i, s := range c.subsets {
		if c.goes(i) {
			continue
		}
		if s.empty() {
			return nil, errors.New("a subset would have no addresses, which 1.9 refuses")
		}
		t := own(*s.node)
		t.put("addresses", listOf(s.ready))
		t.put("notReadyAddresses", listOf(s.notReady))
		subsets.kids = append(subsets.kids, t)
	}
	root := own(*c.o.root)
	root.put("subsets", subsets)
	if noted {
		meta := own(*root.get("metadata"))
		a := node{kind: object}
		if old := c.o.annotations(); old != nil {
			a = own(*old)
		}
		a.put(names.Rules, quoted(c.note))
		meta.put("annotations", a)
		root.put("metadata", meta)
	}
	return &root, nil
}

// own is n with kids that may be changed.
func own(n node) node {
	n.kids, n.raw = slices.Clone(n.kids), "" // what was written is no longer what it is
	return n
}

func listOf(l []*node) node {
	out := node{kind: list, kids: make([]node, len(l))}
	for i := range l {
		out.kids[i] = *l[i]
	}
	return out
}

// applied is what a JSON patch makes of an object. It knows what ops writes: anything
// else is an error.
func applied(root *node, patch string) (*node, error) {
	p, err := parseJSON(patch, whole)
	if err != nil {
		return nil, fmt.Errorf("the patch does not decode: %w", err)
	}
	if p.kind != list {
		return nil, errors.New("the patch is no list")
	}
	a := &applier{owned: map[*node]bool{}}
	after := *root
	for i := range p.kids {
		if err := a.apply(&after, &p.kids[i]); err != nil {
			return nil, fmt.Errorf("the patch does not apply: %w", err)
		}
	}
	return &after, nil
}

// applier changes a tree and leaves those that it came from as they are.
type applier struct{ owned map[*node]bool }

// open has n's kids be its own.
func (a *applier) open(n *node) {
	if !a.owned[n] {
		*n, a.owned[n] = own(*n), true
	}
}

func (a *applier) apply(at *node, op *node) error {
	value, path := op.get("value"), op.text("path")
	if len(op.kids) != 3 || op.text("op") != "add" || value == nil || !strings.HasPrefix(path, "/") {
		return fmt.Errorf("%.100s is no operation that is sent", op.raw)
	}
	steps := strings.Split(path[1:], "/")
	for i, s := range steps {
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(s)
	}
	last := len(steps) - 1
	for _, s := range steps[:last] {
		a.open(at)
		switch at.kind {
		case object:
			at = at.get(s)
		case list:
			i, err := strconv.Atoi(s)
			if err != nil || i < 0 || i >= len(at.kids) || strconv.Itoa(i) != s {
				return fmt.Errorf("%s: there is no element %q", path, s)
			}
			at = &at.kids[i]
		default:
			at = nil
		}
		if at == nil {
			return fmt.Errorf("%s: there is no %q", path, s)
		}
	}
	if at.kind != object {
		return fmt.Errorf("%s: it is no member of an object", path)
	}
	a.open(at)
	at.put(steps[last], *value)
	return nil
}

// pointer reports the keys whose Go fields in 1.9 are pointers, lists or maps, which
// null clears. It does not clear a text for certain, so that one stays.
func pointer(key string) bool {
	switch key {
	case "nodeName", "targetRef", "addresses", "notReadyAddresses", "ports", "subsets", "annotations", "labels":
		return true
	}
	return false
}

// inherited is the member of what 1.9 has when it has decoded after into before: a key
// that is missing stays. b is nil where the member is not decoded into anything; a is
// nil where there is no member.
func inherited(before, after *node, key string) (b, a *node) {
	b, a = before.get(key), after.get(key)
	switch {
	case a == nil, a.kind == null && !pointer(key):
		return nil, b
	case a.kind == null:
		return nil, nil
	}
	return b, a
}

// becomes reports whether 1.9 has want when it has decoded after into before, which may
// be nil. What omitempty leaves out is as if it were not there: "", null, [] and {}.
func becomes(before, after, want *node) bool {
	if want == nil || empty(nil, want) {
		return after == nil || empty(before, after)
	}
	if after == nil || after.kind != want.kind {
		return false
	}
	switch after.kind {
	case object:
		if before == nil && after.raw != "" && after.raw == want.raw {
			return true
		}
		for i := range want.kids {
			w := &want.kids[i]
			if b, a := inherited(before, after, w.key); !becomes(b, a, w) {
				return false
			}
		}
		return empties(before, after, want)
	case list:
		if len(after.kids) != len(want.kids) {
			return false
		}
		for i := range want.kids {
			var b *node
			if before != nil && before.kind == list && i < len(before.kids) {
				b = &before.kids[i]
			}
			// Elements are not left out: null, "" and {} are three things.
			if after.kids[i].kind != want.kids[i].kind || !becomes(b, &after.kids[i], &want.kids[i]) {
				return false
			}
		}
		return true
	case str:
		return after.raw == want.raw || unquote(after.raw) == unquote(want.raw)
	}
	return after.raw == want.raw
}

// empties reports whether the members that want has not are as if they were not there.
func empties(before, after, want *node) bool {
	for i := range after.kids {
		k := after.kids[i].key
		if want.get(k) != nil {
			continue
		}
		if b, a := inherited(before, after, k); a != nil && !empty(b, a) {
			return false
		}
	}
	if before == nil || before.kind != object {
		return true
	}
	for i := range before.kids {
		b := &before.kids[i]
		if after.get(b.key) == nil && want.get(b.key) == nil && !empty(nil, b) {
			return false
		}
	}
	return true
}

var nothing = &node{kind: object}

// empty reports whether after, decoded into before, is one of "", null, [] and {}, with
// such members only.
func empty(before, after *node) bool {
	switch after.kind {
	case null:
		return true
	case str:
		return len(after.raw) == 2
	case list:
		return len(after.kids) == 0
	case object:
		return empties(before, after, nothing)
	}
	return false
}
