// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"hash/fnv"
	"strconv"
	"testing"

	podutil "k8s.io/kubernetes/pkg/util/pod"
)

// A name must not change between releases of ours, or every Deployment that
// runs under a counted name would be looked for under another one.
func TestGetPodTemplateSpecHashWithCount(t *testing.T) {
	manifest := `{"kind":"Deployment","apiVersion":"extensions/v1beta1","metadata":{"name":"a"},"spec":{"template":{
		"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"IMAGE"}]}}}}`
	template := decode(t, []byte(manifest)).Spec.Template
	if got, want := podutil.GetPodTemplateSpecHashWithCount(template, 0), podutil.GetPodTemplateSpecHash(template); got != want {
		t.Errorf("count 0: %d, want %d", got, want)
	}
	seen := map[uint32]int{}
	for count := 1; count <= 1000; count++ {
		hasher := fnv.New32a()
		hasher.Write([]byte(dump(template) + strconv.Itoa(count)))
		got := podutil.GetPodTemplateSpecHashWithCount(template, count)
		if got != hasher.Sum32() {
			t.Fatalf("count %d: %d, want %d", count, got, hasher.Sum32())
		}
		if other, ok := seen[got]; ok {
			t.Errorf("counts %d and %d have the hash %d", other, count, got)
		}
		seen[got] = count
	}
}
