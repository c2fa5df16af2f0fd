// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// builder makes one release in the folder out.
type builder struct {
	*source
	out, work string // work is for what is needed only meanwhile
	keys      *keys  // nil: unsigned
	// programs are those of the release, by name; operators and rules too.
	programs map[string]string
}

// The names of programs.
const (
	kubelet   = "kubelet"
	manager   = "kube-controller-manager"
	apiserver = "kube-apiserver"
	operators = "kubectl-holdfast"
	rules     = "endpoints-rules"
)

// sums is the list of all files but itself and what signs it, and the provenance, which has a
// signature of its own.
const sums = "SHA256SUMS"

func build(o options, out string) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return failf("this machine is %s/%s: releases are built on linux/amd64, and the kubelet for that alone", runtime.GOOS, runtime.GOARCH)
	}
	s, err := readSource(o)
	if err != nil {
		return err
	}
	b := &builder{source: s}
	if o.keys != "" {
		if b.keys, err = openKeys(o.keys); err != nil {
			return err
		}
		b.keys.time = s.date
	}
	if b.out, err = filepath.Abs(out); err != nil {
		return err
	}
	if entries, err := os.ReadDir(b.out); err == nil && len(entries) > 0 {
		return failf("%s is not empty: name a new folder for the release", out)
	}
	if b.work, err = os.MkdirTemp("", "holdfast-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.work)
	if b.programs, err = b.findPrograms(); err != nil {
		return err
	}
	if err := b.all(); err != nil {
		return err
	}
	want, err := readExpected(filepath.Join(b.root, "release/expected.json"), b.base.Name)
	if err != nil {
		return err
	}
	have, err := sizes(b.out)
	if err != nil {
		return err
	}
	return want.compare(have, b.version)
}

// all writes the release.
func (b *builder) all() error {
	steps := []func() error{b.archives, b.images, b.boms, b.licences, b.texts}
	if b.base.Default {
		steps = append([]func() error{func() error { return b.packages(b.programs[kubelet], b.programs[operators]) }, b.repositories}, steps...)
	}
	for _, step := range append(steps, b.sum, b.provenance) {
		if err := step(); err != nil {
			return err
		}
	}
	return b.times()
}

// findPrograms finds the built programs, and asks each whether it is of this version.
func (b *builder) findPrograms() (map[string]string, error) {
	found := map[string]string{}
	dir := filepath.Join(b.root, "_output/bin", b.base.Name, "ours")
	names := []string{manager, kubelet, apiserver}
	if !b.base.Default {
		names = names[:1]
	}
	for _, name := range names {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); name == apiserver && os.IsNotExist(err) {
			continue // optional
		} else if err != nil {
			return nil, failf("%v: run make first", err)
		}
		found[name] = file
	}
	if b.base.Default {
		for name, module := range map[string]string{operators: "cmd", rules: "webhook"} {
			file, err := b.compile(module, name, "linux", "amd64")
			if err != nil {
				return nil, err
			}
			found[name] = file
		}
	}
	for name, file := range found {
		says, err := output(b.work, file, "--version")
		if err != nil {
			return nil, err
		}
		if !slices.Contains(strings.Fields(says), b.version) {
			return nil, failf("%s says %q and this checkout is %s: run make, and make kube-apiserver if you release it", name, says, b.version)
		}
	}
	return found, nil
}

// compile builds a program of a module of its own, stripped.
func (b *builder) compile(module, name, goos, arch string) (string, error) {
	file := filepath.Join(b.work, name+"-"+goos+"-"+arch)
	rel, err := filepath.Rel(b.root, file)
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(b.root, "hack/build-tool.sh"), module, "./"+name, rel, "-ldflags=-s -w -X=main.version="+b.version)
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s for %s/%s: %w\n%s", name, goos, arch, err, out)
	}
	return file, nil
}

// create writes a file of the release. Its folder is made.
func (b *builder) create(name string, write func(*os.File) error) error {
	file := filepath.Join(b.out, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Chtimes(file, b.date, b.date) // createrepo_c writes the time of an rpm
}

func (b *builder) text(name, text string) error {
	return b.create(name, func(f *os.File) error {
		_, err := f.WriteString(text)
		return err
	})
}

// times gives all that was written the release's time, for mirrors that keep it.
func (b *builder) times() error {
	return filepath.WalkDir(b.out, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(p, b.date, b.date)
	})
}

// sum writes SHA256SUMS, and its signatures if there are keys.
func (b *builder) sum() error {
	list, err := digests(b.out)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, d := range list {
		fmt.Fprintf(&text, "%s  %s\n", d.sum, d.name)
	}
	if err := b.text(sums, text.String()); err != nil || b.keys == nil {
		return err
	}
	armored, err := b.keys.armored(strings.NewReader(text.String()))
	if err != nil {
		return err
	}
	raw, err := b.keys.ecdsa(([]byte)(text.String()))
	if err != nil {
		return err
	}
	if err := b.text(sums+".asc", string(armored)); err != nil {
		return err
	}
	return b.text(sums+".sig", string(raw))
}

type digest struct{ name, sum string }

// digests are the sums of what SHA256SUMS lists of a folder, sorted by name.
func digests(dir string) ([]digest, error) {
	var list []digest
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil || name == provenanceFile || strings.HasPrefix(name, sums) {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is no regular file", name)
		}
		sum, err := sha256File(p)
		list = append(list, digest{filepath.ToSlash(name), sum})
		return err
	})
	return list, err
}

func sha256File(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// expected is release/expected.json for one base: the files of a release by name, and their sizes in
// bytes in a signed one with the kube-apiserver. VERSION in a name is the version as packages have it.
type expected []struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`
	Optional bool   `json:"optional,omitempty"` // of the kube-apiserver, or of a signed release
}

func readExpected(file, base string) (expected, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := map[string]expected{}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(all[base]) == 0 {
		return nil, fmt.Errorf("%s has no files of base %s", file, base)
	}
	return all[base], nil
}

// compare refuses a file too many, one that is missing, and one that is more than 5 % larger.
func (e expected) compare(have map[string]int64, version string) error {
	var bad []string
	plain := strings.TrimPrefix(version, "v")
	left := map[string]int64{}
	for name, size := range have {
		left[name] = size
	}
	for _, f := range e {
		name := strings.ReplaceAll(f.Name, "VERSION", plain)
		size, ok := left[name]
		delete(left, name)
		if !ok && !f.Optional {
			bad = append(bad, name+" is missing")
		}
		// Small files grow with each fix.
		if limit := max(f.Size*105/100, f.Size+4096); ok && size > limit {
			bad = append(bad, fmt.Sprintf("%s has %d bytes, and %d are expected, 5 %% more at most", name, size, f.Size))
		}
	}
	for name := range left {
		bad = append(bad, name+" is not expected")
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		return failf("the release is not what release/expected.json says:\n%s", strings.Join(bad, "\n"))
	}
	return nil
}

// sizes are the files below a folder with their sizes.
func sizes(dir string) (map[string]int64, error) {
	out := map[string]int64{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, p)
		out[filepath.ToSlash(name)] = info.Size()
		return err
	})
	return out, err
}
