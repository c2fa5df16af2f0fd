// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/evanphx/json-patch"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/endpoints/handlers/features"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// patchCase is a PATCH of the pod of patchOf, and what stock and ours answer.
type patchCase struct {
	name, kind, patch string
	stock, ours       int
}

// The answer of a stock server whose process ends: by a panic, or by a full stack, from
// which nothing recovers.
const (
	panics    = -1
	overflows = -2
)

var patchCases = []patchCase{
	{"JSON patch that is no JSON", "json", `{`, 500, 400},
	{"JSON patch that is no list", "json", `{"op":"remove","path":"/spec"}`, 500, 400},
	{"JSON patch of numbers", "json", `[1]`, 500, 400},
	{"empty JSON patch", "json", ``, 500, 400},
	{"unknown operation", "json", `[{"op":"merge","path":"/spec","value":{}}]`, 500, 422},
	{"no operation", "json", `[{}]`, 500, 422},
	{"null for an operation", "json", `[null]`, 500, 422},
	{"test of another value", "json", `[{"op":"test","path":"/metadata/name","value":"other"}]`, 500, 422},
	{"no such path", "json", `[{"op":"add","path":"/spec/none/none","value":1}]`, 500, 422},
	{"no such key", "json", `[{"op":"remove","path":"/metadata/labels"}]`, 500, 422},
	{"path that does not begin with a slash", "json", `[{"op":"replace","path":"spec","value":{}}]`, 500, 422},
	{"result of a wrong type", "json", `[{"op":"replace","path":"/metadata/name","value":{"a":1}}]`, 500, 422},
	{"result of another kind", "json", `[{"op":"replace","path":"/kind","value":"None"}]`, 500, 422},
	{"null for the word op", "json", `[{"op":null,"path":"/spec"}]`, panics, 422},
	{"null for the path", "json", `[{"op":"add","path":null,"value":1}]`, panics, 422},
	{"test without a value", "json", `[{"op":"test","path":"/metadata/labels"}]`, panics, 422},
	{"index behind a list", "json", `[{"op":"add","path":"/metadata/finalizers/7","value":"x"}]`, panics, 422},
	{"index before a list", "json", `[{"op":"remove","path":"/metadata/finalizers/-9"}]`, panics, 422},
	{"copy into itself", "json", `[{"op":"copy","from":"/metadata","path":"/metadata/x"}]`, overflows, 200},
	{"copies into each other", "json", `[{"op":"copy","from":"/spec","path":"/metadata/x"},{"op":"copy","from":"/metadata","path":"/spec/x"}]`, overflows, 200},
	{"copy of nothing", "json", `[{"op":"copy","from":"/none/none","path":"/spec/x"}]`, 500, 422},
	{"copy with a null for the place", "json", `[{"op":"copy","from":null,"path":"/spec/x"}]`, panics, 422},
	{"copy without a path", "json", `[{"op":"copy","from":"/spec"}]`, 500, 422},
	{"copy to no place", "json", `[{"op":"copy","from":"/metadata/name","path":"/none/none"}]`, 500, 422},
	{"good copy", "json", `[{"op":"copy","from":"/metadata/name","path":"/metadata/generateName"}]`, 200, 200},
	{"good JSON patch", "json", `[{"op":"add","path":"/metadata/finalizers/1","value":"x"}]`, 200, 200},
	{"JSON patch of nothing", "json", `[]`, 200, 200},
	{"merge patch that is no JSON", "merge", `{"a"`, 500, 400},
	{"empty merge patch", "merge", ``, 500, 400},
	{"merge patch that is a list", "merge", ` [{"spec":{}}]`, 500, 400},
	{"merge patch that is a number", "merge", `5`, 500, 400},
	{"merge patch that is null", "merge", `null`, 500, 400},
	{"merge patch with a wrong type", "merge", `{"metadata":{"name":{"a":1}}}`, 500, 422},
	{"good merge patch", "merge", `{"metadata":{"labels":{"a":"b"}}}`, 200, 200},
	{"strategic merge patch that is no JSON", "strategic", `{`, 400, 400},
	{"strategic merge patch with a wrong type", "strategic", `{"metadata":{"labels":{"a":["b"]}}}`, 500, 422},
	{"strategic merge patch with objects for the merge key", "strategic", `{"metadata":{"ownerReferences":[{"uid":{}},{"uid":{}}]}}`, panics, 422},
	{"strategic merge patch with an order of objects", "strategic", `{"metadata":{"$setElementOrder/finalizers":[{}]}}`, panics, 422},
	{"good strategic merge patch", "strategic", `{"metadata":{"labels":{"a":"b"}}}`, 200, 200},
}

