// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"holdfast/cmd/internal/exit"
)

// A cluster that is well is one line, in each release, and status 0. Nothing is looked at twice.
func TestClean(t *testing.T) {
	for _, version := range []string{"v1.9.11", "v1.9.3-gke.1", "v1.8.15", "v1.7.16", "v1.12.4"} {
		f := well()
		f.version = version
		if strings.HasPrefix(version, "v1.12") { // as old as they may be
			f.lists["nodes"][0] = fakeKubelet("node1", "v1.10.1", "True", time.Hour)
			f.manager = `kubernetes_build_info{gitVersion="v1.11.1"} 1`
		}
		if !strings.HasPrefix(version, "v1.9") && !strings.HasPrefix(version, "v1.12") {
			f.lists["nodes"][0] = fakeKubelet("node1", "v1.7.16", "True", time.Hour)
			f.manager = `kubernetes_build_info{gitVersion="v1.7.16"} 1`
		}
		out, errs, status := f.doctor(t)
		if status != 0 || strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "API "+version+", 1 node v1.") || !strings.HasSuffix(out, ": nothing found\n") || len(out) > 81 {
			t.Errorf("%s: status %d\n%s%s", version, status, out, errs)
		}
		if n := f.took["/api/v1/pods"]; n != 1 {
			t.Errorf("%s: pods were read %d times", version, n)
		}
		if out, _, _ := f.doctor(t, "-o", "wide"); strings.Count(out, "\n") != 1 || !strings.Contains(out, "controller manager v1.") {
			t.Errorf("%s: %s", version, out)
		}
	}
	// The longest release that a build has.
	f := well()
	build := "v1.9.11+holdfast.2.post.g0123456789ab"
	f.lists["nodes"][0] = fakeKubelet("node1", build, "True", time.Hour)
	if out, _, status := f.doctor(t); status != 0 || strings.Count(out, "\n") != 1 || !strings.Contains(out, build) {
		t.Errorf("%d %s", status, out)
	}
}

// The components that were asked are lines of -o json.
func TestComponents(t *testing.T) {
	f := well()
	f.nodes["node1"].argv += " --feature-gates=KMemOff=false,SubpathUnbindAfterStart=false"
	out, _, status := f.doctor(t, "-o", "json")
	c := found(t, out, "component")
	if status != 0 || len(c) != 2 || c[0]["component"] != "kube-controller-manager" || c[1]["object"] != "node1" || c[1]["release"] != ours || c[1]["holdfast"] != true ||
		fmt.Sprint(c[1]["gatesOff"]) != "[SubpathUnbindAfterStart]" {
		t.Errorf("%d %v", status, c)
	}
}

// A name or a number that an object's author chose is bounded in each format, and so is how many
// findings there are.
func TestBounds(t *testing.T) {
	f := well()
	long := strings.Repeat("n", 100_000)
	for i := range maxFindings + 100 {
		d := fakeWorkload("shop", fmt.Sprintf("%d-%s", i, long[:60]), "app:1")
		f.lists["deployments"] = append(f.lists["deployments"], d)
	}
	set(long, "metadata", "name")(f.lists["services"][0])
	set(1<<62, "status", "collisionCount")(f.lists["statefulsets"][0])
	set("v1.9.11-"+long, "status", "nodeInfo", "kubeletVersion")(f.lists["nodes"][0])
	f.lists["endpoints"][1] = leaseOf("kube-controller-manager", time.Hour)
	set(fmt.Sprintf(`{"holderIdentity":%q,"renewTime":%q}`, long, ago(time.Hour)), "metadata", "annotations", leaderAnnotation)(f.lists["endpoints"][1])
	for _, format := range []string{"table", "wide", "json"} {
		out, _, status := f.doctor(t, "-o", format, "--fail-on", "warn")
		if status != 3 || len(out) > 400_000 || strings.Count(out, "HF611") > maxFindings*2+2 || !strings.Contains(out, "100 more of this code are not shown") {
			t.Errorf("%s: status %d, %d bytes, %d of HF611", format, status, len(out), strings.Count(out, "HF611"))
		}
		for _, line := range strings.Split(out, "\n") {
			if len(line) > 2000 {
				t.Errorf("%s: a line of %d bytes", format, len(line))
			}
		}
	}
}

