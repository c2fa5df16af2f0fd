// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package symptoms

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

var update = flag.Bool("update", false, "write the table and the page of the symptoms")

// TestTable: the table that is compiled in, and the page, are what the fixes and their pages give.
func TestTable(t *testing.T) {
	rows := slices.Concat(incidents(t), told, metrics(t))
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	want.WriteString("[\n")
	for i, r := range rows {
		if err := e.Encode(r); err != nil {
			t.Fatal(err)
		}
		if i < len(rows)-1 {
			want.Truncate(want.Len() - 1)
			want.WriteString(",\n")
		}
	}
	want.WriteString("]\n")
	same(t, "cmd/internal/symptoms/symptoms.json", want.String())
	if *update {
		table = want.Bytes()
	}
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	same(t, Page, Markdown(all))
}

// same wants a file of the repository to have a content; with -update it writes it.
func same(t *testing.T, file, want string) {
	t.Helper()
	path := filepath.Join(root, file)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not what the fixes and their pages give (%v): in cmd/, go test ./internal/symptoms -update", file, err)
	}
}

// read is a file of the repository.
func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// files are those of the repository that a pattern matches.
func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v, %d files", pattern, err, len(found))
	}
	for i, f := range found {
		rel, err := filepath.Rel(root, f)
		if err != nil {
			t.Fatal(err)
		}
		found[i] = filepath.ToSlash(rel)
	}
	return found
}

// incidents are those of the fixes that have a page, and of their forms for another base.
func incidents(t *testing.T) []Symptom {
	t.Helper()
	var out []Symptom
	for _, f := range files(t, "patches/*/fix.json") {
		var fix struct {
			Incident string
			Bases    map[string]struct{ Incident string }
		}
		if err := json.Unmarshal([]byte(read(t, f)), &fix); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		folder := filepath.ToSlash(filepath.Dir(f))
		if fix.Incident != "" {
			out = append(out, Symptom{Kind: Incident, Text: fix.Incident, Page: folder + "/README.md"})
		}
		for base, form := range fix.Bases {
			if form.Incident != "" {
				out = append(out, Symptom{Kind: Incident, Text: form.Incident, Page: folder + "/" + base + "/README.md"})
			}
		}
	}
	slices.SortFunc(out, func(a, b Symptom) int { return strings.Compare(strings.ToLower(a.Text), strings.ToLower(b.Text)) })
	return out
}

var (
	rowRE    = regexp.MustCompile("(?m)^\\| `(holdfast_[a-z0-9_]+(?:\\{[a-z,]+\\})?)` \\| (.*) \\|$")
	metricRE = regexp.MustCompile(`holdfast_[a-z0-9_]+_(?:total|seconds|info|refused|waiting)\b`)
	linkRE   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)|\[([^\]]*)\]\[[^\]]*\]`)
)

// metrics are those of the pages of the fixes, with what a table of the page or counts says of them.
func metrics(t *testing.T) []Symptom {
	t.Helper()
	var out []Symptom
	seen := map[string]bool{}
	add := func(text, means, page string) {
		if name, _, _ := strings.Cut(text, "{"); !seen[name] {
			seen[name] = true
			out = append(out, Symptom{Kind: Metric, Text: text, Means: means, Page: page})
		}
	}
	pages := slices.Concat(files(t, "patches/*/README.md"), files(t, "patches/*/v*/README.md"))
	for _, p := range pages {
		for _, m := range rowRE.FindAllStringSubmatch(read(t, p), -1) {
			add(m[1], linkRE.ReplaceAllString(strings.ReplaceAll(m[2], " | ", ": "), "$1$2"), p)
		}
	}
	for _, p := range pages {
		for _, m := range metricRE.FindAllString(read(t, p), -1) {
			if !seen[m] && counts[m] == "" {
				t.Errorf("%s: %s is in no table: say in counts, in messages.go, what it counts", p, m)
			}
			add(m, counts[m], p)
		}
	}
	slices.SortFunc(out, func(a, b Symptom) int { return strings.Compare(a.Text, b.Text) })
	return out
}

// TestTold: each message and reason is on its page.
func TestTold(t *testing.T) {
	for _, s := range told {
		if !has(plain(read(t, s.Page)), strings.Split(plain(s.Text), "…")) {
			t.Errorf("%s does not say %q", s.Page, s.Text)
		}
	}
}

// TestReasons: the table has each reason of an event that the overlay makes.
func TestReasons(t *testing.T) {
	reasonRE := regexp.MustCompile(`(?:nodeEvent\([^"]*|Event|NameConflictReason) *(?:=|v1\.EventType[a-zA-Z]+,) *"([A-Za-z]+)"`)
	found := 0
	for _, f := range slices.Concat(files(t, "pkg/kubelet/holdfast_*.go"), files(t, "pkg/volume/rbd/holdfast_*.go"), files(t, "pkg/controller/*/holdfast_*.go")) {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		for _, m := range reasonRE.FindAllStringSubmatch(read(t, f), -1) {
			found++
			if !slices.ContainsFunc(told, func(s Symptom) bool { return s.Kind == Event && s.Text == m[1] }) {
				t.Errorf("%s makes events of reason %s, which the table does not have", f, m[1])
			}
		}
	}
	if found < 9 {
		t.Errorf("only %d reasons of events were found: the pattern no longer fits the code", found)
	}
}

func TestFind(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`Nov 27 node1 kubelet: Checksum of checkpoint "a1" is not valid, removing checkpoint`: "patches/checkpoint-compat/README.md",
		"rbdlockkept": "patches/rbd-detach/README.md",
		"HF201":       "docs/user/codes.md#hf201",
		"holdfast_cni_plugin_name_refused_total 3": "patches/cni-plugin-name/README.md",
		"recreates  every container":               "patches/container-hash-compat/README.md",
	} {
		if !slices.ContainsFunc(Find(all, text), func(s Symptom) bool { return s.Page == want }) {
			t.Errorf("%q does not lead to %s but to %v", text, want, Find(all, text))
		}
	}
	for _, text := range []string{"", " ", "nothing has this text", "removing checkpoint, of which the Checksum is wrong"} {
		if got := Find(all, text); len(got) != 0 {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestCommand(t *testing.T) {
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		c := Command()
		c.SetArgs(args)
		c.SetOut(&out)
		c.SetErr(&out)
		err := c.Execute()
		return out.String(), err
	}
	if out, err := run("RBDCommandSlow"); err != nil || !strings.Contains(out, "event: RBDCommandSlow\n") || !strings.Contains(out, "page: docs/user/rbd.md\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run("-o", "json", "HF101"); err != nil || !strings.Contains(out, `"page":"docs/user/codes.md#hf101"`) {
		t.Errorf("%v\n%s", err, out)
	}
	for _, args := range [][]string{{}, {"no", "such", "text"}, {strings.Repeat("x", maxText+1)}} {
		if _, err := run(args...); err == nil {
			t.Errorf("%.20v was answered", args)
		}
	}
}
