// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"holdfast/tools/labkit"
	"holdfast/tools/labkit/kube"
	"holdfast/tools/labkit/node"
	"holdfast/tools/labkit/wait"
	"holdfast/tools/labs/internal/kubeletlab"
)

// pod is a pod that runs on the node now.
type pod struct {
	hostPort int // 0: none
	// gatesOff: started while the gates were off.
	gatesOff bool
}

// rig is a node that lives through one cell.
type rig struct {
	*lab
	node *node.Node
	cell *cell
	pods map[string]*pod
	next int
}

func (r *rig) step(format string, a ...any) {
	r.e.Step("%s (%s, %s): %s", r.node.Name, r.cell.was.name, r.cell.event, fmt.Sprintf(format, a...))
}

// place is which cell the node lives through.
func (r *rig) place() place { return place{r.cell.was.name, r.cell.event} }

// underTest is the kubelet of the variant.
func (r *rig) underTest() kube.Program { return r.e.UnderTest(base, "kubelet") }

func (r *rig) run(ctx context.Context) error {
	if err := r.clean(ctx); err != nil {
		return err
	}
	away := r.cell.event == "API away"
	if r.cell.was.base != "" {
		if err := r.node.StartKubelet(ctx, r.e.Stock(r.cell.was.base, "kubelet")); err != nil {
			return err
		}
		if err := r.start(ctx, 2, false); err != nil {
			return err
		}
		if away {
			if err := r.reachAPI(ctx, false); err != nil {
				return err
			}
		}
		if err := r.swap(ctx, "the way there", r.underTest(), away); err != nil {
			return err
		}
	} else if err := r.node.StartKubelet(ctx, r.underTest()); err != nil {
		return err
	}
	if err := r.start(ctx, 2, false); err != nil {
		return err
	}
	if err := r.happens(ctx); err != nil {
		return err
	}
	if err := r.known(ctx); err != nil {
		return err
	}
	if err := r.back(ctx); err != nil {
		return err
	}
	r.e.Record(lived{r.place()})
	return nil
}

// wayBack is swapped.What of the last swap.
const wayBack = "the way back"

// back hands the node back to the kubelet of before, which deletes all pods.
func (r *rig) back(ctx context.Context) error {
	to := r.cell.was.back()
	if r.cell.event == "stock 1.9.11 in between" {
		to = base
	}
	if err := r.swap(ctx, wayBack, r.e.Stock(to, "kubelet"), false); err != nil {
		return err
	}
	return r.delete(ctx)
}

