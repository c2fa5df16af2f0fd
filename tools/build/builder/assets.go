// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
)

// AssetsFlags are the flags with which the go command compiles tests that need the
// assets of the base's binaries, as everything does that imports upstream's framework
// for end-to-end tests. It takes one such file: those of the first binary by name.
func AssetsFlags(ctx context.Context, b *base.Base, variant base.Variant, modfile string) ([]string, error) {
	for _, n := range b.BinaryNames(false) {
		if a := b.Binaries[n].Assets; a != nil {
			overlay, err := assets(ctx, b, variant, modfile, a)
			return []string{"-overlay=" + overlay}, err
		}
	}
	return nil, nil
}

// assets has the generator write a's file and returns the -overlay with which
// the go command finds it in the tree, which stays as it is. Both are kept below
// _output/cache under the sum of what they were made from.
func assets(ctx context.Context, b *base.Base, variant base.Variant, modfile string, a *base.Assets) (overlay string, err error) {
	src := b.SrcDir(variant)
	key, err := assetsKey(src, a)
	if err != nil {
		return "", err
	}
	cache := filepath.Join(b.Output(), "cache", "assets-"+key)
	file, overlay := cache+".go", cache+".json"
	if _, err := os.Stat(overlay); err == nil {
		return overlay, nil
	}
	if err := os.MkdirAll(filepath.Dir(cache), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(b.Output(), "assets-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	run := func(dir string, args ...string) error {
		cmd := Command(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, append(GoEnv(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return exit.Preconditionf("%s: %v\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
		}
		return nil
	}
	gen, tmp := filepath.Join(work, "generator"), filepath.Join(work, path.Base(a.File))
	if err := run(b.Root, slices.Concat([]string{"go", "build", "-trimpath", "-buildvcs=false", "-o", gen}, ModFlags(b, modfile), []string{a.Generator})...); err != nil {
		return "", err
	}
	args := []string{gen, "-nometadata", "-o", tmp, "-pkg", path.Base(path.Dir(a.File))}
	for _, i := range a.Ignore {
		args = append(args, "-ignore", i)
	}
	for _, f := range a.From {
		args = append(args, f+"/...")
	}
	if err := run(src, args...); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, file); err != nil {
		return "", err
	}
	j, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(src, filepath.FromSlash(a.File)): file}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(work, "overlay"), j, 0o644); err != nil {
		return "", err
	}
	return overlay, os.Rename(filepath.Join(work, "overlay"), overlay)
}

// assetsKey is the sum over what a's file is made from, and where it goes.
func assetsKey(src string, a *base.Assets) (string, error) {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(a); err != nil {
		return "", err
	}
	fmt.Fprintln(h, src)
	for _, dir := range a.From {
		err := filepath.WalkDir(filepath.Join(src, filepath.FromSlash(dir)), func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			f, err := os.Open(p)
			if err != nil {
				return err
			}
			defer f.Close()
			fmt.Fprintln(h, p)
			_, err = io.Copy(h, f)
			return err
		})
		if err != nil {
			return "", exit.Preconditionf("the assets of %s: %v", a.File, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
