// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/fixes"
	"holdfast/tools/internal/tree"
)

// FitsWithout says whether ours can do without a fix, as far as the sources
// show it in seconds: the patches that are left apply, every file of ours or
// changed by a patch parses, and none of them names a function, type, variable,
// constant or package that goes with the fix. CheckWithout compiles.
func FitsWithout(b *base.Base, fix string) error {
	whole, err := (&tree.Tree{Base: b, Variant: base.Ours}).Own()
	if err != nil {
		return err
	}
	v := base.Ours.Without(fix)
	// A file that only the fix changed is upstream's again.
	left, err := (&tree.Tree{Base: b, Variant: v}).Own(slices.Collect(maps.Keys(whole))...)
	if err != nil {
		return err
	}
	gone, err := names(whole)
	if err != nil {
		return err
	}
	there, err := names(left)
	if err != nil {
		return err
	}
	for dir, declared := range gone {
		for n := range declared {
			if there[dir][n] {
				delete(declared, n)
			}
		}
	}
	var bad []string
	for _, file := range slices.Sorted(maps.Keys(left)) {
		if !strings.HasSuffix(file, ".go") || strings.Contains(file, "/testdata/") {
			continue
		}
		found, err := uses(b, file, left[file], gone, there)
		if err != nil {
			return err
		}
		bad = append(bad, found...)
	}
	if len(bad) > 0 {
		return exit.Preconditionf("%s %s does not fit together:\n%s\nSeparate the two, or say in the %s of one that it \"needs\" the other", b.Name, v, strings.Join(bad, "\n"), fixes.File)
	}
	return nil
}

// names are what the Go files of each folder declare at the top level, methods
// left out.
func names(files map[string][]byte) (map[string]map[string]bool, error) {
	out := map[string]map[string]bool{}
	for file, content := range files {
		if !strings.HasSuffix(file, ".go") || strings.Contains(file, "/testdata/") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, content, parser.SkipObjectResolution)
		if err != nil {
			return nil, exit.Preconditionf("%v", err)
		}
		dir := path.Dir(file)
		if out[dir] == nil {
			out[dir] = map[string]bool{}
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					out[dir][d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						out[dir][s.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							out[dir][n.Name] = true
						}
					}
				}
			}
		}
	}
	for _, declared := range out {
		delete(declared, "_")
		delete(declared, "init")
	}
	return out, nil
}

// uses finds in a file names that are gone, and imports of packages of which
// nothing is left.
func uses(b *base.Base, file string, content []byte, gone, there map[string]map[string]bool) ([]string, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, content, 0)
	if err != nil {
		return nil, exit.Preconditionf("%v", err)
	}
	var bad []string
	say := func(at token.Pos, format string, args ...any) {
		bad = append(bad, fmt.Sprintf("%s:%d %s", file, fset.Position(at).Line, fmt.Sprintf(format, args...)))
	}
	imported := map[string]string{} // name in the file -> folder that has lost names
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, err
		}
		for dir := range gone {
			if ImportPath(b, dir) != p {
				continue
			}
			// Only a package of our own can go as a whole.
			if there[dir] == nil {
				say(i.Pos(), "imports %s, which is gone", p)
			}
			name := path.Base(p)
			if i.Name != nil {
				name = i.Name.Name
			}
			imported[name] = dir
		}
	}
	own := gone[path.Dir(file)]
	// Names that the file resolves itself are locals; the parser leaves those of
	// other files of the package.
	for _, id := range f.Unresolved {
		if own[id.Name] {
			say(id.Pos(), "uses %s, which is gone", id.Name)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Obj == nil && gone[imported[x.Name]][s.Sel.Name] {
				say(s.Pos(), "uses %s.%s, which is gone", x.Name, s.Sel.Name)
			}
		}
		return true
	})
	return bad, nil
}