// Nothing that the API server answers makes the program say that all is well.
func TestBadAnswers(t *testing.T) {
	for name, raw := range map[string]string{
		"half": `{"kind":"List","items":[{"metadata":{"name":"`, "HTML": "<html><body>" + secret, "empty": "", "null": "null", "a number": "7", "a status": `{"kind":"Status","message":"` + secret + `"}`,
		"other types": `{"kind":"List","items":[{"metadata":"` + secret + `","spec":7,"data":[],"status":"x"}]}`, "500": "500 " + secret, "null items": `{"kind":"Status","items":null}`,
	} {
		f := well()
		for kind := range f.lists {
			for _, prefix := range []string{"/api/v1/", "/apis/apps/v1/"} {
				f.raw[prefix+kind] = raw
			}
		}
		out, _, status := f.doctor(t, "-o", "json")
		for _, code := range []string{"HF604", "HF611", "HF613", "HF614", "HF615", "HF621", "HF641"} {
			if !slices.ContainsFunc(codes(t, out), func(s string) bool { return strings.HasPrefix(s, "? "+code) }) {
				t.Errorf("%s: no ? for %s\n%s", name, code, out)
			}
		}
		if status != 1 {
			t.Errorf("%s: status %d", name, status)
		}
	}
	// No API server, or none that knows the user.
	for _, raw := range []string{"401 " + secret} {
		f := well()
		f.raw["/version"] = raw
		if out, errs, status := f.doctor(t); status != 1 || out != "" || !strings.Contains(errs, "401") {
			t.Errorf("%d %s%s", status, out, errs)
		}
	}
	if out, errs, status := execute(t, t.Context(), "--kubeconfig", kubeconfig(t, "http://127.0.0.1:1")); status != 1 || out != "" || !strings.Contains(errs, "refused") {
		t.Errorf("%d %s%s", status, out, errs)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"--watch", "-1s"}, {"--watch", "25h"}, {"--controller-manager", "127.0.0.1:10252"}, {"--controller-manager", "http://u:" + secret + "@h"}, {"--controller-manager-user", strings.Repeat("x", 300)}} {
		if out, _, status := execute(t, t.Context(), args...); status != exit.Usage || out != "" {
			t.Errorf("%q: status %d, %s", args, status, out)
		}
	}
}

// --controller-manager is asked without the user's token.
func TestControllerManager(t *testing.T) {
	answer := "kubernetes_build_info{gitVersion=\"" + ours + "\"} 1\nholdfast_dead_node_pods_retry_failed_total 1\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" || r.Header.Get("Authorization") != "" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		fmt.Fprint(w, answer)
	}))
	defer s.Close()
	f := well()
	f.lists["pods"] = f.lists["pods"][:1]
	out, _, status := f.doctor(t, "-o", "json", "--fail-on", "warn", "--controller-manager", s.URL+"/")
	if got := codes(t, out); status != 3 || len(got) != 1 || got[0] != "warn HF659 controller manager" {
		t.Errorf("%d %q", status, got)
	}
	for _, answer = range []string{"<html>" + secret, ""} {
		out, _, status = f.doctor(t, "-o", "json", "--controller-manager", s.URL)
		if got := codes(t, out); status != 1 || len(got) != 1 || got[0] != "? HF641 controller manager" {
			t.Errorf("%d %q", status, got)
		}
	}
}

