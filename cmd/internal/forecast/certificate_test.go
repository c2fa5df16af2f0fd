// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/servercert"
)

func TestCertificate(t *testing.T) {
	named := func(c x509.Certificate) *x509.Certificate {
		if c.RawIssuer == nil {
			c.RawSubject, c.RawIssuer = []byte("s"), []byte("i")
		}
		return &c
	}
	good := named(x509.Certificate{DNSNames: []string{"a"}, SignatureAlgorithm: x509.SHA256WithRSA})
	root := named(x509.Certificate{SignatureAlgorithm: x509.SHA1WithRSA, RawSubject: []byte("r"), RawIssuer: []byte("r")})
	for want, chain := range map[string][]*x509.Certificate{
		"":                                    {good, root},
		"no subjectAltName":                   {named(x509.Certificate{SignatureAlgorithm: x509.SHA256WithRSA})},
		"certificate is signed with SHA1-RSA": {named(x509.Certificate{DNSNames: []string{"a"}, SignatureAlgorithm: x509.SHA1WithRSA})},
		"signed with ECDSA-SHA1":              {named(x509.Certificate{DNSNames: []string{"a"}, SignatureAlgorithm: x509.ECDSAWithSHA1})},
		"an intermediate certificate of the API server is signed with SHA1-RSA": {good, named(x509.Certificate{SignatureAlgorithm: x509.SHA1WithRSA})},
	} {
		fs := servercert.Findings("API server", servercert.Kubelet, chain)
		if want == "" && len(fs) > 0 || want != "" && (len(fs) != 1 || !strings.Contains(fs[0].Text, want)) {
			t.Errorf("want %q, got %+v", want, fs)
		}
	}
}

// An API server whose certificate this program refuses itself is looked at all the same, and gets no
// request and no password.
func TestRefusedCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "127.0.0.1"}, NotAfter: time.Now().Add(time.Hour)}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leafDER}, PrivateKey: key}}}
	s.StartTLS()
	defer s.Close()
	data := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}))
	file := filepath.Join(t.TempDir(), "config")
	text := "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: '" + s.URL +
		"', certificate-authority-data: " + data + "}}]\nusers: [{name: u, user: {token: " + secret + "}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"holdfast", "1.9"} {
		out, errs, status := execute(t, "--all", "--to", to, "--kubeconfig", file)
		if status != exit.Found || !strings.Contains(out, "HF104") || !strings.Contains(out, "no subjectAltName") || !strings.Contains(out, "no node was checked") {
			t.Errorf("--to %s: status %d\n%s%s", to, status, out, errs)
		}
	}
	if requests != 0 {
		t.Errorf("%d requests were sent", requests)
	}
}
