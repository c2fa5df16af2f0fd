// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"holdfast/tools/build/exit"
	"holdfast/tools/build/progress"
	"holdfast/tools/build/tree"
)

// OpenAPI writes pkg/generated/openapi/zz_generated.openapi.go, the one
// generated file that upstream's module lacks, with the base's generator.
// The result is kept below _output/cache under the sum of everything it was
// generated from.
func OpenAPI(ctx context.Context, t *tree.Tree, modfile string, s *progress.Step) error {
	if t.Base.OpenAPI == nil {
		return nil
	}
	in, err := t.OpenAPIInput()
	if err != nil {
		return err
	}
	cache := filepath.Join(t.Base.Output(), "cache", "openapi-"+in.Key+".go")
	if _, err := os.Stat(cache); err != nil {
		s.Now("openapi definitions")
		if err := generate(ctx, t, modfile, in.Packages, cache); err != nil {
			return err
		}
	}
	return t.AddGenerated(tree.OpenAPIFile, cache)
}

// generate runs the generator, which knows only GOPATH: over a folder of links
// to the packages' modules.
func generate(ctx context.Context, t *tree.Tree, modfile string, packages []string, cache string) error {
	work, err := os.MkdirTemp(filepath.Join(t.Base.Output()), "openapi-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	run := func(dir string, env []string, args ...string) ([]byte, error) {
		cmd := Command(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, env
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args[:min(len(args), 4)], " "), err, stderr.Bytes())
		}
		return stdout.Bytes(), nil
	}
	mod := func(verb string, args ...string) []string {
		return slices.Concat([]string{"go", verb}, ModFlags(t.Base, modfile), args)
	}
	env := append(GoEnv(), "CGO_ENABLED=0")
	gen := filepath.Join(work, "openapi-gen")
	if _, err := run(t.Base.Root, env, mod("build", "-trimpath", "-buildvcs=false", "-o", gen, t.Base.OpenAPI.Generator)...); err != nil {
		return err
	}
	listing := append([]string{"-e", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Dir}}{{end}}"}, packages...)
	out, err := run(t.Base.Root, env, mod("list", listing...)...)
	if err != nil {
		return err
	}
	src := filepath.Join(work, "gopath", "src")
	for _, l := range uniq(strings.Split(string(out), "\n")) {
		path, dir, _ := strings.Cut(l, "\t")
		if dir == "" {
			continue
		}
		link := filepath.Join(src, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(dir, link); err != nil {
			return err
		}
	}
	const pkg = "k8s.io/kubernetes/pkg/generated/openapi"
	env = append(env, "GOPATH="+filepath.Join(work, "gopath"), "GO111MODULE=off")
	args := []string{gen, "--logtostderr", "-i", strings.Join(packages, ","), "-p", pkg, "-O", "zz_generated.openapi",
		"-h", filepath.Join(t.Dir(), "hack", "boilerplate", "boilerplate.go.txt"), "-o", filepath.Join(work, "out")}
	list, report := t.Base.OpenAPI.Violations, filepath.Join(work, "violations")
	if list != "" {
		args = append(args, "-r", report)
	}
	if _, err := run(src, env, args...); err != nil {
		return err
	}
	if list != "" {
		if err := sameViolations(report, t.Dir(), list); err != nil {
			return err
		}
	}
	content, err := os.ReadFile(filepath.Join(work, "out", filepath.FromSlash(pkg), "zz_generated.openapi.go"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(cache), 0o755); err != nil {
		return err
	}
	tmp := cache + ".tmp"
	if err := os.WriteFile(tmp, content, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, cache)
}

// sameViolations compares the generator's report with the list of the tree in dir.
func sameViolations(report, dir, list string) error {
	got, err := os.ReadFile(report)
	if err != nil {
		return err
	}
	want, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(list)))
	if err != nil {
		return err
	}
	if bytes.Equal(got, want) {
		return nil
	}
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	i := 0
	for i < min(len(g), len(w)) && g[i] == w[i] {
		i++
	}
	line := func(of []string) string { return append(of, "(no such line)")[min(i, len(of))] }
	return exit.Preconditionf("the generator of the openapi definitions reports other types that break the rules for APIs than upstream's %s has; line %d is %q there, and %q in the report: the types, the generator's version or the list differ from upstream's",
		list, i+1, line(w), line(g))
}

func uniq(in []string) []string {
	sort.Strings(in)
	var out []string
	for i, s := range in {
		if i == 0 || s != in[i-1] {
			out = append(out, s)
		}
	}
	return out
}
