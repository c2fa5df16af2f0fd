// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlocks

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/cmd/internal/exit"
)

const nodes = `{"items":[
 {"metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.11"},{"type":"Hostname","address":"node1"}],
  "conditions":[{"type":"OutOfDisk","status":"False"},{"type":"Ready","status":"True"}],"nodeInfo":{"kubeletVersion":"v1.7.0"},"volumesInUse":["kubernetes.io/rbd/[10.0.0.1:6789]:used"]}},
 {"metadata":{"name":"n2"},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.12"},{"type":"Hostname","address":"node10"}],
  "nodeInfo":{"kubeletVersion":"v1.9.11+holdfast.2"},"volumesAttached":[{"name":"kubernetes.io/rbd/[10.0.0.1:6789]:attached"}]}}]}`

const pods = `{"items":[
 {"metadata":{"namespace":"ns","name":"p1"},"spec":{"nodeName":"n1","volumes":[{"rbd":{"monitors":["10.0.0.1:6789"],"image":"double"}},
  {"persistentVolumeClaim":{"claimName":"c"}},{"rbd":{"monitors":["10.0.0.1:6789"],"image":"readers","readOnly":true}}]},"status":{"phase":"Running"}},
 {"metadata":{"namespace":"ns","name":"p2"},"spec":{"nodeName":"n2","volumes":[{"rbd":{"monitors":["10.0.0.1:6789"],"image":"readers","readOnly":true}}]},"status":{"phase":"Running"}},
 {"metadata":{"namespace":"ns","name":"over"},"spec":{"nodeName":"n1","volumes":[{"rbd":{"monitors":["10.0.0.1:6789"],"image":"leaked"}}]},"status":{"phase":"Succeeded"}}]}`

// images are PersistentVolumes, with what rbd says of them.
var images = []struct {
	name, locks, watchers string
	verdict               Verdict
	text                  string // in the note or the remedy
}{
	{"free", `[]`, `[]`, Free, ""},
	{"used", `[]`, `[{"address":"10.0.0.11:0/1","client":4}]`, InUse, ""},
	{"attached", `[]`, `[{"address":"10.0.0.12:0/1","client":4}]`, InUse, ""},
	{"claimed", `[{"id":"kubelet_lock_magic_node1","locker":"client.7","address":"10.0.0.11:0/9"}]`, `[{"address":"10.0.0.11:0/1","client":4}]`, InUse, ""},
	{"stale", `[{"id":"kubelet_lock_magic_node1","locker":"client.7","address":"10.0.0.11:0/9"}]`, `[]`, StaleLock,
		"rbd --id u --keyring /k -m 10.0.0.1:6789 status rbd/stale | grep -qx 'Watchers: none' && rbd --id u --keyring /k -m 10.0.0.1:6789 lock remove --rbd_blocklist_on_break_lock=false rbd/stale kubelet_lock_magic_node1 client.7"},
	{"jewel", `{"kubelet_lock_magic_x":{"locker":"client.7","address":"10.0.0.99:0/9"}}`, `{}`, StaleLock, "when x is powered off, or has not mounted it: rbd"},
	{"unready", `[{"id":"kubelet_lock_magic_node10","locker":"client.7","address":"10.0.0.12:0/9"}]`, `[]`, StaleLock, "when node10 is powered off, or has not mounted it: rbd"},
	{"jewel2", `{}`, `{"watcher":{"address":"10.0.0.11:0/1","client":4,"cookie":1},"watcher":{"address":"10.0.0.12:0/1","client":5,"cookie":1}}`, DoubleMount, "2 addresses"},
	{"jewel1", `{"kubelet_lock_magic_node1":{"locker":"client.7","address":"10.0.0.11:0/9"}}`, `{"watcher":{"address":"10.0.0.99:0/1","client":4,"cookie":1}}`, LeakedMapping, "10.0.0.99"},
	{"leaked", `[]`, `[{"address":"10.0.0.11:0/1","client":4}]`, LeakedMapping, "on node n1, when no process has it mounted: rbd unmap /dev/rbd/rbd/leaked"},
	{"stranger", `[]`, `[{"address":"10.0.0.99:0/1","client":4}]`, LeakedMapping, "10.0.0.99"},
	{"double", `[]`, `[{"address":"10.0.0.11:0/1","client":4},{"address":"10.0.0.12:0/1","client":5}]`, DoubleMount, "2 addresses"},
	{"readers", `[]`, `[{"address":"10.0.0.11:0/1","client":4},{"address":"10.0.0.12:0/1","client":5}]`, InUse, ""},
	{"backup", `[{"id":"backup","locker":"client.7","address":"10.0.0.50:0/9"}]`, `[]`, ForeignLock, "no kubelet took"},
	{"auto", `[{"id":"auto 184","locker":"client.7","address":"10.0.0.11:0/9"}]`, `[]`, Free, ""},
	{"missing", "", "", Unknown, "No such file or directory"},
	{"garbled", `[]`, `"none"`, Unknown, "it names no watchers"},
}

