// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

func TestJudgeMalformed(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "protobuf-decode-guard")
	of := func(p labkit.Profile, o ...any) *history.History {
		return history.Make(history.Begin{Lab: l.Name, Variant: "ours", Profile: string(p)}, o...)
	}
	const kcm, kubelet = "kube-controller-manager", "kubelet"
	good := fed{Component: kcm, Given: 2, After: 1, Named: 2, Counted: 2}
	goodKubelet := good
	goodKubelet.Component = kubelet
	judgetest.Cut(t, l, of(labkit.Short, good))
	judgetest.Cut(t, l, of(labkit.Long, good, goodKubelet))

	ended := fed{Component: kcm, Given: 1, Exit: "exit status 2", Panicked: true}
	endedKubelet := ended
	endedKubelet.Component = kubelet
	judgetest.Judge(t, l, of(labkit.Short, ended), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Long, ended, endedKubelet), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Long, good, endedKubelet), labkit.Reproduced)
	judgetest.Judge(t, l, of(labkit.Long, ended), labkit.Inconclusive)

	for name, change := range map[string]func(*fed){
		"nothing given":       func(o *fed) { o.Given = 0 },
		"one given":           func(o *fed) { o.Given = 1 },
		"does not go on":      func(o *fed) { o.After = 0 },
		"not named":           func(o *fed) { o.Named = 1 },
		"not counted":         func(o *fed) { o.Counted = 0 },
		"ended otherwise":     func(o *fed) { o.Exit = "signal: killed" },
		"another component's": func(o *fed) { o.Component = "kube-scheduler" },
	} {
		o := good
		change(&o)
		if res := l.Judge(of(labkit.Short, o)); res.Verdict != labkit.Inconclusive {
			t.Errorf("%s: %s because %s", name, res.Verdict, res.Why)
		}
	}
}

func TestMalformedLog(t *testing.T) {
	const (
		caught = "I1125 20:13:15.915328      54 guard.go:46] The decoder of a protobuf message of 12 bytes panicked: runtime error: index out of range [-9]\n" +
			"\tk8s.io/api/core/v1/generated.pb.go:22600 +0x7a5\n" +
			"E1125 20:13:15.915414      54 leaderelection.go:224] error retrieving resource lock: malformed protobuf message of 12 bytes: runtime error: index out of range [-9]\n"
		died = "E1125 20:13:15.915414      54 runtime.go:66] Observed a panic: runtime error: index out of range [-9]\n\tk8s.io/api/core/v1/generated.pb.go:22600 +0x7a5\n"
	)
	for log, want := range map[string]fed{caught + caught: {Named: 2}, died: {Panicked: true}, caught + died: {Named: 1, Panicked: true}, "": {}} {
		var o fed
		if o.readLog(log); o != want {
			t.Errorf("%+v, want %+v, of\n%s", o, want, log)
		}
	}
}
