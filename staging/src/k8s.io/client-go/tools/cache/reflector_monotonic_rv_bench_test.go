// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// BenchmarkReflectorWatchHandler is the way of an event through the reflector into
// its store. It needs nothing but upstream's files, so that it runs on a stock tree
// too.
func BenchmarkReflectorWatchHandler(b *testing.B) {
	pods := make([]*v1.Pod, 1000)
	for i := range pods {
		pods[i] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i), ResourceVersion: "123456789"}}
	}
	s := NewStore(MetaNamespaceKeyFunc)
	g := NewReflector(&testLW{}, &v1.Pod{}, s, 0)
	w := watch.NewFakeWithChanSize(b.N, false)
	for i := 0; i < b.N; i++ {
		w.Modify(pods[i%len(pods)])
	}
	w.Stop()
	resumeRV := "123456788"
	b.ReportAllocs()
	b.ResetTimer()
	if err := g.watchHandler(w, &resumeRV, nevererrc, wait.NeverStop); err != nil {
		b.Fatal(err)
	}
}
