// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package flagtable

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
)

// Said is all that a build's own code says of a component's flags and gates.
type Said struct {
	Flags map[string]SaidFlag
	Gates map[string]Gate
}

// SaidFlag is a flag with its texts, which the tables leave out. A default that is
// made of a Go map is sorted.
type SaidFlag struct {
	Flag
	Deprecation, Shorthand, Usage string
}

// Program compiles the program with the code of a build of a base: the table's newest release, or
// one of compared. variant is base.Stock or base.Ours, more are further flags of go build.
func Program(ctx context.Context, root, of, component string, variant base.Variant, more ...string) (file string, err error) {
	sources := slices.Concat(components[component], compared[component])
	i := slices.IndexFunc(sources, func(s source) bool {
		return s.base == of && s.variant == variant && (s.release == Ours) == (variant == base.Ours) && len(s.without)+len(s.with) == 0
	})
	if i < 0 {
		return "", exit.Preconditionf("%s %s has no build %s whose flags are all its own", component, of, variant)
	}
	s := sources[i]
	b, err := base.Load(root, s.base)
	if err != nil {
		return "", err
	}
	return s.compile(ctx, b, component, more...)
}

// Say runs what Program compiled.
func Say(file string) (Said, error) {
	out, err := execute(file, environments[0])
	if err != nil {
		return Said{}, err
	}
	var said Said
	if err := json.Unmarshal(out, &said); err != nil {
		return Said{}, fmt.Errorf("%s: %v", file, err)
	}
	for name, f := range said.Flags {
		if name == unordered || strings.HasPrefix(f.Type, "map") {
			f.Default = sorted(f.Default)
			said.Flags[name] = f
		}
	}
	return said, nil
}
