// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package pictures

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/base"
	"holdfast/tools/build/outcome"
	"holdfast/tools/record/outcomes"
)

var update = flag.Bool("update", false, "write the pictures")

// TestPictures: each committed picture is what the data of the repository give, and is XML.
func TestPictures(t *testing.T) {
	_ = os.Getenv("HOLDFAST_TEST_RUN") // the record is outside of tools/: see package rules
	root, err := base.FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	record, err := outcomes.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := Write(root, record); err != nil {
			t.Fatal(err)
		}
	}
	all, err := All(root, record)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range all {
		for d := xml.NewDecoder(strings.NewReader(want)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		file := filepath.Join(root, Dir, name)
		if had, err := os.ReadFile(file); err != nil || string(had) != want {
			t.Errorf("%s is not what its data give (%v): in tools/, go test ./verify/pictures -update", file, err)
		}
	}
}

func TestBeforeAfter(t *testing.T) {
	record := &outcomes.Record{}
	put := func(v base.Variant, n float64) {
		record.Put(outcome.Outcome{Lab: counts[0].lab, Variant: v, Verdict: "x", Date: "2026-11-20",
			Numbers: []outcome.Number{{Name: "other", Value: 7}, {Name: counts[0].number, Value: n}}})
	}
	if _, err := BeforeAfter(record); err == nil || !strings.Contains(err.Error(), "no number") {
		t.Errorf("an empty record: %v", err)
	}
	put(base.Stock, 32)
	if got := pairs(record, counts); len(got) != 0 {
		t.Errorf("ours was not run: %v", got)
	}
	put(base.Ours, 0)
	if got := pairs(record, counts); len(got) != 1 || got[0].stock != 32 || got[0].ours != 0 {
		t.Errorf("%v", got)
	}
	svg, err := BeforeAfter(record)
	if err != nil || strings.Count(svg, "<circle") != 2 || !strings.Contains(svg, ">32</text>") || !strings.Contains(svg, counts[0].text) {
		t.Errorf("%v\n%s", err, svg)
	}
	put(base.Ours, 33)
	if _, err := BeforeAfter(record); err == nil || !strings.Contains(err.Error(), counts[0].lab) {
		t.Errorf("more with ours than with stock: %v", err)
	}
}

func TestRatios(t *testing.T) {
	got, err := ratios("| kubelet | Holdfast/stock | x |\n|---|---|---|\n| open files | 1.000 (0.964 to 1.005) | 27 |\n\n| quantity | ratio | x |\n|---|---|---|\n| CPU | 1.010 (0.853 to 1.126) | 27.1 s |\n")
	want := []ratio{{"kubelet", "open files", 1, 0.964, 1.005}, {"controller manager", "CPU", 1.01, 0.853, 1.126}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	if got, err := ratios("| kubelet | other |\n"); err == nil {
		t.Errorf("a page without ratios gives %v", got)
	}
}

func TestSwapTimes(t *testing.T) {
	const page = "v1 runs and is healthy, 1.7 s after the stop began\nKeep the time between stop and\nstart below 25 s. The last heartbeat can already be 10 s old. When the heartbeat is 40 s old"
	got, err := readSwapTimes(page)
	if want := (swapTimes{1.7, 25, 10, 40}); err != nil || got != want {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	for _, bad := range []string{strings.Replace(page, "below 25 s", "short", 1), strings.Replace(page, "below 25", "below 35", 1)} {
		if got, err := readSwapTimes(bad); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}
