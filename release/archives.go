// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// entry is a file or folder of an archive; a folder has no source.
type entry struct {
	name, from string
	mode       int64
}

// writeTar writes entries in their order. Owner is root, the time that of the release.
func (b *builder) writeTar(w io.Writer, entries []entry) error {
	t := tar.NewWriter(w)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, ModTime: b.date, Format: tar.FormatUSTAR, Typeflag: tar.TypeDir}
		if e.from == "" {
			if err := t.WriteHeader(h); err != nil {
				return err
			}
			continue
		}
		f, err := os.Open(e.from)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil {
			h.Typeflag, h.Size = tar.TypeReg, info.Size()
			if err = t.WriteHeader(h); err == nil {
				_, err = io.Copy(t, f)
			}
		}
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return t.Close()
}

func (b *builder) tarGz(file string, entries []entry) error {
	return b.create(file, func(f *os.File) error {
		z := gzip.NewWriter(f)
		if err := b.writeTar(z, entries); err != nil {
			return err
		}
		return z.Close()
	})
}

// archives writes the programs in upstream's layout, kubectl-holdfast for each system, and the
// source of the commit.
func (b *builder) archives() error {
	if err := b.tarGz("kubernetes-server-linux-amd64.tar.gz", b.server()); err != nil || !b.base.Default {
		return err
	}
	return b.archivesOfDefault()
}

func (b *builder) server() []entry {
	server := []entry{{"kubernetes/", "", 0o755}, {"kubernetes/server/", "", 0o755}, {"kubernetes/server/bin/", "", 0o755}}
	for _, p := range []string{apiserver, manager, kubelet} {
		if file := b.programs[p]; file != "" {
			server = append(server, entry{"kubernetes/server/bin/" + p, file, 0o755})
		}
	}
	return server
}

// archivesOfDefault are those that are the same whatever the base.
func (b *builder) archivesOfDefault() error {
	for _, system := range []string{"linux-amd64", "linux-arm64", "darwin-arm64"} {
		file := b.programs[operators]
		if system != "linux-amd64" {
			goos, arch, _ := strings.Cut(system, "-")
			var err error
			if file, err = b.compile("cmd", operators, goos, arch); err != nil {
				return err
			}
		}
		if err := b.tarGz(operators+"-"+system+".tar.gz", []entry{{operators, file, 0o755}, {"LICENSE", filepath.Join(b.root, "LICENSE"), 0o644}}); err != nil {
			return err
		}
	}
	return b.sourceArchive()
}

// sourceArchive is git archive of the commit. git also writes the names of branches into
// hack/archive-commit, which are another's in another clone: commit and tag alone stay.
func (b *builder) sourceArchive() error {
	folder := "holdfast-" + b.plain() + "/"
	raw, err := output(b.root, "git", "archive", "--format=tar", "--prefix="+folder, "HEAD")
	if err != nil {
		return err
	}
	says := b.commit + " tag: " + b.version + "\n"
	if b.snapshot {
		says = b.commit + "\n"
	}
	return b.create(strings.TrimSuffix(folder, "/")+"-source.tar.gz", func(f *os.File) error {
		z := gzip.NewWriter(f)
		from, to := tar.NewReader(strings.NewReader(raw)), tar.NewWriter(z)
		for {
			h, err := from.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			var body io.Reader = from
			if h.Name == folder+"hack/archive-commit" {
				body, h.Size = strings.NewReader(says), int64(len(says))
			}
			if h.Typeflag != tar.TypeXGlobalHeader { // the commit, which has no time
				h.ModTime = b.date
			}
			if err := to.WriteHeader(h); err != nil {
				return err
			}
			if _, err := io.Copy(to, body); err != nil {
				return err
			}
		}
		if err := to.Close(); err != nil {
			return err
		}
		return z.Close()
	})
}

// imagePrefix is where the images' names begin: a name that leads nowhere, so that a node can only
// have an image that somebody loaded or tagged.
const imagePrefix = "holdfast.invalid/"

// imageTag is the version as a tag of an image may have it.
func (b *builder) imageTag() string { return strings.ReplaceAll(b.version, "+", "_") }

// images writes an image for docker load of each static program that runs in a pod.
func (b *builder) images() error {
	for _, p := range []string{manager, apiserver, rules} {
		file := b.programs[p]
		if file == "" {
			continue
		}
		img, err := b.image(p, file)
		if err != nil {
			return fmt.Errorf("image of %s: %w", p, err)
		}
		tag, err := name.NewTag(imagePrefix + p + ":" + b.imageTag())
		if err != nil {
			return err
		}
		if err := b.create("images/"+p+"-amd64.tar", func(f *os.File) error { return tarball.Write(tag, img, f) }); err != nil {
			return err
		}
	}
	return nil
}

// image has one layer with a program at /usr/local/bin, where kubeadm's manifests look for it.
func (b *builder) image(program, file string) (v1.Image, error) {
	var raw bytes.Buffer
	path := "usr/local/bin/" + program
	if err := b.writeTar(&raw, []entry{{"tmp/", "", 0o1777}, {"usr/", "", 0o755}, {"usr/local/", "", 0o755}, {"usr/local/bin/", "", 0o755}, {path, file, 0o755}}); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	c.Architecture, c.OS, c.Created = "amd64", "linux", v1.Time{Time: b.date}
	for i := range c.History {
		c.History[i].Created = v1.Time{Time: b.date}
	}
	c.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	c.Config.Labels = map[string]string{"org.opencontainers.image.version": b.version, "org.opencontainers.image.revision": b.commit}
	if program == rules { // the others are named by their manifest's command
		c.Config.Entrypoint = []string{"/" + path}
	}
	return mutate.ConfigFile(img, c)
}
