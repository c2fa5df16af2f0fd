// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Command generate writes ../table.json and ../testdata/golden.jsonl by
// compiling and running the code of each minor release from 1.10 on: its own
// API types, and HashContainer and DeepHashObject as they are in its source. The
// releases before are in the type tables of package podtemplatehash, and their
// golden values in pkg/kubelet/container/hashcompat.
//
//	cd cmd && go run ./internal/containerhash/generate
//
// It downloads each release through the Go module proxy, about 30 MB, and keeps
// what it needs of it in _output/containerhash.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"holdfast/cmd/internal/containerhash"
	"holdfast/cmd/internal/dump"
)

//go:embed program.go.txt
var program string

// firstRun is the first minor release whose code is run here.
const firstRun = 10

// lastStaging is the last minor release whose module has the staging
// repositories in it. Later ones come from modules of their own.
const lastStaging = 14

// version is the release of a minor that is run. The modules of the staging
// repositories have versions from 1.15.12 and 1.16.15 on.
func version(minor int) string {
	switch minor {
	case 15:
		return "v1.15.12"
	case 16:
		return "v1.16.15"
	}
	return fmt.Sprintf("v1.%d.0", minor)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

type types map[string]dump.Type

func run() error {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "bases")); err != nil {
		return errors.New("run it in the folder cmd of the repository")
	}
	g := &generator{keep: filepath.Join(root, "_output", "containerhash")}
	perMinor := map[int]types{}
	for m := containerhash.First; m < firstRun; m++ {
		if perMinor[m], err = oldTypes(m); err != nil {
			return err
		}
	}
	programs := map[int]string{}
	for m := firstRun; m <= containerhash.Last; m++ {
		if programs[m], err = g.build(m); err != nil {
			return fmt.Errorf("1.%d: %w", m, err)
		}
		if perMinor[m], _, err = ask(programs[m], nil); err != nil {
			return fmt.Errorf("1.%d: %w", m, err)
		}
		fmt.Fprintf(os.Stderr, "1.%d built\n", m)
	}
	table, err := merge(perMinor)
	if err != nil {
		return err
	}
	if err := writeTable(filepath.Join("internal", "containerhash", "table.json"), table); err != nil {
		return err
	}

	rows, err := containers(filepath.Join(root, "pkg", "kubelet", "container", "hashcompat", "testdata", "golden.jsonl"), perMinor[containerhash.Last])
	if err != nil {
		return err
	}
	for m := firstRun; m <= containerhash.Last; m++ {
		_, hashes, err := ask(programs[m], rows)
		if err != nil {
			return fmt.Errorf("1.%d: %w", m, err)
		}
		for i := range rows {
			rows[i].add(m, hashes[i])
		}
	}
	return writeGolden(filepath.Join("internal", "containerhash", "testdata", "golden.jsonl"), rows)
}

// oldTypes are the types of a release before firstRun.
func oldTypes(minor int) (types, error) {
	data, err := os.ReadFile(fmt.Sprintf("internal/podtemplatehash/schema/1.%d.json", minor))
	if err != nil {
		return nil, err
	}
	var s struct{ Types types }
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	reached := types{}
	var reach func(name string)
	reach = func(name string) {
		if _, ok := reached[name]; ok || name == "" {
			return
		}
		t := s.Types[name]
		reached[name] = t
		reach(t.Elem)
		for _, f := range t.Fields {
			reach(f.Type)
		}
	}
	reach("v1.Container")
	return reached, nil
}

type generator struct{ keep string }

// fetch puts what is needed of a release into a folder and returns it.
func (g *generator) fetch(minor int) (string, error) {
	dir := filepath.Join(g.keep, version(minor))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	cmd := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes@"+version(minor))
	cmd.Dir, cmd.Env = os.TempDir(), append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	var got struct{ Dir, Error string }
	if jerr := json.Unmarshal(out, &got); jerr != nil || err != nil || got.Error != "" {
		return "", fmt.Errorf("go mod download: %v %s", err, got.Error)
	}
	from := []string{"pkg/kubelet/container", "pkg/util/hash"}
	if minor <= lastStaging {
		from = append(from, "staging/src/k8s.io/api", "staging/src/k8s.io/apimachinery")
	}
	tmp := dir + ".tmp"
	for _, f := range from {
		to := strings.Replace(f, "staging/src/k8s.io", "staging", 1)
		if err := os.CopyFS(filepath.Join(tmp, to), os.DirFS(filepath.Join(got.Dir, f))); err != nil {
			return "", err
		}
	}
	return dir, os.Rename(tmp, dir)
}

// build compiles the program with the code of a release.
func (g *generator) build(minor int) (string, error) {
	src, err := g.fetch(minor)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(g.keep, fmt.Sprintf("program-1.%d", minor))
	out := filepath.Join(dir, "program")
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	helpers, err := os.ReadFile(filepath.Join(src, "pkg/kubelet/container/helpers.go"))
	if err != nil {
		return "", err
	}
	functions, err := cut(string(helpers))
	if err != nil {
		return "", err
	}
	hash, err := os.ReadFile(filepath.Join(src, "pkg/util/hash/hash.go"))
	if err != nil {
		return "", err
	}
	mod := "module golden\n\ngo 1.21\n\n"
	if minor <= lastStaging {
		for _, m := range []string{"api", "apimachinery"} {
			folder := filepath.Join(src, "staging", m)
			if err := os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module k8s.io/"+m+"\n\ngo 1.12\n"), 0o644); err != nil {
				return "", err
			}
			mod += fmt.Sprintf("require k8s.io/%[1]s v0.0.0\nreplace k8s.io/%[1]s => %[2]s\n", m, folder)
		}
		mod += oldPins
	} else {
		v := strings.Replace(version(minor), "v1.", "v0.", 1)
		mod += fmt.Sprintf("require (\n\tk8s.io/api %[1]s\n\tk8s.io/apimachinery %[1]s\n\tgithub.com/davecgh/go-spew v1.1.1\n)\n", v)
	}
	for name, text := range map[string]string{
		"go.mod":       mod,
		"main.go":      program,
		"functions.go": functions,
		"hash/hash.go": string(hash),
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	// Optimising what runs for a second would take most of the time.
	cmd := exec.Command("go", "build", "-gcflags=all=-N -l", "-o", "program", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %v\n%s", err, text)
	}
	return out, nil
}

