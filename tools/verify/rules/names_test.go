// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdfast/tools/build/fixes"
)

var metricRE = regexp.MustCompile(`\bName:\s+"([a-zA-Z0-9_:]+)"`)

// metricFaults: a metric that a fix's overlay registers is named holdfast_<fix>_….
func (h *fixRepo) metricFaults() []string {
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(h.bases)) {
		files := h.overlayFiles(name)
		for _, tree := range slices.Sorted(maps.Keys(files)) {
			s, content := h.table.OfFile(name, tree), string(h.files[files[tree]])
			if s == nil || !strings.HasSuffix(tree, ".go") || strings.HasSuffix(tree, "_test.go") || !strings.Contains(content, "prometheus.") {
				continue
			}
			want := "holdfast_" + strings.ReplaceAll(s.Name, "-", "_") + "_"
			for _, m := range metricRE.FindAllStringSubmatch(content, -1) {
				if !strings.HasPrefix(m[1], want) {
					bad = append(bad, fmt.Sprintf("%s registers the metric %s of the fix %s: name it %s… (patches/README.md)", files[tree], m[1], s.Name, want))
				}
			}
		}
	}
	return slices.Compact(bad)
}

const (
	policy        = "patches/README.md"
	ladderHeading = "## Where a change goes\n"
)

var (
	exampleRE = regexp.MustCompile("`([^`]+)`")
)

// ladderFaults: each step of the ladder in patches/README.md has an example that
// is there: a file or folder of the overlay, or a fix's folder. Examples in one row
// are of one fix.
func (h *fixRepo) ladderFaults() []string {
	_, rest, ok := strings.Cut(string(h.files[policy]), ladderHeading)
	if !ok {
		return []string{fmt.Sprintf("%s has no heading %q", policy, strings.TrimSpace(ladderHeading))}
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	var bad []string
	steps := 0
	for _, row := range strings.Split(section, "\n") {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		if !strings.HasPrefix(row, "|") || len(cells) != 2 || strings.HasPrefix(row, "|---") || strings.TrimSpace(cells[0]) == "step" {
			continue
		}
		steps++
		of := ""
		for _, m := range exampleRE.FindAllStringSubmatch(cells[1], -1) {
			s := h.fixOfExample(m[1])
			switch {
			case s == nil:
				bad = append(bad, fmt.Sprintf("%s: the example %s is neither the folder of a fix nor a file or folder of an overlay", policy, m[1]))
			case of != "" && of != s.Name:
				bad = append(bad, fmt.Sprintf("%s: the example %s is of the fix %s, the one before it of %s", policy, m[1], s.Name, of))
			default:
				of = s.Name
			}
		}
		if !strings.Contains(cells[1], "`") {
			bad = append(bad, fmt.Sprintf("%s: the step %q has no example", policy, strings.TrimSpace(cells[0])))
		}
	}
	if steps < 4 {
		bad = append(bad, fmt.Sprintf("%s: the ladder has %d steps: package, file, hook, fix", policy, steps))
	}
	return bad
}

// fixOfExample is the fix of a folder patches/FIX, or of a path in the overlay of a base; nil for
// none.
func (h *fixRepo) fixOfExample(example string) *fixes.Fix {
	if name, ok := strings.CutPrefix(example, fixes.Dir+"/"); ok {
		return h.table.Find(name)
	}
	for _, name := range slices.Sorted(maps.Keys(h.bases)) {
		for tree := range h.overlayFiles(name) {
			if tree == example || strings.HasPrefix(tree, strings.TrimSuffix(example, "/")+"/") {
				if s := h.table.OfFile(name, tree); s != nil {
					return s
				}
			}
		}
	}
	return nil
}

// ladder is a policy with a row for each text.
func ladder(examples ...string) []byte {
	var b strings.Builder
	b.WriteString("# x\n\n" + ladderHeading + "\n| step | example |\n|---|---|\n")
	for _, e := range examples {
		fmt.Fprintf(&b, "| a step | %s |\n", e)
	}
	return []byte(b.String() + "\n## Rules\n\n| a | `gone` |\n")
}

func TestFindsNames(t *testing.T) {
	good := "`pkg/greet/loud`, called by `patches/much-louder`"
	for _, tc := range []struct {
		name   string
		change func(h *fixRepo)
		want   []string
	}{
		{"nothing", func(*fixRepo) {}, nil},
		{"no ladder", func(h *fixRepo) { h.files[policy] = []byte("# x\n") }, []string{"has no heading"}},
		{"short", func(h *fixRepo) { h.files[policy] = ladder(good, good) }, []string{"the ladder has 2 steps"}},
		{"patch", func(h *fixRepo) { h.files[policy] = ladder(good, good, good, "`patches/louder`") }, []string{"patches/louder is neither the folder"}},
		{"file", func(h *fixRepo) { h.files[policy] = ladder(good, good, good, "`pkg/greet/lou`") }, []string{"pkg/greet/lou is neither"}},
		{"none", func(h *fixRepo) { h.files[policy] = ladder(good, good, good, "see there") }, []string{`the step "a step" has no example`}},
		{"two fixes", func(h *fixRepo) {
			h.files["pkg/other/x.go"] = []byte("package other\n")
			h.table.Fixes = append(h.table.Fixes, formOf("other", "pkg/other/**"))
			h.files[policy] = ladder(good, good, good, "`pkg/other/x.go`, called by `patches/much-louder`")
		}, []string{"patches/much-louder is of the fix much-louder, the one before it of other"}},
		{"metric", func(h *fixRepo) {
			h.files["pkg/greet/loud/any.go"] = []byte("package loud\nvar m = prometheus.NewCounter(prometheus.CounterOpts{\nName:  \"holdfast_loud_total\"})\nvar n = prometheus.CounterOpts{Name: \"holdfast_much_louder_total\"}\n")
		}, []string{"pkg/greet/loud/any.go registers the metric holdfast_loud_total of the fix much-louder: name it holdfast_much_louder_…"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := smallRepo(t)
			h.files[policy] = ladder(good, "`pkg/greet/holdfast_much_louder.go`", "`patches/much-louder`", good)
			tc.change(h)
			found(t, append(h.metricFaults(), h.ladderFaults()...), tc.want...)
		})
	}
}
