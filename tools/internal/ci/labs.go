// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package ci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/tools/internal/base"
	"holdfast/tools/internal/builder"
	"holdfast/tools/internal/exit"
	"holdfast/tools/internal/flagtable"
	"holdfast/tools/internal/parts"
)

// The labs are another program, so that this one links neither them nor
// client-go. What the two say to one another is a line of arguments and JSON.

// Need is one binary that labs run, as `lab needs` prints them.
type Need struct {
	Base    string       `json:"base"`
	Variant base.Variant `json:"variant"`
	Name    string       `json:"name"`
}

// labCommand is the lab program, beside this one, with arguments.
func labCommand(root string, args ...string) (*exec.Cmd, error) {
	file := filepath.Join(root, "_output", "tools", "lab")
	if _, err := os.Stat(file); err != nil {
		return nil, exit.Preconditionf("the lab command is not built: %v: run make tools", err)
	}
	cmd := exec.Command(file, args...)
	cmd.Dir = root
	return cmd, nil
}

// Binaries builds the product, stock's and ours, and every binary that a lab of make test runs,
// or with all one of make test-all, each once.
func Binaries(b *base.Base, all bool) (parts.Count, error) {
	order, names, err := needed(b, all)
	if err != nil {
		return parts.Count{}, err
	}
	// Other bases share nothing with this one. A link keeps one processor busy, so two builds
	// side by side take less time.
	type result struct {
		built int
		err   error
	}
	others := make(chan result, 1)
	go func() {
		var r result
		for _, t := range order {
			if t.base == b.Name || r.err != nil {
				continue
			}
			if r.err = buildAside(b.Root, t, names[t]); r.err == nil {
				r.built += len(names[t])
			}
		}
		others <- r
	}()
	files, err := builder.Build(b, builder.Options{Variant: base.Ours})
	n := parts.Count{Passed: len(files)}
	for _, t := range order {
		if t.base == b.Name && err == nil {
			files, err = builder.Build(b, builder.Options{Variant: t.variant, Binaries: names[t]})
			n.Passed += len(files)
		}
	}
	r := <-others
	n.Passed += r.built
	return n, errors.Join(err, r.err)
}

// source is a tree of a base.
type source struct {
	base    string
	variant base.Variant
}

// needed are the binaries that parts of make test run or ask beside the product's own, by tree, and
// the trees in their order.
func needed(b *base.Base, all bool) (order []source, names map[source][]string, err error) {
	args := []string{"needs"}
	if all {
		args = append(args, "--all")
	}
	cmd, err := labCommand(b.Root, args...)
	if err != nil {
		return nil, nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, exit.Preconditionf("lab needs: %v\n%s", err, stderr.Bytes())
	}
	var needs []Need
	if err := json.Unmarshal(out, &needs); err != nil {
		return nil, nil, fmt.Errorf("lab needs: %w", err)
	}
	names = map[source][]string{}
	add := func(release string, v base.Variant, binary string) {
		t := source{release, v}
		if names[t] == nil {
			order = append(order, t)
		}
		if !slices.Contains(names[t], binary) {
			names[t] = append(names[t], binary)
		}
	}
	for _, need := range needs {
		add(need.Base, need.Variant, need.Name)
	}
	// The parts that compare ours with stock.
	for _, name := range b.BinaryNames(true) {
		add(b.Name, base.Stock, name)
	}
	if all {
		flagtable.Asked(add)
	}
	return order, names, nil
}

// buildAside builds binaries of a tree in another process, this program again, and shows what
// that printed when it has ended: two builds do not share a terminal's line.
func buildAside(root string, t source, names []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{"build", "--root", root, "--base", t.base, "--variant", string(t.variant)}, names...)
	out, err := exec.Command(self, args...).CombinedOutput()
	os.Stderr.Write(out)
	if err != nil {
		return exit.Preconditionf("holdfast %s: %v", strings.Join(args, " "), err)
	}
	return nil
}

// NotMapped refuses an environment in which labs run other binaries than the checkout's.
func NotMapped() error {
	const mapped = "HOLDFAST_BIN_MAP"
	if os.Getenv(mapped) != "" {
		return exit.Preconditionf("%s is set, so the labs would not run what this checkout builds: unset it, or run the lab by hand", mapped)
	}
	return nil
}

// labs runs the fixed short set of labs, or with all every lab in every variant, which also writes
// the record.
func labs(root string, all bool) (parts.Count, error) {
	if err := NotMapped(); err != nil {
		return parts.Count{}, err
	}
	file := filepath.Join(root, "_output", "lab", "suite.json")
	if err := os.RemoveAll(file); err != nil {
		return parts.Count{}, err
	}
	what := "suite"
	if all {
		what = "all"
	}
	cmd, err := labCommand(root, what, "--results", file)
	if err != nil {
		return parts.Count{}, err
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	runErr := cmd.Run()
	raw, err := os.ReadFile(file)
	if err != nil {
		return parts.Count{}, exit.Preconditionf("lab %s wrote no results: %v", what, runErr)
	}
	var fresh []struct{ Lab, Variant, Expected, Verdict string }
	if err := json.Unmarshal(raw, &fresh); err != nil {
		return parts.Count{}, fmt.Errorf("%s: %w", file, err)
	}
	var n parts.Count
	var bad []string
	for _, o := range fresh {
		if o.Verdict == o.Expected && o.Verdict != "" {
			n.Passed++
			continue
		}
		n.Failed++
		bad = append(bad, fmt.Sprintf("%s (%s)", o.Lab, o.Variant))
	}
	switch {
	case len(bad) > 0:
		return n, exit.Preconditionf("labs that did not answer as expected: %s", strings.Join(bad, ", "))
	case runErr != nil:
		return n, exit.Preconditionf("lab %s: %v", what, runErr)
	case n.Passed == 0:
		return n, exit.Preconditionf("lab %s ran no lab", what)
	}
	return n, nil
}
