// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/cmd/internal/exit"
	"holdfast/cmd/internal/mutate"
)

func TestFromMetrics(t *testing.T) {
	series := func(release, source string) string {
		return "# HELP holdfast_predecessor_info 1 for the release\n# TYPE holdfast_predecessor_info gauge\n" +
			`holdfast_predecessor_info{release="` + release + `",source="` + source + `"} 1` + "\nother 2\n"
	}
	for _, c := range []struct {
		text, want, err string
	}{
		{series("1.7.16", "api"), "1.7.16 api 1.7 1.7", ""},
		{series("1.6", "operator"), "1.6 operator 1.7 1.7", ""},
		{series("1.8", "evidence"), "1.8 evidence 1.8 1.9", ""},
		{series("1.9.11", "api"), "1.9.11 api 1.9 1.9", ""},
		{series("1.10.0", "api"), "1.10.0 api 1.9 1.9", ""},
		{series("none", "none"), "none none 1.9 1.9", ""},
		{series("new", "api"), "", `names the release "new"`},
		{"kubelet_running_pod_count 3\n", "", "holdfast_predecessor_info is missing"},
		{"", "", "holdfast_predecessor_info is missing"},
		{"holdfast_predecessor_override_refused 0\n" + series("none", "evidence"), "none evidence 1.9 1.9", ""},
		{series("1.8.15", "api") + "holdfast_predecessor_override_refused 1\n", "1.8.15 api 1.8 1.9 holdfast-predecessor-override is invalid", ""},
		{"holdfast_predecessor_override_refused 1\n", "", "holdfast_predecessor_info is missing"},
	} {
		a, err := fromMetrics("n", strings.NewReader(c.text))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: error %v, want one with %q", c.text, err, c.err)
			}
			continue
		}
		note, _, _ := strings.Cut(a.Note, " and is ignored")
		if got := strings.TrimSpace(strings.Join([]string{a.Release, a.Source, a.Hash, a.Checkpoints, note}, " ")); err != nil || got != c.want {
			t.Errorf("%q: %s, %v, want %s", c.text, got, err, c.want)
		}
	}
}

const record = `{"kubeletVersion":"v1.8.15-gke.0","nodeName":"node1","lastHeartbeat":"2018-10-01T10:00:00Z"}`

func TestFromRoot(t *testing.T) {
	for name, c := range map[string]struct {
		record, override string
		want, err        string
	}{
		"nothing":                  {"", "", "none none 1.9 1.9 no record", ""},
		"record":                   {record, "", "1.8.15 api 1.8 1.9 of node node1, last seen 2018-10-01T10:00:00Z", ""},
		"override":                 {record, " v1.7.3\n", "1.7.3 operator 1.7 1.7 in effect", ""},
		"override none":            {record, "none\n", "none operator 1.9 1.9 in effect", ""},
		"bad override":             {record, "seven", "", "holdfast-predecessor-override: the kubelet ignores its content, \"seven\""},
		"empty override":           {record, "\n", "", "holdfast-predecessor-override: the kubelet ignores its content, \"\""},
		"evidence":                 {`{"kubeletVersion":"1.7","source":"evidence","nodeName":"node1"}`, "", "1.7 evidence 1.7 1.7 of node node1, by its containers, kept", ""},
		"evidence, none":           {`{"kubeletVersion":"none","source":"evidence","nodeName":"node1"}`, "", "none evidence 1.9 1.9 of node node1, by its containers, kept", ""},
		"none, no source":          {`{"kubeletVersion":"none","nodeName":"node1"}`, "", "", `kubeletVersion is "none"`},
		"other source":             {`{"kubeletVersion":"1.7","source":"operator"}`, "", "", "source is not one"},
		"ours":                     {record, "v1.9.11+holdfast.2", "", "the kubelet ignores it"},
		"ours, after a release":    {record, "v1.9.11+holdfast.2.post.g0123456789ab", "", "the kubelet ignores it"},
		"broken record":            {"{", "", "", "holdfast-predecessor.json: unexpected end"},
		"broken record, override":  {"{", "1.7", "1.7 operator 1.7 1.7 in effect", ""},
		"strange record, override": {`{"kubeletVersion":"x"}`, "none", "none operator 1.9 1.9 in effect", ""},
		"strange record":           {`{"kubeletVersion":"x"}`, "", "", `kubeletVersion is "x"`},
		"large override":           {"", strings.Repeat("x", maxFile+1), "", "larger than"},
		"unlikely folder":          {"", "", "", "no such file"},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{recordFile: c.record, overrideFile: c.override} {
			if text != "" {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		if name == "unlikely folder" {
			dir = filepath.Join(dir, "gone")
		}
		a, err := fromRoot(dir)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want one with %q", name, err, c.err)
			}
			continue
		}
		if got := strings.Join([]string{a.Release, a.Source, a.Hash, a.Checkpoints, a.Note}, " "); err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
}

// TestCommand: what cannot be answered is named, and the rest is answered.
func TestCommand(t *testing.T) {
	var out, bad bytes.Buffer
	execute := func(args ...string) int {
		out.Reset()
		bad.Reset()
		cmd := Command()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(args)
		cmd.SetIn(strings.NewReader(`holdfast_predecessor_info{release="1.7.0",source="api"} 1` + "\n"))
		cmd.SetOut(&out)
		cmd.SetErr(&bad)
		return exit.Code(cmd.Execute())
	}
	if code := execute(); code != exit.Usage {
		t.Errorf("without arguments: %d", code)
	}
	if code := execute("-o", "json", "-"); code != exit.OK || out.String() != `{"node":"-","release":"1.7.0","source":"api","hash":"1.7","checkpoints":"1.7"}`+"\n" {
		t.Errorf("json: %d %s", code, out.String())
	}
	dir := t.TempDir()
	code := execute("--root-dir", dir, filepath.Join(dir, "gone"), "-")
	if code != exit.Failed || !strings.Contains(bad.String(), "gone") || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("one is missing: %d %q %q", code, out.String(), bad.String())
	}
}

// What a kubelet answers may be anything: a release that was read is one, and an error is short.
func TestBadMetrics(t *testing.T) {
	read := 0
	mutate.Texts(10_000, "# TYPE holdfast_predecessor_info gauge\nholdfast_predecessor_info{release=\"1.7.16\",source=\"api\"} 1\n", func(s string) {
		a, err := FromMetrics("node1", []byte(s))
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		read++
		if _, _, ok := parse(a.Release); !ok && a.Release != "none" {
			t.Errorf("%q: release %q", s, a.Release)
		}
	})
	if read < 100 {
		t.Errorf("only %d were read: the test tests little", read)
	}
}
