// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package outputlimit

import (
	"fmt"
	"io"
	"io/ioutil"
	"net/http"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// xs is a body of so many bytes.
type xs int

func (n *xs) Read(p []byte) (int, error) {
	if *n == 0 {
		return 0, io.EOF
	}
	if len(p) > int(*n) {
		p = p[:*n]
	}
	*n -= xs(len(p))
	return len(p), nil
}

// gate runs f with the gate off, which is what stock does, and on.
func gate(b *testing.B, name string, f func(b *testing.B)) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("%s/on=%v", name, on), func(b *testing.B) {
			if err := utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=%v", features.ProbeOutputLimits, on)); err != nil {
				b.Fatal(err)
			}
			defer utilfeature.DefaultFeatureGate.Set(fmt.Sprintf("%s=true", features.ProbeOutputLimits))
			b.ReportAllocs()
			f(b)
		})
	}
}

// BenchmarkReadBody is a probe's answer, without the network.
func BenchmarkReadBody(b *testing.B) {
	for _, size := range []int{1, 10 << 10, 10 << 20} {
		gate(b, fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for i := 0; i < b.N; i++ {
				body := xs(size)
				if _, err := ReadBody(&http.Response{Body: ioutil.NopCloser(&body)}, Probe); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkExecBuffer is what a command prints, in the pieces in which docker sends it.
func BenchmarkExecBuffer(b *testing.B) {
	piece := make([]byte, 32<<10)
	for _, size := range []int{32 << 10, 8 << 20} {
		gate(b, fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for i := 0; i < b.N; i++ {
				buf := ExecBuffer("container")
				for n := 0; n < size; n += len(piece) {
					buf.Write(piece)
				}
			}
		})
	}
}
