// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package fixes

import (
	"fmt"
	"go/format"
	"maps"
	"slices"
	"strings"

	"holdfast/tools/build/prose"
)

// FeaturesDir is the tree's package with the feature gates.
const FeaturesDir = "pkg/features"

// FeaturesFile is the tree's file that registers the gates of the fix.
func (s *Fix) FeaturesFile() string {
	return FeaturesDir + "/holdfast_" + strings.ReplaceAll(s.Name, "-", "_") + ".go"
}

// OfFeatures is the fix whose FeaturesFile has that path in the tree, nil for none.
func (t *Table) OfFeatures(file string) *Fix {
	for _, s := range t.Fixes {
		if s.FeaturesFile() == file && slices.ContainsFunc(s.Forms, func(f *Form) bool { return len(f.generated()) > 0 }) {
			return s
		}
	}
	return nil
}

// generated are the gates, sorted, that FeaturesFile registers: those with an "about".
func (f *Form) generated() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f.Gates)), func(g string) bool { return f.Gates[g].About == "" })
}

// Features is the content of FeaturesFile for a base, made of the gates in fix.json that have an
// "about"; nil if there are none.
func (s *Fix) Features(base string) ([]byte, error) {
	f := s.Form(base)
	if f == nil || len(f.generated()) == 0 {
		return nil, nil
	}
	var consts, specs strings.Builder
	for _, name := range f.generated() {
		g := f.Gates[name]
		stage := g.Stage
		if stage == "" {
			stage = map[bool]string{true: "Beta", false: "Alpha"}[g.Default]
		}
		for _, l := range prose.Lines(name+" "+g.About, 90) {
			fmt.Fprintf(&consts, "// %s\n", l)
		}
		fmt.Fprintf(&consts, "%s utilfeature.Feature = %q\n\n", name, name)
		fmt.Fprintf(&specs, "%s: {Default: %v, PreRelease: utilfeature.%s},\n", name, g.Default, stage)
	}
	return format.Source([]byte(fmt.Sprintf(featuresText, s.File(), strings.TrimSpace(consts.String()), specs.String())))
}

const featuresText = `// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Code generated from %s; DO NOT EDIT.

package features

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

const (
%s
)

func init() {
	if err := utilfeature.DefaultFeatureGate.Add(map[utilfeature.Feature]utilfeature.FeatureSpec{
		%s
	}); err != nil {
		panic(err)
	}
}
`
