// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/webhook/internal/exit"
	"holdfast/webhook/internal/review"
)

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &authority{c, key}
}

func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

// TestClients: with an authority, only its certificates post reviews, and everyone asks for
// health; without one, everyone does both.
func TestClients(t *testing.T) {
	own, other := newAuthority(t), newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	apiserver, node, foreign := own.issue(t, "kube-apiserver"), own.issue(t, "system:node:n1"), other.issue(t, "kube-apiserver")
	for _, c := range []struct {
		name, file, names string
		cert              *tls.Certificate
		review, health    int // 0: no connection
	}{
		{"no authority", "", "", nil, 200, 200},
		{"no certificate", file, "", nil, 401, 200},
		{"the API server's", file, "kube-apiserver,b", &apiserver, 200, 200},
		{"another name", file, "kube-apiserver,b", &node, 401, 200},
		{"any name", file, "", &node, 200, 200},
		{"of another authority", file, "", &foreign, 0, 0},
	} {
		clients, err := NewClients(c.file, c.names, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		reviews, refused := 0, 0
		mux := http.NewServeMux()
		mux.Handle(Path, clients.only(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			reviews++
			_, _ = io.Copy(io.Discard, r.Body)
		}), func(o string, _ time.Duration, _ review.Result) {
			if o == review.NoClientCertificate {
				refused++
			}
		}))
		mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
		s := httptest.NewUnstartedServer(mux)
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
		s.TLS = &tls.Config{}
		clients.configure(s.TLS)
		s.StartTLS()
		conf := &tls.Config{InsecureSkipVerify: true}
		if c.cert != nil { // also where the server does not name their authority
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.cert, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}, Timeout: 10 * time.Second}
		status := func(resp *http.Response, err error) int {
			if err != nil {
				return 0
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		if got := status(client.Post(s.URL+Path, "application/json", strings.NewReader("{}"))); got != c.review || (got == 200) != (reviews == 1) || (got == 401) != (refused == 1) {
			t.Errorf("%s: a review has status %d, want %d; %d were read, %d refused", c.name, got, c.review, reviews, refused)
		}
		if got := status(client.Get(s.URL + "/healthz")); got != c.health {
			t.Errorf("%s: /healthz has status %d, want %d", c.name, got, c.health)
		}
		s.Close()
	}
}

func TestWrongClients(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if _, err := NewClients(file, "", log); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("no certificate: %v", err)
	}
	if _, err := NewClients(file+"x", "", log); err == nil {
		t.Error("no file: no error")
	}
	if _, err := NewClients("", "a", log); exit.Code(err) != exit.Usage {
		t.Errorf("names without an authority: %v", err)
	}
}
