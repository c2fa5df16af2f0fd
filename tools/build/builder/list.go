// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"context"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
)

// ListTestPackages lists the packages with tests among patterns and everything
// of Kubernetes that the product's binaries link; import paths, sorted.
func ListTestPackages(ctx context.Context, b *base.Base, variant base.Variant, patterns []string) ([]string, error) {
	modfile, err := Source(ctx, b, variant)
	if err != nil {
		return nil, err
	}
	list := func(args ...string) ([]string, error) {
		all := append([]string{"list", "-e"}, ModFlags(b, modfile)...)
		cmd := Command(ctx, "go", append(all, args...)...)
		cmd.Dir, cmd.Env = b.Root, TestEnv(b, variant)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, exit.Preconditionf("go list: %v\n%s", err, stderr.Bytes())
		}
		return strings.Fields(string(out)), nil
	}
	const withTests = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}`
	var mains []string
	for _, n := range b.BinaryNames(true) {
		mains = append(mains, b.ImportPath(b.Binaries[n]))
	}
	linked, err := list(append([]string{"-deps", "-f", withTests}, mains...)...)
	if err != nil {
		return nil, err
	}
	named, err := list(append([]string{"-f", withTests}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range uniq(append(linked, named...)) {
		if strings.HasPrefix(p, "k8s.io/") {
			out = append(out, p)
		}
	}
	return out, nil
}
