// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
)

// Check compares every reason of a base's table with the base's stock tree and with the product's
// binaries, which are both there (make source all). It returns how many hold.
func Check(root, name string) (int, error) {
	j, err := Load(root, name)
	if err != nil {
		return 0, err
	}
	lines, bad := j.CheckLines(j.Of.SrcDir(base.Stock))
	symbols, more, err := j.CheckSymbols(func(component string) ([]string, error) {
		return Symbols(filepath.Join(j.Of.BinDir(base.Ours), component))
	})
	if err != nil {
		return 0, err
	}
	if bad = append(bad, more...); len(bad) > 0 {
		return lines + symbols, exit.Preconditionf("%s", strings.Join(bad, "\n"))
	}
	return lines + symbols, nil
}

// CheckLines looks whether each line has its text in the tree. It returns how many
// have, and what is wrong with the others.
func (t *Table) CheckLines(tree string) (ok int, bad []string) {
	for _, e := range t.Entries {
		if e.Line == nil {
			continue
		}
		content, err := os.ReadFile(filepath.Join(tree, filepath.FromSlash(e.Line.File)))
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s: %s: the stock tree has no %s (make source): %v", File(t.Base), e.ID(), e.Line.File, err))
			continue
		}
		lines := strings.Split(string(content), "\n")
		if e.Line.Line <= len(lines) && strings.Contains(lines[e.Line.Line-1], e.Line.Text) {
			ok++
			continue
		}
		var at []string
		for i, l := range lines {
			if strings.Contains(l, e.Line.Text) {
				at = append(at, fmt.Sprint(i+1))
			}
		}
		bad = append(bad, fmt.Sprintf("%s: %s: %s does not have %q; it is in the lines [%s]", File(t.Base), e.ID(), e.Line, e.Line.Text, strings.Join(at, " ")))
	}
	return ok, bad
}

// CheckSymbols looks whether a program has something that the table says is not
// linked. symbols gives the names of a program's symbols.
func (t *Table) CheckSymbols(symbols func(component string) ([]string, error)) (ok int, bad []string, err error) {
	for _, c := range Ours {
		names, err := symbols(c)
		if err != nil {
			return ok, bad, err
		}
		for _, e := range t.Entries {
			if !slices.Contains(e.Components, c) {
				continue
			}
			for _, s := range e.NotLinked {
				if i := slices.IndexFunc(names, func(n string) bool { return strings.Contains(n, s) }); i >= 0 {
					bad = append(bad, fmt.Sprintf("%s: %s: %s is linked into %s: it has the symbol %s", File(t.Base), e.ID(), s, c, names[i]))
				} else {
					ok++
				}
			}
		}
	}
	return ok, bad, nil
}

// fewest is the number of symbols below which a program cannot be one of the
// product's: they have more than 100,000.
const fewest = 50000

// Symbols are the names of a Go program's symbols, as go tool nm prints them. A
// program without them, for example a stripped one, is an error: nothing could be
// told from what it lacks.
func Symbols(program string) ([]string, error) {
	cmd := exec.Command("go", "tool", "nm", program)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, exit.Preconditionf("go tool nm %s (is it built? make): %v: %s", program, err, bytes.TrimSpace(stderr.Bytes()))
	}
	var names []string
	main := false
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// "  401000 T main.main"; an undefined one has no address.
		if f := strings.Fields(lines.Text()); len(f) >= 2 {
			name := strings.TrimSpace(lines.Text()[strings.Index(lines.Text(), f[0])+len(f[0]):])
			names = append(names, name)
			main = main || strings.HasSuffix(name, "main.main")
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("go tool nm %s: %w", program, err)
	}
	if !main || len(names) < fewest {
		return nil, exit.Preconditionf("%s has %d symbols and main.main: %v, so nothing can be told from what it lacks: is it stripped?", program, len(names), main)
	}
	return names, nil
}
