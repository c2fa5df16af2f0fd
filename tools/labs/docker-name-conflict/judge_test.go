// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dockernameconflict

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "docker-name-conflict")
	made := func(c judgetest.Change) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: string(labkit.Ours)}, c.Of([]any{
			ended{Pod: cases[0].pod, Ready: true, Refused: 1},
			ended{Pod: cases[1].pod, Ready: true, Refused: 1},
			ended{Pod: cases[2].pod, Refused: stuck, There: true, Running: true},
		})...)
	}
	of := func(i int, f func(*ended)) judgetest.Change {
		return judgetest.Where(func(o ended) bool { return o.Pod == cases[i].pod }, f)
	}
	wait := func(o *ended) { o.Ready, o.There, o.Refused = false, true, stuck }
	judgetest.Cut(t, l, made(nil))
	judgetest.Judge(t, l, made(nil), labkit.Absent)
	judgetest.Judged(t, l, labkit.Reproduced, made, map[string]judgetest.Change{
		"dead-sandbox, refused 3 times":   of(0, wait),
		"dead-container, refused 3 times": of(1, wait),
		"was stopped or removed":          of(2, func(o *ended) { o.Running = false }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"did not refuse the name of pod dead-sandbox":    of(0, func(o *ended) { o.Refused = 0 }),
		"did not refuse the name of pod running-sandbox": of(2, func(o *ended) { o.Refused = 0 }),
		"pod dead-container runs: false":                 of(1, func(o *ended) { o.Ready = false }),
		"the dead container exists: true":                of(1, func(o *ended) { o.There = true }),
		"though its name is in use":                      of(2, func(o *ended) { o.Ready = true }),
	})
}

func TestRefused(t *testing.T) {
	line := func(file, name string) string {
		return `E1127 12:00:00.000000       1 ` + file + `:92] RunPodSandbox from runtime service failed: rpc error: code = Unknown desc = failed to create a sandbox for pod "p": ` +
			`Error response from daemon: Conflict. The container name "/` + name + `" is already in use by container "abc". You have to remove (or rename) that container to be able to reuse that name.` + "\n"
	}
	log := line("remote_runtime.go", "a") + line("kuberuntime_sandbox.go", "a") + line("remote_runtime.go", "a_0") + line("remote_runtime.go", "a")
	for name, want := range map[string]int{"a": 2, "a_0": 1, "b": 0} {
		if got := refused(log, name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
