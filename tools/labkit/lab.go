// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/build/outcome"
)

// What a lab answers; see package outcome.
type (
	Verdict = outcome.Verdict
	Outcome = outcome.Outcome
)

const (
	Reproduced   = outcome.Reproduced
	Absent       = outcome.Absent
	Inconclusive = outcome.Inconclusive
	Passed       = outcome.Passed
	Failed       = outcome.Failed
)

// Profile chooses how much a lab does.
type Profile string

const (
	// Short fits `make test`: a couple of minutes per lab at most.
	Short Profile = "short"
	// Long is for `make lab LAB=… PROFILE=long`.
	Long Profile = "long"
)

// Pick is what differs between the profiles: a bound, a number of rounds.
func Pick[T any](p Profile, short, long T) T {
	if p == Long {
		return long
	}
	return short
}

// Variant says which build is under test: a variant of a base, or GateOff.
type Variant = base.Variant

const (
	// Stock is upstream plus the toolchain series.
	Stock = base.Stock
	// Ours is stock plus overlay plus the carry series.
	Ours = base.Ours
	// GateOff is ours with the lab's feature gates set to false.
	GateOff Variant = "ours-gate-off"
)

// buildOf is the build that runs as v.
func buildOf(v Variant) Variant {
	if v == GateOff {
		return Ours
	}
	return v
}

// ReproducedBecause says that the oracle saw the incident.
func ReproducedBecause(format string, a ...any) Outcome {
	return Outcome{Verdict: Reproduced, Why: fmt.Sprintf(format, a...)}
}

// AbsentBecause says that the trigger was there and the incident was not.
func AbsentBecause(format string, a ...any) Outcome {
	return Outcome{Verdict: Absent, Why: fmt.Sprintf(format, a...)}
}

// PassedBecause says that the check found everything as it must be.
func PassedBecause(format string, a ...any) Outcome {
	return Outcome{Verdict: Passed, Why: fmt.Sprintf(format, a...)}
}

// FailedBecause says what the check found wrong.
func FailedBecause(format string, a ...any) Outcome {
	return Outcome{Verdict: Failed, Why: fmt.Sprintf(format, a...)}
}

// InconclusiveBecause says that the lab could not tell.
func InconclusiveBecause(format string, a ...any) Outcome {
	return Outcome{Verdict: Inconclusive, Why: fmt.Sprintf(format, a...)}
}

// Binary names a program that a lab needs: Name of base Base (like v1.9.11).
// Variant is one of the base's, or UnderTest.
type Binary struct {
	Base    string
	Variant Variant
	Name    string
}

// UnderTest in Binary.Variant means the build of the variant that runs.
const UnderTest Variant = "under-test"

// KernelDir is where the kernel of virtual machines is, below the checkout.
const KernelDir = "_output/kernel"

// StockBinary is Name of Base as upstream has it, in every variant.
func StockBinary(base, name string) Binary { return Binary{base, Stock, name} }

// BinaryUnderTest is Name of Base from the build of the variant that runs.
func BinaryUnderTest(base, name string) Binary { return Binary{base, UnderTest, name} }

// KubeletNeeds are those of a lab of the kubelet: stock's control plane and the kubelet under test,
// all of base, and more.
func KubeletNeeds(base string, more ...Binary) []Binary {
	return append([]Binary{StockBinary(base, "kube-apiserver"), StockBinary(base, "kube-controller-manager"), BinaryUnderTest(base, "kubelet")}, more...)
}

// ManagerNeeds are those of a lab of kube-controller-manager: stock's kube-apiserver and the
// manager under test, both of base, and more.
func ManagerNeeds(base string, more ...Binary) []Binary {
	return append([]Binary{StockBinary(base, "kube-apiserver"), BinaryUnderTest(base, "kube-controller-manager")}, more...)
}

// For resolves UnderTest for a run of v.
func (b Binary) For(v Variant) Binary {
	if b.Variant == UnderTest {
		b.Variant = buildOf(v)
	}
	return b
}

func (b Binary) String() string { return b.Base + "/" + b.Variant.Dir() + "/" + b.Name }