// oldPins are modules that the staging repositories up to 1.14, which have no
// go.mod, want at a version of their time.
const oldPins = `require (
	github.com/davecgh/go-spew v1.1.1
	github.com/gogo/protobuf v1.3.2
	github.com/json-iterator/go v1.1.12
	github.com/go-openapi/spec v0.19.0
	k8s.io/kube-openapi v0.0.0-20171101183504-39a7bf85c140
	k8s.io/klog v0.3.1
	sigs.k8s.io/yaml v1.1.0
)
`

// cut returns a Go file with the functions that compute the hash.
func cut(source string) (string, error) {
	text := ""
	for _, name := range []string{"HashContainer", "pickFieldsToHash"} {
		f := regexp.MustCompile(`(?ms)^func ` + name + `\(.*?^}\n`).FindString(source)
		if f == "" && name == "HashContainer" {
			return "", errors.New("pkg/kubelet/container/helpers.go has no function HashContainer")
		}
		text += "\n" + f
	}
	imports := "\t\"hash/fnv\"\n"
	if strings.Contains(text, "json.") {
		imports += "\t\"encoding/json\"\n"
	}
	imports += "\tv1 \"k8s.io/api/core/v1\"\n\n\thashutil \"golden/hash\"\n"
	return "package main\n\nimport (\n" + imports + ")\n" + text, nil
}

// ask runs a program: the types, and the hashes of the containers.
func ask(program string, rows []row) (types, [][2]uint32, error) {
	var in bytes.Buffer
	for _, r := range rows {
		in.Write(append(slices.Clone(r.Spec), '\n'))
	}
	cmd := exec.Command(program)
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, err
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(lines) != 1+len(rows) {
		return nil, nil, fmt.Errorf("%d answers for %d containers", len(lines)-1, len(rows))
	}
	var t types
	if err := json.Unmarshal(lines[0], &t); err != nil {
		return nil, nil, err
	}
	hashes := make([][2]uint32, len(rows))
	for i, line := range lines[1:] {
		if err := json.Unmarshal(line, &hashes[i]); err != nil {
			return nil, nil, err
		}
	}
	return t, hashes, nil
}

// merge makes one table of the types of all releases.
func merge(perMinor map[int]types) (*containerhash.Table, error) {
	t := &containerhash.Table{Named: map[string]string{}, Structs: map[string][]string{}}
	fields := map[string][]containerhash.Field{}
	for m := containerhash.First; m <= containerhash.Last; m++ {
		for name, typ := range perMinor[m] {
			if typ.Kind == "struct" {
				var err error
				if fields[name], err = mergeStruct(fields[name], typ.Fields, m); err != nil {
					return nil, fmt.Errorf("1.%d: %s: %w", m, name, err)
				}
			} else if !strings.HasPrefix(name, "*") && !strings.HasPrefix(name, "[]") && name != typ.Kind {
				kind := strings.TrimSpace(typ.Kind + " " + typ.Elem)
				if had := t.Named[name]; had != "" && had != kind {
					return nil, fmt.Errorf("1.%d: %s is %s, and was %s before", m, name, kind, had)
				}
				t.Named[name] = kind
			}
		}
	}
	for name, list := range fields {
		// A struct that a release lacks is one that it does not reach.
		for _, f := range list {
			t.Structs[name] = append(t.Structs[name], f.String())
		}
	}
	// What comes out is what went in.
	for m, want := range perMinor {
		for name, typ := range want {
			if typ.Kind != "struct" {
				continue
			}
			var got []dump.Field
			for _, line := range t.Structs[name] {
				f, err := containerhash.ParseField(line)
				if err != nil {
					return nil, err
				}
				if f.From <= m && m <= f.To {
					if m < firstRun {
						f.OmitEmpty = false // these types do not have it
					}
					got = append(got, f.Field)
				}
			}
			if !reflect.DeepEqual(got, typ.Fields) {
				return nil, fmt.Errorf("1.%d: %s: merged to %v, it is %v", m, name, got, typ.Fields)
			}
		}
	}
	return t, nil
}

// mergeStruct adds the fields of release 1.m to those of the releases before.
func mergeStruct(had []containerhash.Field, now []dump.Field, m int) ([]containerhash.Field, error) {
	fresh := had == nil
	at := 0 // where in had the next field is looked for
	for _, f := range now {
		i := slices.IndexFunc(had, func(h containerhash.Field) bool {
			same := h.Name == f.Name && h.JSON == f.JSON && h.Type == f.Type
			return same && (h.OmitEmpty == f.OmitEmpty || h.From < firstRun && m <= firstRun) && h.To == m-1
		})
		if i >= 0 {
			if i < at {
				return nil, fmt.Errorf("field %s has moved", f.Name)
			}
			had[i].To, had[i].OmitEmpty = m, f.OmitEmpty
			at = i + 1
			continue
		}
		from := m
		if fresh {
			// The struct is reached from this release on; its fields need not say so.
			from = containerhash.First
		}
		had = slices.Insert(had, at, containerhash.Field{Field: f, From: from, To: m})
		at++
	}
	return had, nil
}

func writeTable(file string, t *containerhash.Table) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(t); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
