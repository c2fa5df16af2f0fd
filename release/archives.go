// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
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
		h := &tar.Header{Name: e.name, Mode: e.mode, ModTime: b.date, Typeflag: tar.TypeDir}
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
	sums := map[string]string{}
	for _, system := range systems {
		file := b.programs[operators]
		if system != "linux-amd64" {
			goos, arch, _ := strings.Cut(system, "-")
			var err error
			if file, err = b.compile("cmd", operators, goos, arch); err != nil {
				return err
			}
		}
		archive := operators + "-" + system + ".tar.gz"
		if err := b.tarGz(archive, []entry{{operators, file, 0o755}, {"LICENSE", filepath.Join(b.root, "LICENSE"), 0o644}}); err != nil {
			return err
		}
		var err error
		if sums[system], err = sha256File(filepath.Join(b.out, archive)); err != nil {
			return err
		}
	}
	if err := b.text("krew/holdfast.yaml", b.krew(sums)); err != nil {
		return err
	}
	if err := b.sourceArchive(); err != nil {
		return err
	}
	return b.vendorArchive()
}

// systems are those for which kubectl-holdfast is built.
var systems = []string{"linux-amd64", "linux-arm64", "darwin-arm64"}

// krew is the manifest of the plugin holdfast of kubectl, by which krew installs one of the archives
// that the caller names with --archive: a folder that can be anywhere has no address to load from.
func (b *builder) krew(sums map[string]string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: holdfast
spec:
  version: %s
  homepage: %s
  shortDescription: Checks and forecasts kubelet swaps of old releases
  description: |
    The program of Holdfast's operators, for clusters of Kubernetes 1.7 to 1.9.
  platforms:
`, b.version, homepage)
	for _, system := range systems {
		goos, arch, _ := strings.Cut(system, "-")
		fmt.Fprintf(&text, `  - selector:
      matchLabels: {os: %s, arch: %s}
    uri: %s/%s/%s-%s.tar.gz
    sha256: %s
    files:
    - {from: "*", to: "."}
    bin: %s
`, goos, arch, homepage, b.version, operators, system, sums[system], operators)
	}
	return text.String()
}

// kit is the name of the source's folder and, with what is in it, of its archives.
func (b *builder) kit() string { return "holdfast-" + b.plain() }

// vendored are the folders that make vendor writes.
var vendored = []string{"vendor", "cmd/vendor", "release/vendor", "tools/vendor", "webhook/vendor"}

// vendorArchive is what a build without a network needs beside the source's archive, to be unpacked
// in the same place: what make vendor writes. It is written in a copy of the source, since folders of
// that name change how go builds in this checkout.
func (b *builder) vendorArchive() error {
	if _, err := output(b.work, "tar", "-xzf", filepath.Join(b.out, b.kit()+"-source.tar.gz")); err != nil {
		return err
	}
	root := filepath.Join(b.work, b.kit())
	if err := os.Symlink(filepath.Join(b.root, "_output"), filepath.Join(root, "_output")); err != nil {
		return err
	}
	if _, err := output(root, filepath.Join(root, "_output/tools/holdfast"), "--root", root, "--base", b.base.Name, "vendor"); err != nil {
		return err
	}
	entries, err := below(root, b.kit(), vendored)
	if err != nil {
		return err
	}
	return b.tarGz(b.kit()+"-vendor.tar.gz", entries)
}

// below are the entries of folders of root, named as below top.
func below(root, top string, folders []string) ([]entry, error) {
	var entries []entry
	for _, folder := range folders {
		if err := filepath.WalkDir(filepath.Join(root, folder), func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			name := filepath.ToSlash(filepath.Join(top, rel))
			info, err := d.Info()
			switch {
			case err != nil:
				return err
			case d.IsDir():
				entries = append(entries, entry{name + "/", "", 0o755})
			case d.Type().IsRegular():
				entries = append(entries, entry{name, p, 0o644 | int64(info.Mode()&0o111)})
			default:
				return fmt.Errorf("%s is no regular file", name)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// sourceArchive is git archive of the commit. git also writes the names of branches into
// hack/archive-commit, which are another's in another clone: commit and tag alone stay.
func (b *builder) sourceArchive() error {
	folder := b.kit() + "/"
	raw, err := output(b.root, "git", "archive", "--format=tar", "--prefix="+folder, "HEAD")
	if err != nil {
		return err
	}
	says := b.commit + " tag: " + b.version + "\n"
	if b.snapshot {
		says = b.commit + "\n"
	}
	return b.create(b.kit()+"-source.tar.gz", func(f *os.File) error {
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

// fleet is the image of kubectl-holdfast fleet: the program and the kubelet that it puts on nodes.
const fleet = "fleet"

// images writes an image for docker load of each static program that runs in a pod, and of fleet.
func (b *builder) images() error {
	for _, p := range []string{manager, apiserver, rules} {
		if file := b.programs[p]; file != "" {
			bin := "usr/local/bin/" // where kubeadm's manifests look for it
			start := "/" + bin + p
			if p != rules { // named by its manifest's command
				start = ""
			}
			if err := b.image(p, start, []entry{{"tmp/", "", 0o1777}, {"usr/", "", 0o755}, {"usr/local/", "", 0o755}, {bin, "", 0o755}, {bin + p, file, 0o755}}); err != nil {
				return err
			}
		}
	}
	if b.programs[operators] == "" {
		return nil
	}
	return b.image(fleet, "", []entry{{operators, b.programs[operators], 0o755}, {kubelet, b.programs[kubelet], 0o755}})
}

// image writes an image of one layer.
func (b *builder) image(program, start string, entries []entry) error {
	var raw bytes.Buffer
	if err := b.writeTar(&raw, entries); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw.Bytes())), nil })
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return err
	}
	c = c.DeepCopy()
	c.Architecture, c.OS, c.Created = "amd64", "linux", v1.Time{Time: b.date}
	for i := range c.History {
		c.History[i].Created = v1.Time{Time: b.date}
	}
	c.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	c.Config.Labels = map[string]string{"org.opencontainers.image.version": b.version, "org.opencontainers.image.revision": b.commit}
	if start != "" {
		c.Config.Entrypoint = []string{start}
	}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		return err
	}
	tag, err := name.NewTag(imagePrefix + program + ":" + b.imageTag())
	if err != nil {
		return err
	}
	return b.create("images/"+program+"-amd64.tar", func(f *os.File) error { return tarball.Write(tag, img, f) })
}
