// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"holdfast/tools/build/exit"
)

// Archive is upstream's archive with both binaries, whose sum its changelog has.
const Archive = "kubernetes-server-linux-amd64.tar.gz"

// Official checks upstream's own binaries in dir against a list of sums and returns
// the folder that has them: dir, or into, where the archive was unpacked. Nothing of
// dir runs before its sum was found right.
func Official(dir, sums, into string) (string, error) {
	if sums == "" {
		return "", exit.Usagef("--stock %s needs --sums FILE: upstream's CHANGELOG-1.9.md, or a list as sha256sum prints it", dir)
	}
	text, err := os.ReadFile(sums)
	if err != nil {
		return "", exit.Preconditionf("the list of sums: %v", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	known := Sums(string(text))
	archive := filepath.Join(dir, Archive)
	if _, err := os.Stat(archive); err == nil {
		if err := checkSum(archive, sums, known); err != nil {
			return "", err
		}
		return into, unpack(archive, into)
	}
	var missing []string
	for _, c := range Components {
		if _, err := os.Stat(filepath.Join(dir, c)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return "", exit.Preconditionf("%s has neither %s nor %s", dir, Archive, strings.Join(missing, " and "))
	}
	for _, c := range Components {
		if err := checkSum(filepath.Join(dir, c), sums, known); err != nil {
			return "", err
		}
	}
	return dir, nil
}

var (
	sumLine   = regexp.MustCompile(`(?m)^([0-9a-fA-F]{64}|[0-9a-fA-F]{128})[ \t]+[ *]?(\S+)[ \t]*$`)
	sumRow    = regexp.MustCompile("(?m)^\\[?([A-Za-z0-9._-]+)\\]?(?:\\([^)]*\\))?[ \t]*\\|[ \t]*`([0-9a-fA-F]{64}|[0-9a-fA-F]{128})`")
	goodModes = []string{"sha256sum FILE (64 digits)", "sha512sum FILE (128 digits)"}
)

// Sums reads a list: lines as sha256sum and sha512sum print them, and rows of the
// tables of upstream's changelog. One name may have several sums, of several releases.
func Sums(text string) map[string][]string {
	out := map[string][]string{}
	for _, m := range sumLine.FindAllStringSubmatch(text, -1) {
		name := path.Base(m[2])
		out[name] = append(out[name], strings.ToLower(m[1]))
	}
	for _, m := range sumRow.FindAllStringSubmatch(text, -1) {
		out[m[1]] = append(out[m[1]], strings.ToLower(m[2]))
	}
	return out
}

func checkSum(file, list string, known map[string][]string) error {
	want := known[filepath.Base(file)]
	if len(want) == 0 {
		return exit.Preconditionf("%s has no sum of %s: want a line of %s, or a changelog's row", list, filepath.Base(file), strings.Join(goodModes, " or "))
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	short, long := sha256.New(), sha512.New()
	if _, err := io.Copy(io.MultiWriter(short, long), f); err != nil {
		return err
	}
	for _, h := range []hash.Hash{short, long} {
		if slices.Contains(want, hex.EncodeToString(h.Sum(nil))) {
			return nil
		}
	}
	return exit.Preconditionf("%s: its SHA-256 is %x, which %s does not have for that name: it is another release's, or not upstream's", file, short.Sum(nil), list)
}

// unpack writes both components of the archive into a folder.
func unpack(archive, into string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return exit.Preconditionf("%s: %v", archive, err)
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	found := map[string]bool{}
	for r := tar.NewReader(z); len(found) < len(Components); {
		h, err := r.Next()
		if err != nil {
			return exit.Preconditionf("%s: %v: want kubernetes/server/bin/%s in it", archive, err, strings.Join(Components, " and "))
		}
		name := path.Base(h.Name)
		if !slices.Contains(Components, name) || h.Typeflag != tar.TypeReg {
			continue
		}
		var b bytes.Buffer
		if _, err := io.Copy(&b, r); err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		if err := os.WriteFile(filepath.Join(into, name), b.Bytes(), 0o755); err != nil {
			return err
		}
		found[name] = true
	}
	return nil
}
