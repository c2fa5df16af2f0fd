// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashoracle

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestGenerate(t *testing.T) {
	oldest := map[int]int{}
	var all bytes.Buffer
	for i := range 20_000 {
		c := Generate(7, i)
		if again := Generate(7, i); !bytes.Equal(c.JSON, again.JSON) || c.Oldest != again.Oldest {
			t.Fatalf("container %d is not the same twice", i)
		}
		if !json.Valid(c.JSON) || bytes.ContainsRune(c.JSON, '\n') {
			t.Fatalf("container %d is not one line of JSON: %s", i, c.JSON)
		}
		oldest[c.Oldest]++
		all.Write(c.JSON)
	}
	if bytes.Equal(Generate(7, 0).JSON, Generate(8, 0).JSON) {
		t.Error("another seed gives the same container")
	}
	for g := 6; g <= 9; g++ {
		if oldest[g] < 500 {
			t.Errorf("only %d containers that 1.%d is the oldest to express: %v", oldest[g], g, oldest)
		}
	}
	for _, want := range []string{
		`"volumeDevices":[]`, `"volumeDevices":[{`, `"mountPropagation":""`, `"allowPrivilegeEscalation":false`, `"host":""`, `"host":"h"`,
		`"args":[]`, `"args":null`, `"limits":{}`, `"env":[null`, `"divisor":"`, `"cpu":0.5`, `e-30"`, `\ud800`, `AllowPrivilegeEscalation:(*bool)\u003cnil\u003e`,
	} {
		if !bytes.Contains(all.Bytes(), []byte(want)) {
			t.Errorf("no %s in 20000 containers", want)
		}
	}
}

// TestJudge: the comparison sees each kind of difference.
func TestJudge(t *testing.T) {
	h := func(n uint64) *uint64 { return &n }
	o := Options{Releases: Releases}
	right := func() answer {
		return answer{Hash: map[string]*uint64{"1.9": h(9), "1.8": h(8), "1.7": nil, "1.6": nil}, Oldest: "1.8"}
	}
	real := []string{"9", "8", "7", "6"}
	for _, tc := range []struct {
		name   string
		change func(*answer, []string)
		want   string
	}{
		{"right", func(*answer, []string) {}, ""},
		{"other hash", func(a *answer, _ []string) { a.Hash["1.8"] = h(1) }, "1.8: 1, 1.8.15 records 8"},
		{"null without reason", func(a *answer, _ []string) { a.Hash["1.9"] = nil }, "1.9: null, the release knows all fields and records 9"},
		{"hash without knowing", func(a *answer, _ []string) { a.Hash["1.7"] = h(7) }, "1.7: 7, but the release does not know all fields"},
		{"shortened hash accepted", func(_ *answer, real []string) { real[2] = "8" }, "1.7.0 records 8 without knowing all fields, and it is accepted as 1.8"},
		{"oldest", func(a *answer, _ []string) { a.Oldest = "1.7" }, `oldest "1.7", want 1.8`},
		{"error of the release", func(_ *answer, real []string) { real[0] = "!bad" }, "1.9: 9, 1.9.11 records !bad"},
	} {
		a, r := right(), append([]string(nil), real...)
		tc.change(&a, r)
		var c comparison
		c.judge(o, "engine", 1, Container{JSON: []byte("{}"), Oldest: 8}, a, r)
		switch {
		case tc.want == "" && (c.report.Differ != 0 || c.report.Hashes != 2 || c.report.Withheld != 2):
			t.Errorf("%s: %+v", tc.name, c.report)
		case tc.want != "" && (c.report.Differ != 1 || !strings.Contains(strings.Join(c.report.Mismatches, ""), tc.want)):
			t.Errorf("%s: %+v, want %q", tc.name, c.report, tc.want)
		}
	}
}

