// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"slices"
	"strconv"
	"strings"

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

// The optional fields of an address, of its targetRef and of a port, as what clears
// them in 1.9: "" for a text, null for a pointer.
var (
	addressFields = []field{{"hostname", `""`}, {"nodeName", "null"}, {"targetRef", "null"}}
	refFields     = []field{{"kind", `""`}, {"namespace", `""`}, {"name", `""`}, {"uid", `""`}, {"apiVersion", `""`}, {"resourceVersion", `""`}, {"fieldPath", `""`}}
	portFields    = []field{{"name", `""`}}
)

type field struct{ key, clear string }

// patchWriter writes a JSON patch.
type patchWriter struct{ b []byte }

// op begins an operation; what is written next is its value, and then comes end.
func (w *patchWriter) op(path string) {
	if len(w.b) == 0 {
		w.b = append(w.b, '[')
	} else {
		w.b = append(w.b, ',')
	}
	w.b = append(w.b, `{"op":"add","path":`...)
	w.b = append(w.b, quote(path)...)
	w.b = append(w.b, `,"value":`...)
}

func (w *patchWriter) end() { w.b = append(w.b, '}') }

// spelled writes an object as it is, with the fields that it lacks.
func (w *patchWriter) spelled(raw string, n *node, fields []field) {
	w.b = append(w.b, raw[:len(raw)-1]...)
	more := len(n.kids) > 0
	for _, f := range fields {
		if n.get(f.key) != nil {
			continue
		}
		if more {
			w.b = append(w.b, ',')
		}
		more = true
		w.b = append(w.b, '"')
		w.b = append(w.b, f.key...)
		w.b = append(w.b, `":`...)
		w.b = append(w.b, f.clear...)
	}
	w.b = append(w.b, '}')
}

func (w *patchWriter) address(n *node) {
	ref := n.get("targetRef")
	if ref == nil || ref.kind != object {
		w.spelled(n.raw, n, addressFields)
		return
	}
	at := ref.at - n.at
	w.b = append(w.b, n.raw[:at]...)
	w.spelled(ref.raw, ref, refFields)
	w.spelled(n.raw[at+uint32(len(ref.raw)):], n, addressFields)
}

func (w *patchWriter) list(l []*node) {
	w.b = append(w.b, '[') // [] and not null: that is what empties a list
	for i, n := range l {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.address(n)
	}
	w.b = append(w.b, ']')
}

// subset writes a whole subset, for when their number changes.
func (w *patchWriter) subset(s subset) {
	w.b = append(w.b, `{"addresses":`...)
	w.list(s.ready)
	w.b = append(w.b, `,"notReadyAddresses":`...)
	w.list(s.notReady)
	w.b = append(w.b, `,"ports":[`...)
	if ports := s.node.get("ports"); ports != nil && ports.kind == list {
		for i := range ports.kids {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			if p := &ports.kids[i]; p.kind == object {
				w.spelled(p.raw, p, portFields)
			} else {
				w.b = append(w.b, p.raw...)
			}
		}
	}
	w.b = append(w.b, ']')
	for i := range s.node.kids {
		switch m := &s.node.kids[i]; m.key {
		case "addresses", "notReadyAddresses", "ports":
		default:
			w.b = append(w.b, ',')
			w.b = append(w.b, quote(m.key)...)
			w.b = append(w.b, ':')
			w.b = append(w.b, m.raw...)
		}
	}
	w.b = append(w.b, '}')
}

// change is what is to become of an object.
type change struct {
	o *endpointsObject
	// subsets are the new ones, one for each of o's; empty ones go.
	subsets []subset
	// note is the new value of the annotation names.Rules.
	note string
}

// moved reports whether a subset has other lists than before, whose elements are shared.
func moved(before, after subset) bool {
	return !slices.Equal(before.ready, after.ready) || !slices.Equal(before.notReady, after.notReady)
}

func (s subset) empty() bool { return len(s.ready)+len(s.notReady) == 0 }

// goes reports whether a subset loses its last address.
func (c *change) goes(i int) bool { return c.subsets[i].empty() && !c.o.subsets[i].empty() }

const (
	// maxAnnotations is what an API server takes for all annotations of an object.
	maxAnnotations = 256 << 10
	// maxMoved subsets are written list by list; of more, all are written in one
	// operation, as the server looks for the place of each.
	maxMoved = 50
)

// ops writes the operations; nothing where nothing changes. noted reports whether the
// annotation is one of them.
func (c *change) ops() (patch []byte, noted bool) {
	w, gone, changed, size := &patchWriter{}, false, 0, 0
	for i, s := range c.subsets {
		gone = gone || c.goes(i)
		if moved(c.o.subsets[i], s) {
			changed++
			size += len(s.node.raw) + 100*(len(s.ready)+len(s.notReady))
		}
	}
	w.b = make([]byte, 0, size+1024)
	if gone || changed > maxMoved {
		w.op("/subsets")
		sep := byte('[')
		for i, s := range c.subsets {
			if c.goes(i) {
				continue
			}
			w.b = append(w.b, sep)
			sep = ','
			w.subset(s)
		}
		if sep == '[' {
			w.b = append(w.b, '[')
		}
		w.b = append(w.b, ']')
		w.end()
	} else {
		for i, s := range c.subsets {
			if !moved(c.o.subsets[i], s) {
				continue
			}
			path := "/subsets/" + strconv.Itoa(i)
			w.op(path + "/addresses")
			w.list(s.ready)
			w.end()
			w.op(path + "/notReadyAddresses")
			w.list(s.notReady)
			w.end()
		}
	}
	if noted = c.notes(); noted {
		if c.o.annotations() == nil {
			w.op("/metadata/annotations")
			w.b = append(w.b, "{"+quote(names.Rules)+":"+quote(c.note)+"}"...)
		} else {
			w.op("/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(names.Rules))
			w.b = append(w.b, quote(c.note)...)
		}
		w.end()
	}
	if len(w.b) == 0 {
		return nil, false
	}
	return append(w.b, ']'), noted
}

// notes reports whether the annotation is to be written.
func (c *change) notes() bool {
	a := c.o.annotations()
	if c.note == a.text(names.Rules) {
		return false
	}
	size := len(names.Rules) + len(c.note)
	if a != nil {
		for i := range a.kids {
			size += len(a.kids[i].key) + len(a.kids[i].raw)
		}
	}
	meta := c.o.root.get("metadata")
	return size <= maxAnnotations && meta != nil && meta.kind == object
}

// patch makes the patch and checks it; nil where nothing changes.
func (c *change) patch() ([]byte, error) {
	p, noted := c.ops()
	if p == nil {
		return nil, nil
	}
	return p, c.verify(string(p), noted)
}
