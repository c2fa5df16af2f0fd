// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

var noon = time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)

const (
	azureEvent = mountCommand + " //labaccount.file.core.windows.net/labshare username=labaccount,vers=3.0"
	cephEvent  = mountCommand + " 10.90.0.1:1:/ name=labuser"
)

// good are a row's observations where the vulnerability is not there, as ours makes them.
func good(fix string, p labkit.Profile) []any {
	switch fix {
	case provision.fix:
		return []any{quotes{Shown: map[string]string{"misspelt": misspelt, "ssrf": glusterfs + " failed to create the volume",
			"ssrf-volume": glusterfs + " failed to delete the volume", "ssrf-volume's status": glusterfs + " failed to delete the volume",
			"ssrf-pod": "kubernetes.io/storageos failed to mount the volume"},
			Posts: 1, Deletes: 1, Mounts: 1, Logged: true, NodeLogged: true, Counted: 2, NodeCounted: 1}}
	case mountErrors.fix:
		return []any{mounts{Events: map[string]string{"mount-azure": azureEvent, "mount-ceph": cephEvent}, Logged: 2, Counted: 2}}
	case gitRepo.fix:
		return []any{clones{slices.Clone(gitLegitimate), map[string]exploit{"git-option": {false, true}, "git-hook": {false, true}, "git-path": {false, true}}, 3}}
	case subPath.fix:
		r := race{Tries: 100, Mounted: 100, Exchanged: 90, Counted: 3, Seconds: 1}
		return []any{raced{alone, r}, raced{still, r}, raced{both, r}, subPathsReady{"subpaths"}}
	case iscsi.fix:
		return []any{chap{Refused: 2, Masked: 2}}
	case heketi.fix:
		return []any{keys{map[string]int{}, map[string]int{"heketi-parameter": 1, "heketi-secret": 1}, 2}}
	case credentials.fix:
		return []any{logs{Masked: 9, Errors: 1}}
	case etcHosts.fix:
		return []any{storage{hostsMiB * mib, map[string]uint64{"hosts-writer": hostsMiB * mib, "hosts-other": 4096}, 1}}
	case devicePath.fix:
		return []any{attached{0, refusal, 2, 1}}
	case pluginPanic.fix:
		return []any{panics{0, panicked, true, 1, 0}}
	case gcOwner.fix:
		return []any{collected{true, true, 1}}
	case namespaces.fix:
		return []any{deletion{noon.Add(time.Second), noon, map[string]time.Duration{isolated: 9 * time.Second, plain: 6 * time.Second}, 1}}
	case localnet.fix:
		all := []any{request{AtNode: true, AtItself: true, TimedOut: true, Dropped: 3, Counted: 1}}
		for i := range changes {
			if p == labkit.Long {
				all = append(all, ruleAfter{"a change", i % 2, i % 2})
			}
		}
		return all
	case healthz.fix:
		o := answers{Healthz: "ok", Status: map[string]int{}, Counted: 3}
		for _, p := range profiles {
			o.Status[p] = http.StatusNotFound
		}
		return []any{o}
	case metrics.fix:
		return []any{methods{map[string]int{"kubelet": 5, "controller manager": 6}, map[string]int{"kubelet": 6, "controller manager": 7}, invented}}
	case spdy.fix:
		return []any{echoed{10 * mib, time.Second}, frame{100 * mib, 101 * mib, 1}, echoed{mib, time.Second}}
	case probes.fix:
		var all []any
		for _, x := range probePods[:probed(p)] {
			all = append(all, grown{x.name, 100 * mib, 110 * mib, x.http, 1, false})
		}
		return all
	}
	panic(fix)
}

