// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"holdfast/tools/build/exit"
)

// fromTo is a patch that turns one content of a file into another.
func fromTo(t *testing.T, name, old, new string) *Patch {
	t.Helper()
	raw, err := parse(t, head+diffText).Render([]Change{{Path: "a.txt", Old: []byte(old), New: []byte(new)}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse(name, raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// laid is content with the patches laid on it.
func laid(series []*Patch, content string) (string, error) {
	for _, p := range series {
		err := p.Apply(func(string) ([]byte, error) { return []byte(content), nil },
			func(_ string, c []byte) error { content = string(c); return nil })
		if err != nil {
			return "", err
		}
	}
	return content, nil
}

func only(names ...string) func(*Patch) bool {
	return func(p *Patch) bool {
		for _, n := range names {
			if p.File == n {
				return true
			}
		}
		return false
	}
}

// TestWithout: edits of lines that do not touch, spread over patches at random,
// leave the same file when some patches are taken out as when those edits were
// never made. The lines between are often equal, so that the context alone would
// not show a wrong place.
func TestWithout(t *testing.T) {
	done := 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		const lines, patches = 60, 6
		texts := make([]string, lines)
		for i := range texts {
			texts[i] = fmt.Sprintf("%d\n", r.IntN(3))
		}
		edits := make([]string, lines) // what a line becomes
		by := make([]int, lines)
		for i := range edits {
			by[i], edits[i] = -1, texts[i]
			if i%3 == 1 {
				// Unlike all others, else git may find the change one line further.
				by[i], texts[i] = r.IntN(patches), fmt.Sprintf("line %d\n", i)
				edits[i] = []string{"", "x\n", "y\ny\n", texts[i] + "x\ny\n", "y\n" + texts[i]}[r.IntN(5)]
			}
		}
		state := func(have func(patch int) bool) string {
			var b strings.Builder
			for i := range texts {
				if by[i] >= 0 && have(by[i]) {
					b.WriteString(edits[i])
				} else {
					b.WriteString(texts[i])
				}
			}
			return b.String()
		}
		var series []*Patch
		for n := range patches {
			old, new := state(func(p int) bool { return p < n }), state(func(p int) bool { return p <= n })
			if old != new {
				series = append(series, fromTo(t, fmt.Sprint(n), old, new))
			}
		}
		gone := map[string]bool{fmt.Sprint(r.IntN(patches)): true, fmt.Sprint(r.IntN(patches)): true}
		without, err := Without(series, func(p *Patch) bool { return gone[p.File] })
		if err != nil {
			// git puts two changes that are two lines apart into one hunk.
			if !strings.Contains(err.Error(), "stands on lines that") {
				t.Fatal(err)
			}
			continue
		}
		got, err := laid(without, state(func(int) bool { return false }))
		want := state(func(p int) bool { return !gone[fmt.Sprint(p)] })
		if err != nil || got != want {
			t.Fatalf("seed %d without %v: %v\n%s\nwant\n%s", seed, gone, err, got, want)
		}
		done++
	}
	if done < 20 {
		t.Errorf("only %d series could be shortened", done)
	}
}

func TestWithoutCases(t *testing.T) {
	const base = "a\nb\nc\nd\ne\nf\ng\n"
	one := fromTo(t, "one", base, "a\nb\nB\nc\nd\ne\nf\ng\n")
	two := fromTo(t, "two", "a\nb\nB\nc\nd\ne\nf\ng\n", "a\nb\nB\nB2\nc\nd\ne\nf\ng\n") // on one's line
	three := fromTo(t, "three", "a\nb\nB\nB2\nc\nd\ne\nf\ng\n", "a\nb\nB\nB2\nc\nd\ne\nF\ng\n")
	all := []*Patch{one, two, three}
	for _, tc := range []struct {
		gone []string
		want string // the file, or what the error says
	}{
		{nil, "a\nb\nB\nB2\nc\nd\ne\nF\ng\n"},
		{[]string{"three"}, "a\nb\nB\nB2\nc\nd\ne\nf\ng\n"},
		{[]string{"two"}, "a\nb\nB\nc\nd\ne\nF\ng\n"},
		{[]string{"one", "two"}, "a\nb\nc\nd\ne\nF\ng\n"},
		{[]string{"one"}, "two: a.txt hunk 1 touches lines that one changes"},
		{[]string{"one", "two", "three"}, base},
	} {
		series, err := Without(all, only(tc.gone...))
		if err != nil {
			if exit.Code(err) != 1 || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("without %q: %v, want %q", tc.gone, err, tc.want)
			}
			continue
		}
		if got, err := laid(series, base); err != nil || got != tc.want {
			t.Errorf("without %q: %q, %v, want %q", tc.gone, got, err, tc.want)
		}
	}
	// A line that is taken away comes back.
	less := fromTo(t, "less", base, "a\nc\nd\ne\nf\ng\n")
	more := fromTo(t, "more", "a\nc\nd\ne\nf\ng\n", "a\nc\nd\nD\ne\nf\ng\n")
	series, err := Without([]*Patch{less, more}, only("less"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := laid(series, base); err != nil || got != "a\nb\nc\nd\nD\ne\nf\ng\n" {
		t.Errorf("%q, %v", got, err)
	}
	// The patches themselves stay as they are, and the file is still compared.
	if !bytes.Contains(more.Raw, []byte("@@ -3,2 +3,3 @@")) || more.Diffs[0].TextFragments[0].OldPosition != 3 {
		t.Error("Without changed a patch")
	}
	if _, err := laid(series, "a\nb\nc\nX\ne\nf\ng\n"); err == nil {
		t.Error("a hunk was laid on another line than its own")
	}
}
