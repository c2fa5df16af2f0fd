// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package naming_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestSchemeName: the error of a kind that is not registered names the file that made the scheme,
// as in a GOPATH: without a module's version.
func TestSchemeName(t *testing.T) {
	_, err := runtime.NewScheme().New(schema.GroupVersionKind{Group: "holdfast.test", Version: "v1", Kind: "None"})
	if err == nil {
		t.Fatal("a scheme without kinds has made an object")
	}
	const file = `"k8s.io/apimachinery/pkg/util/naming/reflector_names_scheme_test.go:`
	if !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "@v") {
		t.Errorf("%v, expected the scheme's name to begin with %s", err, file)
	}
}
