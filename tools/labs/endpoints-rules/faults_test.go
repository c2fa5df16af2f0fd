// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func goodServed() []served {
	return []served{{Namespace: ns, Updates: 40, Slowest: at(11)}, {Namespace: other, Updates: 20, Slowest: at(10)}}
}

// goodFaults are the rows as they must be.
func goodFaults() []any {
	write := func(name string, took float64, p placed) call {
		return call{Name: name, Addresses: 2, Took: at(took), Placed: p, RightAfter: at(0.5)}
	}
	rows := map[row]fault{
		stoppedRow:     {Calls: []call{write(probe, 10, unchanged)}, EndedAfter: at(11), FilledAfter: at(10)},
		droppedRow:     {Calls: []call{write(probe, 30, unchanged), write(probe2, 30, unchanged)}, EmptyAfter: at(8), FilledAfter: at(12)},
		killedRow:      {Calls: []call{write(probe, 0.1, unchanged)}, EndedAfter: at(0.1), FilledAfter: at(2)},
		deafRow:        {EndedAfter: at(42), FilledAfter: at(2)},
		certificateRow: {Calls: []call{write(probe, 0.1, unchanged)}, EmptyAfter: at(9), FilledAfter: at(12)},
		betweenRow:     {Modes: len(modes), FilledAfter: at(1)},
		ruleRow:        {Calls: []call{write(probe, 0.1, patched)}},
		largeRow:       {},
		reloadRow:      {Calls: []call{write(probe, 0.1, patched), write(probe, 0.1, unchanged)}},
	}
	var out []any
	for _, name := range faultRows {
		f := rows[name]
		f.Row, f.Served = name, goodServed()
		switch name {
		case betweenRow:
			for _, m := range modes {
				took := 0.2
				if m.answer > 0 {
					took = min(m.answer, 30*time.Second).Seconds()
				}
				f.Calls = append(f.Calls, write(m.name, took, m.want))
			}
		case largeRow:
			for _, n := range sizes {
				c := write(largeName(n), 2, patched)
				c.Addresses = n
				f.Calls = append(f.Calls, c)
			}
		}
		out = append(out, f)
		if name == betweenRow {
			out = append(out, fuzzed{Reviews: 2000, Allowed: 500, Slowest: at(0.1)})
		}
	}
	out = append(out, reloads{Rules: goodRules, Rejected: badRules, Certificates: certificates, Handshakes: 900},
		compared{Services: 24, After: at(0.4), Asked: true})
	return append(out, goodLeases()...)
}

func goodLeases() []any {
	var out []any
	for _, name := range leaseNames {
		out = append(out, lease{Name: name, Holders: []string{"a"}, Renewals: 100, LongestGap: at(4), Alive: true})
	}
	return out
}

func madeFaults(c judgetest.Change) *history.History {
	return history.Make(history.Begin{Lab: "endpoints-rules-faults", Variant: string(labkit.Ours), Profile: string(labkit.Short)}, c.Of(goodFaults())...)
}

