// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kcm

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast/cmd/internal/atomicfile"
	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/finding"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/mutate"
	"holdfast/cmd/internal/output"
	"holdfast/cmd/internal/podtemplatehash"
)

const secret = "hunter2secret"

// kubeadm is a manifest as kubeadm writes it, with a secret in it.
const kubeadm = `apiVersion: v1
kind: Pod
metadata:
  annotations:
    scheduler.alpha.kubernetes.io/critical-pod: ""
  creationTimestamp: null
  labels:
    component: kube-controller-manager
  name: kube-controller-manager
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-controller-manager
    - --kubeconfig=/etc/kubernetes/controller-manager.conf
    - --use-service-account-credentials=true
    - --leader-elect=true
    env:
    - name: PASSWORD
      value: ` + secret + `
    image: gcr.io/google_containers/kube-controller-manager-amd64:v1.9.11
    name: kube-controller-manager
    resources:
      requests:
        cpu: 200m
    volumeMounts:
    - mountPath: /etc/kubernetes/pki
      name: k8s-certs
      readOnly: true
  hostNetwork: true
  volumes:
  - hostPath:
      path: /etc/kubernetes/pki
      type: DirectoryOrCreate
    name: k8s-certs
status: {}
`

// master is a folder with manifests/kcm.yaml and a binary that answers as one.
type master struct {
	t            *testing.T
	file, binary string
}

func newMaster(t *testing.T, manifest string) *master {
	dir := t.TempDir()
	m := &master{t, filepath.Join(dir, "manifests", "kcm.yaml"), filepath.Join(dir, "kube-controller-manager")}
	if err := os.Mkdir(filepath.Join(dir, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.write(m.file, manifest, 0o600)
	m.write(m.binary, "#!/bin/sh\nfor a; do [ \"$a\" != --bad ] || exit 1; done\necho Kubernetes v1.9.11+holdfast.2\n", 0o755)
	return m
}

func (m *master) write(file, text string, mode os.FileMode) {
	m.t.Helper()
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}

func (m *master) read() string {
	m.t.Helper()
	b, err := os.ReadFile(m.file)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

func execute(t testing.TB, args ...string) (string, int) {
	t.Helper()
	cmd := Command()
	cmd.SetContext(t.Context())
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	if strings.Contains(out.String(), secret) {
		t.Errorf("%q shows a secret:\n%s", args, &out)
	}
	return out.String(), exit.Code(err)
}

func (m *master) run(args ...string) (string, int) {
	return execute(m.t, slices.Concat([]string{args[0], m.file, "--binary", m.binary}, args[1:])...)
}

// There and back, as kubeadm, hyperkube and kops write the command: what comes back is what was there.
func TestManifest(t *testing.T) {
	words := "    - kube-controller-manager\n"
	for name, c := range map[string]struct{ manifest, path, command string }{
		"kubeadm":   {kubeadm, image, words},
		"full path": {strings.Replace(kubeadm, words, "    - /usr/bin/kube-controller-manager\n", 1), "/usr/bin/kube-controller-manager", "    - /usr/bin/kube-controller-manager\n"},
		"hyperkube": {strings.NewReplacer(words, "    - /hyperkube\n    - controller-manager\n", "kube-controller-manager-amd64:", "hyperkube-amd64:").Replace(kubeadm), image, "    - " + image + "\n"},
		"shell": {strings.Replace(kubeadm, words, "    - /bin/sh\n    - -c\n    - /usr/local/bin/kube-controller-manager --v=2 2>&1 | tee /kcm.log\n", 1),
			image, "    - /usr/local/bin/kube-controller-manager --v=2 2>&1"},
		"no volumes": {strings.NewReplacer("    volumeMounts:\n    - mountPath: /etc/kubernetes/pki\n      name: k8s-certs\n      readOnly: true\n", "",
			"  volumes:\n  - hostPath:\n      path: /etc/kubernetes/pki\n      type: DirectoryOrCreate\n    name: k8s-certs\n", "").Replace(kubeadm), image, words},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMaster(t, c.manifest)
			if out, status := m.run("manifest", "--dry-run"); status != 0 || !strings.Contains(out, "+      path: "+m.binary) || m.read() != c.manifest {
				t.Errorf("dry run: %d\n%s", status, out)
			}
			out, status := m.run("manifest")
			got := m.read()
			if status != 0 || !strings.Contains(got, "    - mountPath: "+c.path+"\n      name: holdfast\n      readOnly: true\n") ||
				!strings.Contains(got, "  - hostPath:\n      path: "+m.binary+"\n      type: File\n    name: holdfast\n") || !strings.Contains(got, c.command) {
				t.Fatalf("%d\n%s\n%s", status, out, got)
			}
			if s, err := os.Stat(m.file); err != nil || s.Mode().Perm() != 0o600 {
				t.Errorf("mode %v %v", s.Mode(), err)
			}
			if b, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(m.file)), "kcm.yaml.before-holdfast")); err != nil || string(b) != c.manifest {
				t.Errorf("kept: %v\n%s", err, b)
			}
			if list, err := os.ReadDir(filepath.Dir(m.file)); err != nil || len(list) != 1 {
				t.Errorf("the manifests folder has %v %v", list, err)
			}
			if out, status := m.run("manifest"); status != 0 || !strings.Contains(out, untouched) || m.read() != got {
				t.Errorf("again: %d\n%s", status, out)
			}
			if out, status := m.run("manifest", "--back"); status != 0 || m.read() != c.manifest {
				t.Errorf("back: %d\n%s\n%s", status, out, strings.Join(diff(c.manifest, m.read()), "\n"))
			}
			if out, status := m.run("manifest", "--back"); status != 0 || !strings.Contains(out, untouched) {
				t.Errorf("back again: %d\n%s", status, out)
			}
		})
	}
}

