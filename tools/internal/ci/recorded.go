// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package ci

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"holdfast/tools/internal/digest"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/flagtable"
	"holdfast/tools/internal/parts"
	"holdfast/tools/internal/strictjson"
)

// PassedFile is the committed record of parts that passed, at the repository's root. Only those
// are in it whose result depends on files of the repository, the modules that these pin and the Go
// release, and on nothing of the computer: while none of that changes, make test need not repeat
// them.
const PassedFile = "passed.json"

// passed is what one part found.
type passed struct {
	// Key is that of the files, see sourcesKey.
	Key string `json:"key"`
	// Tests passed; none failed.
	Tests int `json:"tests"`
	// Made is the day, as 2006-01-02.
	Made string `json:"made"`
}

// The files that a part's result depends on, by folders and files below the root: more than
// needed rather than less.
var (
	treeFiles       = []string{"go.mod", "go.sum", "slugs.json", "bases", "patches", "pkg", "staging", "tools/internal/base", "tools/internal/builder", "tools/internal/tree", "tools/internal/patch", "tools/internal/slugs"}
	touchedFiles    = append([]string{"tools/internal/upstreamtest", "tools/internal/gotest"}, treeFiles...)
	hashOracleFiles = append([]string{"tools/internal/hashoracle", "cmd"}, treeFiles...)
	flagsFiles      = append([]string{"tools/internal/flagtable", flagtable.Page}, treeFiles...)
)

// recorded runs a part unless the record has that it passed with the same files. What passed, and
// left nothing out, is kept below _output, for WritePassed.
func (o Options) recorded(root, name string, files []string, run func() (parts.Count, error)) func() (parts.Count, error) {
	return func() (parts.Count, error) {
		key, err := sourcesKey(root, files)
		if err != nil {
			return parts.Count{}, err
		}
		known, err := loadPassed(root)
		if err != nil {
			return parts.Count{}, err
		}
		if was, ok := known[name]; ok && was.Key == key && !o.All {
			fmt.Printf("%s is left out: on %s, with the same sources and Go release, %d tests passed and none failed (%s)\nmake test ALL=1 runs it\n", name, was.Made, was.Tests, PassedFile)
			return parts.Count{Skipped: was.Tests}, nil
		}
		n, err := run()
		if err != nil || n.Failed > 0 || n.Skipped > 0 { // nor what ran in part only
			return n, err
		}
		raw, err := json.Marshal(passed{key, n.Passed, time.Now().UTC().Format(time.DateOnly)})
		if err != nil {
			return n, err
		}
		file := passedHere(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return n, err
		}
		return n, os.WriteFile(file, raw, 0o644)
	}
}

// passedHere is where a part that ran keeps that it passed.
func passedHere(root, name string) string {
	return filepath.Join(root, "_output", "passed", name+".json")
}

// ForgetPassed removes what parts have passed here, so that WritePassed takes nothing older than
// the record has.
func ForgetPassed(root string) error { return os.RemoveAll(filepath.Dir(passedHere(root, ""))) }

// WritePassed takes what parts have passed here into the record.
func WritePassed(root string) error {
	all, err := loadPassed(root)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(passedHere(root, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var p passed
		if err := strictjson.Decode(raw, &p); err != nil {
			return exit.Preconditionf("%s: %v: remove it and run make test", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = p
	}
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, PassedFile), append(raw, '\n'), 0o644)
}

// loadPassed reads the record; there may be none yet.
func loadPassed(root string) (map[string]passed, error) {
	all := map[string]passed{}
	raw, err := os.ReadFile(filepath.Join(root, PassedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = strictjson.Decode(raw, &all)
	}
	if err != nil {
		return nil, exit.Preconditionf("%s: %v: correct it, or remove it and run make test", PassedFile, err)
	}
	return all, nil
}

// sourcesKey is a digest of the Go release and of files below root, of a folder all below it but
// pages and what a build leaves there (vendor). One that is not there has no part in it.
func sourcesKey(root string, files []string) (string, error) {
	d := digest.New()
	d.Line("%s", runtime.Version())
	for _, name := range files {
		named := filepath.Join(root, name)
		if _, err := os.Stat(named); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := d.Tree(root, name, func(p string, e fs.DirEntry) bool {
			if e.IsDir() {
				return e.Name() == "vendor"
			}
			return strings.HasSuffix(p, ".md") && p != named
		})
		if err != nil {
			return "", exit.Preconditionf("what the key in %s is made of: %v", PassedFile, err)
		}
	}
	return d.String(), nil
}