func TestJudgeFaults(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-rules-faults")
	judgetest.Cut(t, l, madeFaults(nil))
	in := func(name row, f func(*fault)) judgetest.Change {
		return judgetest.Where(func(f fault) bool { return f.Row == name }, f)
	}
	inCall := func(name row, which string, f func(*call)) judgetest.Change {
		return in(name, func(o *fault) {
			o.Calls = append([]call{}, o.Calls...)
			for i := range o.Calls {
				if o.Calls[i].Name == which {
					f(&o.Calls[i])
				}
			}
		})
	}
	kcm := func(l lease) bool { return l.Name == leaseNames[0] }
	took := func(s float64) func(*call) { return func(c *call) { c.Took = at(s) } }
	judgetest.Judged(t, l, labkit.Reproduced, madeFaults, map[string]judgetest.Change{
		"alive at the end: false":                                                      judgetest.Where(kcm, func(l *lease) { l.Alive = false }),
		"2 holders":                                                                    judgetest.Where(kcm, func(l *lease) { l.Holders = []string{"a", "b"} }),
		"of namespace other followed after 29.5s":                                      in(stoppedRow, func(f *fault) { f.Served = goodServed(); f.Served[1].Slowest = at(29.5) }),
		"SIGSTOP: probe unchanged after 30s":                                           inCall(stoppedRow, probe, took(30)),
		"the liveness probe did not end":                                               in(stoppedRow, func(f *fault) { f.EndedAfter = 0 }),
		"1 changes in namespace default are not":                                       in(droppedRow, func(f *fault) { f.Served = goodServed(); f.Served[0].Lost = 1 }),
		"packets dropped: probe-2 unchanged":                                           inCall(droppedRow, probe2, took(40)),
		"packets dropped: the webhook configuration is not empty":                      in(droppedRow, func(f *fault) { f.EmptyAfter = 0 }),
		"no news: the program did not end within 1m0s":                                 in(deafRow, func(f *fault) { f.EndedAfter = 0 }),
		"no news: Endpoints of namespace other followed after 20s":                     in(deafRow, func(f *fault) { f.Served = goodServed(); f.Served[1].Slowest = at(20) }),
		"no news: the webhook is not in its":                                           in(deafRow, func(f *fault) { f.FilledAfter = 0 }),
		"foreign certificate: the webhook is not in its":                               in(certificateRow, func(f *fault) { f.FilledAfter = 0 }),
		"kill -9: probe unchanged after 6s":                                            inCall(killedRow, probe, took(6)),
		"kill -9: a write was refused: probe refused after 100ms: 500":                 inCall(killedRow, probe, func(c *call) { c.Err = "500" }),
		"a write was altered: garbage-text 1 ready":                                    inCall(betweenRow, "garbage-text", func(c *call) { c.Placed = "1 ready" }),
		"answer-over unchanged after 45s":                                              inCall(betweenRow, "answer-over", took(45)),
		"body-over unchanged after 200ms: not correct":                                 inCall(betweenRow, "body-over", func(c *call) { c.RightAfter = 0 }),
		"none of 1 writes was patched":                                                 inCall(ruleRow, probe, func(c *call) { c.Placed = unchanged }),
		"a rule that fails: endpoints_rules_rules_failed_total":                        in(ruleRow, func(f *fault) { f.Wrong = "endpoints_rules_rules_failed_total is 0" }),
		"large-10000 patched after 2s, 10000 addresses: not":                           inCall(largeRow, largeName(10000), func(c *call) { c.RightAfter = 0 }),
		"3 of 900 connections failed":                                                  judgetest.Where(all[reloads], func(r *reloads) { r.Failed = 3 }),
		"99 rules were loaded again":                                                   judgetest.Where(all[reloads], func(r *reloads) { r.Rules = 99 }),
		"98 certificates were seen":                                                    judgetest.Where(all[reloads], func(r *reloads) { r.Certificates = 98 }),
		"a made-up review: status 500":                                                 judgetest.Where(all[fuzzed], func(r *fuzzed) { r.Wrong = "status 500" }),
		"1 of 24 Services differ from the model at the end, first: default/in-1 lacks": judgetest.Where(all[compared], func(c *compared) { c.Wrong = []string{"default/in-1 lacks"} }),
		"2 addresses are misplaced at the end":                                         judgetest.Where(all[compared], func(c *compared) { c.Misplaced = 2 }),
		"does not report how many":                                                     judgetest.Where(all[compared], func(c *compared) { c.Asked = false }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, madeFaults, map[string]judgetest.Change{
		"the first write took 100ms: the trigger":      inCall(stoppedRow, probe, took(0.1)),
		"no news: the slowest Endpoints took 1s":       in(deafRow, func(f *fault) { f.Served = goodServed(); f.Served[0].Slowest = at(1) }),
		"accepted the foreign certificate":             inCall(certificateRow, probe, func(c *call) { c.Placed = patched }),
		"kill -9: probe unchanged after 2s, corrected": inCall(killedRow, probe, took(2)),
		"body-under unchanged":                         inCall(betweenRow, "body-under", func(c *call) { c.Placed = unchanged }),
		"body-over patched":                            inCall(betweenRow, "body-over", func(c *call) { c.Placed = patched }),
		"nothing was written with garbage-cut": in(betweenRow, func(f *fault) {
			f.Calls = f.Calls[:len(f.Calls)-1]
		}),
		"9 of 10 modes":                                  in(betweenRow, func(f *fault) { f.Modes = 9 }),
		"no Endpoints of 5000":                           in(largeRow, func(f *fault) { f.Calls = f.Calls[1:] }),
		"nothing changed in namespace default":           in(reloadRow, func(f *fault) { f.Served = goodServed(); f.Served[0].Updates = 0 }),
		"lease kube-controller-manager was read 0 times": judgetest.Where(kcm, func(l *lease) { l.Renewals = 1 }),
		"0 made-up reviews":                              judgetest.As(fuzzed{}),
	})
}

func all[T any](T) bool { return true }

// TestJudgeFaultsHidesNothing: what a row saw stays where leases or other rows are missing.
func TestJudgeFaultsHidesNothing(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-rules-faults")
	bad := judgetest.Where(func(f fault) bool { return f.Row == killedRow }, func(f *fault) { f.Wrong = "altered" })
	h := madeFaults(bad)
	judgetest.Judge(t, l, history.Make(h.Begin, only(history.Of[fault](h), killedRow)...), labkit.Reproduced)
}

func only(faults []fault, name row) []any {
	var out []any
	for _, f := range faults {
		if f.Row == name {
			out = append(out, f)
		}
	}
	return out
}

func TestJudgeControl(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-rules-faults")
	made := func(c judgetest.Change) *history.History {
		list := append([]any{fault{Row: controlRow, Calls: []call{{Name: probe, Addresses: 2, Took: at(30), Placed: unchanged}}}}, goodLeases()...)
		list[1] = lease{Name: leaseNames[0], Holders: []string{"a"}, Renewals: 9, LongestGap: at(3)}
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Stock), Profile: string(labkit.Short)}, c.Of(list)...)
	}
	judgetest.Judge(t, l, made(nil), labkit.Reproduced)
	judgetest.Judge(t, l, made(judgetest.Where(all[lease], func(l *lease) { l.Alive = true })), labkit.Absent)
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"the trigger is missing": judgetest.Where(all[fault], func(f *fault) { f.Calls = nil }),
		"0 rows":                 judgetest.Without(all[fault]),
		"was read 0 times":       judgetest.Without(func(l lease) bool { return !l.Alive }),
	})
}