// Lab is one incident as a program. See the package comment for an example.
type Lab struct {
	// Name is lower case with dashes, and dots in versions; by custom the fix, or
	// fix-something.
	Name string
	// Folder is the lab's own below tools/labs/, with its page, data and code;
	// empty: Name. Labs of one folder are also run by its name (see Labs.Named).
	Folder string
	// Summary is one line for the list of labs.
	Summary string
	// Steps are what a run does, in order; their texts are printed before anything
	// starts. It is called for that, with an Env that has Lab, Variant, Profile,
	// Seed and Rand only, and again for the run: it may look at these and must not do anything.
	Steps func(e *Env) []Step
	// Oracle judges what the steps recorded.
	Oracle Oracle
	// Needs are the binaries, checked before anything starts. Those of LongNeeds only the long
	// profile runs: make test does not build them.
	Needs, LongNeeds []Binary
	// Expect overrides what a variant must answer (see DefaultExpect).
	Expect map[Variant]Verdict
	// Variants overrides which variants are run and in what order. One that
	// DefaultExpect does not have needs its Expect.
	Variants []Variant
	// Timeout bounds one variant's run; nil: 5 minutes short, 30 minutes long.
	Timeout func(Profile) time.Duration
	// Test are the variants in which make test runs the lab; none: make test-all runs it, in
	// all of its variants, as it does the others. Each fix has a lab with Ours here (a rule).
	Test []Variant
	// OnRequest keeps the lab out of make test-all too: it measures for an hour, or runs suites
	// of upstream. Run it by name, or with --all.
	OnRequest bool
	// Packages are Debian packages beyond the kit's own (DebianPackages).
	Packages []string
	// Kernel: the lab has a virtual machine (see tools/labs/internal/vm), for which the kit unpacks a
	// kernel below KernelDir.
	Kernel bool

	// What the fixes say of the lab (see NewLabs): the feature gates that the
	// variant ours-gate-off sets to false, without which it is not run, and the
	// fixes that the lab shows.
	gates, fixes []string
}

// Gates are the feature gates that the variant ours-gate-off sets to false.
func (l *Lab) Gates() []string { return slices.Clone(l.gates) }

// Fixes are those that the lab shows.
func (l *Lab) Fixes() []string { return slices.Clone(l.fixes) }

// With is the lab of which the fixes say this: see Gates and Fixes.
func (l Lab) With(gates, fixes []string) *Lab {
	l.gates, l.fixes = gates, fixes
	return &l
}

// DefaultExpect is what a variant must answer unless the lab overrides it.
var DefaultExpect = map[Variant]Verdict{Stock: Reproduced, Ours: Absent, GateOff: Reproduced}

// CheckExpect is what a variant of a check must answer unless the lab overrides it.
var CheckExpect = map[Variant]Verdict{Stock: Passed, Ours: Passed, GateOff: Failed}

// Check says whether the lab shows no incident: its folder is below checks/, and it
// answers Passed or Failed.
func (l *Lab) Check() bool { return strings.HasPrefix(l.Path(), "checks/") }

// Answers are the verdicts that the lab may give.
func (l *Lab) Answers() []Verdict {
	if l.Check() {
		return []Verdict{Passed, Failed, Inconclusive}
	}
	return []Verdict{Reproduced, Absent, Inconclusive}
}

// Expected is the verdict that v must have; "" if it cannot be run. Ours without
// a fix that the lab shows answers as ours with the gates off.
func (l *Lab) Expected(v Variant) Verdict {
	if e, ok := l.Expect[v]; ok {
		return e
	}
	if v.Name() == string(Ours) && len(v.Minus()) > 0 {
		if slices.ContainsFunc(v.Minus(), func(s string) bool { return slices.Contains(l.fixes, s) }) {
			return l.Expected(GateOff)
		}
		return l.Expected(Ours)
	}
	if l.Check() {
		return CheckExpect[v]
	}
	return DefaultExpect[v]
}

// Runs lists the variants in which the lab is run, in their order.
func (l *Lab) Runs() []Variant {
	if len(l.Variants) > 0 {
		return slices.Clone(l.Variants)
	}
	vs := []Variant{Stock, Ours}
	if len(l.gates) > 0 {
		vs = append(vs, GateOff)
	}
	return vs
}

// NeedsIn are the binaries that a profile runs.
func (l *Lab) NeedsIn(p Profile) []Binary {
	if p == Long {
		return slices.Concat(l.Needs, l.LongNeeds)
	}
	return l.Needs
}

