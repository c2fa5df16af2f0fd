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
	"net/http/httptest"
	"os"
	"reflect"
	"sort"
	"strings"
	"testing"
	"testing/iotest"
	"time"

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

// seeds is how many inputs a fuzz test makes up: a million with HOLDFAST_EXHAUSTIVE=1.
func seeds() int {
	if os.Getenv("HOLDFAST_EXHAUSTIVE") != "" {
		return 1000000
	}
	return 10000
}

// TestReadBodyFuzz: whatever the size, the pieces and the end of a body, the error is that of
// stock and what is kept is the body's beginning.
func TestReadBodyFuzz(t *testing.T) {
	defer setGate(t, true)()
	r := rand.New(rand.NewSource(1))
	body := make([]byte, 3*HTTPBody)
	r.Read(body)
	broken := errors.New("broken")
	for i, runs := 0, seeds(); i < runs; i++ {
		size, end := r.Intn(len(body)), []error{io.EOF, broken}[r.Intn(2)]
		rest := body[:size]
		pieces := readerFunc(func(p []byte) (int, error) {
			if len(rest) == 0 {
				return 0, end
			}
			n := copy(p, rest[:1+r.Intn(len(rest))])
			rest = rest[n:]
			return n, nil
		})
		got, err := ReadBody(&http.Response{Body: ioutil.NopCloser(pieces)}, Probe)
		if end == io.EOF && err != nil || end == broken && err != broken {
			t.Fatalf("%d bytes, then %v: %v", size, end, err)
		}
		want := body[:size]
		if size > HTTPBody {
			want = body[:HTTPBody]
		}
		if !bytes.Equal(got, want) || len(rest) != 0 {
			t.Fatalf("%d bytes, then %v: %d were kept, %d not read", size, end, len(got), len(rest))
		}
	}
	t.Logf("%d inputs", seeds())
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestExecBufferFuzz: however it is written, the buffer is the output's beginning.
func TestExecBufferFuzz(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for i, runs := 0, seeds(); i < runs; i++ {
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
	t.Logf("%d inputs", seeds())
}

func TestRecent(t *testing.T) {
	now := time.Now()
	r := recent{now: func() time.Time { return now }, seen: map[string]time.Time{}}
	for i := 0; i < 10*remembered; i++ {
		if k := fmt.Sprint(i); r.first(k) != (i < remembered) || r.first(k) {
			t.Fatal(k)
		}
	}
	if len(r.seen) != remembered {
		t.Fatalf("%d names are remembered", len(r.seen))
	}
	if now = now.Add(forgotten - 1); r.first("0") || r.first("new") {
		t.Error("an hour is not over")
	}
	if now = now.Add(1); !r.first("0") || len(r.seen) != 1 {
		t.Errorf("%d names are remembered after an hour", len(r.seen))
	}
	// A clock that was put back forgets too.
	if now = now.Add(-time.Second); !r.first("0") {
		t.Error("the future is remembered")
	}
}

// TestSender: a pod chooses addresses and paths, also by redirects; its container is what is
// remembered and logged of all of them.
func TestSender(t *testing.T) {
	defer setGate(t, true)()
	defer func(was map[string]time.Time) { logged.seen = was }(logged.seen)
	logged.seen = map[string]time.Time{}
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			n++
			http.Redirect(w, r, fmt.Sprintf("/%d%%0a%s", n, strings.Repeat("a", 100<<10)), http.StatusFound)
			return
		}
		w.Write(make([]byte, HTTPBody+1))
	}))
	defer server.Close()
	client := Client{http.DefaultClient, Container("uid", strings.Repeat("c", 200))}
	for i := 0; i < 20; i++ {
		req, _ := http.NewRequest("GET", server.URL+"/healthz", nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		ReadBody(resp, Probe)
		resp.Body.Close()
		resp, err = http.Get(server.URL + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		ReadBody(From(resp, Container("uid", "hook")), Lifecycle)
		resp.Body.Close()
		if resp, err = http.Get(server.URL + "/healthz"); err != nil {
			t.Fatal(err)
		}
		ReadBody(resp, Probe)
		resp.Body.Close()
	}
	var keys []string
	for k := range logged.seen {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	want := []string{"http_lifecycle uid/hook", "http_probe a pod", "http_probe uid/" + strings.Repeat("c", senderText-len("uid/"))}
	if n != 60 || !reflect.DeepEqual(keys, want) {
		t.Errorf("%d answers, remembered %.500q, want %q", n, keys, want)
	}
	From(nil, "nobody")
}

func TestShown(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer setGate(t, on)()
			for _, size := range []int{0, ShownText, ShownText + 1, ExecStream} {
				text := strings.Repeat("x", size)
				counted, would := value(t, cut, Text), value(t, wouldCut, Text)
				got, err := Shown([]byte(text)), ShownError(errors.New(text))
				counted, would = value(t, cut, Text)-counted, value(t, wouldCut, Text)-would
				want := text
				if on && size > ShownText {
					want = text[:ShownText]
				}
				if string(got) != want || err.Error() != want {
					t.Errorf("gate %v, %d bytes: %d and %d are shown", on, size, len(got), len(err.Error()))
				}
				over := size > ShownText
				if (counted == 2) != (on && over) || (would == 2) != (!on && over) {
					t.Errorf("gate %v, %d bytes: counted %v cut, %v would be", on, size, counted, would)
				}
			}
			short := io.ErrUnexpectedEOF
			if ShownError(short) != short || ShownError(nil) != nil {
				t.Error("a short error is another one")
			}
		}()
	}
}
