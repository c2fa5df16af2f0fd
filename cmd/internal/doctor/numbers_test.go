// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// large is a cluster of 5,000 pods and 1,000 Deployments, each list in one piece.
func large() *fake {
	f := well()
	pad := strings.Repeat("x", 4000) // a pod of 1.9 has 4 to 8 KiB
	f.lists["nodes"], f.lists["deployments"], f.lists["replicasets"], f.lists["services"] = nil, nil, nil, nil
	for i := range 100 {
		name := fmt.Sprintf("node%d", i)
		f.lists["nodes"] = append(f.lists["nodes"], fakeKubelet(name, ours, "True", time.Hour))
		f.nodes[name] = &fakeNode{argv: "kubelet " + closed, metrics: nodeMetrics + strings.Repeat("kubelet_other_total{a=\"b\"} 1\n", 5000)}
	}
	manager := f.lists["pods"][1]
	f.lists["pods"] = []object{manager}
	leases := f.lists["endpoints"][1:]
	f.lists["endpoints"] = leases
	for i := range 1000 {
		ns, name := fmt.Sprintf("ns%d", i%50), fmt.Sprintf("web%d", i)
		d := fakeWorkload(ns, name, "app:"+name)
		f.lists["deployments"] = append(f.lists["deployments"], d)
		for n := range 5 {
			f.lists["replicasets"] = append(f.lists["replicasets"], replicaSet(d, fmt.Sprintf("%s-%d", name, n), strings.Repeat("app:"+name, 1+n)))
		}
		s := fakeService(ns, name)
		set(name, "spec", "selector", "app")(s)
		f.lists["services"] = append(f.lists["services"], s)
		var pods []object
		for n := range 5 {
			p := fakePod(ns, fmt.Sprintf("%s-%d", name, n), fmt.Sprintf("node%d", i%100), fmt.Sprintf("10.%d.%d.%d", n, i/250, i%250), true)
			set(name, "metadata", "labels", "app")(p)
			set(pad, "metadata", "annotations", "pad")(p)
			pods = append(pods, p)
		}
		f.lists["pods"] = append(f.lists["pods"], pods...)
		f.lists["endpoints"] = append(f.lists["endpoints"], fakeEndpoints(ns, name, pods...))
	}
	return f
}

// 5,000 pods and 1,000 Deployments: the numbers of the page.
func TestNumbers(t *testing.T) {
	f := large()
	// What the fake sends is made once, so that its memory is not counted.
	for kind, items := range f.lists {
		b, err := json.Marshal(object{"kind": "List", "metadata": object{}, "items": items})
		if err != nil {
			t.Fatal(err)
		}
		for _, prefix := range []string{"/api/v1/", "/apis/apps/v1/"} {
			f.raw[prefix+kind] = string(b)
		}
	}
	f.lists = map[string][]object{}
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), m.HeapAlloc-min(m.HeapAlloc, before.HeapAlloc)))
			}
		}
	}()
	begin, cpu := time.Now(), cpuTime(t)
	out, errs, status := f.doctor(t)
	took, used := time.Since(begin), cpuTime(t)-cpu
	close(stop)
	t.Logf("%s, %s of processor time, %d MB more than before, with the fake API server in the same process: %s", took.Round(time.Millisecond), used.Round(time.Millisecond), peak.Load()>>20, strings.TrimSpace(out))
	if status != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	// The clock on the wall is that of a machine which others use.
	if used > 30*time.Second || peak.Load() > 300<<20 {
		t.Errorf("%s and %d bytes", used, peak.Load())
	}
}

func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
