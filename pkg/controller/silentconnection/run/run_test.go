// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/pkg/features"
)

// counted counts what its connections read.
type counted struct {
	net.Listener
	read int64
}

type countedConn struct {
	net.Conn
	l *counted
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l}, err
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	atomic.AddInt64(&c.l.read, int64(n))
	return n, err
}

// TestHoldfastKCMSilentConnectionOfRun: the controller manager itself asks for the lease
// again when nobody answers, and pings.
func TestHoldfastKCMSilentConnectionOfRun(t *testing.T) {
	for _, on := range []bool{true, false} {
		on := on
		t.Run(fmt.Sprintf("gate %v", on), func(t *testing.T) {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KCMSilentConnection, on)()
			requests := make(chan time.Time, 100)
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests <- time.Now()
				<-r.Context().Done()
			}))
			s.EnableHTTP2 = true
			l := &counted{Listener: s.Listener}
			s.Listener = l
			s.StartTLS()
			cm := options.NewCMServer()
			cm.Kubeconfig = kubeconfig(t, s)
			defer os.RemoveAll(filepath.Dir(cm.Kubeconfig))
			cm.Address, cm.Port = "127.0.0.1", 0
			cm.LeaderElection.LeaseDuration.Duration = 60 * time.Second
			cm.LeaderElection.RenewDeadline.Duration = 40 * time.Second
			go app.Run(cm)
			select {
			case <-requests:
			case <-time.After(time.Minute):
				t.Fatal("nobody asks for the lease")
			}
			time.Sleep(3 * time.Second)
			before := atomic.LoadInt64(&l.read)
			time.Sleep(10 * time.Second)
			if pinged := atomic.LoadInt64(&l.read) > before; pinged != on {
				t.Errorf("pinged: %v", pinged)
			}
			again := false
			select {
			case <-requests:
				again = true
			case <-time.After(15 * time.Second):
			}
			if again != on {
				t.Errorf("asks again for the lease within 28 s: %v", again)
			}
		})
	}
}

func kubeconfig(t *testing.T, s *httptest.Server) string {
	dir, err := os.MkdirTemp("", "silentconnection")
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(dir, "ca.crt")
	// The transports of both gates' clients must differ.
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), dir...)
	if err := os.WriteFile(ca, text, 0600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, []byte(fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "%s", certificate-authority: %s}}],
contexts: [{name: c, context: {cluster: c, user: c}}], users: [{name: c, user: {token: t}}]}`, s.URL, ca)), 0600); err != nil {
		t.Fatal(err)
	}
	return path
}
