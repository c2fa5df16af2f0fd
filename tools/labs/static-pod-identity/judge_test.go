// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpodidentity

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
	"holdfast/tools/labs/internal/kubeletlab"
)

// made is a history in which all pods are kept, or with lost none is. change may change one
// swap.
func made(v labkit.Variant, lost bool, at int, change func(*swapped)) *history.History {
	return madeOf(labkit.Short, v, lost, at, change)
}

func madeOf(p labkit.Profile, v labkit.Variant, lost bool, at int, change func(*swapped)) *history.History {
	var all []any
	for i, w := range chain(v, p) {
		s := swapped{Step: i, Name: w.to, Judged: w.judged, Edit: w.edit, Reboot: w.reboot, Before: kubeletlab.Snapshot{}, After: kubeletlab.Snapshot{},
			HashesBefore: map[string]string{}, HashesAfter: map[string]string{}, count: count{Asked: 100, Written: 100}}
		for _, m := range masters {
			name, pod := m.name, m.name+"-node1"
			s.HashesBefore[pod], s.HashesAfter[pod] = "h", "h"
			another := lost || w.edit && isEdited(pod)
			if another {
				s.HashesAfter[pod] = "other"
			}
			if lost {
				s.Failed = 3
			}
			another = another || w.reboot
			for _, c := range []string{name, "POD"} {
				key := ns + "/" + pod + "/" + c
				s.Before[key] = kubeletlab.Container{ID: "1", Pod: pod, Sandbox: c == "POD"}
				if c != "POD" {
					s.Forecast = append(s.Forecast, kubeletlab.Told{Pod: ns + "/" + pod, Container: c, ID: "1", Answer: map[bool]string{false: "kept", true: "new"}[lost]})
				}
				s.After[key] = s.Before[key]
				if another {
					s.After[key] = kubeletlab.Container{ID: "2", Pod: pod, Sandbox: c == "POD"}
				}
			}
		}
		if i == at && change != nil {
			change(&s)
		}
		all = append(all, s)
	}
	return history.Make(history.Begin{Lab: "static-pod-identity", Variant: string(v), Profile: string(p)}, all...)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "static-pod-identity")
	judgetest.Cut(t, l, made(labkit.Ours, false, 0, nil))
	judgetest.Judge(t, l, made(labkit.Ours, false, 0, nil), labkit.Absent)
	judgetest.Judge(t, l, made(labkit.Stock, true, 0, nil), labkit.Reproduced)
	judgetest.Judge(t, l, made(labkit.Stock, false, 0, nil), labkit.Absent)
	const etcd = ns + "/etcd-node1/etcd"
	edit := 3
	for at := range chain(labkit.Ours, labkit.Short) {
		judgetest.Judge(t, l, made(labkit.Ours, false, at, func(s *swapped) { s.After[etcd] = kubeletlab.Container{ID: "2", Pod: "etcd-node1"} }), labkit.Reproduced)
		judgetest.Judge(t, l, made(labkit.Ours, false, at, func(s *swapped) { delete(s.After, etcd) }), labkit.Reproduced)
		judgetest.Judge(t, l, made(labkit.Ours, false, at, func(s *swapped) { s.HashesAfter["etcd-node1"] = "other" }), labkit.Reproduced)
		judgetest.Judge(t, l, made(labkit.Ours, false, at, func(s *swapped) { s.HashesBefore["etcd-node1"] = "" }), labkit.Inconclusive)
		judgetest.Judge(t, l, made(labkit.Ours, false, at, func(s *swapped) { s.Asked = 0 }), labkit.Inconclusive)
		judgetest.Judge(t, l, made(labkit.Ours, false, at, func(s *swapped) { delete(s.Before, etcd); delete(s.After, etcd) }), labkit.Inconclusive)
		judgetest.Judge(t, l, made(labkit.Ours, false, at, func(s *swapped) { s.Name = "another" }), labkit.Inconclusive)
		judgetest.Judge(t, l, made(labkit.Ours, false, at, func(s *swapped) { s.Failed = 1 }), labkit.Reproduced)
		judgetest.Judge(t, l, made(labkit.Ours, false, at, func(s *swapped) { s.Unwritten = 1 }), labkit.Reproduced)
		judgetest.Judge(t, l, made(labkit.Ours, false, at, func(s *swapped) { s.Written = 0 }), labkit.Inconclusive)
	}
	judgetest.Judge(t, l, made(labkit.Ours, false, edit, func(s *swapped) { s.HashesAfter[edited+"-node1"] = "h" }), labkit.Reproduced)
	judgetest.Judge(t, l, made(labkit.Ours, false, edit, func(s *swapped) { s.After = s.Before }), labkit.Reproduced)

	for _, change := range []func(*swapped){
		func(s *swapped) { s.Forecast[0].Answer = "?" },
		func(s *swapped) { s.Forecast[0].ID = "9" },
		func(s *swapped) { s.Forecast = s.Forecast[1:] },
	} {
		judgetest.Judge(t, l, made(labkit.Ours, false, 0, change), labkit.Reproduced)
		judgetest.Judge(t, l, made(labkit.Stock, true, 0, change), labkit.Inconclusive)
	}
	judgetest.Judge(t, l, madeOf(labkit.Long, labkit.Ours, false, 0, nil), labkit.Absent)
	for at, w := range chain(labkit.Ours, labkit.Long) {
		if !w.reboot {
			continue
		}
		judgetest.Judge(t, l, madeOf(labkit.Long, labkit.Ours, false, at, func(s *swapped) { s.Failed, s.Unwritten = 50, 50 }), labkit.Absent)
		judgetest.Judge(t, l, madeOf(labkit.Long, labkit.Ours, false, at, func(s *swapped) { s.After[etcd] = s.Before[etcd] }), labkit.Inconclusive)
		judgetest.Judge(t, l, madeOf(labkit.Long, labkit.Ours, false, at, func(s *swapped) { s.HashesAfter["etcd-node1"] = "other" }), labkit.Reproduced)
	}
}
