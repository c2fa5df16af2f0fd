// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func piecesOf(t *testing.T, r *Release, manifest, container string) [][]byte {
	t.Helper()
	template, err := WithMark(readTemplate(t, manifest), container)
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := r.Pieces(template)
	if err != nil {
		t.Fatal(err)
	}
	return pieces
}

// TestCollideAgainstHashes compares with the hashes of the whole dumps, for
// tags of several lengths, in one place and in two.
func TestCollideAgainstHashes(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for _, r := range Releases {
		pieces := piecesOf(t, r, "web.json", "")
		for _, pieces := range [][][]byte{pieces, {pieces[0], []byte("some text between"), pieces[1]}} {
			tags := make([]string, 3000)
			for i := range tags {
				tags[i] = fmt.Sprintf("v%d.%d", rnd.Intn(2000), rnd.Intn(3000))
			}
			want := group(len(tags), func(i int) uint64 { return uint64(r.SumTag(pieces, tags[i], -1)) })
			got := r.Collide(pieces, tags)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %d pieces: %d groups, hashes give %d", r.Name, len(pieces), len(got), len(want))
			}
			if r.Algorithm == "adler32" && Pairs(got) < 10 {
				t.Errorf("%s: only %d pairs, so the comparison shows little", r.Name, Pairs(got))
			}
			// A count is one more suffix.
			for i, g := range got {
				if i == 5 {
					break
				}
				if a, b := r.SumTag(pieces, tags[g[0]], 7), r.SumTag(pieces, tags[g[1]], 7); a != b {
					t.Errorf("%s: %s and %s do not collide with a count", r.Name, tags[g[0]], tags[g[1]])
				}
			}
		}
	}
}

// TestCollidePair holds the pair that the labs and the unit tests of the
// controllers use.
func TestCollidePair(t *testing.T) {
	r, _ := Find("1.9")
	tags, err := Expand("v1.{0..399}.{0..999}")
	if err != nil {
		t.Fatal(err)
	}
	pieces := piecesOf(t, r, "web.json", "web")
	found := false
	for _, g := range r.Collide(pieces, tags) {
		if tags[g[0]] == "v1.34.509" && tags[g[1]] == "v1.342.42" {
			found = true
			if h := r.SumTag(pieces, tags[g[0]], -1); h != 2552054345 {
				t.Errorf("hash %d", h)
			}
		}
	}
	if !found {
		t.Error("v1.34.509 and v1.342.42 were not found")
	}
}

// TestCollideReport finds the pair of the original report under adler32, and not
// under fnv32a.
func TestCollideReport(t *testing.T) {
	tags := []string{"201703151133", "201703211640"}
	for _, r := range Releases {
		want := 0
		if r.Algorithm == "adler32" {
			want = 1
		}
		if got := len(r.Collide(piecesOf(t, r, "report-old.json", ""), tags)); got != want {
			t.Errorf("%s: %d groups, want %d", r.Name, got, want)
		}
	}
}

// TestCollideAdlerAnywhere: tags of equal length collide under adler32 or not
// whatever stands around them, so that the table of types does not matter.
func TestCollideAdlerAnywhere(t *testing.T) {
	tags, _ := Expand("2017{01..12}{01..28}{09..17}{00..09}")
	var groups []Group
	for _, r := range Releases {
		if r.Algorithm != "adler32" {
			continue
		}
		for i, pieces := range [][][]byte{{[]byte("x"), []byte("y")}, {[]byte(strings.Repeat("abc", 999)), nil}, piecesOf(t, r, "rich.json", "side")} {
			got := r.Collide(pieces, tags)
			if groups == nil {
				groups = got
			}
			if len(got) == 0 || !reflect.DeepEqual(got, groups) {
				t.Errorf("%s, surroundings %d: %d groups, want %d", r.Name, i, len(got), len(groups))
			}
		}
	}
}

// A million tags must take less than 10 s for all releases together. What is
// measured is processor time: the machine may be busy with other tests.
func TestCollideMillion(t *testing.T) {
	tags, err := Expand("v1.{0..999}.{0..999}")
	if err != nil || len(tags) != 1_000_000 {
		t.Fatal(len(tags), err)
	}
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began := used()
	for _, r := range Releases {
		r.Collide(piecesOf(t, r, "rich.json", ""), tags)
	}
	if took := used() - began; took > 10*time.Second {
		t.Errorf("took %v", took)
	} else {
		t.Logf("%d releases, %d tags: %v", len(Releases), len(tags), took)
	}
}

func TestExpand(t *testing.T) {
	for pattern, want := range map[string]string{
		"latest":               "latest",
		"v{1..3}":              "v1 v2 v3",
		"{08..10}{a,b}":        "08a 08b 09a 09b 10a 10b",
		"x{0..1}.{0..1}y":      "x0.0y x0.1y x1.0y x1.1y",
		"{9..10}{0..1}":        "90 91 100 101",
		"{1..2}{8..12}":        "18 19 110 111 112 28 29 210 211 212",
		"{1,11}{1,11}":         "11 111 1111",
		"{a,b,a}":              "a b",
		"{1,11}x{1..2}":        "1x1 1x2 11x1 11x2",
		"{1..11}1{1..2}":       "111 112 211 212 311 312 411 412 511 512 611 612 711 712 811 812 911 912 1011 1012 1111 1112",
		"{1":                   "not closed",
		"{3..1}":               "ascend",
		"{a..b}":               "ascend",
		"{0..99999}{0..99999}": "more than",
		"{0..9999999999}":      "more than",
	} {
		tags, err := Expand(pattern)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", pattern, err, want)
			}
		} else if got := strings.Join(tags, " "); got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
}

func TestWithMarkErrors(t *testing.T) {
	for in, want := range map[string]string{
		`{"spec":{"containers":[{"name":"a","image":"x@sha256:00"}]}}`: "named by digest",
		`{"spec":{"containers":[{"name":"a"}]}}`:                       "spec.containers[0].image: missing",
		`{"spec":{"containers":[{"name":"b","image":"x"}]}}`:           `no container "a"; there are: b`,
	} {
		template, err := templateOf([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := WithMark(template, "a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	template, _ := templateOf([]byte(`{"spec":{"containers":[{"name":"a","image":"host:5000/x"}]}}`))
	marked, err := WithMark(template, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := marked["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"]; got != "host:5000/x:"+mark {
		t.Errorf("a port is not a tag: %q", got)
	}
}
