// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func config(t *testing.T, cluster, user string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	text := "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {" + cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The server's authority is checked, and the user is a token, a password or a file's token.
func TestGet(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, pass, _ := r.BasicAuth()
		if r.Header.Get("Authorization") != "Bearer t0ken" && user+pass != "adminpw" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = w.Write([]byte(`{"path":"` + r.URL.Path + `"}`))
	}))
	defer server.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	trusted := "server: '" + server.URL + "/', certificate-authority-data: " + ca
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t0ken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ cluster, user, fails string }{
		{trusted, "token: t0ken", ""},
		{trusted, "tokenFile: " + token, ""},
		{trusted, "username: admin, password: pw", ""},
		{trusted, "token: other", "401 Unauthorized"},
		{"server: '" + server.URL + "'", "token: t0ken", "certificate"},
		{"server: '" + server.URL + "', insecure-skip-tls-verify: true", "token: t0ken", ""},
	} {
		client, err := Load(config(t, c.cluster, c.user), "")
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		var got struct{ Path string }
		err = client.Get(t.Context(), "/api/v1/nodes", &got)
		if c.fails == "" && (err != nil || got.Path != "/api/v1/nodes") || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s, %s: %+v, %v", c.cluster, c.user, got, err)
		}
	}
}

// A server without a scheme is asked as kubectl asks it, measured with 1.9.11 and 1.33: by http
// and as nobody, whatever the kubeconfig has of TLS and of a user.
func TestNoScheme(t *testing.T) {
	said := "nothing"
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said = r.Header.Get("Authorization")
		_, _ = w.Write([]byte("{}"))
	})
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer plain.Close()
	defer secure.Close()
	port := strings.TrimPrefix(plain.URL, "http://")
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	get := func(cluster, user string) error {
		t.Helper()
		client, err := Load(config(t, cluster, user), "")
		if err != nil {
			t.Fatal(err)
		}
		var v any
		return client.Get(t.Context(), "/api/v1/nodes", &v)
	}
	for _, host := range []string{port, port + "/", strings.Replace(port, "127.0.0.1", "localhost", 1)} {
		for _, tls := range []string{"", ", certificate-authority-data: " + ca, ", insecure-skip-tls-verify: true"} {
			for _, user := range []string{"token: t0ken", "username: admin, password: pw"} {
				said = "nothing"
				if err := get("server: '"+host+"'"+tls, user); err != nil || said != "" {
					t.Errorf("%s%.20s, %s: %v, the server got %q", host, tls, user, err, said)
				}
			}
		}
	}
	err := get("server: '"+strings.TrimPrefix(secure.URL, "https://")+"', certificate-authority-data: "+ca, "token: t0ken")
	if err == nil || !strings.Contains(err.Error(), "400 Bad Request") || !strings.Contains(err.Error(), "has no https:// before it") {
		t.Error(err)
	}
	for _, server := range []string{port + "/prefix", "/", "https://", "a b:1"} {
		if _, err := Load(config(t, "server: '"+server+"'", "token: x"), ""); err == nil || !strings.Contains(err.Error(), "neither a URL nor HOST:PORT") {
			t.Errorf("%s: %v", server, err)
		}
	}
}

func TestLoadFaults(t *testing.T) {
	for _, c := range []struct{ cluster, user, says string }{
		{"server: x", "exec: {command: aws}", "logs in with a program"},
		{"server: x", "auth-provider: {name: gcp}", "logs in with a program"},
		{"", "token: x", "the cluster has no server"},
		{"server: x, certificate-authority-data: eA==", "token: x", "no certificate in PEM"},
		{"server: x, certificate-authority: none.crt", "token: x", "none.crt"},
		{"server: x", "client-certificate-data: eA==", "client-certificate"},
	} {
		file := config(t, c.cluster, c.user)
		if _, err := Load(file, ""); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s, %s: %v, want %q", c.cluster, c.user, err, c.says)
		}
	}
	file := config(t, "server: x", "token: x")
	for text, says := range map[string]string{"current-context: b\n": `no context "b"`, "a: [": "yaml"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Another context than the current one is another server.
func TestContext(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	text := "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}, {name: b, context: {cluster: d, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: 'https://c'}}, {name: d, cluster: {server: 'https://d/'}}]\nusers: [{name: u, user: {token: x}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"": `https://c (context "a")`, "a": `https://c (context "a")`, "b": `https://d (context "b")`} {
		if c, err := Load(file, name); err != nil || c.Where() != want {
			t.Errorf("%q: %v, %v, want %s", name, c, err, want)
		}
	}
	if _, err := Load(file, "z"); err == nil || !strings.Contains(err.Error(), `no context "z", which --context names`) {
		t.Error(err)
	}
}
