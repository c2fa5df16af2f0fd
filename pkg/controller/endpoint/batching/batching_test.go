// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package batching

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"k8s.io/client-go/util/workqueue"
)

func TestFlag(t *testing.T) {
	for value, tc := range map[string]struct {
		period time.Duration
		err    string
	}{
		"0":       {},
		"0s":      {},
		"500ms":   {period: 500 * time.Millisecond},
		"5s":      {period: 5 * time.Second},
		"1m30s":   {period: 90 * time.Second},
		"-1ns":    {err: "negative"},
		"-5s":     {err: "negative"},
		"5":       {err: "missing unit"},
		"":        {err: "invalid duration"},
		"soon":    {err: "invalid duration"},
		"999999h": {period: 999999 * time.Hour},
	} {
		var p Period
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		fs.Var(&p, "endpoint-updates-batch-period", "")
		if s := fs.Lookup("endpoint-updates-batch-period"); s.DefValue != "0s" || s.Value.Type() != "duration" {
			t.Errorf("default %q, type %q", s.DefValue, s.Value.Type())
		}
		err := fs.Parse([]string{"--endpoint-updates-batch-period=" + value})
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), "endpoint-updates-batch-period") {
				t.Errorf("%q: error %v, expected one with %q that names the flag", value, err, tc.err)
			}
			if p != 0 {
				t.Errorf("%q: refused, and yet the period is %v", value, p)
			}
			continue
		}
		if err != nil || time.Duration(p) != tc.period {
			t.Errorf("%q: %v, %v, expected %v", value, time.Duration(p), err, tc.period)
		}
	}
}

// countingQueue counts how keys come in.
type countingQueue struct {
	workqueue.DelayingInterface
	added int
	after []time.Duration
}

func (q *countingQueue) Add(interface{}) { q.added++ }

func (q *countingQueue) AddAfter(_ interface{}, d time.Duration) { q.after = append(q.after, d) }

func TestAdd(t *testing.T) {
	q := &countingQueue{}
	Period(0).Add(q, "k")
	if q.added != 1 || len(q.after) != 0 {
		t.Errorf("no period: %d Add, AddAfter %v; AddAfter counts a retry", q.added, q.after)
	}
	q = &countingQueue{}
	Period(time.Second).Add(q, "k")
	if q.added != 0 || len(q.after) != 1 || q.after[0] != time.Second {
		t.Errorf("1s: %d Add, AddAfter %v", q.added, q.after)
	}
}
