// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kcmsilentconnection is the lab kcm-silent-connection: connections of a controller
// manager die without a reset. See tools/labs/kcm-silent-connection/README.md.
package kcmsilentconnection

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
)

const (
	base = "v1.9.11"
	// patience is for what takes a few seconds on an idle machine.
	patience = 90 * time.Second
	// replaced is how long a controller manager may take to reconcile again: 25 s until it
	// closes a connection, 10 s for a list and a watch, and as much for a busy machine.
	replaced = 60 * time.Second
	replicas = 2
)

// healthy is that the controller manager behind the line reconciles and is the leader.
type healthy struct{ Seconds float64 }

// controllers is what came of a ReplicaSet after the connections of the controllers died,
// and the lease's did not.
type controllers struct {
	// Dead is how many connections died. Leads: it held the lease all the time.
	Dead  int
	Leads bool
	// Pods were made, after that time.
	Pods    bool
	Seconds float64
}

// lease is what was there when the other controller manager had the lease, after all
// connections of the leader died.
type lease struct {
	// Leads is whether the first one still ran as a leader; Ended after which time it
	// ended, 0 if it did not.
	Leads           bool
	Ended, Followed float64
	// Lost is whether its log says that it lost the lease.
	Lost bool
}

// late is what became of the lease after the line passed on what it had kept back.
type late struct{ Holder, Want string }

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "kcm-silent-connection",
		Summary: "connections of a controller manager die without a reset; it waits, and continues to lead",
		Test:    []labkit.Variant{labkit.Ours},
		Steps:   steps,
		Oracle: labkit.Oracle{
			Text: []string{
				"the leader creates no pods within 60 s after the connection of its controllers died",
				"the leader still runs when another controller manager has the lease",
			},
			Judge: judge,
		},
		Timeout: func(labkit.Profile) time.Duration { return 10 * time.Minute },
		Needs:   labkit.ManagerNeeds(base, labkit.StockBinary(base, "kube-controller-manager")),
	}}
}

type lab struct {
	e    *labkit.Env
	c    *node.Cluster
	line *line
	a, b *kube.ControllerManager
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	return []labkit.Step{
		{Text: "start etcd and apiserver v1.9.11, and the controller manager under test behind a relay; it creates pods", Do: l.start},
		{Text: "let the relay pass no data of the controllers' connection; create a ReplicaSet", Do: l.controllers},
		{Text: "start a stock controller manager on a host of another name; let the relay pass nothing from the first; wait until the other has the lease", Do: l.lease},
		{Text: "pass on the delayed data; read the lease", Do: l.late},
		{Text: "check that all other components run", Do: func(ctx context.Context) error { return l.c.Alive(ctx) }},
	}
}

func (l *lab) start(ctx context.Context) error {
	c, err := l.e.StartStockAPIServer(ctx, base)
	if err != nil {
		return err
	}
	l.c = c
	if l.line, err = newLine(strings.TrimPrefix(c.APIServer.URL, "https://")); err != nil {
		return err
	}
	l.e.OnStop("line", func(context.Context) error { return l.line.Close() })
	behind := *c.APIServer
	behind.URL = "https://" + l.line.Addr().String()
	if l.a, err = l.e.StartControllerManager(ctx, &behind, kube.ControllerManagerConfig{Name: "leader", Program: l.e.UnderTest(base, "kube-controller-manager")}); err != nil {
		return err
	}
	if err := c.Client.WaitPodsAdmitted(ctx, "default", patience); err != nil {
		return err
	}
	began := time.Now()
	if err := l.pods(ctx, "healthy", patience); err != nil {
		return err
	}
	l.e.Record(healthy{time.Since(began).Seconds()})
	return nil
}

// pods makes a ReplicaSet and waits for its pods. No node is there, so they stay pending.
func (l *lab) pods(ctx context.Context, name string, bound time.Duration) error {
	if err := l.c.Client.Make(ctx, "default", kube.PendingReplicaSet(name, replicas)); err != nil {
		return err
	}
	_, err := l.c.Client.WaitList(ctx, kube.Pods, "default", "app="+name, bound, "all exist", func(pods []kube.Object) (bool, error) {
		return len(pods) == replicas, nil
	})
	return err
}

// holder is the identity in the lease, and when it was renewed.
func (l *lab) holder(ctx context.Context) (string, time.Time, error) {
	o, err := l.c.Client.Get(ctx, kube.Endpoints, "kube-system", "kube-controller-manager")
	if err != nil {
		return "", time.Time{}, err
	}
	var record struct {
		HolderIdentity string
		RenewTime      time.Time
	}
	text := o.GetAnnotations()["control-plane.alpha.kubernetes.io/leader"]
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return "", time.Time{}, fmt.Errorf("the lease has %q: %w", text, err)
	}
	return record.HolderIdentity, record.RenewTime, nil
}