// clean makes a node on which nothing ever ran.
func (r *rig) clean(ctx context.Context) error {
	r.step("power off, clean up")
	if err := r.node.PowerOff(ctx); err != nil {
		return err
	}
	if err := r.c.Client.Delete(ctx, kube.Nodes, "", r.node.Name); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	for _, pattern := range []string{"kubelet/holdfast-*", "dockershim/sandbox/*"} {
		files, err := filepath.Glob(filepath.Join(r.node.Dir, pattern))
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	if err := r.node.StartDocker(ctx); err != nil {
		return err
	}
	return r.node.Docker.RemoveAll(ctx)
}

// happens is the event, under the kubelet under test.
func (r *rig) happens(ctx context.Context) error {
	switch r.cell.event {
	case "swap", "API away":
		return nil
	case "swap, reboot":
		if err := r.known(ctx); err != nil {
			return err
		}
		if err := r.swap(ctx, "back after the swap", r.e.Stock(r.cell.was.back(), "kubelet"), false); err != nil {
			return err
		}
		if err := r.swap(ctx, "there again", r.underTest(), false); err != nil {
			return err
		}
		return r.reboot(ctx)
	case "reboot":
		return r.reboot(ctx)
	case "drain":
		r.step("drain, and restart the kubelet")
		if err := r.remove(ctx, r.names()); err != nil {
			return err
		}
		if err := r.node.SwapKubelet(ctx, r.underTest()); err != nil {
			return err
		}
		return r.start(ctx, 3, false)
	case "docker restart":
		r.step("restart docker without live-restore")
		before, err := r.restarts(ctx)
		if err != nil {
			return err
		}
		if err := r.node.StopDocker(); err != nil {
			return err
		}
		if err := r.node.StartDocker(ctx); err != nil {
			return err
		}
		return r.restarted(ctx, before)
	case "gates off and on":
		return r.gates(ctx)
	case "churn":
		for round := range 4 {
			r.step("churn, round %d", round+1)
			names := r.names()
			r.e.Logf("of %v", names)
			if err := r.remove(ctx, names[:len(names)/2]); err != nil {
				return err
			}
			if err := r.start(ctx, len(names)/2, false); err != nil {
				return err
			}
			if round%2 == 1 {
				if err := r.swap(ctx, "a restart in the churn", r.underTest(), false); err != nil {
					return err
				}
			}
		}
		return nil
	case "no record":
		return r.noRecord(ctx)
	case "stock 1.9.11 in between":
		if err := r.node.SwapKubelet(ctx, r.e.Stock(base, "kubelet")); err != nil {
			return err
		}
		// It recreates what ours wrote for 1.7, and what it starts is what counts.
		if err := r.remove(ctx, r.names()); err != nil {
			return err
		}
		if err := r.start(ctx, 2, false); err != nil {
			return err
		}
		r.cell.metric = from19.metric
		if err := r.swap(ctx, "there again", r.underTest(), false); err != nil {
			return err
		}
		return r.reboot(ctx)
	case "bad override":
		file := filepath.Join(r.node.Dir, "kubelet", "holdfast-predecessor-override")
		if err := os.WriteFile(file, []byte("1.7 or so\n"), 0o644); err != nil {
			return err
		}
		if err := r.swap(ctx, "a restart with a bad override", r.underTest(), false); err != nil {
			return err
		}
		log, err := r.node.Kubelet.LastRunLog()
		if err != nil {
			return err
		}
		refused, err := kubeletlab.Metric(ctx, r.node, "holdfast_predecessor_override_refused")
		if err != nil {
			return err
		}
		r.e.Record(overridden{Cell: r.place(), Refused: refused,
			Logged: strings.Contains(log, `holdfast-predecessor-override is ignored: it says "1.7 or so"; allowed is`)})
		return r.start(ctx, 1, false)
	}
	return fmt.Errorf("no such event")
}

func (r *rig) reboot(ctx context.Context) error {
	r.step("reboot")
	before, err := r.restarts(ctx)
	if err != nil {
		return err
	}
	if err := r.node.Reboot(ctx, r.underTest()); err != nil {
		return err
	}
	return r.restarted(ctx, before)
}

// noRecord makes the node one on which v1.9.11+holdfast.1 ran: the Node names
// ours, and there is no record. What the containers say must be kept before a
// drain ends them.
func (r *rig) noRecord(ctx context.Context) error {
	record := filepath.Join(r.node.Dir, "kubelet", "holdfast-predecessor.json")
	if err := os.Remove(record); err != nil {
		return err
	}
	if err := r.swap(ctx, "a restart without the record", r.underTest(), false); err != nil {
		return err
	}
	r.step("wait until Holdfast has recorded the evidence")
	if err := wait.Until(ctx, "a record by evidence", 5*time.Minute, func(context.Context) (bool, error) {
		b, err := os.ReadFile(record)
		if err != nil {
			return false, err
		}
		if !strings.Contains(string(b), `"source": "evidence"`) {
			return false, fmt.Errorf("the record is %s", b)
		}
		return true, nil
	}); err != nil {
		return err
	}
	r.step("drain, reboot")
	if err := r.remove(ctx, r.names()); err != nil {
		return err
	}
	if err := r.node.PowerOff(ctx); err != nil {
		return err
	}
	if err := r.node.StartDocker(ctx); err != nil {
		return err
	}
	if err := r.node.Docker.RemoveAll(ctx); err != nil {
		return err
	}
	if err := r.node.StartKubelet(ctx, r.underTest()); err != nil {
		return err
	}
	minor := strings.Join(strings.Split(r.cell.was.name, ".")[:2], ".")
	r.cell.metric = [2]string{minor, "evidence"}
	return r.start(ctx, 3, false)
}

// gates turns both gates off, starts a pod, and turns them on again.
func (r *rig) gates(ctx context.Context) error {
	r.step("gates off")
	off := map[string]bool{"LegacyContainerHashWrite": false, "LegacyCheckpointWrite": false}
	if err := r.swap(ctx, "gates off", r.underTest().WithGates(off), false); err != nil {
		return err
	}
	if err := r.start(ctx, 1, true); err != nil {
		return err
	}
	if err := r.swap(ctx, "gates on", r.underTest(), false); err != nil {
		return err
	}
	return r.start(ctx, 2, false)
}

// known holds what the kubelet under test says of the one before.
func (r *rig) known(ctx context.Context) error {
	if r.e.Variant == labkit.Stock {
		return nil
	}
	v, err := kubeletlab.Metric(ctx, r.node, "holdfast_predecessor_info", "release", r.cell.metric[0], "source", r.cell.metric[1])
	if err == nil {
		r.e.Record(said{Cell: r.place(), Release: r.cell.metric[0], Source: r.cell.metric[1], Value: v})
	}
	return err
}

func (r *rig) names() []string {
	var names []string
	for name := range r.pods {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// reachAPI lets the node reach the API server or takes it away, silently, as a
// lost route does.
func (r *rig) reachAPI(ctx context.Context, yes bool) error {
	op := "-A"
	if yes {
		op = "-D"
	}
	u, err := url.Parse(r.c.APIServer.URL)
	if err != nil {
		return err
	}
	return r.node.Run(ctx, "iptables", "-w", op, "OUTPUT", "-p", "tcp", "-d", u.Hostname(), "--dport", u.Port(), "-j", "DROP")
}

// swap replaces the kubelet. No container may be recreated, and each host port
// answers after it. away: the API server comes back after the kubelet's start.
func (r *rig) swap(ctx context.Context, what string, p kube.Program, away bool) error {
	before, err := kubeletlab.Take(ctx, r.node)
	if err != nil {
		return err
	}
	r.step("%s: %s, %d containers run", what, p.Base, len(before))
	if err := r.node.SwapKubelet(ctx, p); err != nil {
		return err
	}
	if away {
		r.step("the kubelet has started, the API server comes back")
		if err := r.reachAPI(ctx, true); err != nil {
			return err
		}
	}
	var pods []string
	for _, name := range r.names() {
		pods = append(pods, ns+"/"+name)
	}
	if err := kubeletlab.WaitCompared(ctx, r.node, pods, 3*time.Minute); err != nil {
		return err
	}
	if _, err := kubeletlab.WaitStable(ctx, r.node, 4*time.Second, 3*time.Minute); err != nil {
		return err
	}
	after, err := kubeletlab.Take(ctx, r.node)
	if err != nil {
		return err
	}
	o := swapped{Cell: r.place(), What: what, To: p.Base, Before: before, After: after}
	for name, pod := range r.pods {
		if pod.gatesOff {
			o.GatesOff = append(o.GatesOff, name)
		}
	}
	r.e.Record(o)
	return r.ready(ctx)
}
