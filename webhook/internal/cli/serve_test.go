// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServeWithoutServer: without an API server the program answers liveness and is not ready;
// when one is there that it does not work with, it ends and says so.
func TestServeWithoutServer(t *testing.T) {
	dir := t.TempDir()
	cert, key, rules, conf := filepath.Join(dir, "c"), filepath.Join(dir, "k"), filepath.Join(dir, "r"), filepath.Join(dir, "conf")
	issue(t, cert, key)
	server, own := freeAddress(t), freeAddress(t)
	for file, text := range map[string]string{
		rules: "rules:\n- {name: a, when: pod.ready, then: leave}\n",
		conf: fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"x","cluster":{"server":"http://%s"}}],"contexts":[{"name":"x","context":{"cluster":"x"}}],"current-context":"x"}`,
			server),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := Command()
	cmd.SetArgs([]string{"serve", "--kubeconfig=" + conf, "--rules=" + rules, "--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--listen=" + own})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()

	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	status := func(path string) int {
		for range 100 {
			resp, err := client.Get("https://" + own + path)
			if err == nil {
				resp.Body.Close()
				return resp.StatusCode
			}
			select {
			case err := <-ended:
				t.Fatalf("it has ended: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
		}
		return 0
	}
	time.Sleep(1500 * time.Millisecond) // it has asked for a version more than once
	if live, ready := status("/healthz"), status("/readyz"); live != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("/healthz has status %d, /readyz %d", live, ready)
	}

	l, err := net.Listen("tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"gitVersion":"v1.9.2"}`) })}
	defer srv.Close()
	go srv.Serve(l)
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "v1.9.2") {
			t.Errorf("it has ended: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it works with an API server of v1.9.2")
	}
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func issue(t *testing.T, certFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, b := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