// What must stop it, with the code, and the file as it was.
func TestManifestStops(t *testing.T) {
	for name, c := range map[string]struct {
		code string
		make func(m *master)
		args []string
	}{
		"no pod": {"HF521", func(m *master) { m.write(m.file, "kind: Service\n", 0o600) }, nil},
		"HTML":   {"HF521", func(m *master) { m.write(m.file, "<html>", 0o600) }, nil},
		"another program": {"HF521", func(m *master) {
			m.write(m.file, strings.Replace(kubeadm, "- kube-controller-manager\n", "- kube-scheduler\n", 1), 0o600)
		}, nil},
		"hyperkube in a shell": {"HF521", func(m *master) {
			m.write(m.file, strings.Replace(kubeadm, "- kube-controller-manager\n", "- sh\n    - -c\n    - /hyperkube controller-manager --v=2\n", 1), 0o600)
		}, nil},
		"a mount there": {"HF521", func(m *master) {
			m.write(m.file, strings.Replace(kubeadm, "mountPath: /etc/kubernetes/pki", "mountPath: "+image, 1), 0o600)
		}, nil},
		"no file":        {"HF522", func(m *master) { os.Remove(m.binary) }, nil},
		"not executable": {"HF522", func(m *master) { os.Chmod(m.binary, 0o644) }, nil},
		"stock":          {"HF522", func(m *master) { m.write(m.binary, "#!/bin/sh\necho Kubernetes v1.9.11\n", 0o755) }, nil},
		"endless":        {"HF522", func(m *master) { m.write(m.binary, "#!/bin/sh\nyes Kubernetes v1.9.11\n", 0o755) }, nil},
		"unknown flag": {"HF523", func(m *master) {
			m.write(m.file, strings.Replace(kubeadm, "--leader-elect=true", "--api-servers="+secret, 1), 0o600)
		}, nil},
		"refused by the file": {"HF523", func(m *master) { m.write(m.file, strings.Replace(kubeadm, "--leader-elect=true", "--bad", 1), 0o600) }, nil},
		"a gate, back": {"HF523", func(m *master) {
			m.run("manifest")
			m.write(m.file, strings.Replace(m.read(), "--leader-elect=true", "--feature-gates=UniqueLeaseIdentity=false", 1), 0o600)
		}, []string{"--back"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMaster(t, kubeadm)
			c.make(m)
			before := m.read()
			out, status := m.run(append([]string{"manifest"}, c.args...)...)
			if status != exit.Found || !strings.Contains(out, c.code) || !strings.Contains(out, untouched) || m.read() != before {
				t.Errorf("status %d\n%s", status, out)
			}
		})
	}
	m := newMaster(t, kubeadm)
	for _, args := range [][]string{{"manifest", m.file}, {"manifest", m.file, "--binary", "kcm"}, {"manifest", "--binary", "/kcm"}, {"check", m.file, "x", "--binary", "/kcm"}, {"wait", "x"}, {"wait", "--timeout", "0s"}, {"swap"}} {
		if out, status := execute(t, args...); status != exit.Usage {
			t.Errorf("%q: %d %s", args, status, out)
		}
	}
	link := filepath.Join(filepath.Dir(m.file), "link.yaml")
	if err := os.Symlink(m.file, link); err != nil {
		t.Fatal(err)
	}
	if out, status := execute(t, "manifest", link, "--binary", m.binary); status != exit.Failed || m.read() != kubeadm {
		t.Errorf("a link: %d %s", status, out)
	}
}

