// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/evanphx/json-patch"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// maxCopied is how many bytes the documents may have together that are written because
// of the operations "copy" of one JSON patch, each as large as the whole object. It is
// a second of work. An object of 1 MiB may be changed by 64 of them, one of the usual
// 10 KiB by 6,000.
const maxCopied = 64 << 20

// applyWithCopies is patch.Apply, only that the value at "path" of an operation "copy"
// is a copy of the one at "from". The library (patch.go of 2017-07-19) puts the same
// node there twice: a later operation changes both, and a copy to a place inside of
// itself is a circle at which the library's encoder ends the process, because nothing
// recovers from a full stack. Copies of copies double the object with each operation,
// so what they may write is limited. So is the index at which "copy" and "move" make a
// list as long as it says: no list of the object has more items than the object has
// bytes.
//
// The library does the whole of it, with its own errors: "copy" from A to B is "copy"
// from A to a new member of the object, then, from the object written and read again,
// from there to B. One difference is left: a null that an operation before a "copy"
// wrote is a member that does not exist for a "replace" after it, as a null of doc is.
func applyWithCopies(patch jsonpatch.Patch, doc []byte) ([]byte, error) {
	member := string(uuid.NewUUID())
	pointer := quoted("/" + member)
	written := 0
	var now jsonpatch.Patch // the operations that doc is still to get
	for _, op := range patch {
		kind := text(op["op"])
		if kind == "copy" {
			first := map[string]*json.RawMessage{"op": op["op"], "path": pointer}
			if from, ok := op["from"]; ok {
				first["from"] = from
			}
			var err error
			if doc, err = append(now, first).Apply(doc); err != nil {
				return nil, err
			}
			now, written = nil, written+len(doc)
			op = with(op, "from", pointer)
		}
		path := text(op["path"])
		last := strings.LastIndex(path, "/") + 1
		if index, err := strconv.Atoi(path[last:]); err == nil && index > len(doc)+len(patch) && (kind == "copy" || kind == "move") {
			// A member of an object may have that name. With another one, only a list refuses it.
			_, err := append(now[:len(now):len(now)], with(op, "path", quoted(path[:last]+member))).Apply(doc)
			if e, ok := err.(*strconv.NumError); ok && e.Num == member {
				return nil, fmt.Errorf("Unable to access invalid index: %d", index)
			}
			written += len(doc)
		}
		if written > maxCopied {
			return nil, fmt.Errorf("the copy operations of the JSON patch write more than %d MiB: send fewer of them in one patch", maxCopied>>20)
		}
		now = append(now, op)
		if kind == "copy" {
			now = append(now, map[string]*json.RawMessage{"op": quoted("remove"), "path": pointer})
		}
	}
	return now.Apply(doc)
}

// with is op with that value of a member.
func with(op map[string]*json.RawMessage, member string, value *json.RawMessage) map[string]*json.RawMessage {
	changed := map[string]*json.RawMessage{}
	for k, v := range op {
		changed[k] = v
	}
	changed[member] = value
	return changed
}

// quoted is s as JSON.
func quoted(s string) *json.RawMessage {
	b, _ := json.Marshal(s) // of a string, it cannot fail
	return (*json.RawMessage)(&b)
}

// text is the string that m is, "" if it is none.
func text(m *json.RawMessage) string {
	var s string
	if m == nil || json.Unmarshal(*m, &s) != nil {
		return ""
	}
	return s
}
