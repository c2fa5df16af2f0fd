// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"hash/maphash"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// maxSize is what a committed file may have, in bytes. The largest are golden
// values recorded from upstream's binaries.
const maxSize = 256 << 10

// strayFiles finds what is generated or does not belong into a repository.
func strayFiles(r *repo) []string {
	var bad []string
	for _, p := range r.paths(func(string) bool { return true }) {
		c := r.files[p]
		for _, dir := range strings.Split(path.Dir(p), "/") {
			if dir == "vendor" || dir == "_output" || dir == "node_modules" {
				bad = append(bad, fmt.Sprintf("%s is generated: folders named %s are not committed", p, dir))
			}
		}
		if len(c) > maxSize {
			bad = append(bad, fmt.Sprintf("%s has %d bytes, %d is the limit", p, len(c), maxSize))
		}
		if bytes.IndexByte(c, 0) >= 0 {
			bad = append(bad, p+" is not text: binaries are built or downloaded, never committed")
		}
	}
	return bad
}

// copies finds files of ours that are, or nearly are, files of upstream's.
type copies struct {
	seed   maphash.Seed
	whole  map[uint64]string   // hash of a file without white space -> our file
	lines  map[uint64][]string // hash of a line -> our files that have it
	count  map[string]int      // our file -> its lines that count
	seen   int                 // upstream's files looked at
	faults []string
}

// The Apache licence is everybody's.
var sameAsUpstreams = []string{"LICENSE"}

// Lines shorter than this are too common to say anything ("return err").
const lineCounts = 25

// A file nearly is another one when so many of its lines, and this share of
// them, are the other's. A thin file that implements one of upstream's
// interfaces shares its signatures.
const (
	nearLines = 12
	nearShare = 0.7
)

func newCopies(r *repo) *copies {
	c := &copies{seed: maphash.MakeSeed(), whole: map[uint64]string{}, lines: map[uint64][]string{}, count: map[string]int{}}
	for _, p := range r.paths(func(p string) bool { return !slices.Contains(sameAsUpstreams, p) }) {
		if h, n := c.wholeHash(r.files[p]); n > 200 {
			c.whole[h] = p
		}
		for h := range c.lineHashes(r.files[p]) {
			c.lines[h] = append(c.lines[h], p)
			c.count[p]++
		}
	}
	return c
}

func (c *copies) wholeHash(content []byte) (uint64, int) {
	var h maphash.Hash
	h.SetSeed(c.seed)
	n := 0
	for _, f := range bytes.Fields(content) {
		_, _ = h.Write(f)
		n += len(f)
	}
	return h.Sum64(), n
}

// lineHashes are the lines that say something.
func (c *copies) lineHashes(content []byte) map[uint64]bool {
	out := map[uint64]bool{}
	for l := range bytes.Lines(content) {
		if l = bytes.TrimSpace(l); len(l) >= lineCounts {
			out[maphash.Bytes(c.seed, l)] = true
		}
	}
	return out
}

// compare looks at every file below dir, which is upstream's release.
func (c *copies) compare(dir, release string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		c.one(release+"/"+filepath.ToSlash(rel), content)
		return err
	})
}

func (c *copies) one(name string, content []byte) {
	c.seen++
	h, _ := c.wholeHash(content)
	if ours := c.whole[h]; ours != "" {
		c.faults = append(c.faults, fmt.Sprintf("%s is upstream's %s: upstream's files are a dependency, never committed", ours, name))
		return
	}
	if len(content) > 1<<20 {
		return // generated tables, and time
	}
	same := map[string]int{}
	for h := range c.lineHashes(content) {
		for _, ours := range c.lines[h] {
			same[ours]++
		}
	}
	for ours, n := range same {
		if n >= nearLines && float64(n) >= nearShare*float64(c.count[ours]) {
			c.faults = append(c.faults, fmt.Sprintf("%s nearly is upstream's %s: %d of its %d lines are the same", ours, name, n, c.count[ours]))
		}
	}
}

