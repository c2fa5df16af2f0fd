// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/client-go/transport"
	"k8s.io/kubernetes/pkg/probe"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
)

// serve starts an HTTPS server with cfg and returns its URL.
func serve(t *testing.T, cfg *tls.Config, h http.Handler) *url.URL {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS = cfg
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })

// TestHTTPSProbe is the kubelet's HTTPS probe against what containers served
// in 2018. A probe that fails where it did not before kills the container.
func TestHTTPSProbe(t *testing.T) {
	name := pkix.Name{CommonName: "pod"}
	for _, c := range []struct {
		name string
		cert spec
		tls  *tls.Config
		want probe.Result
	}{
		{name: "TLS 1.0 only", tls: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, want: probe.Success},
		{name: "TLS 1.1 only", tls: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, want: probe.Success},
		{name: "TLS 1.2 only", tls: &tls.Config{MaxVersion: tls.VersionTLS12}, want: probe.Success},
		{name: "TLS 1.3", want: probe.Success},
		{name: "RSA key exchange only", tls: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}}, want: probe.Success},
		{name: "3DES only", tls: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA}}, want: probe.Success},
		{name: "RC4 only, off since Go 1.5", tls: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}}, want: probe.Failure},
		{name: "RSA 1024", cert: spec{bits: 1024}, want: probe.Success},
		{name: "RSA 768", cert: spec{bits: 768}, tls: &tls.Config{MaxVersion: tls.VersionTLS12}, want: probe.Success},
		{name: "SHA-1 signature", cert: spec{sha1: true}, want: probe.Success},
		{name: "negative serial number", cert: spec{negativeSerial: true}, want: probe.Success},
		{name: "expired", cert: spec{expired: true}, want: probe.Success},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cert.subject, c.cert.usage = name, x509.ExtKeyUsageServerAuth
			cfg := c.tls.Clone()
			if cfg == nil {
				cfg = &tls.Config{}
			}
			cfg.Certificates = []tls.Certificate{c.cert.make(t, nil).tls()}
			got, out, err := httpprobe.New().Probe(serve(t, cfg, ok), nil, 10*time.Second)
			if got != c.want || err != nil {
				t.Errorf("probe: %s (%s), %v; want %s", got, out, err, c.want)
			}
		})
	}
}

// TestHTTPProbeOddAnswers: answers that net/http's client has become stricter
// about.
func TestHTTPProbeOddAnswers(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		want         probe.Result
	}{
		{"empty Content-Length", "HTTP/1.1 200 OK\r\nContent-Length: \r\nConnection: close\r\n\r\nok", probe.Success},
		{"no length, closed", "HTTP/1.1 200 OK\r\n\r\nok", probe.Success},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nok", probe.Success},
		{"lower case and LF only", "HTTP/1.1 200 OK\ncontent-type: text/plain\n\nok", probe.Success},
		{"header with underscore", "HTTP/1.1 200 OK\r\nx_y: 1\r\n\r\nok", probe.Success},
		// Documented as not restored (Go 1.15 took the coding out).
		{"identity transfer coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok", probe.Failure},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				conn.Read(make([]byte, 4096))
				io.WriteString(conn, c.answer)
				conn.Close()
			}()
			got, out, err := httpprobe.New().Probe(&url.URL{Scheme: "http", Host: l.Addr().String()}, nil, 10*time.Second)
			if got != c.want || err != nil {
				t.Errorf("probe: %s (%q), %v; want %s", got, out, err, c.want)
			}
		})
	}
}

