// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package violation is for labs that drive and judge in one function: it tells what the
// product must not do from an error of the lab.
package violation

import (
	"context"
	"errors"

	"holdfast/tools/labkit"
)

// Error is what the product must not do.
type Error struct{ error }

// Of makes an error a violation.
func Of(err error) error { return Error{err} }

// Result makes "reproduced" of a violation, if the run was not ended from outside and the
// components are alive, which is asked only then: a violation on dead ones proves nothing.
// Anything else stays as it is.
func Result(ctx context.Context, res labkit.Result, err error, alive func(context.Context) error) (labkit.Result, error) {
	var e Error
	if errors.As(err, &e) && ctx.Err() == nil && alive(ctx) == nil {
		return labkit.ReproducedBecause("%v", e), nil
	}
	return res, err
}
