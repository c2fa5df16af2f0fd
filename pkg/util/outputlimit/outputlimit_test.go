// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package outputlimit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/ioutil"
	"math/rand"
	"net/http"
	"testing"
	"testing/iotest"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
)

func value(t *testing.T, v *prometheus.CounterVec, of string) float64 {
	var m dto.Metric
	if err := v.WithLabelValues(of).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func setGate(t *testing.T, on bool) func() {
	return utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ProbeOutputLimits, on)
}

func TestReadBody(t *testing.T) {
	broken := errors.New("broken")
	for _, size := range []int{0, 1, HTTPBody - 1, HTTPBody, HTTPBody + 1, 10 << 20} {
		body := make([]byte, size)
		rand.New(rand.NewSource(1)).Read(body)
		for _, end := range []error{nil, broken} {
			for _, on := range []bool{true, false} {
				for name, wrap := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "with EOF": iotest.DataErrReader} {
					func() {
						defer setGate(t, on)()
						var r io.Reader = bytes.NewReader(body)
						if end != nil {
							r = io.MultiReader(r, iotest.ErrReader(end))
						}
						counted, would := value(t, cut, Probe), value(t, wouldCut, Probe)
						got, err := ReadBody(&http.Response{Body: ioutil.NopCloser(wrap(r))}, Probe)
						counted, would = value(t, cut, Probe)-counted, value(t, wouldCut, Probe)-would
						what := fmt.Sprintf("%d bytes (%s), end %v, gate %v", size, name, end, on)
						if err != end {
							t.Errorf("%s: error %v", what, err)
						}
						want := body
						if on && size > HTTPBody {
							want = body[:HTTPBody]
						}
						if !bytes.Equal(got, want) {
							t.Errorf("%s: %d bytes", what, len(got))
						}
						over := size > HTTPBody
						if (counted == 1) != (on && over) || (would == 1) != (!on && over) {
							t.Errorf("%s: counted %v cut, %v would be", what, counted, would)
						}
					}()
				}
			}
		}
	}
}

func TestExecBuffer(t *testing.T) {
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for _, on := range []bool{true, false} {
		func() {
			defer setGate(t, on)()
			counted, would := value(t, cut, Exec), value(t, wouldCut, Exec)
			b := ExecBuffer("id")
			for i := 0; i < 20; i++ {
				if n, err := b.Write(chunk); n != len(chunk) || err != nil {
					t.Fatal(n, err)
				}
			}
			counted, would = value(t, cut, Exec)-counted, value(t, wouldCut, Exec)-would
			want := 20 << 20
			if on {
				want = ExecStream
			}
			if got := len(b.Bytes()); got != want {
				t.Errorf("gate %v: kept %d bytes, want %d", on, got, want)
			}
			if (counted == 1) != on || (would == 1) == on {
				t.Errorf("gate %v: counted %v cut, %v would be", on, counted, would)
			}
		}()
	}
}

// TestExecBufferFuzz: however it is written, the buffer is the output's beginning.
func TestExecBufferFuzz(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for i := 0; i < 10000; i++ {
		limit := r.Intn(50)
		b := Buffer{limit: limit}
		var all []byte
		for n := r.Intn(6); n > 0; n-- {
			p := make([]byte, r.Intn(30))
			r.Read(p)
			all = append(all, p...)
			if n, err := b.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		if len(all) > limit {
			all = all[:limit]
		}
		if !bytes.Equal(b.Bytes(), all) {
			t.Fatalf("limit %d: %q, want %q", limit, b.Bytes(), all)
		}
	}
}

func TestOnlyOnce(t *testing.T) {
	o := onlyOnce{seen: map[string]bool{}}
	for i := 0; i < 10*remembered; i++ {
		if k := fmt.Sprint(i); !o.first(k) || o.first(k) {
			t.Fatal(k)
		}
		if len(o.seen) > remembered {
			t.Fatalf("%d names are remembered", len(o.seen))
		}
	}
}
