// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/evanphx/json-patch"
)

// maxCopied is how many bytes the values together may have that the operations "copy" of
// one JSON patch write, with 8 for each null that "copy" and "move" put before an index
// behind the end of a list. It is five times what etcd stores of one object. Copies of
// copies double the object with each operation, and each of a million indexes could
// lengthen another list.
const maxCopied = 8 << 20

// applyWithCopies is patch.Apply with the answers and errors of the library (patch.go of
// 2017-07-19), in the time of its operations, with these differences:
//
//   - The value at "path" of an operation "copy" is a copy of the one at "from". The library
//     puts the same node there twice: a later operation changes both, and a copy to a place
//     inside of itself is a circle at which its encoder ends the process, because nothing
//     recovers from a full stack. What copies write is limited, see maxCopied.
//   - "copy" and "move" do not make a list as long as the index says: no list of the object
//     has more items than object and patch have bytes and operations.
//   - Where the library dereferences a nil pointer, or slices outside of a list, there is an
//     error; and a null in a value is equal to a null.
func applyWithCopies(patch jsonpatch.Patch, doc []byte) ([]byte, error) {
	raw := json.RawMessage(doc)
	root := &patchNode{raw: &raw}
	if err := root.open(); err != nil {
		return nil, err
	}
	p := patcher{root: root, longest: len(doc) + len(patch)}
	for _, op := range patch {
		if err := p.apply(op); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	root.write(&b)
	return json.Marshal(json.RawMessage(b.Bytes()))
}

// errNullMember is of an operation that the library does not survive.
var errNullMember = errors.New("an operation of the JSON patch has a member that is null or missing")

func errIndex(index int) error { return fmt.Errorf("Unable to access invalid index: %d", index) }

// patchNode is a value of the document: raw until an operation looks into it, then an
// object or a list. A null of the document is a nil *patchNode; a null that an operation
// writes has a nil raw, and unlike the other one it is a member that can be replaced.
type patchNode struct {
	raw    *json.RawMessage // never changed, so that nodes may share it
	object map[string]*patchNode
	list   []*patchNode
	opened bool
}

func (n *patchNode) null() bool { return n == nil || n.raw == nil }

func (n *patchNode) isList() bool {
	return bytes.HasPrefix(bytes.TrimLeft(*n.raw, " \t\r\n"), []byte("["))
}

// UnmarshalJSON is never called for a null.
func (n *patchNode) UnmarshalJSON(data []byte) error {
	raw := json.RawMessage(append([]byte{}, data...))
	n.raw = &raw
	return nil
}

// open makes n an object or a list. It is an error if n is neither.
func (n *patchNode) open() (err error) {
	switch {
	case n.opened:
		return nil
	case n.isList():
		err = json.Unmarshal(*n.raw, &n.list)
	default:
		err = json.Unmarshal(*n.raw, &n.object)
	}
	n.opened = err == nil
	return err
}

// get is the member or item of that name, nil if an object has none.
func (n *patchNode) get(key string) (*patchNode, error) {
	if !n.isList() {
		return n.object[key], nil
	}
	index, err := strconv.Atoi(key)
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= len(n.list) {
		return nil, errIndex(index)
	}
	return n.list[index], nil
}

func (n *patchNode) add(key string, value *patchNode) error {
	if !n.isList() {
		n.object[key] = value
		return nil
	}
	index := len(n.list)
	if key != "-" {
		var err error
		if index, err = strconv.Atoi(key); err != nil {
			return err
		}
		if index < 0 {
			// -1 is behind the last item.
			if index = len(n.list) + 1 + index; index < 0 {
				return errIndex(len(n.list) + 1 - index)
			}
		}
		if index > len(n.list) {
			return errIndex(index)
		}
	}
	n.list = append(n.list, nil)
	copy(n.list[index+1:], n.list[index:])
	n.list[index] = value
	return nil
}

func (n *patchNode) remove(key string) error {
	if !n.isList() {
		if _, ok := n.object[key]; !ok {
			return fmt.Errorf("Unable to remove nonexistent key: %s", key)
		}
		delete(n.object, key)
		return nil
	}
	index, err := strconv.Atoi(key)
	if err != nil {
		return err
	}
	if index < 0 || index >= len(n.list) {
		return fmt.Errorf("Unable to remove invalid index: %d", index)
	}
	n.list = append(n.list[:index], n.list[index+1:]...)
	return nil
}

// equal is true also if o is an object that has all members of n and others, as it is for
// the library.
func (n *patchNode) equal(o *patchNode) bool {
	if n.null() || o.null() {
		return n.null() && o.null()
	}
	if n.open() != nil {
		return o.open() != nil && bytes.Equal(compact(*n.raw), compact(*o.raw))
	}
	if o.open() != nil || n.isList() != o.isList() || len(n.list) != len(o.list) {
		return false
	}
	for i, item := range n.list {
		if !item.equal(o.list[i]) {
			return false
		}
	}
	for key, member := range n.object {
		if other, ok := o.object[key]; !ok || !member.equal(other) {
			return false
		}
	}
	return true
}

func compact(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// write writes n as JSON.
func (n *patchNode) write(b *bytes.Buffer) {
	switch {
	case n.null():
		b.WriteString("null")
	case !n.opened:
		b.Write(*n.raw)
	case n.isList():
		b.WriteByte('[')
		for i, item := range n.list {
			if i > 0 {
				b.WriteByte(',')
			}
			item.write(b)
		}
		b.WriteByte(']')
	default:
		keys := make([]string, 0, len(n.object))
		for key := range n.object {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		b.WriteByte('{')
		for i, key := range keys {
			if i > 0 {
				b.WriteByte(',')
			}
			name := []byte(`"` + key + `"`)
			if !plain(key) {
				name, _ = json.Marshal(key) // of a string, it cannot fail
			}
			b.Write(append(name, ':'))
			n.object[key].write(b)
		}
		b.WriteByte('}')
	}
}

// patcher applies operations to root.
type patcher struct {
	root    *patchNode
	longest int // a list may be made
	copied  int // of maxCopied
}

func (p *patcher) apply(op map[string]*json.RawMessage) error {
	kind, err := text(op, "op")
	if err != nil {
		return err
	}
	var value *patchNode // of add, replace and test; nil if there is none
	if raw, ok := op["value"]; ok {
		value = &patchNode{raw: raw}
	}
	switch kind {
	case "add", "remove", "replace", "test":
		in, key, path, err := p.find(op, "path")
		if err != nil {
			return err
		}
		if in == nil {
			doc := map[bool]string{true: "is", false: "doc is"}[kind == "test"]
			return fmt.Errorf("jsonpatch %s operation does not apply: %s missing path: %s", kind, doc, path)
		}
		switch kind {
		case "add":
			return in.add(key, value)
		case "remove":
			return in.remove(key)
		case "replace":
			if old, err := in.get(key); err != nil || old == nil {
				return fmt.Errorf("jsonpatch replace operation does not apply: doc is missing key: %s", path)
			}
			return p.set(in, key, value)
		}
		got, err := in.get(key)
		switch {
		case err != nil:
			return err
		case value == nil:
			return errNullMember
		case !got.equal(value):
			return fmt.Errorf("Testing value %s failed", path)
		}
		return nil
	case "move", "copy":
		in, key, from, err := p.find(op, "from")
		if err != nil {
			return err
		}
		if in == nil {
			return fmt.Errorf("jsonpatch %s operation does not apply: doc is missing from path: %s", kind, from)
		}
		if value, err = in.get(key); err != nil {
			return err
		}
		if kind == "move" {
			err = in.remove(key)
		} else {
			value, err = p.copy(value)
		}
		if err != nil {
			return err
		}
		in, key, path, err := p.find(op, "path")
		if err != nil {
			return err
		}
		if in == nil {
			return fmt.Errorf("jsonpatch %s operation does not apply: doc is missing destination path: %s", kind, path)
		}
		return p.set(in, key, value)
	}
	return fmt.Errorf("Unexpected kind: %s", kind)
}

var pointerDecoder = strings.NewReplacer("~1", "/", "~0", "~") // RFC 6901, section 4

// find is the object or list that the path in a member of op leads to, nil if there is
// none, then the last part of the path, and the path.
func (p *patcher) find(op map[string]*json.RawMessage, member string) (in *patchNode, key, path string, err error) {
	if path, err = text(op, member); err != nil {
		return nil, "", "", err
	}
	parts := strings.Split(path, "/")
	if len(parts) < 2 {
		return nil, "", path, nil
	}
	in = p.root
	for _, part := range parts[1 : len(parts)-1] {
		next, err := in.get(pointerDecoder.Replace(part))
		if err != nil || next.null() || next.open() != nil {
			return nil, "", path, nil
		}
		in = next
	}
	return in, pointerDecoder.Replace(parts[len(parts)-1]), path, nil
}

// set puts value at key. Unlike add it takes the place of an item of a list.
func (p *patcher) set(in *patchNode, key string, value *patchNode) error {
	if !in.isList() || key == "-" {
		return in.add(key, value)
	}
	index, err := strconv.Atoi(key)
	if err != nil {
		return err
	}
	if index < 0 || index > p.longest {
		return errIndex(index)
	}
	if more := index + 1 - len(in.list); more > 0 {
		if err := p.charge(8 * (more - 1)); err != nil {
			return err
		}
		in.list = append(in.list, make([]*patchNode, more)...)
	}
	in.list[index] = value
	return nil
}

// copy is a value of its own. One that no operation has looked into is not read.
func (p *patcher) copy(n *patchNode) (*patchNode, error) {
	if n.null() {
		return n, nil
	}
	raw := n.raw
	if n.opened {
		var b bytes.Buffer
		n.write(&b)
		written := json.RawMessage(b.Bytes())
		raw = &written
	}
	return &patchNode{raw: raw}, p.charge(len(*raw))
}

func (p *patcher) charge(size int) error {
	if p.copied += size; p.copied > maxCopied {
		return fmt.Errorf("the copy operations of the JSON patch write more than %d MiB: send fewer of them in one patch", maxCopied>>20)
	}
	return nil
}

// text is a member of an operation, "unknown" if it is missing or no string, which is
// what the library makes of it.
func text(op map[string]*json.RawMessage, member string) (string, error) {
	raw, ok := op[member]
	if ok && raw == nil {
		return "", errNullMember
	}
	if ok && len(*raw) > 1 && (*raw)[0] == '"' && plain(string((*raw)[1:len(*raw)-1])) {
		return string((*raw)[1 : len(*raw)-1]), nil
	}
	var s string
	if !ok || json.Unmarshal(*raw, &s) != nil {
		return "unknown", nil
	}
	return s, nil
}

// plain reports whether s stands between quotes in JSON as it is: ASCII without escapes.
// Most names and paths do, and calling package json for each takes most of a patch's time.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
