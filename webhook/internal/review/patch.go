// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"holdfast/webhook/internal/names"
)

// kube-apiserver 1.9 applies a JSON patch to the JSON of the object, and then
// decodes the result INTO the object that it has
// (staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/mutating/admission.go:316,
// kubernetes#64255). So what is missing in the result stays as it was: a key
// that the patch removes, an annotation, an optional field of the list element
// that was at the same index. And a patch that does not apply, decode or
// validate refuses the request, with failurePolicy Ignore as well.
//
// Therefore a patch here has "add" operations only, each with a whole list whose
// elements have every optional field spelled out; and verify plays the server
// before a patch is sent.

// op is one operation of a JSON patch.
type op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// spelled is an address with every optional field there. "" is what clears a
// text in 1.9, null a pointer.
func spelled(a tree) tree {
	out := maps.Clone(a)
	if _, ok := out["hostname"]; !ok {
		out["hostname"] = ""
	}
	if _, ok := out["nodeName"]; !ok {
		out["nodeName"] = nil
	}
	ref, ok := out["targetRef"].(tree)
	if !ok {
		out["targetRef"] = nil
		return out
	}
	ref = maps.Clone(ref)
	for _, k := range []string{"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"} {
		if _, ok := ref[k]; !ok {
			ref[k] = ""
		}
	}
	out["targetRef"] = ref
	return out
}

func spelledList(l []tree) []any {
	out := make([]any, len(l)) // [] and not null: that is what empties a list
	for i := range l {
		out[i] = spelled(l[i])
	}
	return out
}

// spelledSubset is a whole subset, for when their number changes.
func spelledSubset(s subset, ready, notReady []tree) tree {
	out := maps.Clone(s.whole)
	out["addresses"], out["notReadyAddresses"] = spelledList(ready), spelledList(notReady)
	ports := []any{}
	if l, ok := s.whole["ports"].([]any); ok {
		for _, p := range l {
			if t, ok := p.(tree); ok {
				t = maps.Clone(t)
				if _, ok := t["name"]; !ok {
					t["name"] = ""
				}
				p = t
			}
			ports = append(ports, p)
		}
	}
	out["ports"] = ports
	return out
}

// change is what is to become of an object.
type change struct {
	o *object
	// subsets are the new ones, one for each of o's; empty ones go.
	subsets []subset
	// note is the new value of the annotation names.Rules.
	note string
}

// moved reports whether a subset has other lists than before.
func moved(before, after subset) bool {
	return !same(before.ready, after.ready) || !same(before.notReady, after.notReady)
}

// same compares lists whose elements are shared.
func same(a, b []tree) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if reflect.ValueOf(a[i]).Pointer() != reflect.ValueOf(b[i]).Pointer() {
			return false
		}
	}
	return true
}

// maxAnnotations is what an API server takes for all annotations of an object.
const maxAnnotations = 256 << 10