// After Ctrl-C what is known is printed, and what was not asked says so.
func TestInterrupt(t *testing.T) {
	for _, where := range []string{"/api/v1/pods", "/api/v1/nodes/node1/proxy/metrics", "again", "watch"} {
		f := well()
		set(1, "status", "collisionCount")(f.lists["statefulsets"][0])
		ctx, cancel := context.WithCancel(t.Context())
		args, between := []string{"-o", "json"}, time.Minute
		switch where {
		case "again":
			unready(f, true)
			time.AfterFunc(2*time.Second, cancel)
		case "watch":
			args = append(args, "--watch", "1h")
			time.AfterFunc(2*time.Second, cancel)
		}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == where {
				cancel()
				<-r.Context().Done()
				return
			}
			f.ServeHTTP(w, r)
		}))
		begin := time.Now()
		var out strings.Builder
		cmd := command(&options{between: between})
		cmd.SetArgs(append(args, "--kubeconfig", kubeconfig(t, s.URL)))
		cmd.SetOut(&out)
		cmd.SetErr(&strings.Builder{})
		cmd.SetContext(ctx)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		got := codes(t, out.String())
		want := map[string][]string{
			"/api/v1/pods": {"? HF604 -", "? HF614 -"}, "/api/v1/nodes/node1/proxy/metrics": {"warn HF614 statefulset shop/db", "? HF002 node1"},
			"again": {"warn HF614 statefulset shop/db", "? HF604 service shop/web"}, "watch": {"warn HF614 statefulset shop/db", "? HF603 endpoints"},
		}[where]
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%s: got %q, want %q", where, got, w)
			}
		}
		if exit.Code(err) != exit.Failed || time.Since(begin) > 30*time.Second {
			t.Errorf("%s: %v after %s", where, err, time.Since(begin))
		}
		cancel()
		s.Close()
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// A pipe that nobody reads ends the program with an error.
func TestClosedPipe(t *testing.T) {
	for _, format := range []string{"table", "wide", "json"} {
		f := well()
		s := httptest.NewServer(f)
		cmd := command(&options{})
		cmd.SetArgs([]string{"-o", format, "--kubeconfig", kubeconfig(t, s.URL)})
		cmd.SetOut(brokenPipe{})
		cmd.SetErr(&strings.Builder{})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.Execute(); !errors.Is(err, syscall.EPIPE) || exit.Code(err) != exit.Failed {
			t.Errorf("%s: %v", format, err)
		}
		s.Close()
	}
}

// --rbac is what doctor asks for, no more and no less.
func TestRBAC(t *testing.T) {
	out, _, status := execute(t, t.Context(), "--rbac", "--kubeconfig", "/none")
	if status != 0 {
		t.Fatal(status)
	}
	type rule struct{ APIGroups, Resources, Verbs, ResourceNames []string }
	allowed := map[string]bool{}
	for doc := range strings.SplitSeq(out, "---\n") {
		var role struct {
			Kind     string
			Metadata struct{ Namespace string }
			Rules    []rule
		}
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil || len(role.Rules) == 0 {
			t.Fatalf("%v\n%s", err, doc)
		}
		for _, r := range role.Rules {
			for _, g := range r.APIGroups {
				for _, res := range r.Resources {
					for _, v := range r.Verbs {
						allowed[v+" "+g+" "+res+" "+role.Metadata.Namespace] = false
					}
				}
			}
		}
	}
	for _, version := range []string{"v1.9.11", "v1.7.16"} {
		f := well()
		f.version = version
		unready(f, true) // for the second look
		if _, _, status := f.doctor(t, "--watch", "1s"); status != 0 {
			t.Errorf("%s: status %d", version, status)
		}
		for _, a := range f.asks {
			if _, ok := allowed[a]; !ok {
				t.Errorf("%q is asked for, and not in the role", a)
			}
			allowed[a] = true
		}
	}
	for a, used := range allowed {
		// Which group has a kind depends on the release.
		verb, rest, _ := strings.Cut(a, " ")
		other := verb + " " + strings.NewReplacer("apps ", "extensions ", "extensions ", "apps ").Replace(rest)
		if !used && !allowed[other] {
			t.Errorf("the role has %q, which nothing asks for", a)
		}
	}
}

// flap sends events of addresses that go and come. The watch ends with it, and the list after it does
// not have q.
func flap(send func(kind string, o object), p, q object) {
	send("MODIFIED", fakeEndpoints("shop", "web", q))
	send("DELETED", fakeEndpoints("shop", "web", q))
	send("ADDED", fakeEndpoints("shop", "web", p, q))
	send("MODIFIED", fakeEndpoints("shop", "web"))
	send("MODIFIED", fakeEndpoints("shop", "web", p, q))
	send("MODIFIED", fakeEndpoints("shop", "other", p))
	send("DELETED", fakeEndpoints("shop", "other", p))
	send("ERROR", object{"kind": "Status", "message": secret})
}

