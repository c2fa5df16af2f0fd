// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package digest tells by one short text whether files are still the same.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"path/filepath"
)

// Digest is of lines and files, in the order in which they are added.
type Digest struct{ h hash.Hash }

// New is the digest of nothing yet.
func New() *Digest { return &Digest{sha256.New()} }

// Line adds what is no file.
func (d *Digest) Line(format string, a ...any) { fmt.Fprintf(d.h, format+"\n", a...) }

// File adds a file's name and content.
func (d *Digest) File(name string, content []byte) {
	d.Line("%s %x", filepath.ToSlash(name), sha256.Sum256(content))
}

// String is the digest in hex.
func (d *Digest) String() string { return hex.EncodeToString(d.h.Sum(nil)) }
