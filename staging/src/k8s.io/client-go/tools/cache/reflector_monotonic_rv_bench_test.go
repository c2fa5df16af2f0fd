// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"strconv"
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
	s := NewStore(MetaNamespaceKeyFunc)
	g := NewReflector(&testLW{}, &v1.Endpoints{}, s, 0)
	w := watch.NewFakeWithChanSize(b.N, false)
	for i := 0; i < b.N; i++ {
		w.Modify(&v1.Endpoints{ObjectMeta: metav1.ObjectMeta{
			Namespace:       "default",
			Name:            fmt.Sprintf("service-%d", i%1000),
			ResourceVersion: strconv.Itoa(100000001 + i),
		}})
	}
	w.Stop()
	resumeRV := "100000000"
	b.ReportAllocs()
	b.ResetTimer()
	if err := g.watchHandler(w, &resumeRV, nevererrc, wait.NeverStop); err != nil {
		b.Fatal(err)
	}
}