func TestProbesOf(t *testing.T) {
	text := `{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":3,"containers":[{"name":"breaker"},{"name":"endpoints-rules","livenessProbe":{"initialDelaySeconds":5,"periodSeconds":3,"timeoutSeconds":2,"failureThreshold":2}}]}}}}`
	if got, err := probesOf([]byte(text)); err != nil || got != (probes{at(5), at(3), at(2), at(3), 2}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := probesOf([]byte(`{}`)); err == nil {
		t.Error("a DaemonSet without the container")
	}
}

func TestWrongAnswer(t *testing.T) {
	for answer, right := range map[string]bool{`{"response":{"uid":"x","allowed":true}}`: true, `{"response":{"allowed":false}}`: false, `{}`: false, ``: false} {
		if why := wrongAnswer(200, []byte(answer), nil); (why == "") != right {
			t.Errorf("%s: %q", answer, why)
		}
	}
	if wrongAnswer(400, nil, nil) != "" || wrongAnswer(500, nil, nil) == "" || wrongAnswer(0, nil, os.ErrClosed) == "" {
		t.Error("the status")
	}
}

func TestMutate(t *testing.T) {
	rng, sample, other := rand.New(rand.NewPCG(1, 2)), []byte(`{"request":{"uid":"u","object":{"subsets":[]}}}`), 0
	was := bytes.Clone(sample)
	for range 1000 {
		if !bytes.Equal(mutate(rng, sample), sample) {
			other++
		}
	}
	if other < 500 || !bytes.Equal(sample, was) {
		t.Errorf("%d of 1000 differ; the review is %s", other, sample)
	}
}

func TestFront(t *testing.T) {
	asked := 0
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		_, _ = io.Copy(w, r.Body)
	}))
	defer program.Close()
	f := &front{to: program.URL, used: map[string]bool{}}
	srv := httptest.NewServer(f)
	defer srv.Close()
	post := func(name string) (int, string, error) {
		req, err := http.NewRequest(http.MethodPost, srv.URL, strings.NewReader(fmt.Sprintf(`{"request":{"name":%q}}`, name)))
		if err != nil {
			t.Fatal(err)
		}
		status, body, err := answerOf(http.DefaultClient, req)
		return status, string(body), err
	}
	passed := 0
	for _, m := range modes {
		if m.answer > 0 {
			continue // these take half a minute
		}
		begin := time.Now()
		status, body, err := post(m.name)
		switch {
		case m.cut:
			if err == nil {
				t.Errorf("%s: not cut", m.name)
			}
		case m.status != 0:
			if err != nil || status != m.status || body != m.instead {
				t.Errorf("%s: %d %q, %v", m.name, status, body, err)
			}
		default:
			passed++
			if err != nil || status != 200 || !strings.Contains(body, m.name) || time.Since(begin) < m.body {
				t.Errorf("%s: %d %q, %v, after %v", m.name, status, body, err, time.Since(begin))
			}
		}
		// Once only.
		passed++
		if status, body, err := post(m.name); err != nil || status != 200 || !strings.Contains(body, m.name) {
			t.Errorf("%s again: %d %q, %v", m.name, status, body, err)
		}
	}
	passed++
	if _, _, err := post(probe); err != nil || asked != passed || !strings.Contains(string(f.sample), probe) {
		t.Errorf("asked %d times, want %d; %v; sample %s", asked, passed, err, f.sample)
	}
}

func TestAuthority(t *testing.T) {
	a, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := a.issue(filepath.Join(dir, "c"), filepath.Join(dir, "k"), 7); err != nil {
		t.Fatal(err)
	}
}