// TestMain is the program that TestKilled kills.
func TestMain(main *testing.M) {
	atomicfile.Sync = func(*os.File) error { return nil } // a killed program loses nothing by it
	if file := os.Getenv("KCM_KILLED"); file != "" {
		at := 0
		atomicfile.Sync = func(*os.File) error {
			if at++; os.Getenv("KCM_AT") == fmt.Sprint(at) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return nil
		}
		cmd := Command()
		cmd.SetArgs([]string{"manifest", file, "--binary", os.Getenv("KCM_BINARY")})
		os.Exit(exit.Code(cmd.ExecuteContext(context.Background())))
	}
	os.Exit(main.Run())
}

// The program is killed with each file written and not yet renamed: the manifest is the old one, the
// folder has nothing else, and the next run ends it.
func TestKilled(t *testing.T) {
	killed := 0
	for at := 1; at < 9; at++ {
		m := newMaster(t, kubeadm)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "KCM_KILLED="+m.file, "KCM_BINARY="+m.binary, "KCM_AT="+fmt.Sprint(at))
		err := cmd.Run()
		if err == nil {
			if !strings.Contains(m.read(), "name: holdfast") {
				t.Error("it ended, and the manifest is not written")
			}
			break
		}
		killed++
		if list, e := os.ReadDir(filepath.Dir(m.file)); e != nil || len(list) != 1 || m.read() != kubeadm {
			t.Errorf("killed at %d: %v, %v\n%s", at, list, e, m.read())
		}
		if out, status := m.run("manifest"); status != 0 || !strings.Contains(m.read(), "name: holdfast") {
			t.Errorf("killed at %d, then %d %s", at, status, out)
		}
	}
	if killed != 2 {
		t.Errorf("killed at %d points", killed)
	}
}

// The disk is full: nothing changes, and nothing is left.
func TestDiskFull(t *testing.T) {
	defer func(f func(*os.File) error) { atomicfile.Sync = f }(atomicfile.Sync)
	atomicfile.Sync = func(*os.File) error { return syscall.ENOSPC }
	m := newMaster(t, kubeadm)
	out, status := m.run("manifest")
	if list, err := os.ReadDir(filepath.Dir(filepath.Dir(m.file))); err != nil || len(list) != 2 || status != exit.Failed || m.read() != kubeadm {
		t.Errorf("%d %s: %v %v", status, out, list, err)
	}
}

// cluster is an API server by path; "403" and the like are statuses.
type cluster map[string]any

func (c cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch v := c[r.URL.Path].(type) {
	case nil:
		_ = json.NewEncoder(w).Encode(object{"kind": "List", "items": []any{}})
	case int:
		http.Error(w, secret, v)
	case string:
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = w.Write([]byte(v))
	default:
		_ = json.NewEncoder(w).Encode(v)
	}
}

const (
	reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	apps    = "/apis/apps/v1/"
)

func good() cluster {
	return cluster{"/version": `{"gitVersion":"v1.9.11"}`, reviews: `{"status":{"allowed":true}}`}
}

