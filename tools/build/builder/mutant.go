// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"holdfast/tools/build/base"
)

// Overlay writes changed files of a variant's tree into a folder, and there the list
// that the flag -overlay of the go command wants, whose path it returns. The tree
// stays as it is. files are by their paths in it.
func Overlay(b *base.Base, v base.Variant, dir string, files map[string][]byte) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	var list struct{ Replace map[string]string }
	list.Replace = map[string]string{}
	for name, content := range files {
		to := filepath.Join(dir, fmt.Sprintf("%d-%s", len(list.Replace), filepath.Base(name)))
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return "", err
		}
		list.Replace[filepath.Join(b.SrcDir(v), filepath.FromSlash(name))] = to
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, raw, 0o644)
}
