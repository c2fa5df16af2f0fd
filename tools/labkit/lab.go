// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"context"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"time"
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
)

// Profile chooses how much a lab does.
type Profile string

const (
	// Short fits `make test`: a couple of minutes per lab at most.
	Short Profile = "short"
	// Long is for `make lab LAB=… PROFILE=long`.
	Long Profile = "long"
)

// Variant says which build is under test.
type Variant string

const (
	// Stock is upstream plus the toolchain series.
	Stock Variant = "stock"
	// Ours is stock plus overlay plus the series security and carry.
	Ours Variant = "ours"
	// GateOff is ours with the lab's feature gates set to false.
	GateOff Variant = "ours-gate-off"
)

// build is the directory name of the variant below _output/bin/<base>/.
func (v Variant) build() string {
	if v == GateOff {
		return string(Ours)
	}
	return string(v)
}

// Result is what a lab's Run answers.
type Result struct {
	Verdict Verdict
	Why     string   // one line: what the oracle saw
	Facts   []string // further numbers worth printing
}

// ReproducedBecause says that the oracle saw the incident.
func ReproducedBecause(format string, a ...any) Result {
	return Result{Verdict: Reproduced, Why: fmt.Sprintf(format, a...)}
}

// AbsentBecause says that the trigger was there and the incident was not.
func AbsentBecause(format string, a ...any) Result {
	return Result{Verdict: Absent, Why: fmt.Sprintf(format, a...)}
}

// InconclusiveBecause says that the lab could not tell.
func InconclusiveBecause(format string, a ...any) Result {
	return Result{Verdict: Inconclusive, Why: fmt.Sprintf(format, a...)}
}

// Binary names a program that a lab needs: Name of base Base (like v1.9.11).
// Variant is "stock", "ours" or UnderTest.
type Binary struct {
	Base, Variant, Name string
}

// UnderTest in Binary.Variant means the build of the variant that runs.
const UnderTest = "under-test"

// StockBinary is Name of Base as upstream has it, in every variant.
func StockBinary(base, name string) Binary { return Binary{base, string(Stock), name} }

// BinaryUnderTest is Name of Base from the build of the variant that runs.
func BinaryUnderTest(base, name string) Binary { return Binary{base, UnderTest, name} }

// forVariant resolves UnderTest.
func (b Binary) forVariant(v Variant) Binary {
	if b.Variant == UnderTest {
		b.Variant = v.build()
	}
	return b
}

func (b Binary) String() string { return b.Base + "/" + b.Variant + "/" + b.Name }

// Lab is one incident as a program. See the package comment for an example.
type Lab struct {
	// Name is lower case with dashes; by custom the slug, or slug-something.
	Name string
	// Folder below labs/ that has the lab's page and data; empty: Name. Labs of
	// one folder are also run by its name (see Expand).
	Folder string
	// Summary is one line for the list of labs.
	Summary string
	// Gates are the feature gates that the variant ours-gate-off sets to false.
	// Empty: that variant is not run.
	Gates []string
	// Plan is printed before anything starts, one line per step.
	Plan func(Profile) []string
	// Needs are the binaries, checked before anything starts.
	Needs []Binary
	// Expect overrides what a variant must answer (see DefaultExpect).
	Expect map[Variant]Verdict
	// Variants overrides which variants are run and in what order.
	Variants []Variant
	// Timeout bounds one variant's run; nil: 5 minutes short, 30 minutes long.
	Timeout func(Profile) time.Duration
	// LongOnly keeps the lab out of make test: it repeats what another lab shows
	// on further releases, or measures. Run it by name, or with --all.
	LongOnly bool
	// Packages are Debian packages beyond the kit's own (DebianPackages).
	Packages []string
	// Run drives the incident. It must honour ctx. An error is Inconclusive.
	Run func(ctx context.Context, e *Env) (Result, error)
}

// DefaultExpect is what a variant must answer unless the lab overrides it.
var DefaultExpect = map[Variant]Verdict{Stock: Reproduced, Ours: Absent, GateOff: Reproduced}

// Expected is the verdict that v must have.
func (l *Lab) Expected(v Variant) Verdict {
	if e, ok := l.Expect[v]; ok {
		return e
	}
	return DefaultExpect[v]
}

func (l *Lab) variants() []Variant {
	if len(l.Variants) > 0 {
		return l.Variants
	}
	vs := []Variant{Stock, Ours}
	if len(l.Gates) > 0 {
		vs = append(vs, GateOff)
	}
	return vs
}

func (l *Lab) timeout(p Profile) time.Duration {
	if l.Timeout != nil {
		return l.Timeout(p)
	}
	if p == Long {
		return 30 * time.Minute
	}
	return 5 * time.Minute
}

var labName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// validate has one message per rule.
func (l *Lab) validate() error {
	switch {
	case !labName.MatchString(l.Name):
		return fmt.Errorf("lab %q: Name must be lower-case words joined by dashes", l.Name)
	case l.Summary == "" || strings.Contains(l.Summary, "\n"):
		return fmt.Errorf("lab %s: Summary must be one line", l.Name)
	case l.Plan == nil:
		return fmt.Errorf("lab %s: Plan is missing", l.Name)
	case l.Run == nil:
		return fmt.Errorf("lab %s: Run is missing", l.Name)
	}
	for _, v := range l.variants() {
		if _, ok := DefaultExpect[v]; !ok {
			return fmt.Errorf("lab %s: unknown variant %q", l.Name, v)
		}
		if v == GateOff && len(l.Gates) == 0 {
			return fmt.Errorf("lab %s: variant %s needs Gates", l.Name, v)
		}
	}
	return nil
}

var registry = map[string]*Lab{}

// hidden are labs that are in no list.
var hidden = map[string]*Lab{}

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

// Home is the folder below labs/ that the lab belongs to.
func (l *Lab) Home() string {
	if l.Folder != "" {
		return l.Folder
	}
	return l.Name
}

// Expand replaces the name of a folder by the names of its labs. A lab of that
// very name goes before the folder. A name that is neither a lab's nor a
// folder's stays, for Find to complain about.
func Expand(names []string) []string {
	var out []string
	for _, n := range names {
		var home []string
		if registry[n] == nil {
			for _, l := range Labs() {
				if l.Home() == n {
					home = append(home, l.Name)
				}
			}
		}
		if home == nil {
			home = []string{n}
		}
		out = append(out, home...)
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
	if l := hidden[name]; l != nil {
		return l, nil
	}
	var names []string
	for _, l := range Labs() {
		names = append(names, l.Name)
	}
	return nil, fmt.Errorf("no lab %q; there are: %s", name, strings.Join(names, ", "))
}
