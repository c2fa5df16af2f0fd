// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

func get(t *testing.T, url string) (int, []byte) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

// TestPull does what dockerd does: manifest, configuration, layers, and compares
// every digest.
func TestPull(t *testing.T) {
	prog := filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(prog, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := New()
	shared := NewLayer(File{Path: "/etc/motd", Content: []byte("hello\n")})
	im := Image{Refs: []string{"gcr.io/a/b:1", "busybox"}, Entrypoint: []string{"/bin/prog"}, User: "1001",
		Layers: []*Layer{shared, NewLayer(File{Path: "/bin/prog", From: prog}, File{Path: "/bin/sh", Link: "/bin/prog"}, File{Path: "/tmp/", Mode: os.ModeSticky | 0o777})}}
	if err := r.Add(im); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(r)
	defer s.Close()
	if code, _ := get(t, s.URL+"/v2/"); code != 200 {
		t.Fatal(code)
	}
	code, b := get(t, s.URL+"/v2/library/busybox/manifests/latest")
	var m v1.Manifest
	if err := json.Unmarshal(b, &m); code != 200 || err != nil || len(m.Layers) != 2 {
		t.Fatalf("%d %s %v", code, b, err)
	}
	if m.MediaType != types.DockerManifestSchema2 || m.Config.MediaType != types.DockerConfigJSON || m.Layers[0].MediaType != types.DockerLayer {
		t.Errorf("not the media types that dockerd of 2017 knows: %s", b)
	}
	if code, again := get(t, s.URL+"/v2/a/b/manifests/"+digest(b)); code != 200 || !bytes.Equal(again, b) {
		t.Errorf("by digest: %d", code)
	}
	code, b = get(t, s.URL+"/v2/a/b/blobs/"+m.Config.Digest.String())
	var c struct {
		Config struct {
			Entrypoint []string
			User       string
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(b, &c); code != 200 || err != nil || digest(b) != m.Config.Digest.String() || c.Config.User != "1001" || !slices.Equal(c.Config.Entrypoint, im.Entrypoint) {
		t.Fatalf("configuration %d %s %v", code, b, err)
	}
	var files []string
	for i, l := range m.Layers {
		_, b := get(t, s.URL+"/v2/a/b/blobs/"+l.Digest.String())
		if digest(b) != l.Digest.String() || int64(len(b)) != l.Size {
			t.Errorf("layer %d is not what its digest says", i)
		}
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil || digest(plain) != c.Rootfs.DiffIDs[i] {
			t.Errorf("layer %d: %v, its tar is not what the configuration says", i, err)
		}
		for tr := tar.NewReader(bytes.NewReader(plain)); ; {
			h, err := tr.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, h.FileInfo().Mode().String()+" "+h.Name)
		}
	}
	want := []string{"drwxr-xr-x etc/", "-rw-r--r-- etc/motd", "drwxr-xr-x bin/", "-rwx------ bin/prog", "Lrwxrwxrwx bin/sh", "dtrwxrwxrwx tmp/"}
	if !slices.Equal(files, want) {
		t.Errorf("the layers have %q, want %q", files, want)
	}
	if got := r.Names(); got != 2 {
		t.Errorf("%d names", got)
	}
}

func TestRefuses(t *testing.T) {
	r := New()
	layer := NewLayer(File{Path: "/x"})
	for _, im := range []Image{{Layers: []*Layer{layer}}, {Refs: []string{"a"}}, {Refs: []string{"a@sha256:0"}, Layers: []*Layer{layer}},
		{Refs: []string{"a"}, Layers: []*Layer{NewLayer(File{Path: "x"})}}, {Refs: []string{"a"}, Layers: []*Layer{NewLayer(File{Path: "/x", From: "/nowhere"})}}} {
		if err := r.Add(im); err == nil {
			t.Errorf("%v was taken", im)
		}
	}
	s := httptest.NewServer(r)
	defer s.Close()
	for _, path := range []string{"/v2/a/b/manifests/1", "/v2/a/b/blobs/" + digest(nil), "/v2/x", "/v1/"} {
		if code, _ := get(t, s.URL+path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
	resp, err := http.Post(s.URL+"/v2/a/b/blobs/uploads/", "", nil)
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a push: %v %v", resp, err)
	}
}

func TestLibraries(t *testing.T) {
	got := libraries("\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n")
	if want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