// patchOf answers the PATCH of a pod with two finalizers through the handler's own
// function, with the status that the handler writes.
func patchOf(t *testing.T, kind, patch string) metav1.Status {
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", ResourceVersion: "1", Finalizers: []string{"a/b", "c/d"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "o"}}}}
	codec := codecs.LegacyCodec(examplev1.SchemeGroupVersion)
	pass := func(runtime.Object, runtime.Object) error { return nil }
	ptype := map[string]types.PatchType{"json": types.JSONPatchType, "merge": types.MergePatchType, "strategic": types.StrategicMergePatchType}[kind]
	_, err := patchResource(request.WithNamespace(request.NewDefaultContext(), "ns"), pass, func(runtime.Object) error { return nil }, pass,
		time.Minute, &examplev1.Pod{}, &testPatcher{t: t, startingPod: pod, updatePod: pod}, "p", ptype, []byte(patch),
		&testNamer{"ns", "p"}, scheme, scheme, scheme, examplev1.SchemeGroupVersion.WithKind("Pod"), examplev1.SchemeGroupVersion.WithResource("pods"), codec)
	if err == nil {
		return metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK}
	}
	return *responsewriters.ErrorToAPIStatus(namePatched(err, examplev1.SchemeGroupVersion.WithKind("Pod"), "p"))
}

// TestPatchErrors: each patch has the answer of its mistake, with the library's
// words; with the gate off, it has stock's. That also shows that each case is one
// that the hooks decide.
func TestPatchErrors(t *testing.T) {
	for _, on := range []bool{true, false} {
		if err := utilfeature.DefaultFeatureGate.Set(map[bool]string{true: "PatchClientErrors=true", false: "PatchClientErrors=false"}[on]); err != nil {
			t.Fatal(err)
		}
		defer utilfeature.DefaultFeatureGate.Set("PatchClientErrors=true")
		for _, tc := range patchCases {
			if !on && tc.stock < 0 {
				continue // TestPatchPanics, TestPatchOverflows
			}
			want := tc.ours
			if !on {
				want = tc.stock
			}
			got := patchOf(t, tc.kind, tc.patch)
			if int(got.Code) != want {
				t.Errorf("gate %v, %s: answered %d %q, want %d", on, tc.name, got.Code, got.Message, want)
				continue
			}
			if want == http.StatusOK {
				continue
			}
			reason := map[int]metav1.StatusReason{400: metav1.StatusReasonBadRequest, 422: metav1.StatusReasonInvalid}[want]
			if got.Reason != reason || got.Message == "" || got.Status != metav1.StatusFailure {
				t.Errorf("gate %v, %s: %+v, want the reason %q and a message", on, tc.name, got, reason)
			}
			// kubectl 1.9 prints the details of a 422 and nothing else.
			if d := got.Details; want == 422 && (d == nil || d.Kind != "Pod" || d.Name != "p" || len(d.Causes) != 1 || d.Causes[0].Message != got.Message) {
				t.Errorf("%s: the details are %+v", tc.name, d)
			}
		}
	}
}

// TestPatchMessage: the message is stock's.
func TestPatchMessage(t *testing.T) {
	const patch = `[{"op":"test","path":"/metadata/name","value":"other"}]`
	got := patchOf(t, "json", patch)
	if err := utilfeature.DefaultFeatureGate.Set("PatchClientErrors=false"); err != nil {
		t.Fatal(err)
	}
	defer utilfeature.DefaultFeatureGate.Set("PatchClientErrors=true")
	if stock := patchOf(t, "json", patch); got.Message != stock.Message || got.Message != "Testing value /metadata/name failed" {
		t.Errorf("%q, stock %q", got.Message, stock.Message)
	}
}

// TestPatchPanics: with the gate off, the library's panic goes on as in stock.
func TestPatchPanics(t *testing.T) {
	if err := utilfeature.DefaultFeatureGate.Set("PatchClientErrors=false"); err != nil {
		t.Fatal(err)
	}
	defer utilfeature.DefaultFeatureGate.Set("PatchClientErrors=true")
	n := 0
	for _, tc := range patchCases {
		if tc.stock != panics {
			continue
		}
		n++
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic with the gate off", tc.name)
				}
			}()
			if tc.kind == "strategic" {
				patch := map[string]interface{}{}
				if err := json.Unmarshal([]byte(tc.patch), &patch); err != nil {
					t.Fatal(err)
				}
				metadata := map[string]interface{}{"finalizers": []interface{}{"a/b", "c/d"}, "ownerReferences": []interface{}{map[string]interface{}{"uid": "o"}}}
				mergeStrategicPatch(map[string]interface{}{"metadata": metadata}, patch, &examplev1.Pod{})
				return
			}
			patch, err := jsonpatch.DecodePatch([]byte(tc.patch))
			if err != nil {
				t.Fatal(err)
			}
			applyJSONPatch(patch, []byte(`{"metadata":{"finalizers":["a/b","c/d"]},"spec":{}}`))
		}()
	}
	if n == 0 {
		t.Error("no case that panics")
	}
}

// TestPatchOtherErrors: an error that says itself what it answers keeps its answer,
// and a panic that is no mistake of the library's goes on.
func TestPatchOtherErrors(t *testing.T) {
	gone := apierrors.NewGone("x")
	if got := newUnprocessablePatchError(gone); got != error(gone) {
		t.Errorf("%v", got)
	}
	if got := newBadPatchError(gone); got != error(gone) {
		t.Errorf("%v", got)
	}
	if namePatched(gone, examplev1.SchemeGroupVersion.WithKind("Pod"), "p"); !reflect.DeepEqual(gone, apierrors.NewGone("x")) {
		t.Errorf("%+v", gone)
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.PatchClientErrors) || !utilfeature.DefaultFeatureGate.Enabled(features.RollbackNamedByURL) {
		t.Error("the gates are on by default")
	}
}
