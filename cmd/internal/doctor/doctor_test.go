// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		if status != 3 || len(out) > 400_000 || strings.Count(out, "HF611") > maxFindings*2+2 || !strings.Contains(out, "100 more findings of this code are not shown") {
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
