// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Every answer is bounded in size and time, and carries who asks.
func TestAsk(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/slow":
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
			}
		case "/endless":
			for range 1000 {
				if _, err := w.Write(make([]byte, 1000)); err != nil {
					return
				}
			}
		case "/half":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("half"))
		case "/created":
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("created"))
		case "/no":
			http.Error(w, "no", http.StatusForbidden)
		default:
			_, _ = w.Write([]byte(r.Method + " " + r.Header.Get("Authorization") + " " + r.Header.Get("Content-Type") + " " + string(body)))
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	c, err := Load(config(t, "server: '"+server.URL+"'", "token: t0ken"), "")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path string) (string, error) {
		b, err := c.Ask(t.Context(), http.MethodPost, path, "{}", 1000, 300*time.Millisecond)
		return string(b), err
	}
	if got, err := ask("/"); err != nil || got != "POST Bearer t0ken application/json {}" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := ask("/created"); err != nil || got != "created" {
		t.Errorf("%q, %v", got, err)
	}
	for path, want := range map[string]string{"/slow": "deadline exceeded", "/endless": "more than 1000 bytes", "/half": "ends early", "/no": "403"} {
		start := time.Now()
		got, err := ask(path)
		if err == nil || !strings.Contains(err.Error(), want) || got != "" || time.Since(start) > 3*time.Second {
			t.Errorf("%s: %q, %v after %s", path, got, err, time.Since(start))
		}
		var status *StatusError
		if errors.As(err, &status) != (path == "/no") || status != nil && status.Code != http.StatusForbidden {
			t.Errorf("%s: %#v", path, err)
		}
	}
	if certs, err := c.Certificates(t.Context()); err != nil || certs != nil {
		t.Errorf("by http: %v, %v", certs, err)
	}
}

// A certificate is looked at whoever signed it.
func TestCertificates(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	c, err := Load(config(t, "server: '"+server.URL+"'", "token: t0ken"), "")
	if err != nil {
		t.Fatal(err)
	}
	certs, err := c.Certificates(t.Context())
	if err != nil || len(certs) != 1 || !certs[0].Equal(server.Certificate()) {
		t.Errorf("%d, %v", len(certs), err)
	}
}

func TestFile(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	there := filepath.Join(home, "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ given, env, want string }{
		{"x", there, "x"}, {"", there, there}, {"", "/none:" + there, there}, {"", "", ""}, {"", "/none", ""},
	} {
		t.Setenv("KUBECONFIG", c.env)
		if got, err := File(c.given); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	want := filepath.Join(home, ".kube", "config")
	if err := os.MkdirAll(filepath.Dir(want), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(want, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", "")
	if got, err := File(""); err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
}
