// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/evanphx/json-patch"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

func decodePatch(t *testing.T, text string) jsonpatch.Patch {
	patch, err := jsonpatch.DecodePatch([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// TestPatchCopies: the value at "path" is one of its own, and the object has no member
// more than the patch says. What the library answers is given where it is not the same:
// that shows the cases at which the copies matter.
func TestPatchCopies(t *testing.T) {
	for _, tc := range []struct{ name, doc, patch, want, library string }{
		{"copy", `{"a":{"b":1}}`, `[{"op":"copy","from":"/a","path":"/c"}]`, `{"a":{"b":1},"c":{"b":1}}`, ""},
		{"changed after it", `{"a":{"b":1}}`, `[{"op":"copy","from":"/a","path":"/c"},{"op":"replace","path":"/c/b","value":2}]`,
			`{"a":{"b":1},"c":{"b":2}}`, `{"a":{"b":2},"c":{"b":2}}`},
		{"the origin is changed after it", `{"a":{"b":1}}`, `[{"op":"copy","from":"/a","path":"/c"},{"op":"remove","path":"/a/b"}]`,
			`{"a":{},"c":{"b":1}}`, `{"a":{},"c":{}}`},
		{"changed before it", `{"a":{"b":1}}`, `[{"op":"add","path":"/a/d","value":[1]},{"op":"copy","from":"/a","path":"/c"},{"op":"test","path":"/c/d","value":[1]}]`,
			`{"a":{"b":1,"d":[1]},"c":{"b":1,"d":[1]}}`, ""},
		{"into itself", `{"a":{"b":1}}`, `[{"op":"copy","from":"/a","path":"/a/c"}]`, `{"a":{"b":1,"c":{"b":1}}}`, "-"},
		{"twice into itself", `{"a":{"b":1}}`, `[{"op":"copy","from":"/a","path":"/a/c"},{"op":"copy","from":"/a","path":"/a/d"}]`,
			`{"a":{"b":1,"c":{"b":1},"d":{"b":1,"c":{"b":1}}}}`, "-"},
		{"into itself, written otherwise", `{"a~b":[[1]]}`, `[{"op":"copy","from":"/a~0b/0","path":"/a~0b/00/0"}]`, `{"a~b":[[[1]]]}`, "-"},
		{"into an item of a list", `{"a":[1,2]}`, `[{"op":"copy","from":"/a/0","path":"/a/1"}]`, `{"a":[1,1]}`, ""},
		{"of a member that is not there", `{"a":1}`, `[{"op":"copy","from":"/b","path":"/c"}]`, `{"a":1,"c":null}`, ""},
		{"null", `{"a":null}`, `[{"op":"copy","from":"/a","path":"/b"}]`, `{"a":null,"b":null}`, ""},
		{"to a name that is a number", `{"a":{},"b":1}`, `[{"op":"copy","from":"/b","path":"/a/1000000000"}]`, `{"a":{"1000000000":1},"b":1}`, ""},
		{"a move to a name that is a number", `{"a":{},"b":1}`, `[{"op":"move","from":"/b","path":"/a/1000000000"}]`, `{"a":{"1000000000":1}}`, ""},
		{"behind a list", `{"a":[1],"b":2}`, `[{"op":"copy","from":"/b","path":"/a/3"}]`, `{"a":[1,null,null,2],"b":2}`, ""},
		{"numbers keep their digits", `{"a":12345678901234567890.10}`, `[{"op":"copy","from":"/a","path":"/b"}]`,
			`{"a":12345678901234567890.10,"b":12345678901234567890.10}`, ""},
	} {
		got, err := applyJSONPatch(decodePatch(t, tc.patch), []byte(tc.doc))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %s, %v, want %s", tc.name, got, err, tc.want)
		}
		if tc.library == "-" {
			continue // its encoder does not end
		}
		if tc.library == "" {
			tc.library = tc.want
		}
		if got, err := decodePatch(t, tc.patch).Apply([]byte(tc.doc)); err != nil || string(got) != tc.library {
			t.Errorf("%s: the library answers %s, %v, want %s", tc.name, got, err, tc.library)
		}
	}
}

// TestPatchCopyErrors: the errors are the library's.
func TestPatchCopyErrors(t *testing.T) {
	for _, patch := range []string{
		`[{"op":"copy"}]`, `[{"op":"copy","from":"/a"}]`, `[{"op":"copy","path":"/a"}]`, `[{"op":"copy","from":5,"path":"/a"}]`,
		`[{"op":"copy","from":"/none/none","path":"/a"}]`, `[{"op":"copy","from":"/a","path":"/none/none"}]`,
		`[{"op":"copy","from":"/list/9","path":"/a"}]`, `[{"op":"copy","from":"/list/x","path":"/a"}]`, `[{"op":"copy","from":"/a","path":"/list/x"}]`,
		`[{"op":"copy","from":"/a","path":"/b"},{"op":"remove","path":"/none"}]`, `[{"op":"remove","path":"/none"},{"op":"copy","from":"/a","path":"/b"}]`,
	} {
		doc := []byte(`{"a":{},"list":[1]}`)
		_, want := decodePatch(t, patch).Apply(doc)
		if got, err := applyJSONPatch(decodePatch(t, patch), doc); err == nil || want == nil || err.Error() != want.Error() {
			t.Errorf("%s: %s, %v, the library says %v", patch, got, err, want)
		}
	}
}

// TestPatchCopyIndex: an operation makes no list of a billion items, also where the place
// is a list only after what the patch does before.
func TestPatchCopyIndex(t *testing.T) {
	for _, patch := range []string{
		`[{"op":"copy","from":"/b","path":"/list/1000000000"}]`,
		`[{"op":"move","from":"/b","path":"/list/1000000000"}]`,
		`[{"op":"add","path":"/c","value":[1]},{"op":"copy","from":"/b","path":"/c/1000000000"}]`,
		`[{"op":"add","path":"/c","value":[1]},{"op":"move","from":"/b","path":"/c/1000000000"}]`,
		`[{"op":"move","from":"/lists/0","path":"/lists/0/1000000000"}]`,
	} {
		got, err := applyJSONPatch(decodePatch(t, patch), []byte(`{"b":2,"list":[1],"lists":[{},[]]}`))
		if err == nil || err.Error() != "Unable to access invalid index: 1000000000" {
			t.Errorf("%s: %d bytes, %v", patch, len(got), err)
		}
	}
}

// TestPatchCopyLimit: operations that double the object each time end early.
func TestPatchCopyLimit(t *testing.T) {
	var ops []string
	for i := 0; i < 60; i++ {
		ops = append(ops, fmt.Sprintf(`{"op":"copy","from":"/a","path":"/a/%d"}`, i))
	}
	got, err := applyJSONPatch(decodePatch(t, "["+strings.Join(ops, ",")+"]"), []byte(`{"a":{"b":"x"}}`))
	if err == nil || !strings.Contains(err.Error(), "more than 8 MiB") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// What a client may send is far from it.
	doc := `{"a":{"b":"` + strings.Repeat("x", 10<<10) + `"}}`
	if _, err := applyJSONPatch(decodePatch(t, "["+strings.Join(ops[:5], ",")+"]"), []byte(doc)); err != nil {
		t.Error(err)
	}
}

// TestPatchOverflows: with the gate off, these patches end the process, as on stock. The
// process is a second one of this test.
func TestPatchOverflows(t *testing.T) {
	const variable = "HOLDFAST_TEST_PATCH"
	if patch := os.Getenv(variable); patch != "" {
		if err := utilfeature.DefaultFeatureGate.Set("PatchClientErrors=false"); err != nil {
			t.Fatal(err)
		}
		patchOf(t, "json", patch)
		return
	}
	n := 0
	for _, tc := range patchCases {
		if tc.stock != overflows {
			continue
		}
		n++
		cmd := exec.Command(os.Args[0], "-test.run", "^TestPatchOverflows$")
		cmd.Env = append(os.Environ(), variable+"="+tc.patch)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "stack overflow") {
			t.Errorf("%s: %v, %.300s", tc.name, err, out)
		}
	}
	if n == 0 {
		t.Error("no case that fills the stack")
	}
}
