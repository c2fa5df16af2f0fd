// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules reads rules files and judges addresses by them. A rule is an
// expression of github.com/expr-lang/expr over a typed Env and a Place; the
// first one that applies decides.
package rules

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/expr-lang/expr/vm"
)

// Place is where a rule wants an address.
type Place string

// The places. Leave is where the endpoints controller has it.
const (
	Ready    Place = "ready"
	NotReady Place = "notReady"
	Drop     Place = "drop"
	Leave    Place = "leave"
)

// Places are what "then" may be.
var Places = []Place{Ready, NotReady, Drop, Leave}

// Budget is what one evaluation of one rule may take. A machine that is busy
// makes any take long at times, so that a rule is over it only when it was
// budgetTries times in a row.
const (
	Budget      = 10 * time.Millisecond
	budgetTries = 3
)

// Rule is one rule.
type Rule struct {
	Name         string
	When         string
	Then         Place
	DryRun       bool
	Line, Column int

	program *vm.Program
	off     atomic.Pointer[string]
}

// Off is why the rule does not take part any more; "" while it does.
func (r *Rule) Off() string {
	if s := r.off.Load(); s != nil {
		return *s
	}
	return ""
}

// Set is a rules file. Its methods may be called at the same time.
type Set struct {
	Rules  []*Rule
	DryRun bool
	// OnOff is called once for a rule that has failed and is off from now on.
	OnOff func(r *Rule, why string)
}

// Verdict is what a Set says of an address.
type Verdict struct {
	Place Place  // Leave where no rule applies
	Rule  string // "" where none does
	// DryRun are rules in dry-run that apply and would have decided.
	DryRun []string
	// Wake is when the verdict may change although nothing else does; zero: never.
	Wake time.Time
}

// Judge asks each rule in turn. env is not kept.
func (s *Set) Judge(env *Env, now time.Time) Verdict {
	v := Verdict{Place: Leave}
	env.prepare(now)
	machine := newMachine()
	for _, r := range s.Rules {
		if r.off.Load() != nil {
			continue
		}
		yes, why := r.applies(machine, env)
		if why != "" {
			if r.off.CompareAndSwap(nil, &why) && s.OnOff != nil {
				s.OnOff(r, why)
			}
			machine = newMachine()
			continue
		}
		if !yes {
			continue
		}
		if r.DryRun || s.DryRun {
			v.DryRun = append(v.DryRun, r.Name)
			if s.DryRun {
				break
			}
			continue
		}
		v.Place, v.Rule = r.Then, r.Name
		break
	}
	v.Wake = env.wake
	return v
}

// applies evaluates a rule; why is set if it failed.
func (r *Rule) applies(machine *vm.VM, env *Env) (yes bool, why string) {
	for try := 1; ; try++ {
		start := time.Now()
		out, err := r.run(machine, env)
		took := time.Since(start)
		if err != nil {
			return false, err.Error()
		}
		if took <= Budget {
			return out, ""
		}
		if try == budgetTries {
			return false, fmt.Sprintf("it took %v, %d times in a row: the budget is %v", took.Round(time.Microsecond), try, Budget)
		}
	}
}

func (r *Rule) run(machine *vm.VM, env *Env) (yes bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	out, err := machine.Run(r.program, env)
	if err != nil {
		return false, err
	}
	return out.(bool), nil
}

// Find returns the rule of that name, or nil.
func (s *Set) Find(name string) *Rule {
	if i := slices.IndexFunc(s.Rules, func(r *Rule) bool { return r.Name == name }); i >= 0 {
		return s.Rules[i]
	}
	return nil
}

func newMachine() *vm.VM { return &vm.VM{} }

// Explain is Judge with what each rule answered, up to the one that decided.
func (s *Set) Explain(env *Env, now time.Time) (Verdict, []string) {
	v := s.Judge(env, now)
	var asked []string
	machine := newMachine()
	for _, r := range s.Rules {
		answer := "does not apply"
		yes, err := r.run(machine, env)
		switch {
		case r.Off() != "":
			answer = "is off: " + r.Off()
		case err != nil:
			answer = "fails: " + err.Error()
			machine = newMachine()
		case yes && (r.DryRun || s.DryRun):
			answer = "applies, in dry-run"
		case yes:
			answer = "applies"
		}
		asked = append(asked, r.Name+" "+answer)
		if r.Name == v.Rule {
			break
		}
	}
	return v, asked
}
