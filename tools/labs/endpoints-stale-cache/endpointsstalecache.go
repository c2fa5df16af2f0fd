// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointsstalecache is the lab endpoints-stale-cache: the endpoints controller's
// cache of Endpoints is behind, and a Service stays without addresses. See
// tools/labs/endpoints-stale-cache/README.md.
package endpointsstalecache

import (
	"context"
	"fmt"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/webset"
)

const (
	base = "v1.9.11"
	ns   = webset.NS
	// looks is how long the controller has to look while its watch of Endpoints is held.
	looks = 3 * time.Second
	// bound is how long it has after that.
	bound = 15 * time.Second
)

// cases are the names of what happens, and of its Service and pod.
var cases = []string{madeAgain, ownWrite, deleted}

const (
	madeAgain = "made-again"
	ownWrite  = "own-write"
	deleted   = "deleted"
)

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "endpoints-stale-cache",
		Summary: "a Service that was deleted and created again has no Endpoints",
		Steps:   steps,
		Oracle:  oracle,
		Test:    []labkit.Variant{labkit.Ours},
		Timeout: func(labkit.Profile) time.Duration { return 6 * time.Minute },
		Needs:   labkit.ManagerNeeds(base),
	}}
}

type lab struct {
	e     *labkit.Env
	c     *node.Cluster
	proxy *kube.Proxy
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: "start etcd, kube-apiserver, a proxy, and the kube-controller-manager under test behind it; three Services with a ready pod each", Do: l.start},
		{Text: fmt.Sprintf("delay the controller's watch of Endpoints, delete the Service %s and create it again, let the watch continue after %v", madeAgain, looks), Do: l.madeAgain},
		{Text: fmt.Sprintf("delay that watch, set the pod of %s to not ready, and to ready again when its Endpoints show it as not ready; let the watch continue after %v", ownWrite, looks), Do: l.ownWrite},
		{Text: "delete the Endpoints of " + deleted, Do: l.deleted},
		labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }),
	}
}

func (l *lab) start(ctx context.Context) error {
	var err error
	if l.c, l.proxy, err = webset.StartBehindProxy(ctx, l.e, base); err != nil {
		return err
	}
	for i, name := range cases {
		if err := l.c.Client.Make(ctx, ns, kube.Service(name, name, 8080)); err != nil {
			return err
		}
		if err := webset.MakeReady(ctx, l.c.Client, ns, name, name, "node1", webset.IP(i)); err != nil {
			return err
		}
		if _, err := l.wait(ctx, name, "one ready address", func(s state) bool { return s == state{Exists: true, Ready: 1} }); err != nil {
			return err
		}
	}
	return nil
}

// wait polls the Endpoints of that name until they are as want says, and returns them.
func (l *lab) wait(ctx context.Context, name, what string, want func(state) bool) (state, error) {
	var s state
	err := wait.Until(ctx, "the Endpoints "+name+" to have "+what, bound, func(ctx context.Context) (bool, error) {
		var err error
		s, err = l.look(ctx, name)
		return want(s), err
	})
	return s, err
}

func (l *lab) look(ctx context.Context, name string) (state, error) {
	all, err := l.c.Client.List(ctx, kube.Endpoints, ns, "")
	for i := range all {
		if all[i].GetName() == name {
			return state{Exists: true, Ready: len(kube.ReadyAddresses(&all[i])), NotReady: len(kube.NotReadyAddresses(&all[i]))}, nil
		}
	}
	return state{}, err
}

// end waits for the ready address, and records what is there, also if it does not come.
func (l *lab) end(ctx context.Context, name string, before state) error {
	after, err := l.wait(ctx, name, "one ready address", func(s state) bool { return s.Ready == 1 })
	if ctx.Err() != nil {
		return err
	}
	l.e.Record(happened{Case: name, Before: before, After: after})
	return nil
}

// held does what is to be done while the controller's watch of Endpoints is held, gives it
// time to look, and returns the Endpoints of that name as they are then.
func (l *lab) held(ctx context.Context, name string, do func() error) (s state, err error) {
	release := l.proxy.Hold(func(path string) bool { return strings.HasSuffix(path, "/endpoints") })
	defer release()
	if err := do(); err != nil {
		return s, err
	}
	if err := wait.Pause(ctx, looks); err != nil {
		return s, err
	}
	return l.look(ctx, name)
}

func (l *lab) madeAgain(ctx context.Context) error {
	before, err := l.held(ctx, madeAgain, func() error {
		if err := l.c.Client.DeleteNow(ctx, kube.Services, ns, madeAgain); err != nil {
			return err
		}
		if _, err := l.wait(ctx, madeAgain, "gone", func(s state) bool { return !s.Exists }); err != nil {
			return err
		}
		return l.c.Client.Make(ctx, ns, kube.Service(madeAgain, madeAgain, 8080))
	})
	if err != nil {
		return err
	}
	return l.end(ctx, madeAgain, before)
}

func (l *lab) ownWrite(ctx context.Context) error {
	var between state
	_, err := l.held(ctx, ownWrite, func() error {
		ip := webset.IP(1)
		if err := webset.PublishReady(ctx, l.c.Client, ns, ownWrite, ip, false); err != nil {
			return err
		}
		var err error
		if between, err = l.wait(ctx, ownWrite, "no ready address", func(s state) bool { return s.NotReady == 1 }); err != nil {
			return err
		}
		return webset.PublishReady(ctx, l.c.Client, ns, ownWrite, ip, true)
	})
	if err != nil {
		return err
	}
	return l.end(ctx, ownWrite, between)
}

func (l *lab) deleted(ctx context.Context) error {
	if err := l.c.Client.DeleteNow(ctx, kube.Endpoints, ns, deleted); err != nil {
		return err
	}
	return l.end(ctx, deleted, state{})
}
