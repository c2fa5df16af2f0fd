// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsrules

import (
	"fmt"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
)

// Faults beside stoppedRow and killedRow, which are of the program's process here too.
const (
	earlyRow     row = "SIGSTOP of a new pod as soon as it is called"
	deletedRow   row = "pod deleted"
	breakerRow   row = "kill -9 of the breaker"
	kubeletRow   row = "kill -9 of the kubelet"
	dockerdRow   row = "kill -9 of dockerd"
	apiserverRow row = "kill -9 of kube-apiserver"
	managerRow   row = "kill -9 of kube-controller-manager"
	awayRow      row = "kill -9 of kube-apiserver and of the program"
)

// podRows are those of a round of the long profile.
var podRows = []row{stoppedRow, earlyRow, killedRow, deletedRow, breakerRow, kubeletRow, dockerdRow, apiserverRow, managerRow, awayRow}

const (
	podRounds = 3
	// spread is how long the seed may put off a fault.
	spread = 3 * time.Second
	// backBound is the longest until the program serves again: the kubelet pauses for up to
	// 40 s before a third restart, and the lab has no pod restarted more often.
	backBound = 2 * time.Minute
	// soonBack is the longest until a program serves that was started without an API server,
	// after there is one: it must not depend on the kubelet's pause.
	soonBack = 10 * time.Second
	// unguardedFor is how long the control stops the program.
	unguardedFor = time.Minute
)

// ends are the components that end with the fault: one is killed, or cannot renew its lease.
func (r row) ends() []string {
	switch r {
	case managerRow:
		return leaseNames[:1]
	case apiserverRow, awayRow:
		return leaseNames
	}
	return nil
}

// slow says whether Endpoints may follow late: nobody takes calls, or nobody follows.
func (r row) slow() bool { return r == droppedRow || r == deafRow || len(r.ends()) > 0 }

// keeps says whether the container of the program stays.
func (r row) keeps() bool {
	return r == breakerRow || r == kubeletRow || r == dockerdRow || r == managerRow || r == apiserverRow
}

// podFault is a fault of a program that kubelets run. Times are from its begin.
type podFault struct {
	fault
	Round int
	// Age is how long the container had run.
	Age time.Duration
	// APIServerAway is when the API server was healthy again.
	APIServerAway time.Duration
	// BackAfter is when the program served; 0: not within backBound.
	BackAfter time.Duration
	// RightAfter is how long it took until all was as in the model when nothing changed any
	// more. Differ is what was not within rightBound.
	RightAfter time.Duration
	Differ     []string
	// Ended are controller manager and scheduler, if they ended by themselves.
	Ended []string
	// Replaced: the program's container is another one afterwards.
	Replaced bool
}

var podOracle = labkit.Oracle{
	Text: []string{
		fmt.Sprintf("stock: without liveness probe and breaker, Endpoints or a write wait longer than %v for a stopped program", anyUpdate),
		fmt.Sprintf("ours: the liveness probe ends a stopped program, and no write and no Endpoints of either namespace take longer than %v", anyUpdate),
		fmt.Sprintf("ours: after each kill, except of API server and controller manager, a write takes %v at most", quick),
		fmt.Sprintf("ours: the kubelet starts the killed container again, the program serves within %v, and the API server calls it", backBound),
		fmt.Sprintf("ours: a program that was started without an API server serves at most %v after the API server does", soonBack),
		fmt.Sprintf("ours: within %v after each fault all Endpoints match a model, and no address is misplaced", rightBound),
		"ours: both leases keep their holder, except when the lab kills the holder or the API server",
	},
	Judge: judgePods,
}

func (f podFault) String() string {
	s := f.fault.String()
	for _, x := range []struct {
		what string
		d    time.Duration
	}{{"the container had run for", f.Age}, {"API server away for", f.APIServerAway}, {"serves after", f.BackAfter}, {"all right after another", f.RightAfter}} {
		if x.d > 0 {
			s += fmt.Sprintf("; %s %v", x.what, x.d.Round(100*time.Millisecond))
		}
	}
	return fmt.Sprintf("round %d, %s", f.Round+1, s)
}

// longest is that of all writes and changes.
func (f podFault) longest() time.Duration {
	d := f.fault.slowest().Took
	for _, s := range f.Served {
		d = max(d, s.Slowest)
	}
	return d
}

func judgePods(h *history.History) labkit.Outcome {
	rows, leases := history.Of[podFault](h), history.Of[lease](h)
	verdict := podVerdict
	if h.Variant == string(labkit.Stock) {
		verdict = podControl
	}
	res := verdict(h, rows, leases)
	var order []row
	writes, updates, back := map[row]time.Duration{}, map[row]time.Duration{}, map[row]time.Duration{}
	for _, f := range rows {
		res.Facts = append(res.Facts, f.String())
		if _, ok := writes[f.Row]; !ok {
			order = append(order, f.Row)
		}
		writes[f.Row] = max(writes[f.Row], f.slowest().Took)
		back[f.Row] = max(back[f.Row], f.BackAfter)
		for _, s := range f.Served {
			updates[f.Row] = max(updates[f.Row], s.Slowest)
		}
	}
	for _, l := range leases {
		res.Facts = append(res.Facts, l.String())
	}
	for _, r := range order {
		res.Measure("slowest write, "+string(r), writes[r].Seconds(), "s")
		res.Measure("slowest Endpoints, "+string(r), updates[r].Seconds(), "s")
		if back[r] > 0 && !r.keeps() {
			res.Measure("program serves again, "+string(r), back[r].Seconds(), "s")
		}
	}
	return res
}

