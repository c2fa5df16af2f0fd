// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// spec describes a certificate as people made them in 2018.
type spec struct {
	subject        pkix.Name
	bits           int // RSA key size; 2048 when 0
	dns            []string
	isCA           bool
	sha1           bool // signed with SHA-1, as openssl 1.0 did when not told otherwise
	negativeSerial bool
	expired        bool
	usage          x509.ExtKeyUsage
}

type identity struct {
	cert *x509.Certificate
	raw  []byte
	key  *rsa.PrivateKey
}

func (i identity) tls() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{i.raw}, PrivateKey: i.key}
}

func (i identity) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.raw})
}

// make signs a certificate with parent, or with its own key when that is nil.
func (s spec) make(t *testing.T, parent *identity) identity {
	t.Helper()
	if s.bits == 0 {
		s.bits = 2048
	}
	key, err := rsa.GenerateKey(rand.Reader, s.bits)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(5),
		Subject:      s.subject,
		NotBefore:    time.Now().Add(-48 * time.Hour),
		NotAfter:     time.Now().Add(48 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		DNSNames:     s.dns,
	}
	if s.expired {
		tmpl.NotAfter = time.Now().Add(-time.Hour)
	}
	if s.isCA {
		tmpl.KeyUsage |= x509.KeyUsageCertSign
		tmpl.BasicConstraintsValid, tmpl.IsCA = true, true
	} else {
		tmpl.ExtKeyUsage = []x509.ExtKeyUsage{s.usage}
	}
	signer, issuer := key, tmpl
	if parent != nil {
		signer, issuer = parent.key, parent.cert
	}
	raw, err := x509.CreateCertificate(rand.Reader, tmpl, issuer, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	raw = s.resign(t, raw, signer)
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	return identity{cert, raw, key}
}

// resign changes what today's CreateCertificate refuses to write.
func (s spec) resign(t *testing.T, raw []byte, signer *rsa.PrivateKey) []byte {
	t.Helper()
	if !s.sha1 && !s.negativeSerial {
		return raw
	}
	var outer struct {
		TBS       asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	if _, err := asn1.Unmarshal(raw, &outer); err != nil {
		t.Fatal(err)
	}
	tbs := bytes.Clone(outer.TBS.FullBytes)
	edit := func(old, new []byte) {
		if bytes.Count(tbs, old) == 0 {
			t.Fatalf("%x is not in the certificate", old)
		}
		tbs = bytes.Replace(tbs, old, new, 1)
	}
	if s.negativeSerial {
		edit([]byte{2, 1, 2, 2, 1, 5}, []byte{2, 1, 2, 2, 1, 0x85}) // the version's end, then the serial
	}
	hash, sum := crypto.SHA256, sha256.New()
	if s.sha1 {
		// sha256WithRSAEncryption and sha1WithRSAEncryption differ in the last byte.
		rsaOID := []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1}
		edit(append(bytes.Clone(rsaOID), 11), append(bytes.Clone(rsaOID), 5))
		outer.Algorithm.Algorithm = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 5}
		hash, sum = crypto.SHA1, sha1.New()
	}
	sum.Write(tbs)
	sig, err := rsa.SignPKCS1v15(rand.Reader, signer, hash, sum.Sum(nil))
	if err != nil {
		t.Fatal(err)
	}
	outer.TBS = asn1.RawValue{FullBytes: tbs}
	outer.Signature = asn1.BitString{Bytes: sig, BitLength: 8 * len(sig)}
	out, err := asn1.Marshal(outer)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
