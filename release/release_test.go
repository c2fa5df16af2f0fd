// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// made is one release of small programs, with keys, and what it was made of.
type made struct {
	b             *builder
	out, keys     string
	pass, wrong   string // files
	root, program string
}

// makeRelease makes a release of a program that links a module of a patched tree, without
// compiling Kubernetes. Programs and keys of another release can be given.
func makeRelease(t *testing.T, of *made) *made {
	t.Helper()
	m := &made{out: filepath.Join(t.TempDir(), "a folder", "out")}
	if of != nil {
		m.keys, m.pass, m.program, m.root = of.keys, of.pass, of.program, of.root
	} else {
		m.keys, m.pass = filepath.Join(t.TempDir(), "keys"), filepath.Join(t.TempDir(), "pass")
		must(t, os.WriteFile(m.pass, []byte("a long passphrase\n"), 0o600))
		t.Setenv("HOLDFAST_PASSPHRASE_FILE", m.pass)
		must(t, keygen(m.keys))
		var err error
		m.root, err = filepath.Abs("..")
		must(t, err)
		m.program = compiled(t)
	}
	k, err := openKeys(m.keys)
	must(t, err)
	base, err := readBase(m.root, "")
	must(t, err)
	m.b = &builder{source: &source{root: m.root, base: base, version: "v1.9.11+holdfast.9", commit: strings.Repeat("0a", 20),
		date: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), notes: "what changed"}, out: m.out, work: t.TempDir(), keys: k}
	k.time = m.b.date
	m.b.programs = map[string]string{kubelet: m.program, manager: m.program, operators: m.program, rules: m.program}
	for _, step := range []func() error{func() error { return m.b.packages(m.program, m.program) }, m.b.repositories,
		func() error { return m.b.tarGz("kubernetes-server-linux-amd64.tar.gz", m.b.server()) }, m.b.images, m.b.boms, m.b.licences, m.b.sum, m.b.provenance, m.b.times} {
		must(t, step())
	}
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// compiled is a program whose modules are named as those of the kubelet are.
func compiled(t *testing.T) string {
	dir := t.TempDir()
	api := "_output/src/v1.9.11/ours/staging/src/k8s.io/api"
	for file, text := range map[string]string{
		"go.mod":         "module k8s.io/kubernetes\n\ngo 1.26\n\nrequire k8s.io/api v0.0.0\n\nreplace k8s.io/api => ./" + api + "\n",
		"main.go":        "package main\n\nimport \"k8s.io/api\"\n\nfunc main() { println(\"Kubernetes\", api.Version) }\n",
		api + "/go.mod":  "module k8s.io/api\n\ngo 1.26\n",
		api + "/main.go": "package api\n\nconst Version = \"v1.9.11+holdfast.9\"\n",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", "program", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return filepath.Join(dir, "program")
}

// TestRelease makes one release twice, and looks at all that it is.
func TestRelease(t *testing.T) {
	m := makeRelease(t, nil)
	t.Run("reproducible", m.reproducible)
	t.Run("verify", m.verify)
	t.Run("gpg, openssl and sha256sum", m.byHand)
	t.Run("debs", m.debs)
	t.Run("rpms", m.rpms)
	t.Run("apt refuses what is not signed with the key", m.apt)
	t.Run("bill of materials", m.bill)
	t.Run("image", m.image)
	t.Run("passphrase", m.passphrase)
}

func (m *made) reproducible(t *testing.T) {
	time.Sleep(time.Second) // no time of the clock may be in it
	again := makeRelease(t, m)
	a, err := digests(m.out)
	must(t, err)
	b, err := digests(again.out)
	must(t, err)
	if len(a) < 20 {
		t.Errorf("only %d files", len(a))
	}
	if !slices.Equal(a, b) {
		t.Errorf("%v\n%v", a, b)
	}
	for _, f := range []string{sums, sums + ".asc", sums + ".sig", provenanceFile} {
		x, _ := sha256File(filepath.Join(m.out, f))
		if y, err := sha256File(filepath.Join(again.out, f)); err != nil || x != y {
			t.Errorf("%s differs: %v", f, err)
		}
	}
}

func (m *made) verify(t *testing.T) {
	var out bytes.Buffer
	must(t, verify(options{keys: m.keys}, m.out, &out))
	if !strings.Contains(out.String(), "built of commit "+m.b.commit) {
		t.Error(out.String())
	}
	committed := filepath.Join(t.TempDir(), m.b.version)
	must(t, checkCommitted(committed, m.out, &out))
	has(t, out.String(), "no sums of that version")
	must(t, exec.Command("cp", filepath.Join(m.out, sums), committed).Run())
	must(t, checkCommitted(committed, m.out, &out))
	must(t, os.WriteFile(committed, []byte("another"), 0o644))
	if err := checkCommitted(committed, m.out, &out); err == nil || !strings.Contains(err.Error(), "of other files") {
		t.Errorf("other sums were committed: %v", err)
	}
	if err := verify(options{}, m.out, &out); err == nil {
		t.Error("no keys are needed")
	}
	other := filepath.Join(t.TempDir(), "keys")
	must(t, keygen(other))
	for name, c := range map[string]struct {
		change func(dir string) error
		o      options
		want   string
	}{
		"another key":   {func(string) error { return nil }, options{keys: other}, "is not signed with these keys"},
		"changed":       {func(d string) error { return appendTo(d, "LICENSES") }, options{keys: m.keys}, "LICENSES was changed"},
		"one more":      {func(d string) error { return appendTo(d, "apt/evil.deb") }, options{keys: m.keys}, "apt/evil.deb is not in SHA256SUMS"},
		"one less":      {func(d string) error { return os.Remove(filepath.Join(d, "LICENSES")) }, options{keys: m.keys}, "LICENSES is missing"},
		"sums":          {func(d string) error { return resum(d) }, options{keys: m.keys}, "SHA256SUMS.sig: the signature is not of"},
		"no signature":  {func(d string) error { return os.Remove(filepath.Join(d, sums+".sig")) }, options{keys: m.keys}, "SHA256SUMS.sig"},
		"provenance":    {func(d string) error { return swap(d, provenanceFile, `"payload":"`, `"payload":"e`) }, options{keys: m.keys}, provenanceFile},
		"says unsigned": {func(d string) error { return appendTo(d, unsignedFile) }, options{keys: m.keys}, "is not signed: nothing says who made it"},
	} {
		dir := filepath.Join(t.TempDir(), "out")
		must(t, os.CopyFS(dir, os.DirFS(m.out)))
		must(t, c.change(dir))
		if err := verify(c.o, dir, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func appendTo(dir, file string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close())
}

func swap(dir, file, old, text string) error {
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil || !bytes.Contains(raw, []byte(old)) {
		return errors.Join(err, fmt.Errorf("%s has no %s", file, old))
	}
	return os.WriteFile(filepath.Join(dir, file), bytes.Replace(raw, []byte(old), []byte(text), 1), 0o644)
}

// resum changes a file and makes the list fit.
func resum(dir string) error {
	if err := appendTo(dir, "LICENSES"); err != nil {
		return err
	}
	list, err := digests(dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, d := range list {
		fmt.Fprintf(&text, "%s  %s\n", d.sum, d.name)
	}
	return os.WriteFile(filepath.Join(dir, sums), []byte(text.String()), 0o644)
}

// shell runs a script in a folder of the release's copy.
func shell(t *testing.T, dir, script string) (string, error) {
	t.Helper()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = dir
	home := t.TempDir()
	must(t, os.Chmod(home, 0o700))
	cmd.Env = append(os.Environ(), "GNUPGHOME="+home, "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var block = regexp.MustCompile("(?ms)^```bash\n(.*?)^```$")

// byHand runs the blocks of docs/user/verify.md, each by itself, with the paths of this release.
func (m *made) byHand(t *testing.T) {
	page, err := os.ReadFile("../docs/user/verify.md")
	must(t, err)
	blocks := block.FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 4 {
		t.Fatalf("%d blocks", len(blocks))
	}
	dir := filepath.Join(t.TempDir(), "out")
	must(t, os.CopyFS(dir, os.DirFS(m.out)))
	for _, b := range blocks {
		script := "KEYS=" + m.keys + " OUT=" + dir + "\n" + b[1]
		if out, err := shell(t, dir, script); err != nil {
			t.Errorf("%s: %v\n%s", b[1], err, out)
		}
	}
	must(t, resum(dir))
	refused := 0
	for _, b := range blocks {
		if _, err := shell(t, dir, "KEYS="+m.keys+" OUT="+dir+"\n"+b[1]); err != nil {
			refused++
		}
	}
	if refused < 2 { // by both keys' signatures of SHA256SUMS
		t.Errorf("only %d blocks refuse a release that was changed", refused)
	}
}

func (m *made) passphrase(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "wrong")
	must(t, os.WriteFile(wrong, []byte("another passphrase"), 0o600))
	t.Setenv("HOLDFAST_PASSPHRASE_FILE", wrong)
	if _, err := openKeys(m.keys); err == nil || !strings.Contains(err.Error(), "the passphrase is wrong") {
		t.Error(err)
	}
	if err := keygen(m.keys); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Error(err)
	}
	for _, f := range []string{pgpSecret, ecdsaSecret} {
		raw, err := os.ReadFile(filepath.Join(m.keys, f))
		must(t, err)
		if bytes.Contains(raw, []byte("BEGIN PRIVATE KEY")) {
			t.Errorf("%s is not encrypted", f)
		}
	}
}

func TestNoRelease(t *testing.T) {
	const changes = "# x\n\n## Unreleased\n\ny\n\n## +holdfast.3, 2026-12-01\n\nnotes\n\n## +holdfast.2, 2026-11-21\n\nold\n"
	for name, c := range map[string]struct{ version, dirty, changes, want string }{
		"fine":    {"v1.9.11+holdfast.3", "", changes, ""},
		"dirty":   {"v1.9.11+holdfast.3", " M README.md\n?? x", changes, "not committed (M README.md)"},
		"no tag":  {"v1.9.11+holdfast.3.post.g0123456789ab", "", changes, "tag that commit"},
		"unknown": {"v1.9.11+holdfast.3.post.unknown", "", changes, "tag that commit"},
		"no date": {"v1.9.11+holdfast.4", "", changes, `no heading "## +holdfast.4, YYYY-MM-DD"`},
		"no day":  {"v1.9.11+holdfast.3", "", strings.Replace(changes, "12-01", "13-41", 1), "the date of +holdfast.3"},
	} {
		s := &source{version: c.version, base: baseFile{Name: "v1.9.11"}}
		err := s.release(c.dirty, c.changes)
		if c.want == "" && (err != nil || s.notes != "notes" || s.date.Format("2006-01-02") != "2026-12-01") {
			t.Errorf("%s: %v %+v", name, err, s)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestOldBase: of a base that is not the default one the release is its controller manager alone.
// Licences are left out: the module of that base is in the cache only where it was built.
func TestOldBase(t *testing.T) {
	root, err := filepath.Abs("..")
	must(t, err)
	base, err := readBase(root, "v1.2.0")
	must(t, err)
	b := &builder{source: &source{root: root, base: base, version: "v1.2.0+holdfast.9", commit: strings.Repeat("0a", 20), date: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)},
		out: t.TempDir(), work: t.TempDir(), programs: map[string]string{manager: compiled(t)}}
	for _, step := range []func() error{b.archives, b.images, b.boms, func() error { return b.text("LICENSES", "x") }, b.texts, b.sum, b.provenance} {
		must(t, step())
	}
	want, err := readExpected("expected.json", base.Name)
	must(t, err)
	have, err := sizes(b.out)
	must(t, err)
	must(t, want.compare(have, b.version))
	var out bytes.Buffer
	must(t, verify(options{unsigned: true}, b.out, &out))
	has(t, out.String(), "v1.2.0+holdfast.9, built of commit "+b.commit)
	if err := verify(options{}, b.out, io.Discard); err == nil || !strings.Contains(err.Error(), "is not signed") {
		t.Errorf("nobody signed it: %v", err)
	}
}

// TestGodeps: of a program that was built as a GOPATH, the libraries are those of upstream's list that
// it has files of; each of them has a licence there.
func TestGodeps(t *testing.T) {
	raw := []byte(`{"Deps":[{"ImportPath":"github.com/golang/glog","Rev":"44145f"},{"ImportPath":"github.com/golang/glo","Rev":"1"},{"ImportPath":"bitbucket.org/ww/goautoneg","Rev":"'75cd'"},{"ImportPath":"x.org/none","Rev":"2"}]}`)
	list, err := linkedGodeps(raw, []byte("\x00github.com/golang/glog/glog.go\x00bitbucket.org/ww/goautoneg/autoneg.go\x00"))
	must(t, err)
	got := ""
	for _, m := range list {
		got += m.Path + "@" + m.Version + " "
	}
	if got != "github.com/golang/glog@44145f bitbucket.org/ww/goautoneg@75cd " {
		t.Error(got)
	}
	for _, bad := range []string{"{", `{"Deps":[{"ImportPath":"x.org/none"}]}`} {
		if _, err := linkedGodeps([]byte(bad), []byte("a program")); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	cache := t.TempDir()
	b := &builder{source: &source{base: baseFile{Module: "k8s.io/kubernetes", Version: "v1.2.0"}}}
	dir := filepath.Join(cache, "k8s.io/kubernetes@v1.2.0/Godeps")
	must(t, os.MkdirAll(dir, 0o755))
	rule := strings.Repeat("=", 80) + "\n"
	must(t, os.WriteFile(filepath.Join(dir, "LICENSES"), []byte(rule+"= Godeps/_workspace/src/github.com/golang/glog licensed under: =\n\nthe text\n"+rule+rule+"= vendor/x.org/y licensed under: =\n\nanother\n"+rule), 0o644))
	for path, want := range map[string]string{"github.com/golang/glog": "the text", "x.org/y": "another", "github.com/golang": "the text", "x.org/z": ""} {
		if text, err := b.upstreamLicence(cache, path); err != nil || !strings.Contains(text, want) || want == "" && text != "" {
			t.Errorf("%s: %q %v", path, text, err)
		}
	}
}

func TestExpected(t *testing.T) {
	e := expected{{Name: "apt/kubelet_VERSION-1_amd64.deb", Size: 1000000}, {Name: "x", Size: 10}, {Name: "y", Size: 10, Optional: true}}
	const deb = "apt/kubelet_1.9.11+holdfast.9-1_amd64.deb"
	for want, have := range map[string]map[string]int64{
		"":                          {deb: 1050000, "x": 10},
		"x is missing":              {deb: 1},
		"z is not expected":         {deb: 1, "x": 1, "z": 1},
		"has 1050001 bytes, and 10": {deb: 1050001, "x": 1},
		// Two packages of one name in a repository: apt takes the newer one, whatever was meant.
		"apt/kubelet_1.9.11+holdfast.8-1_amd64.deb is not expected": {deb: 1, "x": 1, "apt/kubelet_1.9.11+holdfast.8-1_amd64.deb": 1},
	} {
		err := e.compare(have, "v1.9.11+holdfast.9")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", have, err, want)
		}
	}
}