// gatesOf are the feature gates that files of ours register, with their
// defaults: the entries of a map whose keys are constants of a package
// "features" and whose values are a bool or have a field Default.
func gatesOf(r *repo, files []string) map[string]bool {
	gates := map[string]bool{}
	for _, p := range files {
		if !strings.Contains(p, "/features/") || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, r.files[p], 0)
		if err != nil {
			continue // goFaults says so
		}
		names := map[string]string{} // constant -> its string
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) {
						if lit, ok := n.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
							names[name.Name], _ = strconv.Unquote(lit.Value)
						}
					}
				}
			case *ast.KeyValueExpr:
				key, ok := n.Key.(*ast.Ident)
				if !ok || names[key.Name] == "" {
					return true
				}
				if on, ok := isBool(n.Value); ok {
					gates[names[key.Name]] = on
				} else if lit, ok := n.Value.(*ast.CompositeLit); ok {
					for _, e := range lit.Elts {
						kv, ok := e.(*ast.KeyValueExpr)
						if k, isIdent := kv.Key.(*ast.Ident); ok && isIdent && k.Name == "Default" {
							gates[names[key.Name]], _ = isBool(kv.Value)
						}
					}
				}
			}
			return true
		})
	}
	return gates
}

func isBool(e ast.Expr) (value, ok bool) {
	id, isIdent := e.(*ast.Ident)
	if !isIdent || id.Name != "true" && id.Name != "false" {
		return false, false
	}
	return id.Name == "true", true
}

// says reports whether one paragraph of a page has both texts.
func says(page, a, b string) bool {
	for _, par := range strings.Split(page, "\n\n") {
		par = strings.Join(strings.Fields(par), " ")
		if strings.Contains(par, a) && strings.Contains(par, b) {
			return true
		}
	}
	return false
}

var (
	linkRE    = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)`)
	refRE     = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s+(\S+)`)
	headingRE = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *#*$`)
	fenceRE   = regexp.MustCompile("(?ms)^ *```.*?^ *```[^\n]*$")
	codeRE    = regexp.MustCompile("`[^`\n]*`")
	schemeRE  = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
)

// deadLinks finds the relative links of the pages that lead nowhere.
func deadLinks(r *repo) []string {
	var bad []string
	isDir := map[string]bool{".": true}
	for p := range r.files {
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			isDir[d] = true
		}
	}
	for _, p := range r.paths(func(p string) bool { return strings.HasSuffix(p, ".md") }) {
		text := codeRE.ReplaceAllString(fenceRE.ReplaceAllString(string(r.files[p]), ""), "")
		for _, m := range append(linkRE.FindAllStringSubmatch(text, -1), refRE.FindAllStringSubmatch(text, -1)...) {
			link := m[1]
			if schemeRE.MatchString(link) {
				continue
			}
			file, anchor, hasAnchor := strings.Cut(link, "#")
			target := p
			if file != "" {
				target = path.Join(path.Dir(p), file)
			}
			content, ok := r.files[target]
			switch {
			case !ok && !isDir[target]:
				bad = append(bad, fmt.Sprintf("%s: the link %s leads nowhere", p, link))
			case hasAnchor && (!ok || !slices.Contains(anchors(string(content)), anchor)):
				bad = append(bad, fmt.Sprintf("%s: the link %s: %s has no such heading", p, link, target))
			}
		}
	}
	return bad
}

// anchors are a page's headings as links to them are written.
func anchors(page string) []string {
	var out []string
	times := map[string]int{}
	for _, m := range headingRE.FindAllStringSubmatch(fenceRE.ReplaceAllString(page, ""), -1) {
		text := linkTextRE.ReplaceAllString(m[1], "$1")
		a := strings.Map(func(c rune) rune {
			switch {
			case c == ' ':
				return '-'
			case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
				return unicode.ToLower(c)
			}
			return -1
		}, text)
		if n := times[a]; n > 0 {
			out = append(out, fmt.Sprintf("%s-%d", a, n))
		} else {
			out = append(out, a)
		}
		times[a]++
	}
	return out
}

var linkTextRE = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

var shebangRE = regexp.MustCompile(`^#! *\S*(/|env +)(ba|da|k|z)?sh\b`)

func isScript(p string, content []byte) bool {
	return shebangRE.Match(content) || strings.HasSuffix(p, ".sh") || strings.HasSuffix(p, ".bash")
}

// scriptFaults: bash, and set -euo pipefail before anything is done.
func scriptFaults(p string, content []byte) []string {
	if !bytes.HasPrefix(content, []byte("#!/usr/bin/env bash\n")) && !bytes.HasPrefix(content, []byte("#!/bin/bash\n")) {
		return []string{p + " does not begin with #!/usr/bin/env bash"}
	}
	for _, l := range strings.Split(string(content), "\n") {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		if l != "set -euo pipefail" {
			return []string{fmt.Sprintf("%s: its first command is %q and not set -euo pipefail", p, l)}
		}
		return nil
	}
	return []string{p + " does nothing"}
}

