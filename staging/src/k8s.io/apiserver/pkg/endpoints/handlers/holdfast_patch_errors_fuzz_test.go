// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"encoding/json"
	"math/rand"
	"os"
	"testing"
)

var (
	patchPointers = []interface{}{"", "/", "/spec", "/metadata", "/metadata/name", "/metadata/labels", "/metadata/finalizers", "/metadata/finalizers/0",
		"/metadata/finalizers/-", "/metadata/finalizers/-1", "/metadata/finalizers/9", "/metadata/finalizers/1000000000", "/metadata/ownerReferences/0",
		"/metadata/ownerReferences/0/uid", "/spec/x", "/spec/x/y", "/metadata/x", "/kind", "x", nil, 5, map[string]interface{}{}}
	patchOperations = []interface{}{"add", "remove", "replace", "move", "copy", "copy", "test", "none", nil, 1}
	patchKeys       = []string{"metadata", "spec", "kind", "apiVersion", "finalizers", "labels", "ownerReferences", "uid", "name", "annotations",
		"$patch", "$setElementOrder/finalizers", "$setElementOrder/ownerReferences", "$deleteFromPrimitiveList/finalizers", "$retainKeys", "deletionTimestamp"}
	patchValues = []interface{}{nil, true, 1, -1.5, "", "x", "o", "a/b", "delete", "replace", "merge"}
)

// patchValue is any JSON, at most depth deep.
func patchValue(r *rand.Rand, depth int) interface{} {
	switch n := r.Intn(6); {
	case depth > 0 && n < 3:
		o := map[string]interface{}{}
		for i := r.Intn(4); i > 0; i-- {
			o[patchKeys[r.Intn(len(patchKeys))]] = patchValue(r, depth-1)
		}
		return o
	case depth > 0 && n < 5:
		list := []interface{}{}
		for i := r.Intn(4); i > 0; i-- {
			list = append(list, patchValue(r, depth-1))
		}
		return list
	default:
		return patchValues[r.Intn(len(patchValues))]
	}
}

// TestPatchErrorsFuzz: no patch ends the process, and none answers what is the server's
// fault, but for what strategicpatch of v1.9.11 finds itself, such as a missing merge key.
func TestPatchErrorsFuzz(t *testing.T) {
	n := 5000
	if os.Getenv("HOLDFAST_EXHAUSTIVE") != "" {
		n = 1000000
	}
	r := rand.New(rand.NewSource(1))
	answers := map[string]map[int32]int{"json": {}, "merge": {}, "strategic": {}}
	for i := 0; i < n; i++ {
		for kind := range answers {
			var patch interface{}
			switch {
			case kind == "json":
				ops := []interface{}{}
				for i := r.Intn(5); i >= 0; i-- {
					op := map[string]interface{}{"op": patchOperations[r.Intn(len(patchOperations))], "path": patchPointers[r.Intn(len(patchPointers))]}
					if r.Intn(2) == 0 {
						op["value"] = patchValue(r, 2)
					}
					if r.Intn(2) == 0 {
						op["from"] = patchPointers[r.Intn(len(patchPointers))]
					}
					if r.Intn(20) == 0 {
						delete(op, "path")
					}
					ops = append(ops, op)
				}
				patch = ops
			case r.Intn(2) == 0:
				patch = map[string]interface{}{"metadata": patchValue(r, 3)}
			default:
				patch = patchValue(r, 4)
			}
			text, err := json.Marshal(patch)
			if err != nil {
				t.Fatal(err)
			}
			got := patchOf(t, kind, string(text))
			answers[kind][got.Code]++
			switch {
			case got.Code == 200 || got.Code == 400 || got.Code == 409 || got.Code == 422:
			case kind == "strategic" && got.Code == 500:
			default:
				t.Errorf("%s %s: %d %q", kind, text, got.Code, got.Message)
			}
		}
	}
	for kind, codes := range answers {
		if codes[200]+codes[409] == 0 || codes[400]+codes[422] == 0 {
			t.Errorf("%s: the patches are all good, or all bad: %v", kind, codes)
		}
	}
	t.Logf("%d patches of each type: %v", n, answers)
}
