// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"slices"
	"strings"

	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
)

// Variant names what a tree of a base is made of: one of the base's named
// variants (stock or with the product, perhaps minus fixes), and minus further fixes. It
// is written "ours" or "ours -some-fix -another", the fixes sorted.
type Variant string

// The variants that every base may have; base.json can name more.
const (
	Stock Variant = "stock" // upstream + the fixes of kind toolchain
	Ours  Variant = "ours"  // stock + all other fixes, each with its patches and overlay files
)

// VariantSpec is what base.json says of a named variant.
type VariantSpec struct {
	// Product: it has the fixes beyond the toolchain.
	Product bool `json:"product,omitempty"`
	// Minus are fixes that are left out, as if they were not there.
	Minus []string `json:"minus,omitempty"`
	// Component is a binary whose build of ours is made of this variant: beyond
	// the toolchain it has the fixes that name the component only.
	Component string `json:"component,omitempty"`
}

// Name is the variant's named part.
func (v Variant) Name() string {
	name, _, _ := strings.Cut(string(v), " ")
	return name
}

// Minus are the fixes that the name says are left out.
func (v Variant) Minus() []string {
	var out []string
	for _, f := range strings.Fields(string(v))[min(1, len(strings.Fields(string(v)))):] {
		out = append(out, strings.TrimPrefix(f, "-"))
	}
	return out
}

// Without is v minus further fixes.
func (v Variant) Without(names ...string) Variant {
	all := append(v.Minus(), names...)
	slices.Sort(all)
	s := v.Name()
	for _, n := range slices.Compact(all) {
		s += " -" + n
	}
	return Variant(s)
}

// Dir is the variant's name as a folder's.
func (v Variant) Dir() string {
	return strings.ReplaceAll(string(v), " -", "-minus-")
}

// ParseVariant reads "ours" or "ours -some-fix -another", in any order.
func ParseVariant(s string) (Variant, error) {
	f := strings.Fields(s)
	if len(f) == 0 {
		return "", exit.Usagef("no variant is named: use %s, %s or \"%s -FIX\"", Stock, Ours, Ours)
	}
	for _, m := range f[1:] {
		if !strings.HasPrefix(m, "-") || m == "-" {
			return "", exit.Usagef("variant %q: write fixes after the name, each with a dash before it, as in \"%s -FIX\"", s, Ours)
		}
		f[0] += " " + m
	}
	return Variant(f[0]).Without(), nil
}

// spec is what base.json says of the variant's named part.
func (b *Base) spec(v Variant) VariantSpec { return b.Variants[v.Name()] }

// MinusOf is the whole set of fixes that variant leaves out.
func (b *Base) MinusOf(v Variant) ([]string, error) {
	return b.Fixes.Minus(b.Name, append(slices.Clone(b.spec(v).Minus), v.Minus()...))
}

// FixesOf lists the fixes that variant is made of.
func (b *Base) FixesOf(v Variant) ([]*fixes.Fix, error) {
	gone, err := b.MinusOf(v)
	if err != nil {
		return nil, err
	}
	var out []*fixes.Fix
	c := b.spec(v).Component
	for _, s := range b.Fixes.Of(b.Name) {
		in := s.Kind == fixes.Toolchain || b.spec(v).Product && (c == "" || slices.Contains(s.Components, c))
		if in && !slices.Contains(gone, s.Name) {
			out = append(out, s)
		}
	}
	return out, nil
}

// TreeOf is the variant of whose tree a binary of v is built: v itself, or that
// of the binary's own if v is ours.
func (b *Base) TreeOf(v Variant, binary string) Variant {
	if v.Name() != string(Ours) {
		return v
	}
	for name, spec := range b.Variants {
		if spec.Component == binary {
			return Variant(name).Without(v.Minus()...)
		}
	}
	return v
}

// Component is the one binary that is built of v's tree; empty for all.
func (b *Base) Component(v Variant) string { return b.spec(v).Component }

// VariantNames are the named variants: stock and ours first.
func (b *Base) VariantNames() []Variant {
	var out []Variant
	for n := range b.Variants {
		out = append(out, Variant(n))
	}
	rank := func(v Variant) int { return slices.Index([]Variant{Ours, Stock}, v) }
	slices.SortFunc(out, func(x, y Variant) int {
		if r := rank(y) - rank(x); r != 0 {
			return r
		}
		return strings.Compare(string(x), string(y))
	})
	return out
}

// IsOurs reports whether the variant has the product's series, and so says that
// it is Holdfast.
func (b *Base) IsOurs(v Variant) bool {
	return v.Name() == string(Ours) || b.spec(v).Component != ""
}

// HasVariant reports whether the base is built in variant, as an error a user
// can act on.
func (b *Base) HasVariant(v Variant) error {
	if _, ok := b.Variants[v.Name()]; !ok {
		var names []string
		for _, n := range b.VariantNames() {
			names = append(names, string(n))
		}
		return exit.Usagef("base %s has no variant %q: it has %s", b.Name, v.Name(), strings.Join(names, ", "))
	}
	if v != v.Without() {
		return exit.Usagef("variant %q: write it %q", v, v.Without())
	}
	_, err := b.MinusOf(v)
	return err
}
