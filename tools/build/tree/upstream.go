// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/dirhash"

	"holdfast/tools/build/exit"
)

// upstream lists the files of the base's module and of its forks, after
// checking both against the committed sums, with the base's renames done.
func (t *Tree) upstream() (map[string]source, error) {
	b := t.Base
	want, err := t.module(b.Module, b.Version, b.Sum)
	if err != nil {
		return nil, err
	}
	for _, f := range b.Forks {
		files, err := t.module(f.Module, f.Version, f.Sum)
		if err != nil {
			return nil, err
		}
		for p, s := range files {
			want[path.Join(f.Dir, p)] = s
		}
	}
	for _, r := range b.Renames {
		s, ok := want[r.From]
		if !ok {
			return nil, exit.Preconditionf("bases/%s/base.json: renames %s, which upstream does not have", b.Name, r.From)
		}
		delete(want, r.From)
		want[r.To] = s
	}
	return want, nil
}

// module finds a module in the module cache, downloading it when it is not
// there, and lists its files. Both what the go command says of the zip and the
// extracted files are held against sum.
func (t *Tree) module(mod, version, sum string) (map[string]source, error) {
	dir, err := t.download(mod, version, sum)
	if err != nil {
		return nil, err
	}
	prefix := mod + "@" + version
	names, err := dirhash.DirFiles(dir, prefix)
	if err != nil {
		return nil, err
	}
	files := make(map[string]source, len(names))
	got, err := dirhash.Hash1(names, func(name string) (io.ReadCloser, error) {
		rel := strings.TrimPrefix(name, prefix+"/")
		file := filepath.Join(dir, filepath.FromSlash(rel))
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		return &summed{f, h, func(sum string) {
			files[rel] = source{path: file, sum: sum, mode: modeOf(rel)}
		}}, nil
	})
	if err != nil {
		return nil, err
	}
	if got != sum {
		return nil, exit.Preconditionf("%s@%s: the files in the module cache (%s) have the sum %s, bases/%s/base.json says %s: they were changed; remove them (chmod -R u+w %[3]s && rm -rf %[3]s) and run make again. The tree was not changed",
			mod, version, dir, got, t.Base.Name, sum)
	}
	return files, nil
}

// summed hashes a file while the module's sum is computed from it. The file is
// not embedded: io.Copy would find its WriteTo and pass Read by.
type summed struct {
	f    *os.File
	h    hash.Hash
	done func(sum string)
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.f.Read(p)
	s.h.Write(p[:n])
	return n, err
}

func (s *summed) Close() error {
	s.done(hex.EncodeToString(s.h.Sum(nil)))
	return s.f.Close()
}

// modeOf gives scripts the executable bit that a module zip drops: upstream's
// tests call some of them.
func modeOf(file string) os.FileMode {
	if strings.HasSuffix(file, ".sh") {
		return 0o755
	}
	return 0o644
}

func (t *Tree) download(mod, version, sum string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", mod+"@"+version)
	cmd.Dir = os.TempDir() // away from our go.mod, whose replacement of the module would be followed
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GOTOOLCHAIN=local")
	if t.Offline {
		cmd.Env = append(cmd.Env, "GOPROXY=off")
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run()
	var info struct{ Dir, Sum, Error string }
	if err := json.Unmarshal(stdout.Bytes(), &info); err != nil || (runErr != nil && info.Error == "") {
		return "", exit.Preconditionf("%s@%s cannot be downloaded: %v: %s", mod, version, runErr, strings.TrimSpace(stderr.String()))
	}
	if info.Error != "" {
		return "", exit.Preconditionf("%s@%s is not available: %s\nIt is not in the module cache: make needs the network (go env GOPROXY) for the first run, or use make OFFLINE=1 after make vendor on a machine that has it", mod, version, info.Error)
	}
	if info.Sum != sum {
		return "", exit.Preconditionf("%s@%s has the sum %s, bases/%s/base.json says %s: this is not the source the patches were written for. The tree was not changed",
			mod, version, info.Sum, t.Base.Name, sum)
	}
	if info.Dir == "" {
		return "", fmt.Errorf("%s@%s: go mod download names no folder", mod, version)
	}
	return info.Dir, nil
}
