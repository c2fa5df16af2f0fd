// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// What is here says a second time, with encoding/json and a library for patches, what
// kube-apiserver 1.9 makes of a patch. Tests hold verify.go against it.

// tree is a JSON object with its numbers as they were written.
type tree = map[string]any

// decode reads one JSON value.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// apply19 is what kube-apiserver 1.9 has after a patch of an object.
func apply19(raw string, patch []byte) (tree, error) {
	v, err := decode([]byte(raw))
	if err != nil {
		return nil, err
	}
	before, ok := v.(tree)
	if !ok {
		return nil, errors.New("the object is none")
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("the patch does not decode: %w", err)
	}
	patched, err := p.Apply([]byte(raw))
	if err != nil {
		return nil, fmt.Errorf("the patch does not apply: %w", err)
	}
	v, err = decode(patched)
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
