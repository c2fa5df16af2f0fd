// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/builder"
	"holdfast/tools/build/exit"
)

// buildChanged builds a kubelet of ours with these changes, into a folder below root, and returns
// the go command's overlay with them.
func buildChanged(ctx context.Context, root, into string, mutants []Mutant) (overlay string, err error) {
	b, err := base.Load(root, Base)
	if err != nil {
		return "", err
	}
	if _, err := builder.Source(ctx, b, base.Ours); err != nil {
		return "", err
	}
	files, err := Mutate(mutants, func(file string) ([]byte, error) {
		return os.ReadFile(filepath.Join(b.SrcDir(base.Ours), filepath.FromSlash(file)))
	})
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, filepath.FromSlash(into))
	if overlay, err = builder.Overlay(b, base.Ours, filepath.Join(dir, "overlay"), files); err != nil {
		return "", err
	}
	_, err = builder.Build(ctx, b, builder.Options{Variant: base.Ours, Binaries: []string{Kubelet}, BinDir: dir, Overlay: overlay})
	return overlay, err
}

// BuildMutant builds the kubelet with all mutants, and compares its flags with those of ours.
func BuildMutant(ctx context.Context, root string) error {
	overlay, err := buildChanged(ctx, root, MutantDir, Mutants)
	if err != nil {
		return err
	}
	uncaught, err := CommandLineMutants(ctx, root, overlay)
	if err != nil {
		return err
	}
	if len(uncaught) > 0 {
		return exit.Preconditionf("not caught:\n%s", strings.Join(uncaught, "\n"))
	}
	return nil
}

// BuildQueued builds a kubelet that sends unready statuses behind its other requests.
func BuildQueued(ctx context.Context, root string) error {
	_, err := buildChanged(ctx, root, QueuedDir, Queued)
	return err
}
