// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Package security has the labs of the series security: known vulnerabilities of
// the kubelet and the controller manager, each tried in a cluster of one node by what
// a tenant or a neighbour can do. See tools/labs/security/README.md.
package security

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"holdfast/tools/build/base"
	"holdfast/tools/labkit"
	"holdfast/tools/labkit/history"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

const (
	ns = "default"
	on = "node1"
	// patience is for a busy machine: what is waited for comes in seconds, or a kubelet's
	// next minute.
	patience = 2 * time.Minute
)

// row is one fix. start creates what takes its time, look drives the vulnerability and
// records what it sees, an error if nothing can be seen. A row without a gate must be
// absent with the gates off too.
type row struct {
	fix, gate, summary   string
	starts, does, oracle string                            // the plan; starts is empty without start
	needs                func(base string) []labkit.Binary // besides those of the cluster
	kcmArgs              []string                          // of the controller manager, besides the kit's
	programs             map[string]string                 // scripts by name, for the kubelet's PATH
	off                  bool                              // the gate is off by default: ours is run with it on
	start, look          func(context.Context, *lab) error
	judge                func(*history.History) finding
}

// rows of v1.9.11 in the order in which they are looked at: the probes restart the kubelet, and /metrics is
// slow to answer while pods start. credentials comes after heketi: the last --v counts.
var rows = []row{provision, mountErrors, gitRepo, subPath, iscsi, heketi, credentials, etcHosts, gcOwner, namespaces, localnet, healthz, metrics, spdy, probes, devicePath, pluginPanic}

// rowsOf are the rows of a base.
func rowsOf(of string) []row {
	if base.Minor(of) < 12 {
		return rows
	}
	var all []row
	for _, r := range rows {
		switch r.fix {
		case healthz.fix: // 1.12.10 has a mux of its own for the port
		case gitRepo.fix:
			all = append(all, gitRepoSince12)
		case heketi.fix:
			all = append(all, heketiSince12)
		case probes.fix:
			all = append(all, probesSince12)
		default:
			all = append(all, r)
		}
	}
	return all
}

// in are the rows that a variant is asked about: a build without fixes only about theirs.
func in(v labkit.Variant, rows []row) []row {
	without := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !slices.Contains(v.Minus(), r.fix) })
	if len(without) > 0 {
		return without
	}
	return rows
}

// lab is a cluster of one node, whose kubelet and controller manager are under test.
type lab struct {
	e      *labkit.Env
	base   string
	c      *node.Cluster
	node   *node.Node
	events *kube.Recorder
	asked  asked
}

// Labs are those of this folder.
func Labs() []labkit.Lab {
	const base = "v1.9.11"
	var all []labkit.Lab
	for _, of := range []func(base string) labkit.Lab{securityLab, cniNameLab, etcHostsRankingLab, glogLinksLab, protobufLab} {
		all = append(all, of(base), labkit.OnBase(of, "v1.12.10"))
	}
	for _, r := range rowsOf(base) {
		all = append(all, exploits(base, r.fix, r.summary, []row{r})) // the lab security has it in make test
	}
	return all
}

// securityLab has all rows of a base.
func securityLab(base string) labkit.Lab {
	return exploits(base, "security", "the exploits that the fixes of kind security prevent", rowsOf(base), labkit.Ours)
}

func exploits(base, name, summary string, rows []row, test ...labkit.Variant) labkit.Lab {
	var text []string
	for _, r := range rows {
		text = append(text, r.fix+": "+r.oracle)
	}
	return labkit.Lab{
		Name: name, Folder: "security", Summary: summary,
		Test:     test,
		Packages: []string{"git"},
		Needs:    needs(base, rows),
		Timeout:  func(p labkit.Profile) time.Duration { return labkit.Pick(p, 10*time.Minute, 30*time.Minute) },
		Steps:    func(e *labkit.Env) []labkit.Step { return steps(e, base, in(e.Variant, rows)) },
		Oracle: labkit.Oracle{Text: text, Judge: func(h *history.History) labkit.Outcome {
			return judge(h, in(labkit.Variant(h.Variant), rows))
		}},
	}
}

