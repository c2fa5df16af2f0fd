// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// PKI is a cluster's certificate authority, with RSA keys of 2048 bits as
// kubeadm 1.9 makes them. All files are in Dir.
type PKI struct {
	Dir string
	// CAFile signs everything; SAKeyFile signs service account tokens and
	// SAPubFile checks them.
	CAFile, CAKeyFile, SAKeyFile, SAPubFile string

	mu    sync.Mutex
	ca    *x509.Certificate
	caKey *rsa.PrivateKey
	made  map[string]*Cert
}

// Cert is a certificate with its key, as files.
type Cert struct {
	CertFile, KeyFile string
}

// NewPKI makes the authority and the service account key in dir.
func NewPKI(dir string) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p := &PKI{Dir: dir, made: map[string]*Cert{}}
	var err error
	if p.caKey, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IsCA:     true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, p.caKey.Public(), p.caKey)
	if err != nil {
		return nil, err
	}
	if p.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	sa, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	pub, err := x509.MarshalPKIXPublicKey(sa.Public())
	if err != nil {
		return nil, err
	}
	p.CAFile, p.CAKeyFile = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	p.SAKeyFile, p.SAPubFile = filepath.Join(dir, "sa.key"), filepath.Join(dir, "sa.pub")
	return p, errors.Join(
		writePEM(p.CAFile, "CERTIFICATE", der),
		writePEM(p.CAKeyFile, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(p.caKey)),
		writePEM(p.SAKeyFile, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(sa)),
		writePEM(p.SAPubFile, "PUBLIC KEY", pub))
}

// Issue makes (once per file name) a certificate for both client and server
// use. hosts are DNS names or IP addresses.
func (p *PKI) Issue(file, commonName string, orgs []string, hosts ...string) (*Cert, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.made[file]; c != nil {
		return c, nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(p.made) + 2)),
		Subject:      pkix.Name{CommonName: commonName, Organization: orgs},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, p.ca, key.Public(), p.caKey)
	if err != nil {
		return nil, err
	}
	c := &Cert{filepath.Join(p.Dir, file+".crt"), filepath.Join(p.Dir, file+".key")}
	err = errors.Join(writePEM(c.CertFile, "CERTIFICATE", der), writePEM(c.KeyFile, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)))
	if err != nil {
		return nil, err
	}
	p.made[file] = c
	return c, nil
}

// Kubeconfig writes <file>.conf for server with a certificate of its own.
func (p *PKI) Kubeconfig(file, server, user string, orgs ...string) (string, error) {
	c, err := p.Issue(file, user, orgs)
	if err != nil {
		return "", err
	}
	path := filepath.Join(p.Dir, file+".conf")
	return path, os.WriteFile(path, []byte(Kubeconfig(server, p.CAFile, c.CertFile, c.KeyFile)), 0o600)
}

// Kubeconfig is a kubeconfig for server with the files of a certificate.
func Kubeconfig(server, ca, cert, key string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster: {server: %q, certificate-authority: %q}
users:
- name: user
  user: {client-certificate: %q, client-key: %q}
contexts:
- name: lab
  context: {cluster: lab, user: user}
current-context: lab
`, server, ca, cert, key)
}

// TLS is a client configuration that trusts the authority and shows c.
func (p *PKI) TLS(c *Cert) (*tls.Config, error) {
	pool := x509.NewCertPool()
	pool.AddCert(p.ca)
	cfg := &tls.Config{RootCAs: pool}
	if c != nil {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