// testLimits are the command's, but no kubelet is waited for.
func testLimits() limits {
	l := defaultLimits()
	l.mapping = time.Millisecond
	return l
}

func newCeph(program string) *ceph { return &ceph{program: program, limits: testLimits()} }

// serve makes an API server, a kubeconfig and a program rbd.
func serve(t *testing.T, code int) (kubeconfig string, r *ceph) {
	t.Helper()
	dir := t.TempDir()
	pvs := []string{`{"metadata":{"name":"nopool"},"spec":{"rbd":{"monitors":["m"],"image":"x","pool":""}}}`, `{"metadata":{"name":"nfs"},"spec":{"nfs":{}}}`}
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, i := range images {
		claim := ""
		if i.name == "claimed" {
			claim = `,"claimRef":{"namespace":"ns","name":"c"}`
		}
		pvs = append(pvs, `{"metadata":{"name":"pv-`+i.name+`"},"spec":{"rbd":{"monitors":["10.0.0.1:6789"],"image":"`+i.name+`","pool":"rbd"}`+claim+`}}`)
		if i.locks != "" {
			write("lock-"+i.name, i.locks, 0o644)
			write("status-"+i.name, `{"watchers":`+i.watchers+`}`, 0o644)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		text := map[string]string{"/api/v1/nodes": nodes, "/api/v1/pods": pods, "/api/v1/persistentvolumes": `{"items":[` + strings.Join(pvs, ",") + `]}`}[req.URL.Path]
		if req.Header.Get("Authorization") != "Bearer secret-token" {
			code = http.StatusUnauthorized
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	r = newCeph(write("rbd", `#!/bin/sh
echo "$@" >> "`+dir+`/calls"
echo "2021 -1 a log line" >&2
what=$1; while [ "${1#--image=}" = "$1" ]; do shift; done; image=${1#--image=}
cat "`+dir+`/$what-$image" 2>/dev/null && exit 0
echo "rbd: error opening image $image: (2) No such file or directory" >&2; exit 2
`, 0o755))
	r.id, r.keyring = "u", "/k"
	return write("kubeconfig", `current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "`+server.URL+`"}}]
users: [{name: u, user: {token: secret-token}}]
`, 0o600), r
}

// execute runs the command with a program of the test's.
func execute(t *testing.T, r *ceph, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Setenv("PATH", filepath.Dir(r.program)+":"+os.Getenv("PATH"))
	var out, errs bytes.Buffer
	cmd := command(testLimits())
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

func TestVerdicts(t *testing.T) {
	kubeconfig, r := serve(t, http.StatusOK)
	out, errs, err := execute(t, r, "--kubeconfig", kubeconfig, "--id", "u", "--keyring", "/k", "-o", "json")
	if exit.Code(err) != exit.Found || !strings.Contains(err.Error(), "there are findings for 9 of 18 images, and 3 of 18 images could not be read") {
		t.Errorf("%v", err)
	}
	if !strings.HasPrefix(errs, "the API server is http://127.0.0.1:") || !strings.Contains(errs, `(context "a")`) {
		t.Errorf("whom it asks: %q", errs)
	}
	if !strings.Contains(errs, "the kubelet 1.7 on node1 treats locks of node10 as its own") || strings.Count(errs, "warning") != 1 {
		t.Errorf("warnings %q", errs)
	}
	got := map[string]Answer{}
	for line := range strings.Lines(out) {
		var a Answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got[a.Image] = a
	}
	for _, i := range images {
		a := got["rbd/"+i.name]
		if all := a.Note + strings.Join(a.Remedy, "\n"); a.Verdict != i.verdict || !strings.Contains(all, i.text) {
			t.Errorf("%s: %+v, want %s, %q", i.name, a, i.verdict, i.text)
		}
		if len(a.Remedy) > 0 && a.Verdict != StaleLock && a.Verdict != LeakedMapping {
			t.Errorf("%s: remedy %q", i.name, a.Remedy)
		}
	}
	if a := got["/x"]; a.Verdict != Unknown || a.Note != "the volume names no pool or no image" {
		t.Errorf("volume without a pool: %+v", a)
	}
	calls, err := os.ReadFile(filepath.Join(filepath.Dir(r.program), "calls"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(calls)) {
		if !strings.HasPrefix(line, "status ") && !strings.HasPrefix(line, "lock list ") || !strings.Contains(line, "--id u --keyring /k -m 10.0.0.1:6789") || strings.Contains(line, "secret-token") {
			t.Errorf("rbd is run as %s", line)
		}
	}
}

// An object's members that have one key are all there, watchers as well as the lockers of a
// shared lock.
func TestKeysThatComeAgain(t *testing.T) {
	program := filepath.Join(t.TempDir(), "rbd")
	r, v := newCeph(program), &volume{pool: "rbd", image: "img"}
	answer := func(text string) {
		t.Helper()
		if err := os.WriteFile(program, []byte("#!/bin/sh\necho '"+text+"'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	answer(`{"watchers":{"watcher":{"address":"10.0.0.11:0/1","client":4,"cookie":1},"watcher":{"address":"10.0.0.12:0/2","client":5,"cookie":1}}}`)
	watchers, err := r.watchers(t.Context(), v)
	if want := []Watcher{{Address: "10.0.0.11:0/1", Client: "client.4"}, {Address: "10.0.0.12:0/2", Client: "client.5"}}; err != nil || !slices.Equal(watchers, want) {
		t.Errorf("%+v, %v", watchers, err)
	}
	answer(`{"b":{"locker":"client.6","address":"x"},"b":{"locker":"client.7","address":"y"},"a":{"locker":"client.5","address":"z"}}`)
	locks, err := r.locks(t.Context(), v)
	if want := []Lock{{"a", "client.5", "z"}, {"b", "client.6", "x"}, {"b", "client.7", "y"}}; err != nil || !slices.Equal(locks, want) {
		t.Errorf("%+v, %v", locks, err)
	}
	for _, bad := range []string{`{"watchers":"none"}`, `{"watchers":{"watcher":"x"}}`, `{"watchers":{"watcher":{"address":1}}}`, `{}`, `{"watchers":null}`, `{"watchers":[1]}`} {
		answer(bad)
		if w, err := r.watchers(t.Context(), v); err == nil {
			t.Errorf("%s is read as %+v", bad, w)
		}
	}
}

func TestExitStatuses(t *testing.T) {
	kubeconfig, r := serve(t, http.StatusOK)
	for args, want := range map[string]int{
		"--image rbd/free": exit.OK, "--image rbd/stale": exit.Found, "--image rbd/missing": exit.Failed, "--image rbd/none": exit.Failed,
		"--image free": exit.Usage, "x": exit.Usage, "--kubeconfig=": exit.Usage, "--kubeconfig=/none": exit.Failed,
		"--image rbd/free --context a": exit.OK, "--context b": exit.Failed,
	} {
		if out, _, err := execute(t, r, append([]string{"--kubeconfig", kubeconfig}, strings.Fields(args)...)...); exit.Code(err) != want {
			t.Errorf("%s: %v, want status %d:\n%s", args, err, want, out)
		}
	}
	out, _, err := execute(t, r, "--kubeconfig", kubeconfig, "--image", "rbd/stale")
	if err == nil || !strings.Contains(out, "Nothing was changed. Remedies:") || !strings.Contains(out, "stale-lock") {
		t.Errorf("%v:\n%s", err, out)
	}
	kubeconfig, r = serve(t, http.StatusForbidden)
	if _, _, err := execute(t, r, "--kubeconfig", kubeconfig); exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), "403 Forbidden") {
		t.Errorf("forbidden: %v", err)
	}
	kubeconfig, r = serve(t, http.StatusOK)
	if err := os.Remove(r.program); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "")
	var answer bytes.Buffer
	cmd := command(testLimits())
	cmd.SetOut(&answer)
	cmd.SetErr(&answer)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--kubeconfig", kubeconfig, "--image", "rbd/free"})
	if err := cmd.Execute(); exit.Code(err) != exit.Failed || !strings.Contains(answer.String(), "executable file not found") {
		t.Errorf("no rbd: %v: %s", err, answer.String())
	}
}
