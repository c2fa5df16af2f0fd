// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// The files of the keys. The public ones are a part of each signed release; the others, which are
// encrypted with one passphrase, are kept offline. None of the keys expires: a key that does stops
// installations that nobody looks after (kubernetes/release#3818).
const (
	pgpPublic   = "holdfast-release.asc"     // OpenPGP, for apt, rpm and gpg
	ecdsaPublic = "holdfast-release.pem"     // for openssl and cosign
	pgpSecret   = "holdfast-release-key.asc" // encrypted
	ecdsaSecret = "holdfast-release-key.pem.asc"
)

// keys sign, or with only the public ones verify. All signatures are of one time, so that the same
// file gives the same signature.
type keys struct {
	pgp    *openpgp.Entity
	secret *ecdsa.PrivateKey
	public *ecdsa.PublicKey
	raw    map[string][]byte // the public files
	time   time.Time
}

// config leaves out the salt that go-crypto adds as a notation: it makes two signatures of one file
// differ. No signature is older than its key: GnuPG refuses that.
func (k *keys) config() *packet.Config {
	no, at := false, k.time
	if made := k.pgp.PrimaryKey.CreationTime; made.After(at) {
		at = made
	}
	return &packet.Config{DefaultHash: crypto.SHA256, Time: func() time.Time { return at }, NonDeterministicSignaturesViaNotation: &no}
}

// passphrase is what the file that HOLDFAST_PASSPHRASE_FILE names has.
func passphrase() ([]byte, error) {
	file := os.Getenv("HOLDFAST_PASSPHRASE_FILE")
	if file == "" {
		return nil, usagef("HOLDFAST_PASSPHRASE_FILE names no file with the keys' passphrase")
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if raw = bytes.TrimRight(raw, "\r\n"); len(raw) < 12 {
		return nil, failf("%s: the passphrase must have 12 characters or more", file)
	}
	return raw, nil
}

// keygen writes new keys into an empty folder.
func keygen(dir string) error {
	pass, err := passphrase()
	if err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return failf("%s is not empty: keys are never overwritten", dir)
	}
	c := &packet.Config{RSABits: 4096, Algorithm: packet.PubKeyAlgoRSA, DefaultHash: crypto.SHA256}
	entity, err := openpgp.NewEntity("Holdfast releases", "", "developers@holdfast.invalid", c)
	if err != nil {
		return err
	}
	var public, secret bytes.Buffer
	if err := armored(&public, openpgp.PublicKeyType, entity.Serialize); err != nil {
		return err
	}
	if err := entity.EncryptPrivateKeys(pass, c); err != nil {
		return err
	}
	if err := armored(&secret, openpgp.PrivateKeyType, func(w io.Writer) error { return entity.SerializePrivateWithoutSigning(w, c) }); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	derPublic, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	var sealed bytes.Buffer
	if err := armored(&sealed, "PGP MESSAGE", func(w io.Writer) error {
		in, err := openpgp.SymmetricallyEncrypt(w, pass, nil, c)
		if err != nil {
			return err
		}
		if err := pem.Encode(in, &pem.Block{Type: "PRIVATE KEY", Bytes: der}); err != nil {
			return err
		}
		return in.Close()
	}); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
		mode os.FileMode
	}{{pgpPublic, public.Bytes(), 0o644}, {ecdsaPublic, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: derPublic}), 0o644}, {pgpSecret, secret.Bytes(), 0o600}, {ecdsaSecret, sealed.Bytes(), 0o600}} {
		if err := os.WriteFile(filepath.Join(dir, f.name), f.data, f.mode); err != nil {
			return err
		}
	}
	fmt.Printf("%X\n", entity.PrimaryKey.Fingerprint)
	return nil
}

func armored(w io.Writer, kind string, write func(io.Writer) error) error {
	a, err := armor.Encode(w, kind, nil)
	if err != nil {
		return err
	}
	if err := write(a); err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return err
	}
	_, err = io.WriteString(w, "\n")
	return err
}

