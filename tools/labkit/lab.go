// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"holdfast/tools/build/base"
	"holdfast/tools/build/exit"
	"holdfast/tools/build/fixes"
	"holdfast/tools/labkit/journal"
)

// Verdict is a lab's answer for one variant.
type Verdict string

const (
	// Reproduced: the incident happened and the oracle saw it.
	Reproduced Verdict = "reproduced"
	// Absent: the trigger was there, proven, and the incident was not.
	Absent Verdict = "absent"
	// Inconclusive: the lab itself failed.
	Inconclusive Verdict = "inconclusive"

	// Passed and Failed are the answers of a check (see Lab.Check): there is no
	// incident that could be reproduced or absent.
	Passed Verdict = "passed"
	Failed Verdict = "failed"
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

// Result is what a lab answers for one variant.
type Result struct {
	Verdict Verdict
	Why     string   // one line: what the oracle saw
	Facts   []string // further numbers worth printing
	// Numbers are what was measured, for the outcome.
	Numbers []journal.Number
}

// Measure adds a number; unit is "s", "ms", "bytes", … or, for a count, "".
func (r *Result) Measure(name string, value float64, unit string) {
	r.Numbers = append(r.Numbers, journal.Number{Name: name, Value: value, Unit: unit})
}

// ReproducedBecause says that the oracle saw the incident.
func ReproducedBecause(format string, a ...any) Result {
	return Result{Verdict: Reproduced, Why: fmt.Sprintf(format, a...)}
}

// AbsentBecause says that the trigger was there and the incident was not.
func AbsentBecause(format string, a ...any) Result {
	return Result{Verdict: Absent, Why: fmt.Sprintf(format, a...)}
}

// PassedBecause says that the check found everything as it must be.
func PassedBecause(format string, a ...any) Result {
	return Result{Verdict: Passed, Why: fmt.Sprintf(format, a...)}
}

// FailedBecause says what the check found wrong.
func FailedBecause(format string, a ...any) Result {
	return Result{Verdict: Failed, Why: fmt.Sprintf(format, a...)}
}

// InconclusiveBecause says that the lab could not tell.
func InconclusiveBecause(format string, a ...any) Result {
	return Result{Verdict: Inconclusive, Why: fmt.Sprintf(format, a...)}
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
	// empty: Name. Labs of one folder are also run by its name (see Expand).
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

	// What the fixes say of the lab (see UseTable): the feature gates that the
	// variant ours-gate-off sets to false, without which it is not run, and the
	// fixes that the lab shows.
	gates, fixes []string
}

// Gates are the feature gates that the variant ours-gate-off sets to false.
func (l *Lab) Gates() []string { return slices.Clone(l.gates) }

// Fixes are those that the lab shows.
func (l *Lab) Fixes() []string { return slices.Clone(l.fixes) }

// Use says what the fixes say of the lab, instead of UseTable.
func (l *Lab) Use(gates, fixes []string) { l.gates, l.fixes = gates, fixes }

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

var registry = map[string]*Lab{}

// Register adds a lab; call it from init. It panics on a malformed lab or a
// second one of the same name, so that the mistake shows at the first run.
func Register(l Lab) {
	if err := l.validate(); err != nil {
		panic("labkit: " + err.Error())
	}
	if registry[l.Name] != nil {
		panic("labkit: lab " + l.Name + " registered twice")
	}
	registry[l.Name] = &l
}

// UseTable tells the registered labs what the fixes say of them. Each lab is one of a fix, or a
// check, and a fix names no lab that there is not.
func UseTable(t *fixes.Table) error {
	known := t.Labs()
	for _, l := range Labs() {
		gates, ok := known[l.Name]
		if !ok && !l.Check() {
			return exit.Preconditionf("no fix has the lab %s: add it to \"labs\" in the %s of the one that it shows, or move it below tools/labs/checks/ if it shows no incident", l.Name, fixes.File)
		}
		l.gates, l.fixes = gates, t.LabFixes(l.Name)
	}
	for name := range known {
		if registry[name] == nil {
			return exit.Preconditionf("%s names the lab %s, which there is not", t.Find(t.LabFixes(name)[0]).File(), name)
		}
	}
	return nil
}

// Path is the lab's folder: a path below tools/labs/, e.g. checks/cluster-smoke.
func (l *Lab) Path() string {
	if l.Folder != "" {
		return l.Folder
	}
	return l.Name
}

// Expand replaces the name of a folder, the last part of its path, by the names of
// its labs. A lab of that very name goes before the folder. A name that is neither
// a lab's nor a folder's stays, for Find to complain about.
func Expand(names []string) []string {
	var out []string
	for _, n := range names {
		var inside []string
		if registry[n] == nil {
			for _, l := range Labs() {
				if path.Base(l.Path()) == n {
					inside = append(inside, l.Name)
				}
			}
		}
		if inside == nil {
			inside = []string{n}
		}
		out = append(out, inside...)
	}
	return out
}

// Labs lists the registered labs by name.
func Labs() []*Lab {
	var ls []*Lab
	for _, l := range registry {
		ls = append(ls, l)
	}
	sort.Slice(ls, func(i, j int) bool { return ls[i].Name < ls[j].Name })
	return ls
}

// Find returns the lab of that name, or an error that lists the names.
func Find(name string) (*Lab, error) {
	if l := registry[name]; l != nil {
		return l, nil
	}
	var names []string
	for _, l := range Labs() {
		names = append(names, l.Name)
	}
	return nil, fmt.Errorf("no lab %q; there are: %s", name, strings.Join(names, ", "))
}
