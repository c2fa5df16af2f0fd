// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package judgetest

import (
	"strings"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// Change makes another observation of one, or the same; nil takes it away.
type Change func(o any) any

// Of are observations with the change, which may be nil: all as they are.
func (c Change) Of(all []any) []any {
	var out []any
	for _, o := range all {
		if c != nil {
			o = c(o)
		}
		if o != nil {
			out = append(out, o)
		}
	}
	return out
}

// Where changes by f the observations of a type that is accepts.
func Where[T any](is func(T) bool, f func(*T)) Change {
	return func(o any) any {
		if v, ok := o.(T); ok && is(v) {
			f(&v)
			return v
		}
		return o
	}
}

// As puts with in the place of each observation of its type.
func As[T any](with T) Change {
	return Where(func(T) bool { return true }, func(v *T) { *v = with })
}

// Without takes away the observations of a type that is accepts.
func Without[T any](is func(T) bool) Change {
	return func(o any) any {
		if v, ok := o.(T); ok && is(v) {
			return nil
		}
		return o
	}
}

// Judged has the lab judge what made makes with each change. The verdict must be want,
// and why it is must contain the key of the change.
func Judged(t *testing.T, l *labkit.Lab, want labkit.Verdict, made func(Change) *history.History, changes map[string]Change) {
	t.Helper()
	for why, c := range changes {
		if res := Judge(t, l, made(c), want); !strings.Contains(res.Why, why) {
			t.Errorf("%s: %q, want %q", l.Name, res.Why, why)
		}
	}
}