// Bound is that of one variant's run.
func (l *Lab) Bound(p Profile) time.Duration {
	if l.Timeout != nil {
		return l.Timeout(p)
	}
	if p == Long {
		return 30 * time.Minute
	}
	return 5 * time.Minute
}

var labName = regexp.MustCompile(`^[a-z0-9]+([-.][a-z0-9]+)*$`)

// validate has one message per rule.
func (l *Lab) validate() error {
	switch {
	case !labName.MatchString(l.Name):
		return fmt.Errorf("lab %q: Name must be lower-case words joined by dashes or dots", l.Name)
	case l.Summary == "" || strings.Contains(l.Summary, "\n"):
		return fmt.Errorf("lab %s: Summary must be one line", l.Name)
	case l.Steps == nil:
		return fmt.Errorf("lab %s: Steps are missing", l.Name)
	case len(l.Oracle.Text) == 0 || l.Oracle.Judge == nil:
		return fmt.Errorf("lab %s: Oracle is missing", l.Name)
	}
	for _, v := range slices.Concat(l.Runs(), l.Test) {
		if l.Expected(v) == "" {
			return fmt.Errorf("lab %s: variant %q has no Expect", l.Name, v)
		}
	}
	if l.OnRequest && len(l.Test) > 0 {
		return fmt.Errorf("lab %s: OnRequest keeps it out of make test, and Test has %v", l.Name, l.Test)
	}
	return nil
}

// Labs are labs by name, with what the fixes say of them.
type Labs []*Lab

// NewLabs sorts labs and tells them what the fixes say of them. Each lab is one of a fix, or a
// check, and a fix names no lab that there is not.
func NewLabs(all []Lab, t *fixes.Table) (Labs, error) {
	var ls Labs
	known := t.Labs()
	for _, l := range all {
		if err := l.validate(); err != nil {
			return nil, err
		}
		gates, ok := known[l.Name]
		if !ok && !l.Check() {
			return nil, exit.Preconditionf("no fix has the lab %s: add it to \"labs\" in the %s of the one that it shows, or move it below tools/labs/checks/ if it shows no incident", l.Name, fixes.File)
		}
		ls = append(ls, l.With(gates, t.LabFixes(l.Name)))
	}
	slices.SortFunc(ls, func(a, b *Lab) int { return strings.Compare(a.Name, b.Name) })
	for i, l := range ls {
		if i > 0 && l.Name == ls[i-1].Name {
			return nil, fmt.Errorf("there are two labs %s", l.Name)
		}
	}
	for name := range known {
		if ls.Find(name) == nil {
			return nil, exit.Preconditionf("%s names the lab %s, which there is not", t.Find(t.LabFixes(name)[0]).File(), name)
		}
	}
	return ls, nil
}

// Find is the lab of that name; nil if there is none.
func (ls Labs) Find(name string) *Lab {
	for _, l := range ls {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// Named are the labs of these names. A name is a lab's, or else that of a folder, the last part of
// its path, and stands for the labs in it. The error is one of usage, and lists the names.
func (ls Labs) Named(names []string) ([]*Lab, error) {
	var out []*Lab
	for _, n := range names {
		of := slices.DeleteFunc(slices.Clone(ls), func(l *Lab) bool { return path.Base(l.Path()) != n })
		if l := ls.Find(n); l != nil {
			of = Labs{l}
		}
		if len(of) == 0 {
			var there []string
			for _, l := range ls {
				there = append(there, l.Name)
			}
			return nil, exit.Usagef("no lab %q; there are: %s", n, strings.Join(there, ", "))
		}
		out = append(out, of...)
	}
	return out, nil
}

// NamedOrAll is Named, and all labs without a name.
func (ls Labs) NamedOrAll(names []string) ([]*Lab, error) {
	if len(names) == 0 {
		return ls, nil
	}
	return ls.Named(names)
}

// OnBase makes the lab that of gives for another base: it has the base in its name, and is not in
// make test.
func OnBase(of func(base string) Lab, base string) Lab {
	l := of(base)
	l.Folder, l.Name = l.Path(), l.Name+"-"+base
	l.Summary += ", at " + base[1:strings.LastIndex(base, ".")]
	l.Test = nil
	return l
}

// Path is the lab's folder: a path below tools/labs/, e.g. checks/cluster-smoke.
func (l *Lab) Path() string {
	if l.Folder != "" {
		return l.Folder
	}
	return l.Name
}
