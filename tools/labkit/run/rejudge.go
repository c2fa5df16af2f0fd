// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"holdfast/tools/build/exit"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// Rejudge has labs, of all, judge again the histories that runs left below dir, and prints the
// verdicts. The error is a Failed if one is not as expected.
func Rejudge(w io.Writer, all labkit.Labs, dir string) ([]labkit.Outcome, error) {
	var files []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "docker" {
			return fs.SkipDir // a node's images and containers
		}
		if err == nil && d.Name() == history.File {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		return nil, exit.Usagef("%v", err)
	}
	if len(files) == 0 {
		return nil, exit.Preconditionf("%s has no %s: run the lab with --keep", dir, history.File)
	}
	slices.Sort(files)
	var outs []labkit.Outcome
	for _, file := range files {
		h, err := labkit.ReadHistory(file)
		if err != nil {
			return nil, err
		}
		if h.Lab == "" {
			return nil, exit.Preconditionf("%s: %v", file, h.Whole())
		}
		l := all.Find(h.Lab)
		if l == nil {
			return nil, exit.Preconditionf("%s: there is no lab %q", file, h.Lab)
		}
		v := labkit.Variant(h.Variant)
		if l.Expected(v) == "" {
			return nil, exit.Preconditionf("%s: lab %s has no variant %q", file, l.Name, v)
		}
		out := l.Judge(h)
		out.Lab, out.Variant, out.Profile, out.Seed, out.Expected = l.Name, v, h.Profile, h.Seed, l.Expected(v)
		out.Date, out.Seconds, out.Artefacts = day(h.Lines[0].At), h.Lines[len(h.Lines)-1].At.Sub(h.Lines[0].At).Seconds(), filepath.Dir(file)
		outs = append(outs, out)
		printTable(w, l, []labkit.Outcome{out})
	}
	return outs, failed(outs)
}
