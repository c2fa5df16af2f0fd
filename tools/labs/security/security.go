// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package security has the labs of the series security: known vulnerabilities of
// the kubelet and the controller manager, each tried in a cluster of one node by what
// a tenant or a neighbour can do. See tools/labs/security/README.md.
package security

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	base = "v1.9.11"
	ns   = "default"
)

// row is one slug. start creates what takes its time, judge says whether the
// vulnerability is there; an error if that cannot be told. A row without a gate must
// be absent with the gates off too.
type row struct {
	slug, gate, summary string
	plan                []string
	needs               []labkit.Binary // besides those of the cluster
	kcmArgs             []string        // of the controller manager, besides the kit's
	off                 bool            // the gate is off by default: ours is run with it on
	start               func(context.Context, *lab) error
	judge               func(context.Context, *lab) (outcome, error)
}

type outcome struct {
	happened bool
	saw      string
}

// rows in the order in which they are judged: the probes restart the kubelet, and /metrics is slow
// to answer while pods start.
var rows = []row{provision, mountErrors, gitRepo, subPath, credentials, etcHosts, namespaces, localnet, healthz, metrics, spdy, probes}

// lab is a cluster of one node, whose kubelet and controller manager are under test.
type lab struct {
	e      *labkit.Env
	c      *node.Cluster
	node   *node.Node
	events *kube.Recorder
	asked  asked
}

func init() {
	register("security", "the exploits of all patches of the series security", rows, false)
	for _, r := range rows {
		register(r.slug, r.summary, []row{r}, true)
	}
}

func register(name, summary string, rows []row, alone bool) {
	labkit.Register(labkit.Lab{
		Name: name, Folder: "security", Summary: summary,
		LongOnly: alone, // the lab security has each row
		Packages: []string{"git"},
		Plan: func(labkit.Profile) []string {
			plan := []string{"start etcd, apiserver v1.9.11, the controller manager under test, and a node with the kubelet under test"}
			for _, r := range rows {
				for _, p := range r.plan {
					plan = append(plan, r.slug+": "+p)
				}
			}
			return plan
		},
		Needs: needs(rows),
		Run:   func(ctx context.Context, e *labkit.Env) (labkit.Result, error) { return run(ctx, e, rows) },
	})
}

func needs(rows []row) []labkit.Binary {
	all := []labkit.Binary{
		labkit.StockBinary(base, "kube-apiserver"),
		labkit.StockBinary(base, "kubelet"),
		labkit.BinaryUnderTest(base, "kube-controller-manager"),
		labkit.BinaryUnderTest(base, "kubelet"),
	}
	for _, r := range rows {
		all = append(all, r.needs...)
	}
	return all
}

func run(ctx context.Context, e *labkit.Env, rows []row) (labkit.Result, error) {
	kcm := kube.ControllerManagerConfig{Program: e.UnderTest(base, "kube-controller-manager")}
	for _, r := range rows {
		kcm.ExtraArgs = append(kcm.ExtraArgs, r.kcmArgs...)
		if r.off && e.Variant == labkit.Ours {
			kcm.Program = kcm.Program.WithGates(map[string]bool{r.gate: true})
		}
	}
	c, err := e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: e.Stock(base, "kube-apiserver")},
		ControllerManager: &kcm,
		Nodes:             []node.Config{{Name: "node1", Kubelet: e.UnderTest(base, "kubelet")}},
	})
	if err != nil {
		return labkit.Result{}, err
	}
	l := &lab{e: e, c: c, node: c.Nodes[0], asked: asked{by: map[string]int{}}}
	if l.events, err = c.Client.Record(ctx, kube.Events, ns); err != nil {
		return labkit.Result{}, err
	}
	for _, r := range rows {
		if r.start == nil {
			continue
		}
		e.Step("%s: start", r.slug)
		if err := r.start(ctx, l); err != nil {
			return labkit.Result{}, fmt.Errorf("%s: %w", r.slug, err)
		}
	}
	var there, gone []string
	var errs error // of all rows: one that cannot tell does not hide what the others say
	for _, r := range rows {
		e.Step("%s: judge", r.slug)
		o, err := r.judge(ctx, l)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("%s: %w", r.slug, err))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		e.Fact("%s: happened %v: %s", r.slug, o.happened, o.saw)
		if r.gate == "" && e.Variant == labkit.GateOff {
			if o.happened {
				errs = errors.Join(errs, fmt.Errorf("%s has no gate, and it happened with the gates off: %s", r.slug, o.saw))
			}
			continue
		}
		if o.happened {
			there = append(there, r.slug)
		} else {
			gone = append(gone, r.slug)
		}
	}
	if errs != nil {
		return labkit.Result{}, errs
	}
	switch {
	case len(there) == 0:
		return labkit.AbsentBecause("none of %s", strings.Join(gone, ", ")), nil
	case len(gone) > 0 && (e.Variant == labkit.Stock || e.Variant == labkit.GateOff):
		// Every row has to show what its patch is for.
		return labkit.Result{}, fmt.Errorf("%s happened, %s did not", strings.Join(there, ", "), strings.Join(gone, ", "))
	}
	return labkit.ReproducedBecause("%s", strings.Join(there, ", ")), nil
}

// pods creates pods of the text on the node.
func (l *lab) pods(ctx context.Context, text string) error {
	_, err := l.c.Client.CreateYAML(ctx, ns, text)
	return err
}

// pod is a pod on the node, so that no scheduler is needed. container is added to
// its one container, spec to its spec, in YAML of that indentation.
func pod(name, container, spec string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 1
%s  containers:
  - name: main
    image: %s
    imagePullPolicy: IfNotPresent
%s`, name, spec, node.WebImage("v1"), container)
}

func (l *lab) waitReady(ctx context.Context, name string, bound time.Duration) error {
	_, err := l.c.Client.WaitFor(ctx, kube.Pods, ns, name, bound, "is ready", func(o *kube.Object) (bool, error) {
		if !kubeletlab.PodReady(o) {
			return false, fmt.Errorf("events: %s", strings.Join(l.messages(name, "FailedMount"), "; "))
		}
		return true, nil
	})
	return err
}

// messages are those of the events of a pod with that reason.
func (l *lab) messages(pod, reason string) []string {
	var out []string
	for _, ev := range l.events.Events() {
		if ev.Object != nil && kube.String(ev.Object, "involvedObject", "name") == pod && kube.String(ev.Object, "reason") == reason {
			out = append(out, kube.String(ev.Object, "message"))
		}
	}
	return out
}

// metric is one of ours: ours must count what it did, the others cannot.
func (l *lab) metric(ctx context.Context, name string, least int) error {
	if l.e.Variant != labkit.Ours {
		return nil
	}
	n, err := kubeletlab.Metric(ctx, l.node, name)
	if err == nil && int(n) < least {
		err = fmt.Errorf("%s is %v, want at least %d", name, n, least)
	}
	return err
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
