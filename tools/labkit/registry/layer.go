// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File is one file, folder or link in an image.
type File struct {
	// Path is where it is in the image, absolute. A folder's ends in "/".
	Path string
	// From is a file of this computer; else Link is where a symbolic link leads;
	// else the file has Content.
	From, Link string
	Content    []byte
	// Mode is its permissions; 0: those of From, 0755 for a folder, else 0644.
	Mode fs.FileMode
	// UID and GID own it.
	UID, GID int
}

// Layer is a set of files. It is packed once, however many images have it.
type Layer struct {
	Files []File

	once   sync.Once
	packed v1.Layer
	err    error
}

// NewLayer is a layer of files and of the folders that they need.
func NewLayer(files ...File) *Layer { return &Layer{Files: files} }

func (l *Layer) pack() (v1.Layer, error) {
	l.once.Do(func() {
		var files []byte
		if files, l.err = pack(l.Files); l.err == nil {
			l.packed, l.err = tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
				tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
		}
	})
	return l.packed, l.err
}

// pack makes the same tar of the same files. A path that comes twice is what it
// is the last time.
func pack(files []File) ([]byte, error) {
	all := map[string]File{}
	for _, f := range files {
		if !path.IsAbs(f.Path) {
			return nil, fmt.Errorf("file %q: the path must be absolute", f.Path)
		}
		for d := path.Dir(path.Clean(f.Path)); d != "/"; d = path.Dir(d) {
			if _, ok := all[d+"/"]; !ok {
				all[d+"/"] = File{Path: d + "/"}
			}
		}
		all[f.Path] = f
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, n := range slices.Sorted(maps.Keys(all)) {
		if err := add(w, all[n]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

func add(w *tar.Writer, f File) error {
	h := &tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Typeflag: tar.TypeReg, Mode: int64(f.Mode.Perm()), Uid: f.UID, Gid: f.GID}
	if f.Mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch {
	case strings.HasSuffix(f.Path, "/"):
		h.Typeflag = tar.TypeDir
		if f.Mode == 0 {
			h.Mode = 0o755
		}
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
	case f.From != "":
		st, err := os.Stat(f.From)
		if err == nil {
			f.Content, err = os.ReadFile(f.From)
		}
		if err != nil {
			return err
		}
		if f.Mode == 0 {
			h.Mode = int64(st.Mode().Perm())
		}
	case f.Mode == 0:
		h.Mode = 0o644
	}
	h.Size = int64(len(f.Content))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(f.Content)
	return err
}

// Programs are programs of this computer with the shared libraries that they need,
// at the places where they are here.
func Programs(ctx context.Context, programs ...string) ([]File, error) {
	var out []File
	for _, p := range programs {
		out = append(out, File{Path: p, From: p})
		// ldd ends with 1 for a program without libraries.
		b, err := exec.CommandContext(ctx, "ldd", p).CombinedOutput()
		if err != nil && !bytes.Contains(b, []byte("not a dynamic executable")) {
			return nil, fmt.Errorf("ldd %s: %w: %s", p, err, bytes.TrimSpace(b))
		}
		for _, lib := range libraries(string(b)) {
			out = append(out, File{Path: lib, From: lib, Mode: 0o755})
		}
	}
	return out, nil
}

// libraries are the paths in what ldd prints.
func libraries(ldd string) []string {
	var out []string
	for _, line := range strings.Split(ldd, "\n") {
		for _, f := range strings.Fields(line) {
			if strings.HasPrefix(f, "/") && strings.Contains(path.Base(f), ".so") {
				out = append(out, f)
				break
			}
		}
	}
	return out
}
