// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// repositories makes repositories of the folders apt and yum. Paths in them are relative, so that
// they can be anywhere: file://, a web server, a mirror. Nothing in them ends to be valid: a mirror
// without a network would die of it.
func (b *builder) repositories() error {
	if err := b.apt(); err != nil {
		return err
	}
	if err := b.yum(); err != nil {
		return err
	}
	return b.publicKeys()
}

// publicKeys writes the public files of the keys.
func (b *builder) publicKeys() error {
	if b.keys == nil {
		return nil
	}
	for name, raw := range b.keys.raw {
		if err := b.text(name, string(raw)); err != nil {
			return err
		}
	}
	return nil
}

// tool runs a program of Debian's in a folder of the release.
func (b *builder) tool(folder, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = filepath.Join(b.out, folder)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC", "SOURCE_DATE_EPOCH="+strconv.FormatInt(b.date.Unix(), 10))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s (hack/install-test-packages.sh release installs it)", name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// apt writes a flat repository: "deb [signed-by=KEY] URL/apt ./".
func (b *builder) apt() error {
	packages, err := b.tool("apt", "apt-ftparchive", "packages", ".")
	if err != nil {
		return err
	}
	if err := b.text("apt/Packages", string(packages)); err != nil {
		return err
	}
	if err := b.create("apt/Packages.gz", func(f *os.File) error {
		z := gzip.NewWriter(f)
		if _, err := z.Write(packages); err != nil {
			return err
		}
		return z.Close()
	}); err != nil {
		return err
	}
	const option = "-oAPT::FTPArchive::Release::"
	release, err := b.tool("apt", "apt-ftparchive", option+"Origin=Holdfast", option+"Label=Holdfast", option+"Suite=stable", option+"Codename=holdfast",
		option+"Architectures=amd64", option+"Description=Kubelets of old Kubernetes releases",
		option+"Date="+b.date.Format("Mon, 02 Jan 2006 15:04:05 +0000"), "release", ".")
	if err != nil {
		return err
	}
	if err := b.text("apt/Release", string(release)); err != nil || b.keys == nil {
		return err
	}
	signed, err := b.keys.clear(release)
	if err != nil {
		return err
	}
	detached, err := b.keys.armored(bytes.NewReader(release))
	if err != nil {
		return err
	}
	if err := b.text("apt/InRelease", string(signed)); err != nil {
		return err
	}
	return b.text("apt/Release.gpg", string(detached))
}

func (b *builder) yum() error {
	at := strconv.FormatInt(b.date.Unix(), 10)
	if _, err := b.tool("yum", "createrepo_c", "--quiet", "--no-database", "--workers=1", "--checksum=sha256", "--general-compress-type=gz",
		"--simple-md-filenames", "--revision="+at, "--set-timestamp-to-revision", "."); err != nil {
		return err
	}
	if b.keys == nil {
		return nil
	}
	raw, err := os.ReadFile(filepath.Join(b.out, "yum/repodata/repomd.xml"))
	if err != nil {
		return err
	}
	detached, err := b.keys.armored(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return b.text("yum/repodata/repomd.xml.asc", string(detached))
}
