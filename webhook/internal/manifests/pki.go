// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// pair is a certificate and its key, as PEM.
type pair struct{ cert, key []byte }

// issue makes an authority that signs one certificate and is forgotten: its key
// is kept nowhere. The keys are P-256, which 1.9's apiserver knows.
func issue(dns []string, ips []net.IP, days int, now time.Time) (ca []byte, serving pair, err error) {
	from, to := now.Add(-time.Hour), now.Add(time.Duration(days)*24*time.Hour)
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, pair{}, err
	}
	authority := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "endpoints-rules authority"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, caKey.Public(), caKey)
	if err != nil {
		return nil, pair{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, pair{}, err
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano() + 1), Subject: pkix.Name{CommonName: "endpoints-rules"}, NotBefore: from, NotAfter: to,
		DNSNames: dns, IPAddresses: ips, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	signed, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), caKey)
	if err != nil {
		return nil, pair{}, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, pair{}, err
	}
	text := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	return text("CERTIFICATE", der), pair{text("CERTIFICATE", signed), text("EC PRIVATE KEY", keyDER)}, nil
}