// TestClientCertificate: the x509 authenticator of kube-apiserver and kubelet,
// behind a listener with their TLS settings (cmd/kubelet/app/server.go,
// apiserver/pkg/server/serve.go: TLS 1.2 at least, certificates requested and
// checked later). No client certificate has a SAN: the name is the CN.
func TestClientCertificate(t *testing.T) {
	ca := spec{subject: pkix.Name{CommonName: "ca"}, isCA: true}.make(t, nil)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	opts := x509request.DefaultVerifyOptions()
	opts.Roots = roots
	auth := x509request.New(opts, x509request.CommonNameUserConversion)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, found, err := auth.AuthenticateRequest(r)
		if err != nil || !found {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		io.WriteString(w, u.GetName()+" "+strings.Join(u.GetGroups(), ","))
	})
	server := spec{subject: pkix.Name{CommonName: "kubelet"}, usage: x509.ExtKeyUsageServerAuth}.make(t, &ca)
	addr := serve(t, &tls.Config{
		Certificates: []tls.Certificate{server.tls()},
		MinVersion:   tls.VersionTLS12,
		ClientAuth:   tls.RequestClientCert,
		ClientCAs:    roots,
	}, handler)

	subject := pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
	for _, c := range []struct {
		name string
		cert spec
		want string
	}{
		{name: "CN and no SAN", want: "system:node:n1 system:nodes"},
		{name: "RSA 1024", cert: spec{bits: 1024}, want: "system:node:n1 system:nodes"},
		{name: "negative serial number", cert: spec{negativeSerial: true}, want: "system:node:n1 system:nodes"},
		{name: "expired", cert: spec{expired: true}, want: "unauthorized\n"},
		// Documented as not restored (x509sha1 is gone since Go 1.24).
		{name: "SHA-1 signature", cert: spec{sha1: true}, want: "unauthorized\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cert.subject, c.cert.usage = subject, x509.ExtKeyUsageClientAuth
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
				InsecureSkipVerify: true,
				Certificates:       []tls.Certificate{c.cert.make(t, &ca).tls()},
			}}}
			defer client.CloseIdleConnections()
			res, err := client.Get(addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil || string(body) != c.want {
				t.Errorf("got %q, %v; want %q", body, err, c.want)
			}
		})
	}

	// As in 2018: the components' own listeners never took less than TLS 1.2.
	for version, refused := range map[uint16]bool{tls.VersionTLS10: true, tls.VersionTLS11: true, tls.VersionTLS12: false} {
		conn, err := tls.Dial("tcp", addr.Host, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: version})
		if (err != nil) != refused {
			t.Errorf("client with %s: error %v, want one: %v", tls.VersionName(version), err, refused)
		}
		if err == nil {
			conn.Close()
		}
	}
}

// TestServerCertificate: client-go against an apiserver's certificate. What is
// not accepted here makes a node NotReady; toolchain.md says what to do.
func TestServerCertificate(t *testing.T) {
	ca := spec{subject: pkix.Name{CommonName: "ca"}, isCA: true}.make(t, nil)
	weakCA := spec{subject: pkix.Name{CommonName: "old ca"}, isCA: true, sha1: true, bits: 1024}.make(t, nil)
	for _, c := range []struct {
		name    string
		cert    spec
		ca      identity
		failure string // part of the error; empty: accepted
	}{
		{name: "SAN", cert: spec{dns: []string{"master.example"}}, ca: ca},
		{name: "RSA 1024", cert: spec{dns: []string{"master.example"}, bits: 1024}, ca: ca},
		{name: "negative serial number", cert: spec{dns: []string{"master.example"}, negativeSerial: true}, ca: ca},
		{name: "root signed with SHA-1", cert: spec{dns: []string{"master.example"}}, ca: weakCA},
		// Documented as not restored.
		{name: "CN only", ca: ca, failure: "legacy Common Name"},
		{name: "SHA-1 signature", cert: spec{dns: []string{"master.example"}, sha1: true}, ca: ca, failure: "insecure algorithm SHA1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cert.subject, c.cert.usage = pkix.Name{CommonName: "master.example"}, x509.ExtKeyUsageServerAuth
			u := serve(t, &tls.Config{Certificates: []tls.Certificate{c.cert.make(t, &c.ca).tls()}}, ok)
			rt, err := transport.New(&transport.Config{TLS: transport.TLSConfig{CAData: c.ca.pem(), ServerName: "master.example"}})
			if err != nil {
				t.Fatal(err)
			}
			res, err := (&http.Client{Transport: rt}).Get(u.String())
			switch {
			case c.failure == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.failure != "" && (err == nil || !strings.Contains(err.Error(), c.failure)):
				t.Errorf("error %v, want one with %q: if it is accepted now, toolchain.md can say so", err, c.failure)
			}
			if err == nil {
				res.Body.Close()
			}
		})
	}
}
