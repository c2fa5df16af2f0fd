// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/cmd/internal/mutate"
)

// goldens are files that the releases' own code wrote, by name.
func goldens(t *testing.T, release string) map[string]string {
	files, err := filepath.Glob(filepath.Join("../../../pkg/kubelet/dockershim/testdata/checkpoint-compat", release, "*.json"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%v: %d files of %s", err, len(files), release)
	}
	all := map[string]string{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = string(b)
	}
	return all
}

// TestReaders: each release's files are accepted by it and its kind, and by no other.
func TestReaders(t *testing.T) {
	for release, want := range map[string][2]bool{"v1.7.0": {true, false}, "v1.8.15": {false, true}, "v1.9.11": {false, true}, "written-by-us": {true, false}} {
		for name, text := range goldens(t, release) {
			to17, from18, ports, err := readers([]byte(text))
			if err != nil || to17 != want[0] || from18 != want[1] {
				t.Errorf("%s %s: %v %v %v", release, name, to17, from18, err)
			}
			if has := strings.Contains(text, "host_port"); has != (ports > 0) {
				t.Errorf("%s %s: %d ports", release, name, ports)
			}
			to17, from18, _, err = readers([]byte(strings.Replace(text, "sandbox", "Sandbox", 1)))
			if err != nil || to17 || from18 {
				t.Errorf("%s %s with another name: %v %v %v", release, name, to17, from18, err)
			}
		}
	}
	for _, text := range []string{"", "null", "[]", "<html>", `{"data":null}`, `{"data":{},"checksum":-1}`, `{"data":{"port_mappings":[null]},"checksum":1}`, strings.Repeat("[", 1e5)} {
		if to17, from18, _, err := readers([]byte(text)); to17 || from18 || err != nil {
			t.Errorf("%.40q: %v %v %v", text, to17, from18, err)
		}
	}
}

func TestReadersMutated(t *testing.T) {
	n := 0
	mutate.Texts(3000, goldens(t, "v1.7.0")["twoports"], func(s string) {
		if to17, from18, _, err := readers([]byte(s)); err != nil {
			t.Fatalf("%q: %v", s, err)
		} else if !to17 && !from18 {
			n++
		}
	})
	if n < 1000 {
		t.Errorf("only %d damaged files: the test tests little", n)
	}
}

// TestSandboxFiles: what is said of a node's files, for each kubelet that may come next.
func TestSandboxFiles(t *testing.T) {
	f := newFake(t)
	f.extra("--experimental-dockershim-root-directory=" + f.p("dockershim"))
	put := func(id, text string) { f.write("dockershim/sandbox/"+id, text) }
	put("a", goldens(t, "v1.7.0")["oneport"])
	put("b", goldens(t, "v1.7.0")["noports"])
	put("c", goldens(t, "v1.9.11")["hostnetwork"])
	ours, v17, v19 := version{text: "H", minor: 9, holdfast: true}, version{text: "v1.7.0", minor: 7}, version{text: "v1.9.11", minor: 9}
	says := func(v version) string {
		m, _ := f.check(t)
		m.rows = nil
		m.judgeSandboxes(v)
		for _, r := range m.findings() {
			return r.Code + " " + r.Text
		}
		return ""
	}
	for _, c := range []struct {
		v    version
		want string
	}{
		{ours, ""},
		{v19, "HF532 v1.9.11 does not accept the files of 1 pods"},
		{v17, "HF532 v1.7.0 does not accept the files of 1 pods"},
	} {
		if got := says(c.v); got != c.want {
			t.Errorf("%s: %q, want %q", c.v.text, got, c.want)
		}
	}
	put("d", "")
	if got := says(ours); !strings.HasPrefix(got, "HF532 1 files in ") {
		t.Errorf("damaged: %q", got)
	}
	put("d", strings.Repeat(" ", maxConfig+1))
	if got := says(ours); !strings.HasPrefix(got, "HF509 ") {
		t.Errorf("large: %q", got)
	}
}
