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
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/kubeapi"
	"holdfast/cmd/internal/output"
	"holdfast/cmd/internal/podtemplatehash"
)

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
	if err := wait(t.Context(), a, time.Millisecond, 10*time.Second, false, &out, output.Table); err != nil {
		t.Fatal(err)
	}
	want := "old?[31m renewed 2018-01-01T00:00:01Z\nold?[31m renewed 2018-01-01T00:00:02Z\nnew_1 renewed 2018-01-01T00:00:04Z\nnew_1 renewed 2018-01-01T00:00:06Z\nnew_1 renewed 2018-01-01T00:00:07Z\n"
	if out.String() != want {
		t.Errorf("\n%s", &out)
	}
	for answer, says := range map[string]string{leaseText("dead", 1): "nobody renewed", `{"metadata":{}}`: "no leader", "<html>": "JSON"} {
		s := httptest.NewServer(cluster{leaseOf: answer})
		err := wait(t.Context(), client(t, s.URL), time.Millisecond, 100*time.Millisecond, false, &out, output.JSON)
		s.Close()
		if exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// With --another the old leader's renewals do not count, however many they are.
func TestWaitAnother(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := asked.Add(1)
		_, _ = w.Write([]byte(leaseText(map[bool]string{true: "old", false: "new"}[n <= 10], n)))
	}))
	defer s.Close()
	var out bytes.Buffer
	if err := wait(t.Context(), client(t, s.URL), time.Millisecond, 10*time.Second, true, &out, output.Table); err != nil {
		t.Fatal(err)
	}
	if old, new := strings.Count(out.String(), "old renewed"), strings.Count(out.String(), "new renewed"); old != 10 || new != 3 {
		t.Errorf("%d and %d renewals\n%s", old, new, &out)
	}
	asked.Store(-1e6)
	var err error
	for bound := 100 * time.Millisecond; bound < time.Minute; bound *= 4 { // the machine may stand still in one
		if err = wait(t.Context(), client(t, s.URL), time.Millisecond, bound, true, &out, output.Table); !strings.Contains(fmt.Sprint(err), "renewed the lease twice") {
			break
		}
	}
	if exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), "old still leads") {
		t.Errorf("the old one leads: %v", err)
	}
}
