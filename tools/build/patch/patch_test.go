// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/exit"
)

const oldFile = `package greet

// Word greets.
func Word() string {
	return "hello"
}

func two() int {
	return 2
}
`

const head = `From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Holdfast developers <developers@holdfast.invalid>
Date: Sat, 21 Nov 2026 00:00:00 +0000
Subject: [PATCH] louder: say it louder

What was wrong, and why this is the fix.

Nothing: a paragraph that looks like a trailer.

Upstream-Status: Pending
Origin: holdfast
Bug: kubernetes/kubernetes#64209, docker/docker#1
Remove-When: the base goes
---
`

const diffText = `diff --git a/pkg/greet/greet.go b/pkg/greet/greet.go
index aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb 100644
--- a/pkg/greet/greet.go
+++ b/pkg/greet/greet.go
@@ -4,3 +4,3 @@
 func Word() string {
-	return "hello"
+	return Shout("hello")
 }
@@ -8,3 +8,3 @@
 func two() int {
-	return 2
+	return 1 + 1
 }
`

const name = "patches/louder/v1.9.11/0210.patch"

func parse(t *testing.T, raw string) *Patch {
	t.Helper()
	p, err := Parse(name, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParse(t *testing.T) {
	p := parse(t, head+diffText)
	if p.Title != "louder: say it louder" || p.Name != "0210.patch" {
		t.Errorf("%q %q", p.Title, p.Name)
	}
	if got := p.Touches(); !slices.Equal(got, []string{"pkg/greet/greet.go"}) {
		t.Error(got)
	}
	if len(p.Trailers) != 4 || p.Trailer("Origin") != "holdfast" || p.Trailer("Nothing") != "" {
		t.Errorf("%+v", p.Trailers)
	}
	if bad := p.Check(); len(bad) != 0 {
		t.Error(bad)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ name, raw, says string }{
		{"empty", "", `no "diff --git" line`},
		{"no diff", head, `no "diff --git" line`},
		{"no empty line", strings.ReplaceAll(head, "\n\n", "\n") + diffText, "no empty line"},
		{"no end of the message", strings.Replace(head, "\n---\n", "\n", 1) + diffText, `no "---" line`},
		{"hunk with fewer lines than it says", head + strings.Replace(diffText, "@@ -4,3 +4,3 @@", "@@ -4,4 +4,4 @@", 1), "gitdiff"},
		{"hunk header without numbers", head + strings.Replace(diffText, "@@ -4,3 +4,3 @@", "@@ nonsense @@", 1), "gitdiff"},
		{"cut off", head + diffText[:len(diffText)-3], "gitdiff"},
	} {
		_, err := Parse(name, []byte(tc.raw))
		if err == nil || exit.Code(err) != 1 || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestCheck has one malformed patch for each rule; each is found, and nothing
// else is.
func TestCheck(t *testing.T) {
	in := func(old, new string) func(string) string {
		return func(raw string) string { return strings.Replace(raw, old, new, 1) }
	}
	trailer := func(key, value string) func(string) string {
		return func(raw string) string {
			i := strings.Index(raw, "\n"+key+": ") + 1
			j := i + strings.Index(raw[i:], "\n")
			if value == "" {
				return raw[:i] + raw[j+1:]
			}
			return raw[:i] + key + ": " + value + raw[j:]
		}
	}
	for _, tc := range []struct {
		name   string
		change func(string) string
		says   string
	}{
		{"commit", in("From 0000", "From 1234"), "two From lines"},
		{"author", in("Holdfast developers <", "A Person <"), "two From lines"},
		{"date", in("Date: Sat, 21 Nov 2026", "Date: yesterday,"), "Date"},
		{"no subject", in("Subject: [PATCH] ", "Subject: "), "no \"Subject: [PATCH] …\""},
		{"long subject", in("say it louder", strings.Repeat("louder and ", 7)), "characters long"},
		{"subject without fix", in("louder: say it louder", "Say it louder"), "a word, a colon"},
		{"subject with something else for a fix", in("louder: say it louder", "fix(louder): say it louder"), "a word, a colon"},
		{"subject without text", in("louder: say it louder", "louder: "), "a word, a colon"},
		{"no message", in("What was wrong, and why this is the fix.\n\nNothing: a paragraph that looks like a trailer.\n\n", ""), "no text before the trailers"},
		{"diffstat", in("---\ndiff", "---\n pkg/greet/greet.go | 4 ++--\n\ndiff"), "between \"---\" and the diff"},
		{"signature", func(raw string) string { return raw + "-- \n2.39.5\n" }, "signature"},
		{"function name in a hunk header", in("@@ -4,3 +4,3 @@", "@@ -4,3 +4,3 @@ package greet"), "text of the function"},
		{"short index", in(strings.Repeat("a", 40), strings.Repeat("a", 12)), "abbreviated"},
		{"leading context", in("@@ -8,3 +8,3 @@\n", "@@ -7,4 +7,4 @@\n \n"), "hunk 2 has more than one line of context"},
		{"trailing context", in("@@ -4,3 +4,3 @@\n func Word() string {\n-\treturn \"hello\"\n+\treturn Shout(\"hello\")\n }\n",
			"@@ -4,4 +4,4 @@\n func Word() string {\n-\treturn \"hello\"\n+\treturn Shout(\"hello\")\n }\n \n"), "hunk 1 has more than one line of context"},
		{"no trailers", in("Upstream-Status: Pending", "no trailer"), "last paragraph is not made of trailers"},
		{"status", trailer("Upstream-Status", "Maybe"), "Pending, Submitted, Backport"},
		{"status without its reason", trailer("Upstream-Status", "Inappropriate"), "reason in brackets"},
		{"status with an empty reason", trailer("Upstream-Status", "Inappropriate []"), "reason in brackets"},
		{"bug", trailer("Bug", "#64209"), "owner/repository#number"},
		{"one bad bug of two", trailer("Bug", "kubernetes/kubernetes#1, 2"), "owner/repository#number"},
		{"status missing", trailer("Upstream-Status", ""), "trailer Upstream-Status is missing"},
		{"origin missing", trailer("Origin", ""), "trailer Origin is missing"},
		{"bug missing", trailer("Bug", ""), "trailer Bug is missing"},
		{"remove-when missing", trailer("Remove-When", ""), "trailer Remove-When is missing"},
		{"unknown trailer", in("Origin: holdfast\n", "Origin: holdfast\nSigned-Off-By: a\n"), `"Signed-Off-By" is not one of the policy's`},
		{"order", in("Origin: holdfast\nBug: kubernetes/kubernetes#64209, docker/docker#1\n", "Bug: none\nOrigin: holdfast\n"), `"Origin" is out of order`},
		{"doubled", in("Origin: holdfast\n", "Origin: holdfast\nOrigin: me\n"), `"Origin" is out of order or doubled`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw := tc.change(head + diffText)
			if raw == head+diffText {
				t.Fatal("the case changes nothing")
			}
			p, err := Parse(name, []byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			bad := p.Check()
			if len(bad) != 1 || !strings.Contains(bad[0], tc.says) || !strings.HasPrefix(bad[0], name+": ") {
				t.Errorf("found %q, want one with %q", bad, tc.says)
			}
		})
	}
}

func TestApply(t *testing.T) {
	apply := func(raw, old string) (string, error) {
		got := "untouched"
		err := parse(t, raw).Apply(
			func(path string) ([]byte, error) {
				if path != "pkg/greet/greet.go" {
					return nil, nil
				}
				return []byte(old), nil
			},
			func(path string, content []byte) error {
				if got = string(content); content == nil {
					got = "deleted"
				}
				return nil
			})
		return got, err
	}
	want := strings.NewReplacer(`"hello"`, `Shout("hello")`, "return 2", "return 1 + 1").Replace(oldFile)
	if got, err := apply(head+diffText, oldFile); err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	deletion := "diff --git a/pkg/greet/greet.go b/pkg/greet/greet.go\ndeleted file mode 100644\nindex " + strings.Repeat("a", 40) + ".." + strings.Repeat("0", 40) +
		"\n--- a/pkg/greet/greet.go\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-package greet\n"
	if got, err := apply(head+deletion, "package greet\n"); err != nil || got != "deleted" {
		t.Errorf("deletion: %v, %s", err, got)
	}
	for _, tc := range []struct {
		name, raw, old string
		says           []string
	}{
		{"offset by a line before", diffText, "// one more\n" + oldFile, []string{"pkg/greet/greet.go:4 (hunk 1)"}},
		{"offset by a line less", diffText, strings.Replace(oldFile, "package greet\n", "", 1), []string{"pkg/greet/greet.go:4 (hunk 1)"}},
		{"offset in the second hunk only", diffText, strings.Replace(oldFile, "}\n\nfunc two", "}\n\n\nfunc two", 1), []string{"pkg/greet/greet.go:8 (hunk 2)"}},
		{"context before differs", diffText, strings.Replace(oldFile, "func Word()", "func Words()", 1), []string{"pkg/greet/greet.go:4 (hunk 1)"}},
		{"context behind differs", diffText, strings.Replace(oldFile, "2\n}\n", "2\n\n}\n", 1), []string{"pkg/greet/greet.go:10 (hunk 2)"}},
		{"line differs in a space", diffText, strings.Replace(oldFile, "\treturn 2", "    return 2", 1), []string{"pkg/greet/greet.go:9 (hunk 2)"}},
		{"already applied", diffText, want, []string{"pkg/greet/greet.go:5 (hunk 1)"}},
		{"file too short", diffText, "package greet\n", []string{"pkg/greet/greet.go"}},
		{"file empty", diffText, "", []string{"pkg/greet/greet.go"}},
		{"other file", strings.ReplaceAll(diffText, "greet.go", "gone.go"), oldFile, []string{"pkg/greet/gone.go", "does not exist"}},
		{"deletion of another content", deletion, oldFile, []string{"pkg/greet/greet.go"}},
		{"new file", "diff --git a/n.go b/n.go\nnew file mode 100644\nindex " + strings.Repeat("0", 40) + ".." + strings.Repeat("a", 40) +
			"\n--- /dev/null\n+++ b/n.go\n@@ -0,0 +1,1 @@\n+package n\n", oldFile, []string{"n.go", "overlay"}},
		{"rename", "diff --git a/pkg/greet/greet.go b/pkg/greet/word.go\nsimilarity index 100%\nrename from pkg/greet/greet.go\nrename to pkg/greet/word.go\n", oldFile,
			[]string{"pkg/greet/word.go", "renames"}},
		{"mode", "diff --git a/pkg/greet/greet.go b/pkg/greet/greet.go\nold mode 100644\nnew mode 100755\n", oldFile, []string{"pkg/greet/greet.go", "mode"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := apply(head+tc.raw, tc.old)
			if err == nil || got != "untouched" {
				t.Fatalf("applied: %q, %v", got, err)
			}
			for _, s := range append(tc.says, name) {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the error does not say %q: %v", s, err)
				}
			}
		})
	}
}

// TestRender writes a patch anew and lays it on the old file again.
func TestRender(t *testing.T) {
	p := parse(t, head+diffText)
	for _, tc := range []struct{ name, old, new string }{
		{"change", oldFile, strings.Replace(oldFile, "hello", "hey", 1)},
		{"all lines", oldFile, "package other\n"},
		{"no newline at the end", oldFile, strings.TrimSuffix(oldFile, "\n")},
		{"newline at the end added", "a\nb", "a\nb\n"},
		{"lines that look like a diff's own", "a\n@@ -1 +1 @@ x\nb\n", "a\n@@ -1 +1 @@ y\n-- \nb\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw, err := p.Render([]Change{{Path: "pkg/a.go", Old: []byte(tc.old), New: []byte(tc.new)}})
			if err != nil {
				t.Fatal(err)
			}
			q := parse(t, string(raw))
			if !strings.HasPrefix(string(raw), head) || !strings.Contains(string(raw), "\nindex "+BlobHash([]byte(tc.old))+".."+BlobHash([]byte(tc.new))+" 100644\n") {
				t.Errorf("%s", raw)
			}
			if bad := q.Check(); len(bad) != 0 {
				t.Error(bad)
			}
			var got string
			err = q.Apply(func(string) ([]byte, error) { return []byte(tc.old), nil }, func(_ string, c []byte) error { got = string(c); return nil })
			if err != nil || got != tc.new {
				t.Errorf("%v\n%q", err, got)
			}
		})
	}
	if raw, err := p.Render([]Change{{Path: "a.go", Old: []byte("x"), New: []byte("x")}}); err != nil || string(raw) != head {
		t.Errorf("no change: %v\n%s", err, raw)
	}
}

func TestBlobHash(t *testing.T) {
	// printf 'hello\n' | git hash-object --stdin
	if got := BlobHash([]byte("hello\n")); got != "ce013625030ba8dba906f756967f9e9ca394464a" {
		t.Error(got)
	}
}

func TestLoad(t *testing.T) {
	root := t.TempDir()
	for f, c := range map[string]string{"0001.patch": head + diffText, "0002.patch": "hello\n"} {
		if err := os.WriteFile(filepath.Join(root, f), []byte(c), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Load(root, []string{"0001.patch"}); err != nil || len(got) != 1 || got[0].File != "0001.patch" {
		t.Errorf("%v, %v", got, err)
	}
	for file, says := range map[string]string{"0002.patch": `0002.patch: no "diff --git"`, "0003.patch": "0003.patch"} {
		if _, err := Load(root, []string{"0001.patch", file}); exit.Code(err) != 1 || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
