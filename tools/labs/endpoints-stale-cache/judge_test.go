// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsstalecache

import (
	"testing"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/judgetest"
)

// made is a history in which all went well, but for the change.
func made(change judgetest.Change) *history.History {
	good := state{Exists: true, Ready: 1}
	return history.Make(history.Begin{Lab: "endpoints-stale-cache", Variant: string(labkit.Ours), Profile: string(labkit.Short)}, change.Of([]any{
		happened{madeAgain, state{}, good},
		happened{ownWrite, state{Exists: true, NotReady: 1}, good},
		happened{deleted, state{}, good},
	})...)
}

func in(c string, f func(*happened)) judgetest.Change {
	return judgetest.Where(func(o happened) bool { return o.Case == c }, f)
}

func TestJudge(t *testing.T) {
	l := judgetest.Lab(t, Labs(), "endpoints-stale-cache")
	judgetest.Cut(t, l, made(nil))
	judgetest.Judged(t, l, labkit.Reproduced, made, map[string]judgetest.Change{
		"made-again: the pod is ready, but its Service has no Endpoints": in(madeAgain, func(o *happened) { o.After = state{} }),
		"own-write: the pod is ready, but its Service has 0 ready":       in(ownWrite, func(o *happened) { o.After = o.Before }),
		"deleted: the pod is ready":                                      in(deleted, func(o *happened) { o.After = state{} }),
	})
	judgetest.Judged(t, l, labkit.Inconclusive, made, map[string]judgetest.Change{
		"made-again: the address was ready": in(madeAgain, func(o *happened) { o.Before = o.After }),
		"own-write: the address was ready":  in(ownWrite, func(o *happened) { o.Before = o.After }),
	})
}