func podControl(_ *history.History, rows []podFault, leases []lease) labkit.Outcome {
	switch {
	case len(rows) != 1 || rows[0].Row != controlRow:
		return labkit.InconclusiveBecause("%d faults, want only that of the control", len(rows))
	case rows[0].slowest().Took < felt:
		return labkit.InconclusiveBecause("the slowest write took %v: the trigger is missing", rows[0].slowest().Took)
	}
	f := rows[0]
	for _, s := range f.Served {
		if s.Lost > 0 {
			return labkit.ReproducedBecause("%d changes in namespace %s are not in the Endpoints after %v", s.Lost, s.Namespace, givenUp)
		}
	}
	if f.longest() > anyUpdate {
		return labkit.ReproducedBecause("%s", strings.TrimPrefix(f.String(), "round 1, "))
	}
	if why := wholeLeases(leases); why != "" {
		return labkit.InconclusiveBecause("%s", why)
	}
	return labkit.AbsentBecause("nothing took longer than %v", f.longest())
}

func podVerdict(h *history.History, rows []podFault, leases []lease) labkit.Outcome {
	for _, l := range leases {
		if l.lost() {
			return labkit.ReproducedBecause("%v", l)
		}
	}
	busy := ""
	for _, f := range rows {
		wrong, unsure := f.wrong()
		if wrong != "" {
			return labkit.ReproducedBecause("round %d, %s: %s", f.Round+1, f.Row, wrong)
		}
		if unsure != "" && busy == "" {
			busy = fmt.Sprintf("round %d, %s: %s", f.Round+1, f.Row, unsure)
		}
	}
	if why := wholeLeases(leases); why != "" {
		return labkit.InconclusiveBecause("%s", why)
	}
	if why := wholeRounds(labkit.Profile(h.Profile), rows); why != "" {
		return labkit.InconclusiveBecause("%s", why)
	}
	end := history.One[compared](h)
	switch {
	case end.wrong() != "":
		return labkit.ReproducedBecause("%s", end.wrong())
	case busy != "":
		return labkit.InconclusiveBecause("%s", busy)
	case end.Services == 0:
		return labkit.InconclusiveBecause("no Services were compared")
	}
	hung := time.Duration(0)
	for _, f := range rows {
		if f.Row == stoppedRow || f.Row == earlyRow {
			hung = max(hung, f.longest())
		}
	}
	return labkit.AbsentBecause("%d faults of pods; with SIGSTOP nothing took longer than %v; both leases were kept, and the Endpoints of %d Services match the model", len(rows), hung.Round(100*time.Millisecond), end.Services)
}

// wholeRounds says which fault was not looked at once in each round.
func wholeRounds(p labkit.Profile, rows []podFault) string {
	want := labkit.Pick(p, []row{stoppedRow, killedRow}, podRows)
	rounds := labkit.Pick(p, 1, podRounds)
	got := map[string]int{}
	for _, f := range rows {
		got[fmt.Sprint(f.Round, f.Row)]++
	}
	for i := range rounds {
		for _, r := range want {
			if n := got[fmt.Sprint(i, r)]; n != 1 {
				return fmt.Sprintf("round %d has %d faults %q, want one", i+1, n, r)
			}
		}
	}
	if n := rounds * len(want); len(rows) != n {
		return fmt.Sprintf("%d faults, want %d", len(rows), n)
	}
	return ""
}

// wrong says what is, and what cannot be told.
func (f podFault) wrong() (wrong, unsure string) {
	if wrong, unsure = f.fault.wrong(); wrong != "" {
		return wrong, ""
	}
	late := ""
	switch {
	case len(f.Ended) > 0:
		return fmt.Sprintf("%s ended by itself", strings.Join(f.Ended, " and ")), ""
	case f.BackAfter == 0:
		return fmt.Sprintf("the program does not serve %v after the fault", backBound), ""
	case len(f.Differ) > 0:
		return fmt.Sprintf("%d Services differ from the model, first: %s", len(f.Differ), f.Differ[0]), ""
	case f.Row.keeps() && f.Replaced:
		return "the kubelet started another container of the program", ""
	}
	if wrong = f.filled(); wrong != "" {
		return wrong, ""
	}
	if d := f.BackAfter - f.APIServerAway; f.Row == awayRow && d > soonBack {
		return fmt.Sprintf("the program serves %v after the API server, want %v", d.Round(100*time.Millisecond), soonBack), ""
	}
	switch {
	case f.Row == awayRow && f.APIServerAway == 0:
		late = "the API server never ended: the trigger is missing"
	case f.EndedAfter == 0:
		late = "no process has ended: the trigger is missing"
	case !f.Row.keeps() && !f.Replaced:
		late = "the program's container is the same as before: the trigger is missing"
	case len(f.Calls) == 0:
		late = "nothing was written"
	case f.Row.slow():
		if f.slowest().Took > anyUpdate {
			return fmt.Sprintf("%v, want %v", f.slowest(), anyUpdate), ""
		}
	case f.Row != stoppedRow && f.Row != earlyRow:
		if wrong, late = within(f.slowest(), quick); wrong != "" {
			return wrong, ""
		}
	}
	if unsure == "" {
		unsure = late
	}
	return "", unsure
}
