// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
)

// NeedsOf lists the binaries that the named labs run in the given variants
// (nil: all of a lab's), each once, sorted. A variant that a lab cannot be run in
// is an error.
func NeedsOf(names []string, only []Variant) ([]Binary, error) {
	seen := map[Binary]bool{}
	for _, name := range names {
		l, err := Find(name)
		if err != nil {
			return nil, err
		}
		vs := only
		if len(vs) == 0 {
			vs = l.variants()
		}
		for _, v := range vs {
			if l.Expected(v) == "" {
				return nil, fmt.Errorf("lab %s has no variant %q: it has %s and \"%s -SLUG\"", name, v, words(l.variants()), Ours)
			}
			for _, b := range l.Needs {
				seen[b.forVariant(v)] = true
			}
		}
	}
	out := make([]Binary, 0, len(seen))
	for b := range seen {
		out = append(out, b)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].String() < out[j].String() })
	return out, nil
}

// OurBuild reports whether b comes from _output/bin, that is, whether neither
// a rule nor HOLDFAST_BIN_DIR names another place for it.
func (bs *Binaries) OurBuild(b Binary) bool {
	if os.Getenv("HOLDFAST_BIN_DIR") != "" {
		return false
	}
	return bs.Path(b) == filepath.Join(bs.Dir, b.Base, b.Variant.Dir(), b.Name)
}

// UpNeeds are the binaries of a base that Up runs for v.
func UpNeeds(base string, v Variant) []Binary {
	var out []Binary
	for _, b := range upNeeds(base) {
		out = append(out, b.forVariant(v))
	}
	return out
}
