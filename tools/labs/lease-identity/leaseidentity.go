// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leaseidentity is the lab lease-identity: two controller managers on one host. See
// tools/labs/lease-identity/README.md.
package leaseidentity

import (
	"context"
	"fmt"
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
	// replicas is how many pods a ReplicaSet asks for.
	replicas = 20
	// patience is for a lease of 15 s to run out, on a busy machine.
	patience = 90 * time.Second
	// second is how long a second one may take to lead beside the first: it tries each
	// 4.4 s at most.
	second = 12 * time.Second
)

// succession is two controller managers: the first leads, and the second is to lead after it.
type succession struct{ name, first, second string }

const tested, stock = "under test", "stock"

var successions = []succession{
	{"two-alike", tested, tested},
	{"to-stock", tested, stock},
	{"from-stock", stock, tested},
}

// together is what was there while both ran.
type together struct {
	Way string
	// First and Second: leads. Created is how many pods were made for the ReplicaSet.
	First, Second bool
	Created       int
}

// followed says that the second one led after the first was killed.
type followed struct {
	Way     string
	Seconds float64
}

// Labs are those of this folder.
func Labs() []labkit.Lab {
	return []labkit.Lab{{
		Name:    "lease-identity",
		Summary: "two controller managers on one host both lead",
		Test:    []labkit.Variant{labkit.Ours},
		Steps:   steps,
		Oracle: labkit.Oracle{
			Text: []string{
				"a second controller manager on the host leads while the first one leads, or more pods are created than the ReplicaSet's replicas",
				"after the first is killed, the second leads",
			},
			Judge: judge,
		},
		Timeout: func(labkit.Profile) time.Duration { return 12 * time.Minute },
		Needs:   labkit.ManagerNeeds(base, labkit.StockBinary(base, "kube-controller-manager")),
	}}
}

type lab struct {
	e *labkit.Env
	c *node.Cluster
}

func steps(e *labkit.Env) []labkit.Step {
	l := &lab{e: e}
	s := []labkit.Step{{Text: "start etcd and apiserver v1.9.11", Do: l.start}}
	for _, w := range successions {
		s = append(s, labkit.Step{
			Text: fmt.Sprintf("%s: a controller manager (%s) leads, another one (%s) starts on the same host; create a ReplicaSet of %d; kill -9 the first", w.name, w.first, w.second, replicas),
			Do:   func(ctx context.Context) error { return l.succeed(ctx, w) },
		})
	}
	return append(s, labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }))
}

func (l *lab) start(ctx context.Context) (err error) {
	l.c, err = l.e.StartStockAPIServer(ctx, base)
	return err
}

func (l *lab) manager(ctx context.Context, w succession, which, at string) (*kube.ControllerManager, error) {
	p := l.e.Stock(base, "kube-controller-manager")
	if which == tested {
		p = l.e.UnderTest(base, "kube-controller-manager")
	}
	return l.e.StartControllerManager(ctx, l.c.APIServer, kube.ControllerManagerConfig{Name: "kube-controller-manager-" + w.name + "-" + at, Program: p})
}

// leads is whether m says that it has the lease.
func leads(m *kube.ControllerManager) (bool, error) {
	log, err := m.LastRunLog()
	return strings.Contains(log, "successfully acquired lease"), err
}

func waitLeads(ctx context.Context, m *kube.ControllerManager, bound time.Duration) error {
	return wait.Until(ctx, m.Spec.Name+" leads", bound, func(context.Context) (bool, error) { return leads(m) })
}

func (l *lab) succeed(ctx context.Context, w succession) error {
	a, err := l.manager(ctx, w, w.first, "first")
	if err != nil {
		return err
	}
	if err := waitLeads(ctx, a, patience); err != nil {
		return err
	}
	if err := l.c.Client.WaitPodsAdmitted(ctx, "default", patience); err != nil {
		return err
	}
	b, err := l.manager(ctx, w, w.second, "second")
	if err != nil {
		return err
	}
	if err := waitLeads(ctx, b, second); err != nil && ctx.Err() != nil {
		return err
	}
	o := together{Way: w.name}
	if o.Created, err = l.pods(ctx, w); err != nil {
		return err
	}
	if o.Second, err = leads(b); err != nil {
		return err
	}
	log, err := a.LastRunLog()
	if err != nil {
		return err
	}
	o.First = a.Alive() && !strings.Contains(log, "failed to renew lease")
	l.e.Record(o)
	if err := a.Kill(); err != nil {
		return err
	}
	began := time.Now()
	if err := waitLeads(ctx, b, patience); err != nil {
		return err
	}
	l.e.Record(followed{w.name, time.Since(began).Seconds()})
	return b.Stop()
}

// pods makes a ReplicaSet, and returns how many pods were made for it until it has what it
// asks for and nothing changes for a while. No node is there, so they stay pending.
func (l *lab) pods(ctx context.Context, w succession) (int, error) {
	events, err := l.c.Client.Record(ctx, kube.Pods, "default")
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	if err := l.c.Client.Make(ctx, "default", kube.PendingReplicaSet(w.name, replicas)); err != nil {
		return 0, err
	}
	created, since := 0, time.Now()
	err = wait.Until(ctx, "pods of "+w.name, patience, func(context.Context) (bool, error) {
		made := 0
		for _, ev := range events.Events() {
			if ev.Type == "ADDED" && ev.Object.GetLabels()["app"] == w.name {
				made++
			}
		}
		if made != created {
			created, since = made, time.Now()
		}
		return created >= replicas && time.Since(since) > 5*time.Second, nil
	})
	return created, err
}

func judge(h *history.History) labkit.Outcome {
	seen, after := map[string]together{}, map[string]bool{}
	for _, o := range history.Of[together](h) {
		seen[o.Way] = o
	}
	for _, o := range history.Of[followed](h) {
		after[o.Way] = true
	}
	var both, one []string
	for _, w := range successions {
		o, ok := seen[w.name]
		switch {
		case !ok || !after[w.name]:
			return labkit.InconclusiveBecause("%s: not all observations were recorded", w.name)
		case o.Created < replicas || !o.First:
			return labkit.InconclusiveBecause("%s: the first one leads: %t; %d pods", w.name, o.First, o.Created)
		case o.Second || o.Created > replicas:
			both = append(both, fmt.Sprintf("%s (%d pods for %d)", w.name, o.Created, replicas))
		default:
			one = append(one, w.name)
		}
	}
	switch {
	case len(both) == 0:
		return labkit.AbsentBecause("%d cases: only one leads at a time", len(successions))
	case len(one) > 0 && h.Variant != string(labkit.Ours):
		return labkit.InconclusiveBecause("both lead: %s; one leads: %s", strings.Join(both, ", "), strings.Join(one, ", "))
	}
	return labkit.ReproducedBecause("both lead: %s", strings.Join(both, ", "))
}
