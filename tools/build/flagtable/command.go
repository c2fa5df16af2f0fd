// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package flagtable

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
)

// files are the contents of all that is committed, by path.
func files(tables map[string]*Table) (map[string][]byte, error) {
	out := map[string][]byte{Page: Markdown(tables["kubelet"], tables["kube-controller-manager"])}
	for c, t := range tables {
		data, err := t.Encode()
		if err != nil {
			return nil, err
		}
		out[File(c)], out[SmallFile(c)] = data, Small(t)
	}
	return out, nil
}

// Write generates the tables and writes what changed: the tables, the page and the copy in
// cmd/.
func Write(ctx context.Context, root string, log io.Writer) error {
	all, _, err := generateAll(ctx, root)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		data := all[name]
		path := filepath.Join(root, filepath.FromSlash(name))
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
		fmt.Fprintln(log, "wrote", name)
	}
	return nil
}

func generateAll(ctx context.Context, root string) (map[string][]byte, map[string]*Table, error) {
	tables := map[string]*Table{}
	for _, c := range Components() {
		t, err := Generate(ctx, root, c)
		if err != nil {
			return nil, nil, err
		}
		tables[c] = t
	}
	all, err := files(tables)
	return all, tables, err
}

// Asked calls with each binary that Check asks.
func Asked(each func(release string, v base.Variant, binary string)) {
	for c, sources := range components {
		for _, s := range sources {
			each(s.base, s.variant, c)
		}
	}
}

// Check generates the tables again, compares them and the page with what is committed, and asks
// the binaries themselves. It returns how many flags these were asked for.
func Check(ctx context.Context, root string, log io.Writer) (asked int, err error) {
	all, tables, err := generateAll(ctx, root)
	if err != nil {
		return 0, err
	}
	for name, data := range all {
		old, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return 0, err
		}
		if line := firstDifference(old, data); line != "" {
			return 0, exit.Preconditionf("%s is not what the releases have: %s\nmake flags rewrites it", name, line)
		}
	}
	for c, t := range tables {
		for _, s := range components[c] {
			b, err := base.Load(root, s.base)
			if err != nil {
				return asked, err
			}
			binary := filepath.Join(b.BinDir(s.variant), c)
			if _, err := os.Stat(binary); err != nil {
				return asked, exit.Preconditionf("%v: run make binaries first", err)
			}
			n, wrong, err := Ask(binary, t, s.release, s.except())
			asked += n
			if err != nil {
				return asked, err
			}
			if len(wrong) > 0 {
				return asked, exit.Preconditionf("%s", strings.Join(wrong, "\n"))
			}
			fmt.Fprintf(log, "%s %s: %d flags asked for, all as in the table\n", c, s.release, n)
		}
	}
	return asked, nil
}

// firstDifference is the first line that is not the same, with its number.
func firstDifference(old, new []byte) string {
	a, b := strings.Split(string(old), "\n"), strings.Split(string(new), "\n")
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return fmt.Sprintf("line %d is %q, generated again it is %q", i+1, x, y)
		}
	}
	return ""
}
