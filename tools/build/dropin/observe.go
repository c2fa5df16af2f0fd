// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/tools/build/exit"
	"holdfast/tools/build/flagtable"
)

// Build is what is looked at.
type Build struct {
	// Programs are those of flagtable.Program, by component. There is none for
	// binaries of others: of them only what the binaries themselves say is seen.
	Programs map[string]string
	// Dir has the binaries.
	Dir string
	// GatesOff are set to false wherever a binary is run.
	GatesOff []string
}

// CommandLineKinds are the kinds of facts that ObserveCommandLine sees of a build with or without source.
func CommandLineKinds(source bool) []string {
	all := KindNames(false)
	if !source {
		return slices.DeleteFunc(all, func(k string) bool { return k == "flag" || k == "gate" })
	}
	return all
}

// ObserveCommandLine looks at both components of a build, side by side.
func ObserveCommandLine(ctx context.Context, b Build) (Run, error) {
	runs, errs := make([]Run, len(Components)), make([]error, len(Components))
	var wg sync.WaitGroup
	for i, c := range Components {
		wg.Go(func() { runs[i], errs[i] = b.component(ctx, c) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	out := slices.Concat(runs...)
	return out, out.Check(CommandLineKinds(len(b.Programs) > 0), Components)
}

func (b Build) component(ctx context.Context, c string) (Run, error) {
	var out Run
	binary := filepath.Join(b.Dir, c)
	if _, err := os.Stat(binary); err != nil {
		return nil, exit.Preconditionf("%v: build it with make binaries, or name the folder that has it", err)
	}
	if len(b.Programs) > 0 {
		said, err := flagtable.Say(b.Programs[c])
		if err != nil {
			return nil, err
		}
		out = append(out, ofSource(c, said)...)
	}
	facts, err := ofBinary(ctx, c, binary, b.GatesOff)
	return append(out, facts...), err
}

// options is where the usage of --feature-gates begins to list the gates, which are
// facts of their own.
const options = "Options are:"

func ofSource(component string, s flagtable.Said) []Fact {
	var out []Fact
	for name, f := range s.Flags {
		usage, _, _ := strings.Cut(f.Usage, options)
		value := fmt.Sprintf("%s, default %q", f.Type, f.Default)
		if f.Hidden {
			value += ", hidden"
		}
		if f.Deprecated {
			value += fmt.Sprintf(", deprecated: %q", f.Deprecation)
		}
		if f.Shorthand != "" {
			value += ", -" + f.Shorthand
		}
		out = append(out, Fact{Kind: "flag", Component: component, Name: "--" + name, Value: value + ": " + strings.TrimSpace(usage)})
	}
	for name, g := range s.Gates {
		out = append(out, Fact{Kind: "gate", Component: component, Name: name, Value: fmt.Sprintf("%t, %s", g.Default, g.Stage)})
	}
	return out
}

func ofBinary(ctx context.Context, component, binary string, gatesOff []string) ([]Fact, error) {
	fact := func(kind, name, value string) Fact {
		return Fact{Kind: kind, Component: component, Name: name, Value: value}
	}
	help, err := run(ctx, binary, "--help")
	if err != nil {
		return nil, err
	}
	out := helpFacts(component, help.stdout+help.stderr)
	version, err := run(ctx, binary, "--version")
	if err != nil {
		return nil, err
	}
	// The version is what this is about, so it is not taken out.
	out = append(out, fact("version", "--version", fmt.Sprintf("status %d: %s", version.status, gitSuffix.ReplaceAllString(strings.TrimSpace(version.stdout), ""))))
	for _, args := range wrong[component] {
		a := slices.Clone(args)
		if len(gatesOff) > 0 {
			a = append([]string{"--feature-gates=" + strings.Join(gatesOff, "=false,") + "=false"}, a...)
		}
		r, err := run(ctx, binary, a...)
		if err != nil {
			return nil, err
		}
		if r.status == 0 {
			return nil, fmt.Errorf("%s %s ends with status 0, so it is not a wrong command line", component, strings.Join(args, " "))
		}
		out = append(out, fact("refusal", strings.Join(args, " "), fmt.Sprintf("status %d: %s", r.status, firstLine(r.stderr))))
	}
	return out, nil
}

// gitSuffix is what a checkout that is not at a tag adds to a version.
var gitSuffix = regexp.MustCompile(`-(0\.)?[0-9]+[-.]g?[0-9a-f]{7,}.*$`)

var helpLine = regexp.MustCompile(`^ +(?:-(\w), )?(--[a-z0-9-]+)(?: |$|\[)(.*)$`)

var defaultRE = regexp.MustCompile(`\(default ([^)]*)\)`)

// helpFacts reads the flags of a help text, without the lists of gates and of sets
// that follow some.
func helpFacts(component, text string) []Fact {
	var out []Fact
	for _, l := range strings.Split(text, "\n") {
		m := helpLine.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		value, _, _ := strings.Cut(m[3], options)
		value = defaultRE.ReplaceAllStringFunc(value, func(m string) string {
			list := strings.Split(defaultRE.FindStringSubmatch(m)[1], ",") // perhaps a set in the order of a Go map
			slices.Sort(list)
			return "(default " + strings.Join(list, ",") + ")"
		})
		out = append(out, Fact{Kind: "help", Component: component, Name: m[2], Value: strings.Join(strings.Fields(m[1]+" "+value), " ")})
	}
	return out
}

type answer struct {
	status         int
	stdout, stderr string
}

// bound is how long a binary may take to refuse a command line.
const bound = time.Minute

// run runs a binary that is to end at once. One that runs on is killed, and an error:
// a kubelet that starts would change this machine.
func run(ctx context.Context, binary string, args ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}, os.TempDir()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return answer{}, fmt.Errorf("%s %s runs for more than %v", binary, strings.Join(args, " "), bound)
	}
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return answer{}, err
	}
	return answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}, nil
}

var header = regexp.MustCompile(`^[IWEF][0-9]{4} [0-9:.]+ +[0-9]+ ([^ :]+):[0-9]+\] `)

// firstLine is the first line that says why: warnings and what a component says of
// itself as it starts are left out where an error follows.
func firstLine(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	best := lines[0]
	for _, l := range lines {
		if strings.HasPrefix(l, "I") && header.MatchString(l) || strings.HasPrefix(l, "Flag --") {
			continue
		}
		best = l
		break
	}
	return Normal(header.ReplaceAllString(best, "$1: "))
}
