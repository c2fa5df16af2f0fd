// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Binaries finds programs. Rules are tried before Dir, the longest first.
type Binaries struct {
	// Dir holds <base>/<variant>/<name>, by default <root>/_output/bin.
	Dir string
	// Rules map "base/variant/name" to a file or "base/variant" to a directory.
	Rules map[string]string
}

// NewBinaries reads HOLDFAST_BIN_DIR and HOLDFAST_BIN_MAP, then rules, each
// "base/variant=directory" or "base/variant/name=file".
func NewBinaries(root string, rules []string) (*Binaries, error) {
	b := &Binaries{Dir: os.Getenv("HOLDFAST_BIN_DIR"), Rules: map[string]string{}}
	if b.Dir == "" {
		b.Dir = filepath.Join(root, "_output", "bin")
	}
	var err error
	if b.Dir, err = filepath.Abs(b.Dir); err != nil {
		return nil, err
	}
	var all []string
	if m := os.Getenv("HOLDFAST_BIN_MAP"); m != "" {
		all = strings.Split(m, ",")
	}
	for _, r := range append(all, rules...) {
		k, v, ok := strings.Cut(r, "=")
		if n := strings.Count(k, "/"); !ok || v == "" || n < 1 || n > 2 {
			return nil, fmt.Errorf("--bin %q: want base/variant=directory or base/variant/name=file", r)
		}
		if b.Rules[k], err = filepath.Abs(v); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Path says where bin is expected; bin.Variant must not be UnderTest.
func (b *Binaries) Path(bin Binary) string {
	if p, ok := b.Rules[bin.String()]; ok {
		return p
	}
	if d, ok := b.Rules[bin.Base+"/"+bin.Variant.Dir()]; ok {
		return filepath.Join(d, bin.Name)
	}
	return filepath.Join(b.Dir, bin.Base, bin.Variant.Dir(), bin.Name)
}

// Check returns an error that names every binary that is not there.
func (b *Binaries) Check(bins []Binary) error {
	var missing []string
	seen := map[string]bool{}
	for _, bin := range bins {
		p := b.Path(bin)
		if seen[p] {
			continue
		}
		seen[p] = true
		if st, err := os.Stat(p); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			missing = append(missing, fmt.Sprintf("%s (%s)", p, bin))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	sort.Strings(missing)
	return fmt.Errorf("missing binaries, build them with make or map them with --bin:\n  %s", strings.Join(missing, "\n  "))
}

// OurBuild reports whether b comes from _output/bin, that is, whether neither
// a rule nor HOLDFAST_BIN_DIR names another place for it.
func (bs *Binaries) OurBuild(b Binary) bool {
	if os.Getenv("HOLDFAST_BIN_DIR") != "" {
		return false
	}
	return bs.Path(b) == filepath.Join(bs.Dir, b.Base, b.Variant.Dir(), b.Name)
}
