// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashoracle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// goldenRow is a line of the golden data.
type goldenRow struct {
	ID   string              `json:"id"`
	Spec json.RawMessage     `json:"spec"`
	Hash map[string][]uint64 `json:"hash"`
	// Unknown are the releases that do not know a field of the container.
	Unknown []string `json:"unknown"`
}

// goldenModes are the numbers of a row and release: how the container is decoded. A release of which
// the program knows no defaults has the first two.
var goldenModes = []struct {
	letter byte
	name   string
}{{'j', "JSON"}, {'p', "protobuf"}, {'s', "defaults"}, {'a', "defaults, protobuf"}}

func readGolden(file string) ([]goldenRow, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rows []goldenRow
	for i, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		var r goldenRow
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s, line %d: %v", file, i+1, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// Golden computes the golden data's columns of Releases and newer again with the code of
// the releases. It returns how many numbers are equal and a line for each that
// is not. With write it adds the columns that the file lacks before.
func Golden(root, file string, write bool, log io.Writer) (equal int, differ []string, err error) {
	b, err := newBuilder(root, log)
	if err != nil {
		return 0, nil, err
	}
	rows, err := readGolden(file)
	if err != nil {
		return 0, nil, err
	}
	for _, r := range slices.Concat(newer, Releases) {
		got, err := b.golden(r, rows)
		if err != nil {
			return equal, differ, err
		}
		for i := range rows {
			row := &rows[i]
			unknown := got[i][len(got[i])-1] == "1"
			hashes := got[i][:len(got[i])-1]
			if write && row.Hash[r.Golden] == nil {
				if err := row.add(r.Golden, hashes, unknown); err != nil {
					return equal, differ, err
				}
			}
			if slices.Contains(row.Unknown, r.Golden) != unknown {
				differ = append(differ, fmt.Sprintf("%s, %s: the file and the code differ in whether the release knows all fields", row.ID, r.Golden))
			}
			for m, h := range hashes {
				if want := row.Hash[r.Golden]; len(want) <= m || h != strconv.FormatUint(want[m], 10) {
					differ = append(differ, fmt.Sprintf("%s, %s, %s: the file has %v, the code computes %s", row.ID, r.Golden, goldenModes[m].name, want, h))
				} else {
					equal++
				}
			}
		}
	}
	if !write {
		return equal, differ, nil
	}
	return equal, differ, writeGolden(file, rows)
}

// golden asks the code of a release. For each row it returns the hashes, and then "1" if the release
// does not know a field.
func (b *builder) golden(r Release, rows []goldenRow) ([][]string, error) {
	known := goldenModes
	if !r.defaults {
		known = known[:2]
	}
	var modes []byte
	for _, m := range known {
		modes = append(modes, m.letter)
	}
	modes = append(modes, 'u')
	var in bytes.Buffer
	for _, row := range rows {
		for _, m := range modes {
			fmt.Fprintf(&in, "%c%s\n", m, row.Spec)
		}
	}
	name, err := b.oracle(r)
	if err != nil {
		return nil, err
	}
	p, err := start(name)
	if err != nil {
		return nil, err
	}
	lines, err := p.ask(in.Bytes())
	if err := errors.Join(err, p.stop()); err != nil {
		return nil, err
	}
	out := make([][]string, len(rows))
	for i, line := range lines {
		out[i/len(modes)] = append(out[i/len(modes)], string(line))
	}
	return out, nil
}

// add adds the column of a release.
func (r *goldenRow) add(release string, hashes []string, unknown bool) error {
	for _, h := range hashes {
		n, err := strconv.ParseUint(h, 10, 64)
		if err != nil {
			return fmt.Errorf("%s, %s: %s", r.ID, release, h)
		}
		r.Hash[release] = append(r.Hash[release], n)
	}
	if unknown {
		r.Unknown = append(r.Unknown, release)
		slices.SortFunc(r.Unknown, compareReleases)
	}
	return nil
}

// compareReleases orders 1.9.11 before 1.10.0.
func compareReleases(a, b string) int {
	numbers := func(s string) []int {
		var out []int
		for part := range strings.SplitSeq(s, ".") {
			n, _ := strconv.Atoi(part)
			out = append(out, n)
		}
		return out
	}
	return slices.Compare(numbers(a), numbers(b))
}

// writeGolden writes the rows, one a line, with the releases in their order.
func writeGolden(file string, rows []goldenRow) error {
	var out bytes.Buffer
	for _, r := range rows {
		id, err := json.Marshal(r.ID)
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, `{"id":%s,"spec":%s,"hash":{`, id, r.Spec)
		var releases []string
		for release := range r.Hash {
			releases = append(releases, release)
		}
		slices.SortFunc(releases, compareReleases)
		for i, release := range releases {
			if i > 0 {
				out.WriteByte(',')
			}
			numbers, _ := json.Marshal(r.Hash[release])
			fmt.Fprintf(&out, "%q:%s", release, numbers)
		}
		unknown, _ := json.Marshal(append([]string{}, r.Unknown...))
		fmt.Fprintf(&out, `},"unknown":%s}`+"\n", unknown)
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}
