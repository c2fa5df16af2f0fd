// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"testing"

	"holdfast/tools/build/base"
)

func TestImportPath(t *testing.T) {
	b := &base.Base{Module: "k8s.io/kubernetes", Forks: []base.Fork{{Module: "example.com/fork", Dir: "third_party/example.com/fork"}}}
	for dir, want := range map[string]string{
		"pkg/kubelet":                         "k8s.io/kubernetes/pkg/kubelet",
		"staging/src/k8s.io/client-go/rest":   "k8s.io/client-go/rest",
		"Godeps/_workspace/src/example.com/x": "example.com/x",
		"third_party/example.com/fork":        "example.com/fork",
		"third_party/example.com/fork/sub":    "example.com/fork/sub",
		"third_party/example.com/forks":       "k8s.io/kubernetes/third_party/example.com/forks",
	} {
		if got := ImportPath(b, dir); got != want {
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
}
