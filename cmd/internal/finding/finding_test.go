// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holdfast/cmd/internal/exit"
)

var update = flag.Bool("update", false, "write the page of the codes")

func TestPage(t *testing.T) {
	for page, want := range map[string]string{Page: Markdown(), AlertsPage: Alerts()} {
		file := filepath.Join("../../..", page)
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the table of codes has: go test ./internal/finding -update writes it", page)
		}
	}
}

func TestCodes(t *testing.T) {
	form, seen := regexp.MustCompile(`^HF[0-9]{3}$`), map[string]bool{}
	for _, c := range Codes() {
		if !form.MatchString(c.Code) || seen[c.Code] {
			t.Errorf("code %q is none, or there twice", c.Code)
		}
		seen[c.Code] = true
		if c.Level.rank() < 0 || c.Title == "" || len(c.About) == 0 || len(c.By) == 0 || strings.HasSuffix(c.Title, ".") {
			t.Errorf("%s: its row is not complete", c.Code)
		}
	}
	for _, wrong := range []func(){func() { Of("HF000", "", "", "") }, func() { Of("HF101", "", "", "").At(OK) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a mistake in the program was taken")
				}
			}()
			wrong()
		}()
	}
}

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		levels, failOn string
		want           int
	}{
		{"", "STOP", 0}, {"ok", "warn", 0}, {"warn", "STOP", 0}, {"warn", "warn", 3}, {"new", "warn", 3}, {"new", "new", 3}, {"warn", "new", 0},
		{"STOP", "STOP", 3}, {"?", "STOP", 1}, {"? STOP", "STOP", 3}, {"? new", "STOP", 1}, {"STOP ?", "new", 3}, {"? ok", "warn", 1},
	} {
		on, err := ParseFailOn(strings.ToLower(c.failOn))
		if err != nil {
			t.Fatal(err)
		}
		var fs []Finding
		for l := range strings.FieldsSeq(c.levels) {
			fs = append(fs, Finding{Level: Level(l)})
		}
		if got := Status(fs, on); got != c.want || exit.Code(Err(fs, on)) != c.want {
			t.Errorf("%q with --fail-on %s: %d and %v, want %d", c.levels, c.failOn, got, Err(fs, on), c.want)
		}
	}
	if Status([]Finding{{Level: New}}, FailOn{}) != 0 || Status([]Finding{{Level: Stop}}, FailOn{}) != 3 {
		t.Error("the zero FailOn is not STOP")
	}
	for _, bad := range []string{"", "?", "ok", "all"} {
		if _, err := ParseFailOn(bad); exit.Code(err) != exit.Usage {
			t.Errorf("--fail-on %q: %v", bad, err)
		}
	}
}

func sample() []Finding {
	long := strings.Repeat("n", 300)
	return []Finding{
		{Code: "HF401", Level: Warn, Object: "node2", Text: "same"},
		{Code: "HF401", Level: Warn, Object: "node1", Text: "same"},
		{Code: "HF002", Level: Unknown, Object: "node3", Text: "down"},
		{Code: "HF002", Level: Unknown, Object: "node4", Text: "down"},
		{Code: "HF101", Level: Stop, Object: "node1", Text: "the target refuses --api-servers \x1b[31m ü " + long, Remedy: strings.Repeat("take it out of the unit, ", 9)},
		{Code: "HF101", Level: Stop, Object: long, Text: "the target refuses --api-servers"},
	}
}

func TestWrite(t *testing.T) {
	for format, width := range map[Format]int{Table: 80, Wide: 160} {
		var b bytes.Buffer
		if err := Write(&b, sample(), FailOn{}, format, "4 nodes"); err != nil {
			t.Fatal(err)
		}
		widest := 0
		for l := range strings.SplitSeq(b.String(), "\n") {
			widest = max(widest, len(l))
		}
		if widest > width || widest < width-10 {
			t.Errorf("%s is %d wide:\n%s", format, widest, &b)
		}
		if strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
			t.Errorf("%s has more than ASCII:\n%s", format, &b)
		}
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if last := lines[len(lines)-1]; last != "4 nodes: 2 STOP, 2 warn, 2 ?" {
			t.Errorf("the last line of %s is %q", format, last)
		}
		if strings.Count(b.String(), "down") != 2 || strings.Count(b.String(), "same") != 1 || !strings.Contains(b.String(), "node1 and 1 more") {
			t.Errorf("%s is grouped wrongly:\n%s", format, &b)
		}
		if strings.Index(b.String(), "HF101") > strings.Index(b.String(), "HF401") || strings.Index(b.String(), "HF401") > strings.Index(b.String(), "HF002") {
			t.Errorf("%s is not in order:\n%s", format, &b)
		}
	}
	var b bytes.Buffer
	if err := Write(&b, sample(), FailOn{}, JSON, ""); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 7 {
		t.Fatalf("JSON has %d lines:\n%s", len(lines), &b)
	}
	for i, l := range lines {
		var v map[string]any
		if err := json.Unmarshal([]byte(l), &v); err != nil || v["version"] != 1.0 {
			t.Errorf("line %d: %v: %s", i, err, l)
		}
		if kind := v["kind"]; i < 6 && kind != "finding" || i == 6 && (kind != "sum" || v["status"] != 3.0) {
			t.Errorf("line %d: %s", i, l)
		}
	}
	b.Reset()
	if err := Write(&b, nil, FailOn{}, Table, "1 node"); err != nil || b.String() != "1 node: nothing found\n" {
		t.Errorf("without findings: %q %v", &b, err)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	err := WriteTable(&b, Table, []string{"A", "B", "C"}, [][]string{{"one", "two", strings.Repeat("three ", 30)}, {"x", strings.Repeat("y", 70)}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(b.String(), "A    B                     C\none  two                   three three") {
		t.Errorf("\n%s", &b)
	}
	for l := range strings.SplitSeq(b.String(), "\n") {
		if len(l) > 80 || strings.HasSuffix(l, " ") {
			t.Errorf("%d wide, or ends with a space: %q", len(l), l)
		}
	}
}

// A kubelet's line is shown whole, so that it can be copied, and a much longer text is cut.
func TestLongText(t *testing.T) {
	line := strings.Repeat("--flag=value ", 170) + "--last"
	if got := strings.Join(wrap(line, 80), " "); got != line {
		t.Errorf("%d of %d bytes are shown: ...%s", len(got), len(line), got[len(got)-20:])
	}
	if got := Clean(strings.Repeat("x", 1<<20)); len(got) != maxText || !strings.HasSuffix(got, "...") {
		t.Errorf("%d bytes of 1 MiB are shown", len(got))
	}
}
