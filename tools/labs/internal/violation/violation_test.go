// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package violation

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"holdfast/tools/labkit"
)

func TestResult(t *testing.T) {
	over, end := context.WithCancel(context.Background())
	end()
	alive := func(context.Context) error { return nil }
	dead := func(context.Context) error { return errors.New("etcd ended") }
	found := fmt.Errorf("step 3: %w", Of(errors.New("killed too early")))
	for name, c := range map[string]struct {
		ctx   context.Context
		err   error
		alive func(context.Context) error
		want  labkit.Verdict
	}{
		"a violation":                {context.Background(), found, alive, labkit.Reproduced},
		"on dead components":         {context.Background(), found, dead, ""},
		"ended from outside":         {over, found, alive, ""},
		"an error of the lab":        {context.Background(), errors.New("no pod"), nil, ""},
		"nothing was started at all": {context.Background(), errors.New("no port"), nil, ""},
	} {
		res, err := Result(c.ctx, labkit.Result{}, c.err, c.alive)
		if res.Verdict != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	if res, err := Result(context.Background(), labkit.Result{Verdict: labkit.Absent}, nil, nil); err != nil || res.Verdict != labkit.Absent {
		t.Errorf("%+v, %v", res, err)
	}
}
