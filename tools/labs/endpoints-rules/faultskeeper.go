// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"holdfast/tools/labkit/process"
	"holdfast/tools/labkit/wait"
)

// probes are what the manifest says of the container of the program.
type probes struct {
	delay, period, timeout, grace time.Duration
	failures                      int
}

// probesOf reads a DaemonSet.
func probesOf(text []byte) (probes, error) {
	var d appsv1.DaemonSet
	if err := yaml.Unmarshal(text, &d); err != nil {
		return probes{}, err
	}
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		if c.Name != "endpoints-rules" || c.LivenessProbe == nil {
			continue
		}
		s := func(n int32) time.Duration { return time.Duration(n) * time.Second }
		out := probes{s(c.LivenessProbe.InitialDelaySeconds), s(c.LivenessProbe.PeriodSeconds), s(c.LivenessProbe.TimeoutSeconds), 30 * time.Second, int(c.LivenessProbe.FailureThreshold)}
		if g := d.Spec.Template.Spec.TerminationGracePeriodSeconds; g != nil {
			out.grace = max(time.Duration(*g)*time.Second, 2*time.Second) // 1.9's kubelet leaves at least 2 s
		}
		return out, nil
	}
	return probes{}, errors.New("the DaemonSet has no container endpoints-rules with a liveness probe")
}

// keeper does to the program what a kubelet does to its container: it probes and kills by
// what the manifest says, and starts again what has ended. Unlike a kubelet it does not
// wait longer from restart to restart, which lets more faults follow each other.
type keeper struct {
	p      *program
	probes probes

	mu   sync.Mutex
	good int // probes that were answered
	err  error
}

// asked says whether a probe was answered.
func (k *keeper) asked() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.good > 0
}

func (k *keeper) current() *process.Proc {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.p.run
}

func (k *keeper) failed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

func (k *keeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		k.watch(ctx, k.current())
		// The kubelet looks every second for containers that have ended.
		if wait.Pause(ctx, time.Second) != nil {
			return
		}
		if err := k.start(ctx); err != nil {
			k.mu.Lock()
			k.err = err
			k.mu.Unlock()
			return
		}
	}
}

// start does not wait until the program is ready, as a kubelet does not.
func (k *keeper) start(ctx context.Context) error {
	spec := k.p.spec
	spec.HealthURL = ""
	run, err := k.p.e.Start(ctx, spec)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.p.run = run
	return nil
}

// restart kills the program and waits until the next one runs.
func (k *keeper) restart(ctx context.Context) error {
	was := k.current()
	if err := was.Kill(); err != nil {
		return err
	}
	for range 200 {
		if k.current() != was {
			return nil
		}
		if err := wait.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("endpoints-rules did not start again: %w", k.failed())
}

// watch probes until the program has ended.
func (k *keeper) watch(ctx context.Context, run *process.Proc) {
	// A kubelet does not look at the certificate.
	client := &http.Client{Timeout: k.probes.timeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	first := time.NewTimer(k.probes.delay)
	defer first.Stop()
	select {
	case <-run.Done():
		return
	case <-ctx.Done():
		return
	case <-first.C:
	}
	t := time.NewTicker(k.probes.period)
	defer t.Stop()
	for failed := 0; ; {
		if err := ask(ctx, client, "https://"+address+"/healthz"); err != nil {
			failed++
			k.p.e.Logf("liveness: %v", err)
		} else {
			failed = 0
			k.mu.Lock()
			k.good++
			k.mu.Unlock()
		}
		if failed == k.probes.failures {
			k.p.e.Logf("liveness: SIGTERM, and SIGKILL after %v", k.probes.grace)
			_ = run.Signal(syscall.SIGTERM) // what does not end is killed
			select {
			case <-run.Done():
			case <-ctx.Done():
			case <-time.After(k.probes.grace):
				_ = run.Kill()
			}
			return
		}
		select {
		case <-run.Done():
			return
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func ask(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}

// authority issues certificates for the program's address. That of the manifests is
// forgotten when they are written.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

// pem is its certificate.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue writes a certificate of that number and then its key.
func (a *authority) issue(certFile, keyFile string, number int64) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(number), Subject: pkix.Name{CommonName: "endpoints-rules"}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600)
}