func kubeconfig(t *testing.T, server string) string {
	file := filepath.Join(t.TempDir(), "config")
	text := "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: '" + server + "'}}]\nusers: [{name: u, user: {token: " + secret + "}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func list(items ...any) object { return object{"kind": "List", "items": items} }

func set(name, current, update string, more object) object {
	status := object{"currentRevision": current, "updateRevision": update}
	for k, v := range more {
		status[k] = v
	}
	return object{"metadata": object{"name": name, "namespace": "default", "uid": "u-" + name}, "spec": object{"updateStrategy": object{"type": "RollingUpdate"}}, "status": status}
}

func rev(of, name string, number int, data string) object {
	return object{"metadata": object{"name": name, "namespace": "default", "ownerReferences": []any{object{"kind": "StatefulSet", "uid": "u-" + of, "controller": true}}}, "revision": number, "data": object{"x": data}}
}

func TestCheck(t *testing.T) {
	deployment := object{"kind": "Deployment", "metadata": object{"name": "web", "namespace": "default", "uid": "u-web"}, "spec": object{"template": object{"spec": object{"containers": []any{object{"name": "a", "image": "b"}}}}}}
	replicas := func(owner string) object {
		return object{"metadata": object{"name": "web-" + hashOf(t, deployment), "namespace": "default", "ownerReferences": []any{object{"kind": "Deployment", "uid": owner, "controller": true}}}}
	}
	for name, c := range map[string]struct {
		with   cluster
		args   []string
		want   string // code, and a word
		status int
	}{
		"well":         {cluster{}, nil, "", 0},
		"another API":  {cluster{"/version": `{"gitVersion":"v1.8.15"}`}, nil, "HF103 1.8", 3},
		"API 1.36":     {cluster{"/version": `{"gitVersion":"v1.36.0"}`}, nil, "HF103 1.36", 3},
		"HTML":         {cluster{"/version": "<html>" + secret}, nil, "HF526 JSON", 1},
		"half":         {cluster{apps + "statefulsets": `{"kind":"StatefulSetList","items":[{"meta`}, nil, "HF526 StatefulSets", 1},
		"no right":     {cluster{reviews: `{"status":{"allowed":false}}`}, nil, "HF524 endpoint-controller", 3},
		"not to ask":   {cluster{reviews: 403}, nil, "HF526 subjectaccessreviews", 1},
		"no review":    {cluster{reviews: `{}`}, nil, "HF526 review", 1},
		"no sets":      {cluster{apps + "statefulsets": 403}, nil, "HF526 statefulsets", 1},
		"one revision": {cluster{apps + "statefulsets": list(set("db", "db-1", "db-1", nil)), apps + "controllerrevisions": list(rev("db", "db-1", 1, "a"), rev("other", "x", 1, "a"))}, []string{"--fail-on", "new"}, "", 0},
		"one template twice": {cluster{apps + "statefulsets": list(set("db", "db-1", "db-1", nil)), apps + "controllerrevisions": list(rev("db", "db-1", 1, "a"), rev("db", "db-2", 2, "a"))},
			[]string{"--fail-on", "new"}, "HF525 db-2", 3},
		"at the youngest": {cluster{apps + "statefulsets": list(set("db", "db-2", "db-2", nil)), apps + "controllerrevisions": list(rev("db", "db-1", 1, "a"), rev("db", "db-2", 2, "a"))}, []string{"--fail-on", "new"}, "", 0},
		"own ReplicaSet":  {cluster{apps + "deployments": list(deployment), apps + "replicasets": list(replicas("u-web"))}, []string{"--fail-on", "new"}, "", 0},
		"foreign":         {cluster{apps + "deployments": list(deployment), apps + "replicasets": list(replicas("u-other"))}, []string{"--fail-on", "new"}, "HF525 default/web", 3},
	} {
		t.Run(name, func(t *testing.T) {
			all := good()
			for k, v := range c.with {
				all[k] = v
			}
			s := httptest.NewServer(all)
			defer s.Close()
			m := newMaster(t, kubeadm)
			out, status := m.run(append([]string{"check", "--kubeconfig", kubeconfig(t, s.URL), "-o", "json"}, c.args...)...)
			code, word, _ := strings.Cut(c.want, " ")
			if status != c.status || c.want == "" && strings.Contains(out, `"HF`) || !strings.Contains(out, code) || !strings.Contains(out, word) {
				t.Errorf("status %d\n%s", status, out)
			}
			if m.read() != kubeadm {
				t.Error("the manifest changed")
			}
		})
	}
}

func TestCheckBack(t *testing.T) {
	for name, c := range map[string]struct {
		with cluster
		want string
	}{
		"well":        {cluster{apps + "statefulsets": list(set("db", "db-1", "db-1", nil)), apps + "controllerrevisions": list(rev("db", "db-1", 1, "a"), rev("db", "db-2", 2, "b"))}, ""},
		"count":       {cluster{apps + "statefulsets": list(set("db", "db-1", "db-1", object{"collisionCount": 1}))}, "collision count"},
		"two numbers": {cluster{apps + "statefulsets": list(set("db", "db-1", "db-1", nil)), apps + "controllerrevisions": list(rev("db", "db-1", 2, "a"), rev("db", "db-2", 2, "b"))}, "back and forth"},
	} {
		t.Run(name, func(t *testing.T) {
			all := good()
			for k, v := range c.with {
				all[k] = v
			}
			s := httptest.NewServer(all)
			defer s.Close()
			m := newMaster(t, kubeadm)
			m.run("manifest")
			out, status := m.run("check", "--back", "--kubeconfig", kubeconfig(t, s.URL), "--fail-on", "new", "-o", "json")
			if (status == 3) != (c.want != "") || !strings.Contains(out, c.want) {
				t.Errorf("status %d\n%s", status, out)
			}
		})
	}
}

func hashOf(t *testing.T, d object) string {
	t.Helper()
	r, err := podtemplatehash.Find("1.9")
	if err != nil {
		t.Fatal(err)
	}
	template, err := podtemplatehash.Template(d)
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.Hash(template, -1)
	if err != nil {
		t.Fatal(err)
	}
	return r.Suffix(h)
}

func client(t *testing.T, server string) *kubeapi.Client {
	t.Helper()
	c, err := kubeapi.Load(kubeconfig(t, server), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The server of the manifest's own kubeconfig is looked at, without a request to it.
func TestCheckCertificate(t *testing.T) {
	chain := []*x509.Certificate{{RawSubject: []byte("s"), RawIssuer: []byte("i"), SignatureAlgorithm: x509.SHA1WithRSA, DNSNames: []string{"a"}}}
	p, err := parse("x", []byte(kubeadm))
	if err != nil {
		t.Fatal(err)
	}
	fs := certificates(t.Context(), shown{chain: chain}, p, func(string, error, string) { t.Error("not asked") })
	if len(fs) != 1 || fs[0].Code != "HF104" || !strings.Contains(fs[0].Text, "controller manager") {
		t.Errorf("%+v", fs)
	}
}

type shown struct {
	server
	chain []*x509.Certificate
}

func (s shown) Certificates(context.Context) ([]*x509.Certificate, error) { return s.chain, nil }

func leaseText(holder string, n int64) string {
	l, _ := json.Marshal(object{"holderIdentity": holder, "renewTime": fmt.Sprintf("2018-01-01T00:00:%02dZ", n)})
	e, _ := json.Marshal(object{"metadata": object{"annotations": object{leaseAnnotation: string(l)}}})
	return string(e)
}

// wait ends when one holder has renewed twice after it was first seen, and not before.
func TestWait(t *testing.T) {
	var asked atomic.Int64
	holder := func(n int64) string {
		if n <= 2 {
			return "old\x1b[31m"
		}
		return "new_1"
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch n := asked.Add(1); {
		case n == 3:
			http.Error(w, "", http.StatusServiceUnavailable) // it restarts
		case n > 3 && n < 6:
			_, _ = w.Write([]byte(leaseText(holder(n), 4))) // not renewed
		default:
			_, _ = w.Write([]byte(leaseText(holder(n), n)))
		}
	}))
	defer s.Close()
	a := client(t, s.URL)
	var out bytes.Buffer
	if err := wait(t.Context(), a, time.Millisecond, 10*time.Second, &out, output.Table); err != nil {
		t.Fatal(err)
	}
	want := "old?[31m renewed 2018-01-01T00:00:01Z\nold?[31m renewed 2018-01-01T00:00:02Z\nnew_1 renewed 2018-01-01T00:00:04Z\nnew_1 renewed 2018-01-01T00:00:06Z\nnew_1 renewed 2018-01-01T00:00:07Z\n"
	if out.String() != want {
		t.Errorf("\n%s", &out)
	}
	for answer, says := range map[string]string{leaseText("dead", 1): "nobody renewed", `{"metadata":{}}`: "no leader", "<html>": "JSON"} {
		s := httptest.NewServer(cluster{leaseOf: answer})
		err := wait(t.Context(), client(t, s.URL), time.Millisecond, 100*time.Millisecond, &out, output.JSON)
		s.Close()
		if exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// Each code of the table is given by a test here.
func TestCodes(t *testing.T) {
	b, err := os.ReadFile("kcm_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range finding.Codes() {
		if slices.Contains(c.By, "kcm check") && !bytes.Contains(b, []byte(c.Code)) {
			t.Errorf("no test gives %s", c.Code)
		}
	}
}

// A manifest may be anything: nothing panics, and what is swapped in goes out again.
func TestBadManifests(t *testing.T) {
	read := 0
	mutate.Texts(10_000, kubeadm, func(s string) {
		if mangled(t, []byte(s)) {
			read++
		}
	})
	if read < 500 {
		t.Errorf("only %d could be read: the test tests little", read)
	}
}

// mangled parses what may be anything, swaps, and goes back.
func mangled(t testing.TB, b []byte) (read bool) {
	p, err := parse("x", b)
	if err != nil {
		return false
	}
	if p.swap("/opt/kcm") == nil {
		if len(p.mounted("/opt/kcm")) != 1 {
			t.Errorf("no mount in %q", b)
		}
		p.back("/opt/kcm")
		if len(p.mounted("/opt/kcm")) != 0 {
			t.Errorf("still mounted in %q", b)
		}
	}
	if _, err := p.yaml(); err != nil {
		t.Error(err)
	}
	return true
}