// bad are those where it is there, as stock makes them: without counters.
func bad(fix string, p labkit.Profile) []any {
	all := good(fix, p)
	for i, o := range all {
		switch o := o.(type) {
		case quotes:
			for _, place := range places {
				o.Shown[place.name] = page
			}
			o.Counted, o.NodeCounted, o.Logged, o.NodeLogged = 0, 0, false, false
			all[i] = o
		case mounts:
			o.Events["mount-azure"] += azureKey
			o.Password, o.Counted = 1, 0
			all[i] = o
		case clones:
			for _, name := range gitExploits {
				o.Exploits[name] = exploit{Did: true}
			}
			o.Counted = 0
			all[i] = o
		case raced:
			if o.How == alone {
				o.Race.Escaped = 3
			}
			o.Race.Counted = 0
			all[i] = o
		case chap:
			all[i] = chap{Refused: 2, Password: 4}
		case keys:
			o.Logged, o.Masked = map[string]int{"heketi-parameter": 3, "heketi-secret": 2}, 0
			all[i] = o
		case logs:
			all[i] = logs{Tokens: 9, Passwords: 1, Errors: 1}
		case storage:
			o.Used["hosts-writer"], o.Counted = 4096, 0
			all[i] = o
		case attached:
			all[i] = attached{Disk: 1, Asked: 2}
		case panics:
			all[i] = panics{Logged: 7, End: 100}
		case collected:
			all[i] = collected{Owner: true}
		case deletion:
			o.Policy, o.Counted = noon.Add(-time.Second), 0
			all[i] = o
		case request:
			all[i] = request{AtNode: true, AtItself: true, Answered: true}
		case answers:
			for _, p := range profiles {
				o.Status[p] = http.StatusOK
			}
			o.Counted = 0
			all[i] = o
		case methods:
			o.After["kubelet"], o.After["controller manager"], o.Counted = 105, 106, 0
			all[i] = o
		case frame:
			all[i] = frame{100 * mib, 300 * mib, 0}
		case grown:
			o.To, o.Counted = 500*mib, 0
			all[i] = o
		}
	}
	return slices.DeleteFunc(all, func(o any) bool { _, is := o.(ruleAfter); return is })
}

// made is a history of the lab security in which each row's observations are those of of.
func made(v labkit.Variant, p labkit.Profile, of func(row) []any) *history.History {
	return history.Make(history.Begin{Lab: "security", Variant: string(v), Profile: string(p)}, flat(rows, of)...)
}

// flat are the observations of all rows.
func flat(rows []row, of func(row) []any) []any {
	var all []any
	for _, r := range rows {
		all = append(all, of(r)...)
	}
	return all
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "security")
	for _, p := range []labkit.Profile{labkit.Short, labkit.Long} {
		fine, there := func(r row) []any { return good(r.fix, p) }, func(r row) []any { return bad(r.fix, p) }
		judgetest.Cut(t, l, made(labkit.Ours, p, fine))
		judgetest.Judge(t, l, made(labkit.Stock, p, there), labkit.Reproduced)
		judgetest.Judge(t, l, made(labkit.Ours, p, there), labkit.Reproduced) // nothing is counted, and it happened
		for _, one := range rows {
			without := func(r row) []any { // all but one
				if r.fix == one.fix {
					return fine(r)
				}
				return there(r)
			}
			judgetest.Judge(t, l, made(labkit.Stock, p, without), labkit.Inconclusive)
			want := labkit.Inconclusive // with the gates off, each row with a gate must be there
			gated := func(r row) []any {
				if r.gate == "" {
					return fine(r)
				}
				return without(r)
			}
			if one.gate == "" {
				want = labkit.Reproduced
			}
			judgetest.Judge(t, l, made(labkit.GateOff, p, gated), want)
			only := func(r row) []any {
				if r.fix == one.fix {
					return there(r)
				}
				return fine(r)
			}
			// A build without the fix counts nothing for it; a single row is enough.
			judgetest.Judge(t, l, made("ours -"+labkit.Variant(one.fix), p, only), labkit.Reproduced)
			failed := func(r row) []any {
				if r.fix == one.fix {
					return []any{notSeen{r.fix, "no answer"}}
				}
				return fine(r)
			}
			if res := judgetest.Judge(t, l, made(labkit.Ours, p, failed), labkit.Inconclusive); !strings.Contains(res.Why, one.fix+": no answer") {
				t.Error(res.Why)
			}
		}
	}
	judgetest.Judge(t, l, made(labkit.Ours, labkit.Short, func(r row) []any {
		if r.fix == namespaces.fix {
			return []any{notSeen{r.fix, "no answer"}}
		}
		return bad(r.fix, labkit.Short)
	}), labkit.Reproduced)
	// A row without a gate that is there with the gates off is a mistake somewhere.
	judgetest.Judge(t, l, made(labkit.GateOff, labkit.Short, func(r row) []any { return bad(r.fix, labkit.Short) }), labkit.Inconclusive)
}

