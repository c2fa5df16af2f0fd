// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/webset"
)

func madeReplicas(v labkit.Variant, p labkit.Profile, c judgetest.Change) *history.History {
	var list []any
	for _, way := range routesOf(v) {
		for n := range rounds(p) {
			r := routed{replacement: goodRound(n, false).replacement, Route: way}
			if way != noRoute {
				r.Asked, r.Behind = map[string]int{current: 10, behind: 10}, 7
				r.Said = []said{{Program: current, Disputed: 1}, {Program: behind}}
			}
			list = append(list, r)
		}
	}
	return history.Make(history.Begin{Lab: "endpoints-rules-replicas", Variant: string(v), Profile: string(p)}, c.Of(list)...)
}

func TestJudgeReplicas(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-rules-replicas")
	for _, v := range []labkit.Variant{labkit.Stock, labkit.Ours} {
		for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
			judgetest.Cut(t, l, madeReplicas(v, p, nil))
		}
	}
	early := func(r *routed) { r.Updates = []update{{at(1), []string{webset.Name(3)}}, {at(7), nil}} }
	in := func(v labkit.Variant) func(judgetest.Change) *history.History {
		return func(c judgetest.Change) *history.History { return madeReplicas(v, labkit.Short, c) }
	}
	on := func(way route, f func(*routed)) judgetest.Change {
		return judgetest.Where(func(r routed) bool { return r.Route == way }, f)
	}
	saying := func(s said) func(*routed) { return func(r *routed) { r.Said = []said{{Program: current}, s} } }
	judgetest.Judged(t, l, labkit.Reproduced, in(labkit.Stock), map[string]judgetest.Change{
		"no webhook: the client enabled pods whose old container still ran: [web-03] (fixed windows), [web-03]": on(noRoute, early),
	})
	judgetest.Judged(t, l, labkit.Reproduced, in(labkit.Ours), map[string]judgetest.Change{
		"in turn: the client enabled":                                 on(alternate, early),
		"all to the one behind: the client enabled":                   on(toBehind, early),
		"in turn: 10s after the last pod became ready, 19":            on(alternate, func(r *routed) { r.Late, r.Addresses = 0, 19 }),
		"all to the one behind: 3 addresses are misplaced":            on(toBehind, saying(said{Program: behind, Misplaced: 3})),
		"all to the one behind: the one behind does not report how m": on(toBehind, saying(said{Program: behind, Unread: "EOF"})),
		// What the first round could not tell hides nothing of the second.
		"behind: 10s after the last pod became ready, 19": func(o any) any {
			o = on(alternate, func(r *routed) { r.Behind = 0 })(o)
			return on(toBehind, func(r *routed) { r.Late, r.Addresses = 0, 19 })(o)
		},
	})
	judgetest.Judged(t, l, labkit.Inconclusive, in(labkit.Ours), map[string]judgetest.Change{
		"of 19 of 20 pods": on(toBehind, func(r *routed) {
			r.Pods = append([]replaced{}, r.Pods...)
			r.Pods[2].Gone = 0
		}),
		"in turn: the Endpoints never changed":                       on(alternate, func(r *routed) { r.Updates = nil }),
		"the one behind had already received each pod":               on(toBehind, func(r *routed) { r.Behind = 0 }),
		"the current one reviewed nothing":                           on(alternate, func(r *routed) { r.Asked = map[string]int{behind: 3} }),
		"the one behind reviewed nothing":                            on(toBehind, func(r *routed) { r.Asked = map[string]int{current: 3} }),
		"the metric of misplaced addresses was read from 1 programs": on(toBehind, func(r *routed) { r.Said = r.Said[:1] }),
		"all to the one behind: 0 rounds, want 1":                    judgetest.Without(func(r routed) bool { return r.Route == toBehind }),
	})
}

// TestLateBody: every piece comes as late as it was sent, in order, and the end after them.
func TestLateBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		begin := time.Now()
		go func() {
			for _, s := range []string{"one", "two"} {
				_, _ = io.WriteString(pw, s)
				time.Sleep(time.Second)
			}
			pw.CloseWithError(errors.New("gone"))
		}()
		b := newLate(pr, 5*time.Second)
		buf := make([]byte, 2)
		var got strings.Builder
		var at []time.Duration
		for {
			n, err := b.Read(buf)
			got.Write(buf[:n])
			if err != nil {
				if err.Error() != "gone" {
					t.Error(err)
				}
				break
			}
			at = append(at, time.Since(begin))
		}
		if got.String() != "onetwo" || len(at) != 4 || at[0] != 5*time.Second || at[1] != at[0] || at[2] != 6*time.Second {
			t.Errorf("%q at %v", got.String(), at)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if _, err := newLate(http.NoBody, 0).Read(buf); err != io.EOF {
			t.Error(err)
		}
	})
}

func TestRouter(t *testing.T) {
	r := &router{route: alternate, asked: map[string]int{}}
	for range 4 {
		r.choose()
	}
	if got := r.take(toBehind); got[current] != 2 || got[behind] != 2 {
		t.Error(got)
	}
	for range 3 {
		if to := r.choose(); to != behindAddress {
			t.Error(to)
		}
	}
	if got := r.take(alternate); got[current] != 0 || got[behind] != 3 {
		t.Error(got)
	}
}
