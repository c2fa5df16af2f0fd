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

// informerStore is what an informer puts between its reflector and its handlers,
// without the goroutines: a DeltaFIFO, and an indexer that takes each delta at once.
type informerStore struct {
	*DeltaFIFO
	indexer Indexer
}

func (s informerStore) Update(obj interface{}) error {
	if err := s.DeltaFIFO.Update(obj); err != nil {
		return err
	}
	_, err := s.Pop(func(d interface{}) error { return s.indexer.Update(d.(Deltas).Newest().Object) })
	return err
}

// BenchmarkReflectorWatchHandler is the way of an event through the reflector, into
// a bare store and into that of an informer. It needs nothing but upstream's files, so
// that it runs on a stock tree too.
func BenchmarkReflectorWatchHandler(b *testing.B) {
	b.Run("store", func(b *testing.B) { benchmarkWatchHandler(b, NewStore(MetaNamespaceKeyFunc)) })
	b.Run("informer", func(b *testing.B) {
		indexer := NewIndexer(DeletionHandlingMetaNamespaceKeyFunc, Indexers{NamespaceIndex: MetaNamespaceIndexFunc})
		benchmarkWatchHandler(b, informerStore{NewDeltaFIFO(MetaNamespaceKeyFunc, nil, indexer), indexer})
	})
}

func benchmarkWatchHandler(b *testing.B, s Store) {
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