func (l *lab) controllers(ctx context.Context) error {
	// The first connection is that of the kubeconfig's certificate: lease and informers. The
	// controllers have tokens, and one more connection for all of them.
	o := controllers{Dead: l.line.keepBack(1)}
	began := time.Now()
	err := l.pods(ctx, "silent", replaced)
	if ctx.Err() != nil {
		return err
	}
	o.Pods, o.Seconds = err == nil, time.Since(began).Seconds()
	_, renewed, err := l.holder(ctx)
	if err != nil {
		return err
	}
	o.Leads = l.a.Alive() && time.Since(renewed) < 10*time.Second
	l.e.Record(o)
	return nil
}

func (l *lab) lease(ctx context.Context) error {
	was, _, err := l.holder(ctx)
	if err != nil {
		return err
	}
	p := l.e.Stock(base, "kube-controller-manager")
	script := l.e.Path("other-host.sh")
	text := fmt.Sprintf("#!/bin/sh\nexec unshare --uts sh -c 'hostname other-host && exec \"$0\" \"$@\"' %s \"$@\"\n", p.Path)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		return err
	}
	p.Path = script
	if l.b, err = l.e.StartControllerManager(ctx, l.c.APIServer, kube.ControllerManagerConfig{Name: "other", Program: p}); err != nil {
		return err
	}
	// It has seen the lease, and counts from now on.
	if err := wait.Until(ctx, "the other controller manager tries to get the lease", patience, func(context.Context) (bool, error) {
		log, err := l.b.LastRunLog()
		return strings.Contains(log, "attempting to acquire leader lease"), err
	}); err != nil {
		return err
	}
	l.line.refuse()
	l.line.keepBack(0)
	began, o := time.Now(), lease{}
	if err := wait.Until(ctx, "the other controller manager has the lease", patience, func(ctx context.Context) (bool, error) {
		if o.Ended == 0 && !l.a.Alive() {
			o.Ended = time.Since(began).Seconds()
		}
		now, _, err := l.holder(ctx)
		return err == nil && now != was, err
	}); err != nil {
		return err
	}
	o.Followed, o.Leads = time.Since(began).Seconds(), l.a.Alive()
	log, err := l.a.LastRunLog()
	if err != nil {
		return err
	}
	o.Lost = strings.Contains(log, "leaderelection lost")
	l.e.Record(o)
	return nil
}

func (l *lab) late(ctx context.Context) error {
	want, _, err := l.holder(ctx)
	if err != nil {
		return err
	}
	l.line.release()
	// Longer than the other one may take to renew: a lease that was written late stays in it.
	select {
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	got, _, err := l.holder(ctx)
	if err != nil {
		return err
	}
	l.e.Record(late{Holder: got, Want: want})
	return l.b.Stop()
}

func judge(h *history.History) labkit.Outcome {
	c, o, after := history.One[controllers](h), history.One[lease](h), history.One[late](h)
	history.One[healthy](h)
	switch {
	case c.Dead == 0:
		return labkit.InconclusiveBecause("no connection of the controllers died")
	case !c.Leads:
		return labkit.InconclusiveBecause("the leader lost its lease when only the controllers' connections died")
	case o.Followed == 0 || after.Want == "":
		return labkit.InconclusiveBecause("no other controller manager had the lease")
	case after.Holder != after.Want:
		return labkit.ReproducedBecause("%s has the lease of %s", after.Holder, after.Want)
	case c.Pods && !o.Leads && !o.Lost:
		return labkit.InconclusiveBecause("the leader ended, but not because it lost its lease")
	case c.Pods && !o.Leads:
		res := labkit.AbsentBecause("pods after %.0f s on another connection; the leader gave up the lease after %.0f s, and the other controller manager had it after %.0f s", c.Seconds, o.Ended, o.Followed)
		res.Measure("until it reconciles again", c.Seconds, "s")
		res.Measure("until it gives up the lease", o.Ended, "s")
		return res
	case (c.Pods || !o.Leads) && h.Variant != string(labkit.Ours):
		return labkit.InconclusiveBecause("pods: %t; still leads when another one has the lease: %t", c.Pods, o.Leads)
	}
	return labkit.ReproducedBecause("pods within %v: %t; still leads when another one has the lease, after %.0f s: %t", replaced, c.Pods, o.Followed, o.Leads)
}
