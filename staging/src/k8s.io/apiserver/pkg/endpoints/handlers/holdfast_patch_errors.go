// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"bytes"
	"fmt"
	"net/http"
	"reflect"
	goruntime "runtime"

	"github.com/evanphx/json-patch"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apiserver/pkg/endpoints/handlers/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// newBadPatchError is the answer to a patch that cannot be read: 400. With
// features.PatchClientErrors off it is err, which is answered by 500.
func newBadPatchError(err error) error {
	return patchError(http.StatusBadRequest, metav1.StatusReasonBadRequest, err)
}

// newUnprocessablePatchError is the answer to a patch that does not apply to the
// object, or whose result is no object of the resource: 422. Off: 500.
//
// The message stays the one that stock answers. errors.NewGenericServerResponse,
// which the handler uses for other patches, would replace it by a general one.
func newUnprocessablePatchError(err error) error {
	return patchError(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err)
}

func patchError(code int32, reason metav1.StatusReason, err error) error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.PatchClientErrors) {
		return err
	}
	// An error that says itself what it answers keeps its answer.
	if _, ok := err.(errors.APIStatus); ok {
		return err
	}
	return &errors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    code,
		Reason:  reason,
		Message: err.Error(),
		// kubectl 1.9 dereferences the details of a 422, and prints their causes only.
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type:    metav1.CauseTypeFieldValueInvalid,
			Message: err.Error(),
			Field:   patchField,
		}}},
	}}
}

// patchField is the field of the causes of errors of this file.
const patchField = "patch"

// namePatched adds to an error of patchError what was patched. Others stay as they are.
func namePatched(err error, kind schema.GroupVersionKind, name string) error {
	e, ok := err.(*errors.StatusError)
	if !ok || e.ErrStatus.Details == nil || e.ErrStatus.Details.Kind != "" {
		return err
	}
	if c := e.ErrStatus.Details.Causes; len(c) == 1 && c[0].Field == patchField {
		e.ErrStatus.Details.Group, e.ErrStatus.Details.Kind, e.ErrStatus.Details.Name = kind.Group, kind.Kind, name
	}
	return err
}

// notApplied is the error of a panic r of strategicpatch: it takes a type for granted that
// the patch does not have. In the goroutine of finishRequest such a panic ends the whole
// process. Other panics are no mistake of it, and go on.
func notApplied(r interface{}) error {
	switch r.(type) {
	case goruntime.Error, *reflect.ValueError:
		return fmt.Errorf("the strategic merge patch has a member that is null, missing or of a wrong type: %v", r)
	}
	panic(r)
}

// applyJSONPatch applies patch to doc. Off: as stock, by the library, which dereferences
// a nil pointer at a null "op", "path", "from" or a missing "value", and slices outside
// of a list at an index that the list does not have (patch.go of 2017-07-19).
func applyJSONPatch(patch jsonpatch.Patch, doc []byte) ([]byte, error) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.PatchClientErrors) {
		return patch.Apply(doc)
	}
	return applyWithCopies(patch, doc)
}

// mergeStrategicPatch is strategicpatch.StrategicMergeMapPatch. That asserts the types
// of merge keys and of the items of "$setElementOrder" without a look (patch.go of
// v1.9.11), as {"metadata":{"ownerReferences":[{"uid":{}},{"uid":{}}]}}
// shows. Such a patch does not apply. Off: as stock.
func mergeStrategicPatch(original, patch strategicpatch.JSONMap, dataStruct interface{}) (patched strategicpatch.JSONMap, err error) {
	if utilfeature.DefaultFeatureGate.Enabled(features.PatchClientErrors) {
		defer func() {
			if r := recover(); r != nil {
				patched, err = nil, newUnprocessablePatchError(notApplied(r))
			}
		}()
	}
	return strategicpatch.StrategicMergeMapPatch(original, patch, dataStruct)
}

// applyMergePatch merges patch into doc, which is an object. The library takes a
// list for the new object. Off: as stock.
func applyMergePatch(doc, patch []byte) ([]byte, error) {
	merged, err := jsonpatch.MergePatch(doc, patch)
	if err == nil && bytes.HasPrefix(merged, []byte("[")) && utilfeature.DefaultFeatureGate.Enabled(features.PatchClientErrors) {
		return nil, fmt.Errorf("a merge patch is a JSON object, and this one is a list")
	}
	return merged, err
}