func needs(base string, rows []row) []labkit.Binary {
	all := labkit.ManagerNeeds(base, labkit.StockBinary(base, "kubelet"), labkit.BinaryUnderTest(base, "kubelet"))
	for _, r := range rows {
		if r.needs != nil {
			all = append(all, r.needs(base)...)
		}
	}
	return all
}

func steps(e *labkit.Env, base string, rows []row) []labkit.Step {
	l := &lab{e: e, base: base, asked: asked{by: map[string]int{}}}
	all := []labkit.Step{{Text: "start etcd, apiserver " + base + ", the controller manager under test, and a node with the kubelet under test",
		Do: func(ctx context.Context) error { return l.startCluster(ctx, rows) }}}
	for _, r := range rows {
		if r.start != nil {
			all = append(all, labkit.Step{Text: r.fix + ": " + r.starts, Do: func(ctx context.Context) error {
				if err := r.start(ctx, l); err != nil {
					return fmt.Errorf("%s: %w", r.fix, err)
				}
				return nil
			}})
		}
	}
	for _, r := range rows {
		all = append(all, labkit.Step{Text: r.fix + ": " + r.does, Do: func(ctx context.Context) error { return l.try(ctx, r) }})
	}
	return append(all, labkit.AllRun(func(ctx context.Context) error { return l.c.Alive(ctx) }))
}

func (l *lab) startCluster(ctx context.Context, rows []row) error {
	if err := l.withPrograms(rows); err != nil {
		return err
	}
	kcm := kube.ControllerManagerConfig{Program: l.e.UnderTest(l.base, "kube-controller-manager")}
	for _, r := range rows {
		kcm.ExtraArgs = append(kcm.ExtraArgs, r.kcmArgs...)
		if r.off && l.e.Variant == labkit.Ours {
			kcm.Program = kcm.Program.WithGates(map[string]bool{r.gate: true})
		}
	}
	c, err := l.e.StartCluster(ctx, node.ClusterConfig{
		APIServer:         &kube.APIServerConfig{Program: l.e.Stock(l.base, "kube-apiserver")},
		ControllerManager: &kcm,
		Nodes:             []node.Config{{Name: on, Kubelet: l.e.UnderTest(l.base, "kubelet")}},
	})
	if err != nil {
		return err
	}
	l.c, l.node = c, c.Nodes[0]
	l.events, err = c.Client.Record(ctx, kube.Events, ns)
	return err
}

// try looks at a row. One that cannot tell does not hide what the others say.
func (l *lab) try(ctx context.Context, r row) error {
	err := r.look(ctx, l)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", r.fix, err)
	}
	if err != nil {
		l.e.Step("%s: %v", r.fix, err)
		l.e.Record(notSeen{r.fix, err.Error()})
	}
	return nil
}

// pods creates pods, and what they need.
func (l *lab) pods(ctx context.Context, objects ...runtime.Object) error {
	return l.c.Client.Make(ctx, ns, objects...)
}

// pod is a pod on the node with one container, which change may change, and volumes.
func pod(name string, change func(*corev1.Container), volumes ...corev1.Volume) *corev1.Pod {
	c := node.Web("main")
	if change != nil {
		change(&c)
	}
	p := node.Pod(name, on, c)
	p.Spec.Volumes = volumes
	return p
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

// counted is a metric of the kubelet. Only ours is asked. The page may be slow while pods
// start.
func (l *lab) counted(ctx context.Context, name string) (n float64, err error) {
	if l.e.Variant != labkit.Ours {
		return 0, nil
	}
	err = wait.Until(ctx, "the kubelet's "+name, patience, func(ctx context.Context) (bool, error) {
		var err error
		n, err = kubeletlab.Metric(ctx, l.node, name)
		return err == nil, err
	})
	return n, err
}

// managerCounted is how many series with that prefix the controller manager has. Only ours
// is asked.
func (l *lab) managerCounted(ctx context.Context, prefix string) (int, error) {
	if l.e.Variant != labkit.Ours {
		return 0, nil
	}
	return series(ctx, l.c.ControllerManager.URL+"/metrics", prefix)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
