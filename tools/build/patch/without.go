// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"fmt"
	"slices"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"holdfast/tools/build/exit"
)

// Without is a series less the patches for which gone is true. A hunk that
// stands behind one of theirs in the same file gets the line number that it has
// without them. That number is not searched for: both files, with all patches
// and without those, are followed line by line through the series. Apply then
// holds the hunk against the file at that line, as strictly as ever. A hunk on
// lines that a patch which is gone writes or takes away is an error: it needs
// that patch.
func Without(series []*Patch, gone func(*Patch) bool) ([]*Patch, error) {
	var out []*Patch
	files := map[string]*lines{} // those that a patch which is gone changes
	for _, p := range series {
		if gone(p) {
			for _, d := range p.Diffs {
				if files[d.OldName] == nil {
					files[d.OldName] = &lines{}
				}
				files[d.OldName].apply(d.TextFragments, line{full: true, by: p})
			}
			continue
		}
		q := *p
		q.Diffs = slices.Clone(p.Diffs)
		for i, d := range p.Diffs {
			l := files[d.OldName]
			if l == nil {
				continue
			}
			c := *d
			c.TextFragments = nil
			for n, f := range d.TextFragments {
				at, err := l.position(f)
				if err != nil {
					return nil, exit.Preconditionf("%s: %s hunk %d %v: the fix of this patch needs that one's (\"needs\" in its fix.json)", p.File, d.NewName, n+1, err)
				}
				g := *f
				g.NewPosition += at - g.OldPosition
				g.OldPosition = at
				c.TextFragments = append(c.TextFragments, &g)
			}
			l.apply(d.TextFragments, line{full: true, minus: true})
			q.Diffs[i] = &c
		}
		out = append(out, &q)
	}
	return out, nil
}

// line is a line of a file: in the file that has all patches, in the one without
// those that are gone, or in both.
type line struct {
	full, minus bool
	by          *Patch // that is gone and wrote it, or took it away
}

// lines are the lines of both files in order, as far as they have been looked
// at. What lies behind is in both.
type lines []line

// index is where line n of the full file (from 1) stands.
func (l *lines) index(n int64) int {
	for i := 0; ; i++ {
		if i == len(*l) {
			*l = append(*l, line{full: true, minus: true})
		}
		if (*l)[i].full {
			if n--; n == 0 {
				return i
			}
		}
	}
}

// position is the line number of a hunk in the file without the patches that are
// gone.
func (l *lines) position(f *gitdiff.TextFragment) (int64, error) {
	if f.OldLines == 0 {
		return 0, fmt.Errorf("has no line of the file to attach to")
	}
	first, last := l.index(f.OldPosition), l.index(f.OldPosition+f.OldLines-1)
	for _, x := range (*l)[first : last+1] {
		if !x.full || !x.minus {
			return 0, fmt.Errorf("touches lines that %s changes", x.by.File)
		}
	}
	n := int64(1)
	for _, x := range (*l)[:first] {
		if x.minus {
			n++
		}
	}
	return n, nil
}

// apply does to the full file what the hunks do. Lines that they add are added,
// and those that they take away leave the files that added has them in.
func (l *lines) apply(fragments []*gitdiff.TextFragment, added line) {
	for _, f := range fragments {
		at := f.NewPosition // the hunks before it are done
		for _, x := range f.Lines {
			i := l.index(at)
			switch x.Op {
			case gitdiff.OpAdd:
				*l = slices.Insert(*l, i, added)
				at++
			case gitdiff.OpContext:
				at++
			case gitdiff.OpDelete:
				(*l)[i].full = false
				if added.minus {
					(*l)[i].minus = false
				} else {
					(*l)[i].by = added.by
				}
				if !(*l)[i].minus {
					*l = slices.Delete(*l, i, i+1)
				}
			}
		}
	}
}