const goHeader = "// Copyright The Holdfast Authors.\n// SPDX-License-Identifier: Apache-2.0\n"

// goFaults: our licence header and gofmt's form.
func goFaults(r *repo) []string {
	var bad []string
	for _, p := range r.paths(func(p string) bool { return strings.HasSuffix(p, ".go") }) {
		c := r.files[p]
		head := c
		if bytes.HasPrefix(c, []byte("//go:build ")) {
			_, head, _ = bytes.Cut(c, []byte("\n\n"))
		}
		if !bytes.HasPrefix(head, []byte(goHeader)) {
			bad = append(bad, p+" does not begin with our licence header")
		}
		formatted, err := format.Source(c)
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", p, err))
		} else if !bytes.Equal(formatted, c) {
			bad = append(bad, p+" is not as gofmt writes it")
		}
	}
	return bad
}

// Words are put together here, so that this file does not hold them itself.
var forbidden = []struct {
	re   *regexp.Regexp
	says string
}{
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`), "an open end: do it, or describe it as a limit"},
	{regexp.MustCompile(`(?m)(^|[\s"'=:(` + "`" + `])/(ro` + `ot|wo` + `rk|ho` + `me/[a-z]+)(/|\b)`), "a path of somebody's machine"},
	{regexp.MustCompile(`\b(pro` + `xy|su` + `m)\.gol` + `ang\.org|regis` + `try\.npm` + `js\.org|\bpy` + `pi\.org|files\.python` + `hosted\.org|cra` + `tes\.io`), "a registry's host name: the user's settings say where modules come from"},
}

// textFaults looks for open ends, paths of a developer's machine and names of
// registries. What a patch takes away or leaves as it is, is upstream's text.
func textFaults(r *repo) []string {
	var bad []string
	for _, p := range r.paths(func(string) bool { return true }) {
		c := r.files[p]
		for _, f := range forbidden {
			for _, at := range f.re.FindAllIndex(c, -1) {
				if at[0] > 0 && c[at[0]-1] == '.' {
					continue // a name of package context
				}
				start := bytes.LastIndexByte(c[:at[1]-1], '\n') + 1
				if strings.HasSuffix(p, ".patch") && (c[start] == ' ' || c[start] == '-') {
					continue
				}
				bad = append(bad, fmt.Sprintf("%s:%d: %q is %s", p, bytes.Count(c[:start], []byte("\n"))+1, strings.TrimSpace(string(c[at[0]:at[1]])), f.says))
			}
		}
		// Recorded data is as the recorded program wrote it.
		if !strings.HasSuffix(p, ".json") && len(c) > 0 && c[len(c)-1] != '\n' {
			bad = append(bad, p+" does not end with a newline")
		}
	}
	return bad
}

var (
	targetRE   = regexp.MustCompile(`(?m)^([a-zA-Z][a-zA-Z0-9_-]*):([^=\n].*)?$`)
	makeCallRE = regexp.MustCompile("[`$(]\\s*(?:sudo )?make (?:[A-Z]+=[^\\s`]+ )*([a-z][a-z-]*)")
)

var (
	testCallRE = regexp.MustCompile(`-(?:run|bench|fuzz)[= ]'?([\w/.^$|]+)`)
	testFuncRE = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
)

// goneTests finds pages that tell to run a test, benchmark or fuzz target of ours
// that is not there.
func goneTests(r *repo) []string {
	var names []string
	for _, p := range r.paths(func(p string) bool { return strings.HasSuffix(p, "_test.go") }) {
		for _, m := range testFuncRE.FindAllStringSubmatch(string(r.files[p]), -1) {
			names = append(names, m[1])
		}
	}
	var bad []string
	for _, p := range r.paths(func(p string) bool { return strings.HasSuffix(p, ".md") }) {
		for _, m := range testCallRE.FindAllStringSubmatch(string(r.files[p]), -1) {
			pattern, _, _ := strings.Cut(strings.Trim(m[1], "."), "/")
			re, err := regexp.Compile(pattern)
			// "xxx" is how a benchmark says that no test is to run.
			if err == nil && pattern != "xxx" && !slices.ContainsFunc(names, re.MatchString) {
				bad = append(bad, fmt.Sprintf("%s tells to run %s, and no test of ours matches that", p, m[1]))
			}
		}
	}
	return bad
}

// makefileTargets are the targets, and which of them have a help text.
func makefileTargets(makefile string) (all []string, help map[string]bool) {
	help = map[string]bool{}
	for _, m := range targetRE.FindAllStringSubmatch(makefile, -1) {
		all = append(all, m[1])
		help[m[1]] = regexp.MustCompile(`## \S`).MatchString(m[2])
	}
	return all, help
}

// makefileFaults: every target has a help text, is phony, and every phony
// target is there.
func makefileFaults(makefile string) []string {
	var bad []string
	all, help := makefileTargets(makefile)
	phony := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\.PHONY:(.*)$`).FindAllStringSubmatch(strings.ReplaceAll(makefile, "\\\n", " "), -1) {
		for _, t := range strings.Fields(m[1]) {
			phony[t] = true
			if !slices.Contains(all, t) {
				bad = append(bad, fmt.Sprintf("Makefile: .PHONY names %s, which is no target", t))
			}
		}
	}
	for _, t := range all {
		if !help[t] {
			bad = append(bad, fmt.Sprintf("Makefile: target %s has no help text (## …)", t))
		}
		if !phony[t] {
			bad = append(bad, fmt.Sprintf("Makefile: target %s is not in .PHONY", t))
		}
	}
	return bad
}

// direction says what a program of tools/ must not link.
type direction struct {
	of   string
	not  []string // import paths, and what lies below them
	says string
}

var directions = []direction{
	{"./cmd/holdfast", []string{"holdfast/tools/labkit", "holdfast/tools/labs", "k8s.io", "sigs.k8s.io"}, "the build tool links neither labs nor Kubernetes"},
	{"./labs/...", []string{kit + "/run"}, "a lab does not know who runs it"},
}

// floors are the folders of tools/, the lowest first: a package imports those of its own floor and
// of those below. What is in cmd/ is above all.
var floors = []string{"build", "labkit", "labs", "record", "verify", "cmd"}

// floorFaults finds imports that run up. imports are by import path, of each package of tools/.
func floorFaults(imports map[string][]string) []string {
	var bad []string
	floor := func(pkg string) int {
		rest, ours := strings.CutPrefix(pkg, "holdfast/tools/")
		if !ours {
			return -1
		}
		dir, _, _ := strings.Cut(rest, "/")
		return slices.Index(floors, dir)
	}
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		if floor(pkg) < 0 {
			bad = append(bad, fmt.Sprintf("tools: %s is on no floor: they are %s", pkg, strings.Join(floors, ", ")))
		}
		for _, p := range imports[pkg] {
			if floor(p) > floor(pkg) {
				bad = append(bad, fmt.Sprintf("tools: %s imports %s, which is on a floor above it", pkg, p))
			}
		}
	}
	return bad
}

const kit = "holdfast/tools/labkit"

// kitLayers are the packages of the kit, by their path below tools/: one may import
// those that stand before it.
var kitLayers = []string{"labkit/wait", "labkit/metrics", "labkit/history", "labkit/journal", "labkit/process", "labkit/sweep", "labkit/machine", "labkit/registry", "labkit/vmagent", "labkit/kube", "labkit/node",
	"labkit/load", "labkit", "labkit/judgetest", "labkit/run"}

// layerFaults finds imports of a package of the kit by one that stands before it in
// layers, and packages that are in layers or in imports only. imports are by import
// path, of each package of the kit.
func layerFaults(layers []string, imports map[string][]string) []string {
	var bad []string
	layer := func(pkg string) int { return slices.Index(layers, strings.TrimPrefix(pkg, "holdfast/tools/")) }
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		if layer(pkg) < 0 {
			bad = append(bad, fmt.Sprintf("tools: %s has no place in kitLayers", pkg))
		}
		for _, p := range imports[pkg] {
			if (p == kit || strings.HasPrefix(p, kit+"/")) && layer(p) >= layer(pkg) {
				bad = append(bad, fmt.Sprintf("tools: %s imports %s, which is above it", pkg, p))
			}
		}
	}
	for _, l := range layers {
		if _, ok := imports["holdfast/tools/"+l]; !ok {
			bad = append(bad, fmt.Sprintf("tools: kitLayers has %s, which is no package", l))
		}
	}
	return bad
}

// directionFaults finds in what a program links what it must not.
func directionFaults(d direction, links []string) []string {
	var bad []string
	for _, p := range links {
		for _, n := range d.not {
			if p == n || strings.HasPrefix(p, n+"/") {
				bad = append(bad, fmt.Sprintf("tools: %s links %s: %s", d.of, p, d.says))
			}
		}
	}
	return bad
}