// ops are the operations; none where nothing changes.
func (c *change) ops() []op {
	var out []op
	gone := false
	for i, s := range c.subsets {
		gone = gone || len(s.ready)+len(s.notReady) == 0 && len(c.o.subsets[i].ready)+len(c.o.subsets[i].notReady) > 0
	}
	if gone {
		all := []any{}
		for _, s := range c.subsets {
			if len(s.ready)+len(s.notReady) > 0 {
				all = append(all, spelledSubset(s, s.ready, s.notReady))
			}
		}
		out = append(out, op{"add", "/subsets", all})
	} else {
		for i, s := range c.subsets {
			if moved(c.o.subsets[i], s) {
				out = append(out,
					op{"add", fmt.Sprintf("/subsets/%d/addresses", i), spelledList(s.ready)},
					op{"add", fmt.Sprintf("/subsets/%d/notReadyAddresses", i), spelledList(s.notReady)})
			}
		}
	}
	if c.note == text(c.o.annotations(), names.Rules) {
		return out
	}
	size := len(names.Rules) + len(c.note)
	for k, v := range c.o.annotations() {
		s, _ := v.(string)
		size += len(k) + len(s)
	}
	switch {
	case size > maxAnnotations || c.o.meta() == nil:
	case c.o.annotations() == nil:
		out = append(out, op{"add", "/metadata/annotations", tree{names.Rules: c.note}})
	default:
		out = append(out, op{"add", "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(names.Rules), c.note})
	}
	return out
}

// patch makes the patch and checks it; nil where nothing changes.
func (c *change) patch(raw []byte) ([]byte, error) {
	ops := c.ops()
	if len(ops) == 0 {
		return nil, nil
	}
	p, err := json.Marshal(ops)
	if err != nil {
		return nil, err
	}
	return p, c.verify(raw, p)
}

// verify applies a patch as 1.9 does and compares with what is meant.
func (c *change) verify(raw, patch []byte) error {
	got, err := apply19(raw, c.o.whole, patch)
	if err != nil {
		return err
	}
	want := maps.Clone(c.o.whole)
	subsets := []any{}
	for i, s := range c.subsets {
		if len(s.ready)+len(s.notReady) == 0 && len(c.o.subsets[i].ready)+len(c.o.subsets[i].notReady) > 0 {
			continue
		}
		t := maps.Clone(s.whole)
		t["addresses"], t["notReadyAddresses"] = anyList(s.ready), anyList(s.notReady)
		subsets = append(subsets, t)
	}
	want["subsets"] = subsets
	clean := canonical(got).(tree)
	if !equal(clean["subsets"], canonical(want).(tree)["subsets"]) {
		return fmt.Errorf("1.9 would make other addresses of the patch than are meant")
	}
	// The annotation is a note: what matters is that nothing else changed.
	meta, _ := clean["metadata"].(tree)
	notes, _ := meta["annotations"].(tree)
	before, _ := canonical(c.o.meta()).(tree)
	old, _ := before["annotations"].(tree)
	notes, old = maps.Clone(notes), maps.Clone(old)
	delete(notes, names.Rules)
	delete(old, names.Rules)
	if !maps.EqualFunc(notes, old, func(a, b any) bool { return a == b }) {
		return fmt.Errorf("1.9 would change other annotations by the patch")
	}
	for _, l := range subsets {
		t := l.(tree)
		if len(t["addresses"].([]any))+len(t["notReadyAddresses"].([]any)) == 0 {
			return fmt.Errorf("a subset would have no addresses, which 1.9 refuses")
		}
	}
	return nil
}

func anyList(l []tree) []any {
	out := make([]any, len(l))
	for i := range l {
		out[i] = l[i]
	}
	return out
}

// apply19 is what kube-apiserver 1.9 has after a patch of an object, whose tree
// is given as well.
func apply19(raw []byte, before tree, patch []byte) (tree, error) {
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("the patch does not decode: %w", err)
	}
	patched, err := p.Apply(raw)
	if err != nil {
		return nil, fmt.Errorf("the patch does not apply: %w", err)
	}
	v, err := decode(patched)
	if err != nil {
		return nil, fmt.Errorf("the patched object does not decode: %w", err)
	}
	after, ok := v.(tree)
	if !ok {
		return nil, fmt.Errorf("the patched object is none")
	}
	return inherit(before, after).(tree), nil
}

// pointers are the keys whose Go fields in 1.9 are pointers, lists or maps, which
// null clears. It does not clear a text for certain, so that one stays.
var pointers = []string{"nodeName", "targetRef", "addresses", "notReadyAddresses", "ports", "subsets", "annotations", "labels"}

// inherit decodes a JSON value into the one that is there, as 1.9 does: a key
// that is missing stays, and list elements are decoded into those at their index.
func inherit(old, new any) any {
	switch n := new.(type) {
	case tree:
		o, ok := old.(tree)
		if !ok {
			return n
		}
		out := maps.Clone(o)
		for k, v := range n {
			switch {
			case v != nil:
				out[k] = inherit(o[k], v)
			case slices.Contains(pointers, k):
				delete(out, k)
			}
		}
		return out
	case []any:
		o, _ := old.([]any)
		out := make([]any, len(n))
		for i := range n {
			if i < len(o) {
				out[i] = inherit(o[i], n[i])
			} else {
				out[i] = n[i]
			}
		}
		return out
	}
	return new
}

// canonical leaves out what omitempty leaves out: "", null, [] and {}.
func canonical(v any) any {
	switch t := v.(type) {
	case tree:
		out := make(tree, len(t))
		for k, e := range t {
			c := canonical(e)
			switch x := c.(type) {
			case nil:
			case string:
				if x != "" {
					out[k] = c
				}
			case []any:
				if len(x) > 0 {
					out[k] = c
				}
			case tree:
				if len(x) > 0 {
					out[k] = c
				}
			default:
				out[k] = c
			}
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i := range t {
			out[i] = canonical(t[i])
		}
		return out
	}
	return v
}

// equal compares canonical values.
func equal(a, b any) bool {
	switch x := a.(type) {
	case tree:
		y, ok := b.(tree)
		return ok && maps.EqualFunc(x, y, equal)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equal)
	}
	return a == b
}
