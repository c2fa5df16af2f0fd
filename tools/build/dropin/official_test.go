// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOfficialBinaries(t *testing.T) {
	dir := t.TempDir()
	good := ""
	for _, c := range Components {
		write(t, filepath.Join(dir, c), "program "+c)
		good += fmt.Sprintf("%x  some/where/%s\n", sha256.Sum256([]byte("program "+c)), c)
	}
	list := filepath.Join(t.TempDir(), "sums")
	for name, c := range map[string]struct{ sums, want string }{
		"good":                  {good, ""},
		"another kubelet":       {strings.Replace(good, fmt.Sprintf("%x", sha256.Sum256([]byte("program kubelet"))), strings.Repeat("0", 64), 1), "its SHA-256 is"},
		"no kubelet":            {strings.Split(good, "\n")[0], "no sum of kubelet"},
		"an empty list":         {"", "no sum of"},
		"SHA-512, upper case":   {strings.ToUpper(fmt.Sprintf("%x", sha512.Sum512([]byte("program kubelet")))) + " *kubelet\n" + good, ""},
		"sums of several kinds": {good + fmt.Sprintf("%064d  kubelet\n", 7), ""},
	} {
		write(t, list, c.sums)
		got, err := Official(dir, list, t.TempDir())
		if c.want == "" && (err != nil || got != dir) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := Official(dir, "", t.TempDir()); err == nil || !strings.Contains(err.Error(), "--sums") {
		t.Errorf("without a list: %v", err)
	}
	if _, err := Official(t.TempDir(), list, t.TempDir()); err == nil || !strings.Contains(err.Error(), Archive) {
		t.Errorf("an empty folder: %v", err)
	}
}

// archive is one as upstream's, with these files.
func archive(t *testing.T, dir string, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, n := range names {
		if err := w.WriteHeader(&tar.Header{Name: "kubernetes/server/bin/" + n, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(n))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, Archive), b.String())
	return fmt.Sprintf("%x", sha256.Sum256(b.Bytes()))
}

func TestOfficialArchive(t *testing.T) {
	dir, list := t.TempDir(), filepath.Join(t.TempDir(), "CHANGELOG-1.9.md")
	sum := archive(t, dir, "kube-apiserver", Kubelet, Manager)
	changelog := "### Server Binaries\n\nfilename | sha256 hash\n-------- | -----------\n" +
		"[kubernetes-server-linux-amd64.tar.gz](https://example.invalid/x.tar.gz) | `" + sum + "`\n" +
		"[kubernetes-server-linux-arm.tar.gz](https://example.invalid/y.tar.gz) | `" + strings.Repeat("1", 64) + "`\n"
	into := filepath.Join(t.TempDir(), "new")
	got, err := Official(dir, write(t, list, changelog), into)
	if err != nil || got != into {
		t.Fatal(got, err)
	}
	for _, c := range Components {
		if b, err := os.ReadFile(filepath.Join(into, c)); err != nil || string(b) != c {
			t.Errorf("%s: %q, %v", c, b, err)
		}
	}
	write(t, list, strings.Replace(changelog, sum, strings.Repeat("2", 64), 1))
	into = filepath.Join(t.TempDir(), "other")
	if _, err := Official(dir, list, into); err == nil || !strings.Contains(err.Error(), "not upstream's") {
		t.Errorf("another sum: %v", err)
	}
	if _, err := os.Stat(into); err == nil {
		t.Error("an archive with another sum was unpacked")
	}
	write(t, list, Archive+" | `"+archive(t, dir, Kubelet)+"`\n")
	if _, err := Official(dir, list, into); err == nil || !strings.Contains(err.Error(), Manager) {
		t.Errorf("half an archive: %v", err)
	}
}
