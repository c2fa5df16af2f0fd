// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdattach

import (
	"maps"
	"slices"
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/rbdlab"
)

var lock = []rbdlab.Lock{{ID: "kubelet_lock_magic_node1", Locker: "client.1", Address: "10.90.0.11:0/1"}}

// state is of an image that nodes watch, with pods that run.
func state(image, when string, locks []rbdlab.Lock, writer string, watchers int, pods ...string) rbdlab.State {
	s := rbdlab.State{Image: image, When: when, Locks: locks, Pods: map[string]rbdlab.PodState{}}
	for i := range watchers {
		s.Watchers = append(s.Watchers, []string{"10.90.0.11:0/1", "10.90.0.12:0/2"}[i])
	}
	for _, p := range pods {
		s.Pods[p] = rbdlab.PodState{Phase: "Running"}
	}
	if writer != "" {
		s.Mounts = []rbdlab.Mount{{Node: writer}}
	}
	return s
}

func contents(image, when string, files map[string]string) rbdlab.Contents {
	all := map[string]string{rbdlab.DataFile: rbdlab.DataOf(image)}
	maps.Copy(all, files)
	return rbdlab.Contents{Image: image, When: when, Files: all, SHA256: "a"}
}

// good are the observations in which all is as wanted, by their rows.
func good() map[string][]any {
	user, death := map[string]string{"written": "by 1.7"}, map[string]string{"written": "by 1.7", "later": "by the next node"}
	return map[string][]any{
		"readers": {contents("readers", atStart, nil), state("readers", atStart, nil, "", 1, "reader-1"),
			state("readers", wanted, nil, "", 2, "reader-1", "reader-2"), contents("readers", atEnd, nil)},
		"beside": {contents("beside", atStart, nil), journal{true}, state("beside", atStart, nil, "node2", 1, "writer"),
			state("beside", wanted, nil, "node2", 2, "writer", "beside"), state("beside", readerGone, nil, "node2", 1, "writer"),
			contents("beside", readerGone, nil), contents("beside", atEnd, map[string]string{"written": "before", "later": "after"})},
		"keyring": {state("keyring", wanted, nil, "node2", 1, "keyring"), contents("keyring", atEnd, nil)},
		"user": {state("user", atStart, lock, "node1", 1, "user"), blocked{atStart, "listed 0 entries"}, state("user", wanted, nil, "", 0),
			rbdlab.Learned{Pod: "user", Seen: true}, blocked{atEnd, "listed 0 entries"}, contents("user", atEnd, user)},
		"death": {state("death", atStart, lock, "node1", 1, "dies"), state("death", atDeath, lock, "", 1),
			state("death", wanted, nil, "node2", 1, "lives"), contents("death", atEnd, death)},
		"death19": {state("death19", atStart, nil, "node3", 1, "dies19"), state("death19", atDeath, nil, "", 1),
			state("death19", wanted, nil, "node2", 1, "lives19"), contents("death19", atEnd, map[string]string{"written": "by the dead node", "later": "by the next node"})},
	}
}

// lostRows are the same of a kubelet that does none of it.
func lostRows() map[string][]any {
	all := good()
	all["readers"][2] = state("readers", wanted, nil, "", 1, "reader-1")
	all["beside"][3] = state("beside", wanted, nil, "node2", 1, "writer")
	all["keyring"][0] = state("keyring", wanted, nil, "", 0)
	all["user"][2] = state("user", wanted, lock, "", 0)
	all["death"][2] = state("death", wanted, lock, "node2", 1, "lives")
	return all
}