// An address that goes off, on and off is a finding; one that goes once is not.
func TestWatch(t *testing.T) {
	f := well()
	p, q := f.lists["pods"][0], fakePod("shop", "web-2", "node1", "10.1.0.2", true)
	var once sync.Once
	f.watched = func(send func(kind string, o object)) { once.Do(func() { flap(send, p, q) }) }
	out, _, status := f.doctor(t, "-o", "json", "--fail-on", "warn", "--watch", "2s")
	got := found(t, out, "finding")
	if status != 3 || len(got) != 1 || got[0]["object"] != "service shop/web" || got[0]["code"] != "HF603" || !strings.Contains(got[0]["text"].(string), "web-1 (2 times off), web-2 (3 times off)") {
		t.Errorf("status %d\n%s", status, out)
	}
	// One that goes once, and events of no use.
	f = well()
	f.watched = func(send func(kind string, o object)) {
		send("MODIFIED", fakeEndpoints("shop", "web"))
		send("MODIFIED", fakeEndpoints("shop", "web", p))
		send("BOOKMARK", object{"metadata": secret})
	}
	if out, _, status := f.doctor(t, "--watch", "1s"); status != 0 || !strings.HasSuffix(out, "nothing found\n") {
		t.Errorf("status %d\n%s", status, out)
	}
	// No right to list, and a list without a version.
	for _, raw := range []string{"403 " + secret, `{"kind":"List","metadata":{},"items":[]}`} {
		f = well()
		f.raw["/api/v1/endpoints"] = raw
		out, _, _ := f.doctor(t, "-o", "json", "--watch", "1s")
		if !slices.Contains(codes(t, out), "? HF603 endpoints") {
			t.Errorf("%s\n%s", raw, out)
		}
	}
}

// What is followed is bounded, whatever the API server sends.
func TestWatchBounds(t *testing.T) {
	f := newFlaps()
	for i := range maxAddresses + 5 {
		f.see("a/b", []address{{ip: fmt.Sprint(i)}})
		if i > 20 { // only the first is of interest, and each event costs what there is
			f.of["a/b"] = f.of["a/b"][:1]
		}
	}
	if len(f.all) != maxAddresses || !f.full || len(f.findings(0, 0)) != 1 {
		t.Errorf("%d addresses, %t, %v", len(f.all), f.full, f.findings(0, 0))
	}
	var sent atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("watch") == "" {
			fmt.Fprint(w, `{"kind":"List","metadata":{"resourceVersion":"7"},"items":[]}`)
			return
		}
		fmt.Fprint(w, `{"type":"`)
		chunk := strings.Repeat("x", 1<<20)
		for sent.Load() < 1<<30 && r.Context().Err() == nil {
			n, err := fmt.Fprint(w, chunk)
			if err != nil {
				return
			}
			sent.Add(int64(n))
		}
	}))
	defer s.Close()
	if err := newFlaps().once(t.Context(), client(t, s.URL)); err != nil {
		t.Error(err)
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes of one event were read", n)
	}
}

// Ceph is asked if there is a user for it; rbd is a script here.
func TestRBD(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in\n*'lock list'*|*'lock ls'*) echo '{\"kubelet_lock_magic_gone\":{\"locker\":\"client.1\",\"address\":\"10.0.0.9:0/1\"}}';;\n*status*) echo '{\"watchers\":[]}';;\n*) exit 1;;\nesac\n"
	if err := os.WriteFile(filepath.Join(dir, "rbd"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	f := well()
	f.lists["persistentvolumes"][0]["spec"] = object{"rbd": object{"image": "db", "pool": "rbd", "monitors": []any{"10.0.0.1:6789"}}}
	out, errs, status := f.doctor(t, "-o", "json", "--fail-on", "warn", "--id", "admin", "--keyring", "/none")
	if got := codes(t, out); status != 3 || len(got) != 1 || got[0] != "warn HF621 image rbd/db" || !strings.Contains(out, "stale-lock") {
		t.Errorf("%d %q\n%s%s", status, got, out, errs)
	}
	if err := os.WriteFile(filepath.Join(dir, "rbd"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, errs, status = f.doctor(t, "-o", "json", "--id", "admin")
	if got := codes(t, out); status != 1 || len(got) != 1 || got[0] != "? HF621 image rbd/db" {
		t.Errorf("%d %q\n%s%s", status, got, out, errs)
	}
}

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