// TestJudgeRow: each row alone, and what proves too little.
func TestJudgeRow(t *testing.T) {
	of := func(fix string, v labkit.Variant, o ...any) *history.History {
		return history.Make(history.Begin{Lab: fix, Variant: string(v), Profile: string(labkit.Short)}, o...)
	}
	for _, r := range rows {
		l := judgetest.Lab(t, Labs(), r.fix)
		judgetest.Cut(t, l, of(r.fix, labkit.Ours, good(r.fix, labkit.Short)...))
		judgetest.Judge(t, l, of(r.fix, labkit.Stock, bad(r.fix, labkit.Short)...), labkit.Reproduced)
	}
	for _, c := range []struct {
		fix string
		v   labkit.Variant
		o   []any
	}{
		{provision.fix, labkit.Stock, changed(provision.fix, func(o *quotes) { o.Deletes = 0 })},
		{devicePath.fix, labkit.Ours, changed(devicePath.fix, func(o *attached) { o.Asked = 0 })},
		{devicePath.fix, labkit.Ours, changed(devicePath.fix, func(o *attached) { o.Events = "" })},
		{devicePath.fix, labkit.Ours, changed(devicePath.fix, func(o *attached) { o.Counted = 0 })},
		{pluginPanic.fix, labkit.Ours, changed(pluginPanic.fix, func(o *panics) { o.Ready = false })},
		{pluginPanic.fix, labkit.Ours, changed(pluginPanic.fix, func(o *panics) { o.Counted = 0 })},
		{pluginPanic.fix, labkit.Stock, changed(pluginPanic.fix, func(o *panics) { o.End = 3 })},
		{provision.fix, labkit.Stock, changed(provision.fix, func(o *quotes) { o.Shown["misspelt"] = "no" })},
		{provision.fix, labkit.Stock, changed(provision.fix, func(o *quotes) { o.Shown["ssrf"] = page })},
		{provision.fix, labkit.Ours, changed(provision.fix, func(o *quotes) { o.Shown["ssrf"] = "failed" })},
		{provision.fix, labkit.Ours, changed(provision.fix, func(o *quotes) { o.Logged = false })},
		{provision.fix, labkit.Ours, changed(provision.fix, func(o *quotes) { o.Counted = 1 })},
		{provision.fix, labkit.Ours, changed(provision.fix, func(o *quotes) { o.Mounts = 0 })},
		{provision.fix, labkit.Ours, changed(provision.fix, func(o *quotes) { o.NodeLogged = false })},
		{provision.fix, labkit.Ours, changed(provision.fix, func(o *quotes) { o.NodeCounted = 0 })},
		{iscsi.fix, labkit.Ours, changed(iscsi.fix, func(o *chap) { o.Refused = 0 })},
		{iscsi.fix, labkit.Ours, changed(iscsi.fix, func(o *chap) { o.Masked = 0 })},
		{heketi.fix, labkit.Ours, changed(heketi.fix, func(o *keys) { delete(o.Created, "heketi-secret") })},
		{heketi.fix, labkit.Ours, changed(heketi.fix, func(o *keys) { o.Masked = 0 })},
		{heketi.fix, labkit.Stock, []any{keys{map[string]int{"heketi-secret": 1}, map[string]int{"heketi-parameter": 1, "heketi-secret": 1}, 0}}},
		{mountErrors.fix, labkit.Ours, changed(mountErrors.fix, func(o *mounts) { o.Events["mount-ceph"] = mountCommand })},
		{mountErrors.fix, labkit.Ours, changed(mountErrors.fix, func(o *mounts) { o.Logged = 0 })},
		{gitRepo.fix, labkit.Ours, changed(gitRepo.fix, func(o *clones) { o.Legitimate = o.Legitimate[1:] })},
		{gitRepo.fix, labkit.Ours, changed(gitRepo.fix, func(o *clones) { o.Exploits["git-path"] = exploit{} })},
		{gitRepo.fix, labkit.Stock, changed(gitRepo.fix, func(o *clones) { o.Exploits["git-path"] = exploit{Did: true} })},
		{subPath.fix, labkit.Ours, changed(subPath.fix, func(o *raced) { o.Race.Mounted = 9 })},
		{subPath.fix, labkit.Ours, changed(subPath.fix, func(o *raced) { o.Race.Counted = 0 })},
		{credentials.fix, labkit.Ours, []any{logs{Masked: 9}}},
		{credentials.fix, labkit.Ours, []any{logs{Errors: 9}}},
		{credentials.fix, labkit.Stock, []any{logs{Tokens: 9, Errors: 9}}},
		{etcHosts.fix, labkit.Ours, changed(etcHosts.fix, func(o *storage) { o.File = mib })},
		{etcHosts.fix, labkit.Ours, changed(etcHosts.fix, func(o *storage) { o.Used["hosts-other"] = 2 * mib })},
		{etcHosts.fix, labkit.Stock, changed(etcHosts.fix, func(o *storage) { delete(o.Used, "hosts-writer") })},
		{gcOwner.fix, labkit.Ours, changed(gcOwner.fix, func(o *collected) { o.Counted = 0 })},
		{gcOwner.fix, labkit.Stock, changed(gcOwner.fix, func(o *collected) { o.Owner, o.Victim = false, false })},
		{namespaces.fix, labkit.Ours, changed(namespaces.fix, func(o *deletion) { o.Took[plain] = time.Minute })},
		{namespaces.fix, labkit.Ours, changed(namespaces.fix, func(o *deletion) { o.Counted = 0 })},
		{localnet.fix, labkit.Ours, changed(localnet.fix, func(o *request) { o.Dropped = 0 })},
		{localnet.fix, labkit.Ours, changed(localnet.fix, func(o *request) { o.AtNode = false })},
		{localnet.fix, labkit.Stock, changed(localnet.fix, func(o *request) { o.TimedOut = false })},
		{healthz.fix, labkit.Ours, changed(healthz.fix, func(o *answers) { o.Healthz = "" })},
		{healthz.fix, labkit.Ours, changed(healthz.fix, func(o *answers) { o.Status[profiles[1]] = 401 })},
		{metrics.fix, labkit.Ours, changed(metrics.fix, func(o *methods) { o.After["kubelet"] = o.Before["kubelet"] })},
		{metrics.fix, labkit.Stock, changed(metrics.fix, func(o *methods) { o.After["kubelet"] = 105 })},
		{spdy.fix, labkit.Ours, changed(spdy.fix, func(o *frame) { o.Counted = 0 })},
		{probes.fix, labkit.Ours, changed(probes.fix, func(o *grown) { o.Whole = false })},
		{probes.fix, labkit.Ours, changed(probes.fix, func(o *grown) { o.Counted = 0 })},
		{probes.fix, labkit.Stock, changed(probes.fix, func(o *grown) {
			if o.Pod == "probe-http" {
				o.To = 500 * mib
			}
		})},
	} {
		judgetest.Judge(t, judgetest.Lab(t, Labs(), c.fix), of(c.fix, c.v, c.o...), labkit.Inconclusive)
	}
	// What happens on ours is told, whatever else is missing.
	for _, c := range []struct {
		fix string
		o   []any
	}{
		{subPath.fix, changed(subPath.fix, func(o *raced) {
			if o.How == both {
				o.Race.Escaped = 1
			}
		})},
		{subPath.fix, changed(subPath.fix, func(o *raced) { o.Race.Escaped, o.Race.Counted = 1, 0 })},
		{credentials.fix, []any{logs{Tokens: 1}}},
		{iscsi.fix, changed(iscsi.fix, func(o *chap) { o.Events = 1 })},
		{heketi.fix, changed(heketi.fix, func(o *keys) { o.Logged["heketi-parameter"] = 1 })},
		{credentials.fix, []any{logs{Passwords: 1, Masked: 9, Errors: 9}}},
		{namespaces.fix, changed(namespaces.fix, func(o *deletion) {
			o.Policy, o.Pod, o.Took[plain], o.Counted = o.Pod, o.Pod.Add(time.Second), time.Minute, 0
		})},
	} {
		judgetest.Judge(t, judgetest.Lab(t, Labs(), c.fix), of(c.fix, labkit.Ours, c.o...), labkit.Reproduced)
	}
}

// changed are the good observations of a row, those of one type changed.
func changed[T any](fix string, f func(*T)) []any {
	all := good(fix, labkit.Short)
	for i, o := range all {
		if o, ok := o.(T); ok {
			f(&o)
			all[i] = o
		}
	}
	return all
}
