// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"bytes"
	"fmt"
	"io/ioutil"
	"strconv"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restclientwatch "k8s.io/client-go/rest/watch"
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

func newInformerStore() Store {
	indexer := NewIndexer(DeletionHandlingMetaNamespaceKeyFunc, Indexers{NamespaceIndex: MetaNamespaceIndexFunc})
	return informerStore{NewDeltaFIFO(MetaNamespaceKeyFunc, nil, indexer), indexer}
}

// BenchmarkReflectorWatchHandler is the way of an event through the reflector: from
// the bytes of a watch into the store of an informer, as in a controller; then
// without decoding; then into a bare store as well. It needs nothing but upstream's
// files, so that it runs on a stock tree too.
func BenchmarkReflectorWatchHandler(b *testing.B) {
	b.Run("watch", func(b *testing.B) { benchmarkWatchHandler(b, newInformerStore(), newStreamWatch(b)) })
	b.Run("informer", func(b *testing.B) { benchmarkWatchHandler(b, newInformerStore(), newFakeWatch(b)) })
	b.Run("store", func(b *testing.B) { benchmarkWatchHandler(b, NewStore(MetaNamespaceKeyFunc), newFakeWatch(b)) })
}

func benchmarkEndpoints(i int) *v1.Endpoints {
	return &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Namespace:       "default",
		Name:            fmt.Sprintf("service-%d", i%1000),
		ResourceVersion: strconv.Itoa(100000001 + i),
	}}
}

func newFakeWatch(b *testing.B) watch.Interface {
	w := watch.NewFakeWithChanSize(b.N, false)
	for i := 0; i < b.N; i++ {
		w.Modify(benchmarkEndpoints(i))
	}
	w.Stop()
	return w
}

// newStreamWatch returns a watch of the frames that a server sends for protobuf, as
// the controller manager and the kubelet ask for.
func newStreamWatch(b *testing.B) watch.Interface {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), "application/vnd.kubernetes.protobuf")
	if !ok {
		b.Fatal("no protobuf")
	}
	codecs := serializer.DirectCodecFactory{CodecFactory: scheme.Codecs}
	frames := &bytes.Buffer{}
	e := restclientwatch.NewEncoder(
		streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(frames), info.StreamSerializer.Serializer),
		codecs.EncoderForVersion(info.Serializer, v1.SchemeGroupVersion))
	for i := 0; i < b.N; i++ {
		if err := e.Encode(&watch.Event{Type: watch.Modified, Object: benchmarkEndpoints(i)}); err != nil {
			b.Fatal(err)
		}
	}
	d := streaming.NewDecoder(info.StreamSerializer.Framer.NewFrameReader(ioutil.NopCloser(frames)), info.StreamSerializer.Serializer)
	return watch.NewStreamWatcher(restclientwatch.NewDecoder(d, codecs.DecoderToVersion(info.Serializer, v1.SchemeGroupVersion)))
}

func benchmarkWatchHandler(b *testing.B, s Store, w watch.Interface) {
	g := NewReflector(&testLW{}, &v1.Endpoints{}, s, 0)
	resumeRV := "100000000"
	b.ReportAllocs()
	b.ResetTimer()
	if err := g.watchHandler(w, &resumeRV, nevererrc, wait.NeverStop); err != nil {
		b.Fatal(err)
	}
	if want := benchmarkEndpoints(b.N - 1).ResourceVersion; resumeRV != want {
		b.Fatalf("the watch goes on from %s, want %s", resumeRV, want)
	}
}
