// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile writes files so that after a crash at any point either the old or the new one
// is there, whole.
package atomicfile

import (
	"io"
	"os"
	"path/filepath"
)

// Sync is a variable so that tests can have a disk that is full.
var Sync = (*os.File).Sync

// Write replaces a file's content.
func Write(file string, data []byte, mode os.FileMode) error {
	return Replace(file+".part", file, mode, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// Copy replaces a file by a copy of another. The copy has nothing in common with the original.
func Copy(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return Replace(to+".part", to, mode, func(f *os.File) error {
		_, err := io.Copy(f, in)
		return err
	})
}

// Replace fills the file part by write, and renames it to file. Both must be on one file system.
// Whatever fails, part is gone.
func Replace(part, file string, mode os.FileMode, write func(*os.File) error) error {
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask is
	}
	if err == nil {
		err = Sync(f)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(part, file)
	}
	if err != nil {
		os.Remove(part)
		return err
	}
	return SyncDir(filepath.Dir(file))
}

// SyncDir makes what was renamed in a folder last.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