func TestProcess(t *testing.T) {
	p, err := start("cat")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := p.ask([]byte("a\n\nb\n"))
	if err != nil || len(lines) != 3 || string(lines[2]) != "b" {
		t.Errorf("%q, %v", lines, err)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	// A program that ends early is an error, not a match.
	if p, err = start("sh", "-c", "read a; echo $a; echo sorry >&2; exit 3"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ask([]byte("a\nb\n")); err == nil || !strings.Contains(err.Error(), "after 1 of 2 answers") {
		t.Errorf("%v", err)
	}
	if err := p.stop(); err == nil || !strings.Contains(err.Error(), "sorry") {
		t.Errorf("%v", err)
	}
}

// TestOldWords: the Go of this machine has what the overlay changes.
func TestOldWords(t *testing.T) {
	name, err := oldWords(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(data, &overlay); err != nil {
		t.Fatal(err)
	}
	old := 0
	for file, by := range overlay.Replace {
		data, err := os.ReadFile(by)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "math/big/arith.go") && bytes.Contains(data, []byte("\ntype Word uintptr\n")) {
			old++
		}
	}
	if old != 1 || len(overlay.Replace) != 2 {
		t.Errorf("%s", data)
	}
}

// TestModuleOf: which module a package of an old release comes from.
func TestModuleOf(t *testing.T) {
	b, err := newBuilder(repository(t), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if b.file.Require == nil || len(b.sums) == 0 {
		t.Fatal("no pins")
	}
	for _, tc := range []struct {
		release       int
		pkg           string
		path, version string
	}{
		{0, "github.com/davecgh/go-spew/spew", "github.com/davecgh/go-spew", "v0.0.0-20170626231645-782f4967f2dc"},
		{2, "github.com/davecgh/go-spew/spew", "github.com/davecgh/go-spew", "v0.0.0-20151105211317-5215b55f46b2"},
		{0, "gopkg.in/inf.v0", "gopkg.in/inf.v0", "v0.9.0"},
		{0, "github.com/ugorji/go/codec", "github.com/ugorji/go", ""},
		{0, "example.invalid/none", "", ""},
	} {
		if path, m := b.moduleOf(Releases[tc.release], tc.pkg); path != tc.path || m.version != tc.version {
			t.Errorf("%s: %s, %+v", tc.pkg, path, m)
		}
	}
	// What was built with other pins is built again.
	for text, want := range map[string]bool{
		"gopkg.in/inf.v0 v0.9.0":                              true,
		"gopkg.in/inf.v0 v0.9.0\ngopkg.in/inf.v0 v0.9.1":      false,
		"gopkg.in/inf.v0 v0.9.0\nexample.invalid/none v1.0.0": false,
	} {
		file := filepath.Join(t.TempDir(), "modules")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := b.pinned(file); got != want {
			t.Errorf("%q: pinned %v, want %v", text, got, want)
		}
	}
	for _, r := range slices.Concat(newer, Releases) {
		for _, m := range append(r.other, r.kubernetes) {
			if !strings.HasPrefix(m.sum, "h1:") {
				t.Errorf("%s@%s has no sum", m.path, m.version)
			}
		}
	}
	if _, err := b.download(mod{"github.com/davecgh/go-spew", "v1.1.1", ""}); err == nil {
		t.Error("a module without a pinned sum is taken")
	}
}

// TestWith: each release of newer comes with the pins of its own base.
func TestWith(t *testing.T) {
	b, err := newBuilder(repository(t), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"v0.31.0", "v0.30.2"} {
		own, err := b.with(newer[i])
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := own.pin("github.com/google/cadvisor"); !ok || m.version != want || m.sum == "" {
			t.Errorf("%s: %+v, want %s", newer[i].Golden, m, want)
		}
	}
	if same, err := b.with(Releases[0]); same != b || err != nil {
		t.Errorf("%v: 1.9 has other pins than the root's", err)
	}
}

// TestWriteGolden: a column that is added stands in its place, and what was there stays.
func TestWriteGolden(t *testing.T) {
	file := filepath.Join(t.TempDir(), "golden.jsonl")
	const before = `{"id":"a<b","spec":{"name":"a"},"hash":{"1.9.11":[1,2,3,4],"1.12.4":[5,6,7,8]},"unknown":["1.9.11"]}` + "\n" +
		`{"id":"b","spec":{},"hash":{"1.9.11":[1]},"unknown":[]}` + "\n"
	if err := os.WriteFile(file, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	rows, err := readGolden(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, unknown := range []bool{true, false} {
		if err := rows[i].add("1.10.0", []string{"9", "10"}, unknown); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeGolden(file, rows); err != nil {
		t.Fatal(err)
	}
	const want = `{"id":"a\u003cb","spec":{"name":"a"},"hash":{"1.9.11":[1,2,3,4],"1.10.0":[9,10],"1.12.4":[5,6,7,8]},"unknown":["1.9.11","1.10.0"]}` + "\n" +
		`{"id":"b","spec":{},"hash":{"1.9.11":[1],"1.10.0":[9,10]},"unknown":[]}` + "\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	if err := rows[0].add("1.11.10", []string{"!no such field"}, false); err == nil {
		t.Error("an error of the release is a hash")
	}
}

func repository(t *testing.T) string {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.sum")); err != nil {
		t.Fatal(err)
	}
	return root
}
