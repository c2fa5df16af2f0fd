// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package digest tells by one short text whether files are still the same.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"os"
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

// Tree adds the files of a folder below root and of all folders in it, or the one file of that name,
// under their names below root. Files and folders that skip names are left out.
func (d *Digest) Tree(root, name string, skip func(path string, e fs.DirEntry) bool) error {
	return filepath.WalkDir(filepath.Join(root, name), func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && skip(path, e):
			return fs.SkipDir
		case e.IsDir() || skip(path, e):
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		d.File(rel, raw)
		return err
	})
}

// String is the digest in hex.
func (d *Digest) String() string { return hex.EncodeToString(d.h.Sum(nil)) }
