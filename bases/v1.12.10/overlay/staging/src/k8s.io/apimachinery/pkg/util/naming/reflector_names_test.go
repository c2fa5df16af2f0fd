// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package naming

import "testing"

func TestGopathFile(t *testing.T) {
	for file, want := range map[string]string{
		"k8s.io/kubernetes@v1.12.10/pkg/kubelet/config/apiserver.go": "k8s.io/kubernetes/pkg/kubelet/config/apiserver.go",
		"k8s.io/client-go@v0.0.0/informers/factory.go":               "k8s.io/client-go/informers/factory.go",
		"runtime/asm_amd64.s": "runtime/asm_amd64.s",
		"/go/src/k8s.io/kubernetes/vendor/k8s.io/client-go/rest/x.go":   "k8s.io/client-go/rest/x.go",
		"/go/src/x/src/k8s.io/kubernetes/staging/src/k8s.io/x/a@b/c.go": "k8s.io/x/a@b/c.go",
	} {
		if got := trimPackagePrefix(gopathFile(file)); got != want {
			t.Errorf("%s: got %s, expected %s", file, got, want)
		}
	}
	// What client-go and runtime.NewScheme leave out.
	internal := []string{"client-go/tools/cache/", "k8s.io/apimachinery/pkg/runtime/scheme.go", "/runtime/asm_"}
	for file, want := range map[string]bool{
		"k8s.io/client-go@v0.0.0/tools/cache/reflector.go":    true,
		"k8s.io/apimachinery@v0.0.0/pkg/runtime/scheme.go":    true,
		"runtime/asm_amd64.s":                                 true,
		"k8s.io/client-go@v0.0.0/informers/factory.go":        false,
		"k8s.io/client-go@v0.0.0/kubernetes/scheme/scheme.go": false,
	} {
		if got := hasPackage(gopathFile(file), internal); got != want {
			t.Errorf("%s: internal %v, expected %v", file, got, want)
		}
	}
}