func made(v string, by map[string][]any) *history.History {
	var all []any
	for _, x := range rows {
		all = append(all, by[x.name]...)
	}
	return history.Make(history.Begin{Lab: "rbd-attach", Variant: v, Profile: string(labkit.Long)}, all...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rbd-attach")
	for _, v := range []labkit.Variant{labkit.Ours, labkit.Stock} {
		judgetest.Cut(t, l, made(string(v), good()))
	}
	for _, v := range []string{string(labkit.Stock), string(labkit.GateOff), "ours -rbd-attach"} {
		judgetest.Judge(t, l, made(v, lostRows()), labkit.Reproduced)
	}
	// Some rows are lost: on stock that is no answer, on what lacks a part it is.
	for name, was := range lostRows() {
		if name == "death19" {
			continue
		}
		one := good()
		one[name] = was
		judgetest.Judge(t, l, made(string(labkit.Stock), one), labkit.Inconclusive)
		judgetest.Judge(t, l, made(string(labkit.Ours), one), labkit.Reproduced)
		judgetest.Judge(t, l, made(string(labkit.GateOff), one), labkit.Reproduced)
	}
	// A row that is right with every build is no answer where it is not, but for ours.
	for v, want := range map[string]labkit.Verdict{string(labkit.Ours): labkit.Reproduced, string(labkit.Stock): labkit.Inconclusive} {
		for _, s := range []rbdlab.State{state("death19", wanted, nil, "", 1), state("death19", wanted, nil, "node2", 2, "lives19"), state("death19", wanted, lock, "node2", 1, "lives19")} {
			all := lostRows()
			if want == labkit.Reproduced {
				all = good()
			}
			all["death19"][2] = s
			judgetest.Judge(t, l, made(v, all), want)
		}
	}
	// Stock that has not learned of the mount, or that leaves it mapped, does so at every start.
	for _, v := range []labkit.Variant{labkit.Stock, labkit.GateOff} {
		all := lostRows()
		all["user"][3] = rbdlab.Learned{Pod: "user"}
		judgetest.Judge(t, l, made(string(v), all), labkit.Inconclusive)
		all = lostRows()
		all["user"][2] = state("user", wanted, lock, "node1", 1)
		judgetest.Judge(t, l, made(string(v), all), labkit.Inconclusive)
	}
}

// Each single thing that must not be, in an otherwise good history.
func TestJudgeFindsFaults(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "rbd-attach")
	change := func(c rbdlab.Contents) rbdlab.Contents { c.SHA256 = "b"; return c }
	unclean := contents("keyring", atEnd, nil)
	unclean.Fsck = "exit status 4"
	inUse := state("user", wanted, nil, "", 0)
	inUse.InUse = map[string][]string{"node1": {"kubernetes.io/rbd/[]:"}}
	for name, c := range map[string]struct {
		row  string
		at   int
		by   any
		want labkit.Verdict
	}{
		"a reader writes":                  {"readers", 3, change(contents("readers", atEnd, nil)), labkit.Reproduced},
		"a reader is mounted for writing":  {"readers", 2, state("readers", wanted, nil, "node3", 2, "reader-1", "reader-2"), labkit.Reproduced},
		"the first reader is gone":         {"readers", 2, state("readers", wanted, nil, "", 2, "reader-2"), labkit.Reproduced},
		"nobody read at first":             {"readers", 1, state("readers", atStart, nil, "", 0), labkit.Inconclusive},
		"a byte changes beside the writer": {"beside", 5, change(contents("beside", readerGone, nil)), labkit.Reproduced},
		"the writer is gone":               {"beside", 4, state("beside", readerGone, nil, "", 0), labkit.Reproduced},
		"both write":                       {"beside", 3, state("beside", wanted, nil, "node3", 2, "writer", "beside"), labkit.Reproduced},
		"a clean journal":                  {"beside", 1, journal{}, labkit.Inconclusive},
		"what was written is not there":    {"beside", 6, contents("beside", atEnd, nil), labkit.Reproduced},
		"not clean":                        {"keyring", 1, unclean, labkit.Reproduced},
		"no lock of 1.7":                   {"user", 0, state("user", atStart, nil, "node1", 1, "user"), labkit.Inconclusive},
		"still watched":                    {"user", 2, state("user", wanted, nil, "", 1), labkit.Reproduced},
		"still in use":                     {"user", 2, inUse, labkit.Reproduced},
		"an address is barred":             {"user", 4, blocked{atEnd, "10.90.0.11:0/1"}, labkit.Reproduced},
		"the dead node had no watcher":     {"death", 1, state("death", atDeath, lock, "", 0), labkit.Inconclusive},
		"the pod does not run":             {"death", 2, state("death", wanted, nil, "", 0), labkit.Reproduced},
	} {
		all := good()
		all[c.row] = slices.Clone(all[c.row])
		all[c.row][c.at] = c.by
		t.Log(name)
		judgetest.Judge(t, l, made(string(labkit.Ours), all), c.want)
	}
}