// publicKeys reads the public keys of a folder.
func publicKeys(dir string) (*keys, error) {
	k := &keys{raw: map[string][]byte{}}
	for _, name := range []string{pgpPublic, ecdsaPublic} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		k.raw[name] = raw
	}
	list, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(k.raw[pgpPublic]))
	if err != nil || len(list) != 1 {
		return nil, failf("%s: %d OpenPGP keys, want one: %v", filepath.Join(dir, pgpPublic), len(list), err)
	}
	k.pgp = list[0]
	block, _ := pem.Decode(k.raw[ecdsaPublic])
	if block == nil {
		return nil, failf("%s is no PEM file", filepath.Join(dir, ecdsaPublic))
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	var ok bool
	if k.public, ok = public.(*ecdsa.PublicKey); !ok {
		return nil, failf("%s is no ECDSA key", filepath.Join(dir, ecdsaPublic))
	}
	return k, nil
}

// openKeys reads the secret keys too.
func openKeys(dir string) (*keys, error) {
	k, err := publicKeys(dir)
	if err != nil {
		return nil, err
	}
	pass, err := passphrase()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, pgpSecret))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := openpgp.ReadArmoredKeyRing(f)
	if err != nil || len(list) != 1 {
		return nil, failf("%s: %d OpenPGP keys, want one: %v", f.Name(), len(list), err)
	}
	wrong := failf("%s: the passphrase is wrong", f.Name())
	if err := list[0].DecryptPrivateKeys(pass); err != nil {
		return nil, wrong
	}
	if !bytes.Equal(list[0].PrimaryKey.Fingerprint, k.pgp.PrimaryKey.Fingerprint) {
		return nil, failf("%s and %s are not of one key", pgpSecret, pgpPublic)
	}
	k.pgp = list[0]
	sealed, err := os.ReadFile(filepath.Join(dir, ecdsaSecret))
	if err != nil {
		return nil, err
	}
	a, err := armor.Decode(bytes.NewReader(sealed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ecdsaSecret, err)
	}
	tried := false
	m, err := openpgp.ReadMessage(a.Body, nil, func([]openpgp.Key, bool) ([]byte, error) {
		if tried {
			return nil, wrong
		}
		tried = true
		return pass, nil
	}, nil)
	if err != nil {
		return nil, wrong
	}
	text, err := io.ReadAll(m.UnverifiedBody)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, failf("%s has no PEM file in it", ecdsaSecret)
	}
	secret, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	var ok bool
	if k.secret, ok = secret.(*ecdsa.PrivateKey); !ok || !k.secret.PublicKey.Equal(k.public) {
		return nil, failf("%s and %s are not of one key", ecdsaSecret, ecdsaPublic)
	}
	return k, nil
}

// detached is a binary OpenPGP signature, for rpm.
func (k *keys) detached(r io.Reader) ([]byte, error) {
	var b bytes.Buffer
	err := openpgp.DetachSign(&b, k.pgp, r, k.config())
	return b.Bytes(), err
}

// armored is the same as text.
func (k *keys) armored(r io.Reader) ([]byte, error) {
	var b bytes.Buffer
	err := openpgp.ArmoredDetachSign(&b, k.pgp, r, k.config())
	return append(b.Bytes(), '\n'), err
}

// clear is a text with its signature around it, for InRelease.
func (k *keys) clear(text []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := clearsign.Encode(&b, k.pgp.PrivateKey, k.config())
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	err = w.Close()
	return append(b.Bytes(), '\n'), err
}

// ecdsa signs as openssl dgst -sha256 does. Without a source of chance the signature is that of
// RFC 6979, the same each time.
func (k *keys) ecdsa(text []byte) ([]byte, error) {
	sum := sha256.Sum256(text)
	return k.secret.Sign(nil, sum[:], crypto.SHA256)
}

// The interface of go-securesystemslib, for the provenance.

func (k *keys) Sign(_ context.Context, data []byte) ([]byte, error) { return k.ecdsa(data) }

func (k *keys) Verify(_ context.Context, data, sig []byte) error {
	sum := sha256.Sum256(data)
	if !ecdsa.VerifyASN1(k.public, sum[:], sig) {
		return errors.New("the signature is not of " + ecdsaPublic)
	}
	return nil
}

func (k *keys) KeyID() (string, error) {
	der, err := x509.MarshalPKIXPublicKey(k.public)
	return fmt.Sprintf("%x", sha256.Sum256(der)), err
}

func (k *keys) Public() crypto.PublicKey { return k.public }
