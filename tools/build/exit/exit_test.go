// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package exit

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestCode(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{Usagef("x"), 2},
		{Preconditionf("x"), 1},
		{fmt.Errorf("more: %w", Usagef("x")), 2},
		{errors.Join(errors.New("y"), Usagef("x")), 2},
		// The outer one says what it is about.
		{Preconditionf("base: %w", Usagef("x")), 1},
	} {
		if got := Code(tc.err); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
	err := Preconditionf("a: %w", fs.ErrNotExist)
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != "a: file does not exist" {
		t.Error(err)
	}
}
