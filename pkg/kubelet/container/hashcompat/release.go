// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashcompat

import (
	"reflect"
)

// Release prints objects other than containers as the code of older releases does.
type Release struct {
	root *node
}

// NewRelease returns a Release for values of type root. table lists each struct below it, in
// the form of this package's own, by the names that this build has for the types; named says
// what the older releases call a type. It returns what Drift does if the table and the types
// differ; the Release is nil then.
func NewRelease(root reflect.Type, table map[string]string, named func(reflect.Type) string) (*Release, []string) {
	if found := drift(root, table); len(found) > 0 {
		return nil, found
	}
	b := nodeBuilder{table: table, known: map[reflect.Type]*node{}, named: named}
	return &Release{b.build(root)}, nil
}

// Print returns what generation g prints for v, and false if v has a field set that g does
// not know, or a time, which g prints in another way on each machine. With newerGo it is the
// text of a build of that release with Go 1.9 or later.
func (r *Release) Print(v interface{}, g Generation, newerGo bool) ([]byte, bool) {
	d := &dump{}
	d.value(reflect.ValueOf(v), r.root, true)
	if !d.expressible(g) {
		return nil, false
	}
	text := make([]byte, 0, len(d.text))
	d.parts(g, newerGo, func(part []byte) { text = append(text, part...) })
	return text, true
}
